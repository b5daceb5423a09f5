"""The public conformance suite on every backend at hand, the fake CuPy and a foreign one.

Classes for torch and JAX are there if those are installed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from lazyparam import devices
from lazyparam.testing import BackendConformance, GradientConformance, MultiDeviceConformance
from lazyparam.testing._tools import DTYPES
from tests.cupy_on_fake import fake_gpus

WIDE = frozenset({"int64", "uint64", "float64", "complex128"})


def missing_from(module: Any) -> frozenset[str]:
    """The dtypes that a library does not even name."""
    return frozenset(name for name in DTYPES if name != "bool" and not hasattr(module, name))


class TestNumpy(BackendConformance):
    device = "numpy:cpu"


@pytest.mark.thread_unsafe(reason="the fake is one machine for all threads")
class TestFakeCupy(MultiDeviceConformance):
    """Both devices, in a world in which CuPy is the fake."""

    device = "cupy:cuda:0"
    other_device = "cupy:cuda:1"

    @pytest.fixture(autouse=True)
    def _gpus(self) -> Iterator[None]:
        with fake_gpus(2):
            yield

    def overwrite(self, x: Any) -> None:
        # CuPy has no kernels for fp8 and its like.
        (x.view(f"u{x.dtype.itemsize}") if x.dtype.isbuiltin == 2 else x)[...] = 0


@pytest.mark.thread_unsafe(reason="what is installed is so for all threads")
class TestThirdParty(BackendConformance):
    """Found by its entry point, in a package that is installed beside the project."""

    device = "grid:cpu"
    lacks = frozenset({"complex64", "complex128"})

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _installed(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        site = tmp_path_factory.mktemp("site")
        install_grid(site)
        sys.path.append(str(site))
        devices._brought.cache_clear()
        try:
            yield
        finally:
            sys.path.remove(str(site))
            devices._brought.cache_clear()
            devices._loaded.cache_clear()

    def overwrite(self, x: Any) -> None:
        x.set(0)


def install_grid(site: Path) -> None:
    """What installing the package of ``third_party`` would leave in a folder of ``sys.path``."""
    info = site / "lazyparam_grid-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lazyparam-grid\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[lazyparam.backends]\ngrid = tests.third_party:GridBackend\n"
    )


if find_spec("torch"):
    import torch

    class TestTorch(GradientConformance):
        device = "torch:cpu"
        lacks = missing_from(torch)
        ambients = (
            torch.no_grad,
            torch.enable_grad,
            torch.inference_mode,
            lambda: torch.autocast("cpu"),
            lambda: torch.device("meta"),
        )


if find_spec("jax"):
    import jax

    class TestJax(BackendConformance):
        """With 32 bits, as JAX begins."""

        device = "jax:cpu"
        # It names fp6, but no array can be of it.
        lacks = missing_from(jax.numpy) | WIDE | {"float6_e2m3fn", "float6_e3m2fn"}
        ambients = (
            lambda: jax.default_device(jax.devices("cpu")[0]),
            jax.disable_jit,
            jax.ensure_compile_time_eval,
        )


def test_the_example_of_the_guide_is_the_backend_that_is_tested() -> None:
    """To the letter, from its first import on."""
    root = Path(__file__).parent.parent
    source = (root / "tests" / "third_party.py").read_text()
    example = source[source.index("from typing import Any") :]
    assert f"```python\n{example}```" in (root / "docs" / "backends.md").read_text()


def test_importing_lazyparam_imports_neither_the_suite_nor_pytest() -> None:
    code = "import sys, lazyparam; assert not {'pytest', 'lazyparam.testing'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
