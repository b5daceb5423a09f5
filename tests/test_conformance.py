"""The public conformance suite on every backend at hand, the fake CuPy and a foreign one.

Classes for torch and JAX are there if those are installed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from lazyparam import devices
from tests.cupy_on_fake import fake_gpus

pytest.register_assert_rewrite("lazyparam.testing")

from lazyparam.testing import (  # noqa: E402
    BackendConformance,
    GradientConformance,
    MultiDeviceConformance,
)

SIX_BITS = frozenset({"float6_e2m3fn", "float6_e3m2fn"})


class TestNumpy(BackendConformance):
    device = "numpy:cpu"


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
        lacks = SIX_BITS | {"float4_e2m1fn"}
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
        lacks = frozenset({"int64", "uint64", "float64", "complex128"} | SIX_BITS)
        ambients = (
            lambda: jax.default_device(jax.devices("cpu")[0]),
            jax.disable_jit,
            jax.ensure_compile_time_eval,
        )
