"""``tools/gpu.py``, as far as it runs without a GPU: its checks of CuPy on the fake, small."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest

from tests import fake_cupy
from tests.cupy_on_fake import BACKEND, fake_gpus

SCRIPT = Path(__file__).parent.parent / "tools" / "gpu.py"

pytestmark = pytest.mark.thread_unsafe(reason="the fake is one machine for all threads")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    spec = spec_from_file_location("gpu_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module).update(ROUNDS=5, CONTROLS=2, ELEMENTS=64, STEPS=3)
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    with fake_gpus(2):
        yield module


@pytest.mark.parametrize(
    "check", ["devices", "publishing", "host_buffers", "every_bfloat16", "captured_graphs"]
)
def test_a_check_passes_on_the_fake(script: ModuleType, check: str) -> None:
    with mock.patch.object(script, "gpus_of_torch", return_value=0):
        assert getattr(script, check)(script.cupy_library())


def test_a_value_that_is_not_synchronised_fails_the_check(script: ModuleType) -> None:
    with mock.patch.object(type(BACKEND), "publish", lambda self, x, *_: x):
        with pytest.raises(AssertionError, match="saw an unfinished value"):
            script.publishing(script.cupy_library())


def test_a_check_whose_control_goes_well_proves_nothing_and_says_so(script: ModuleType) -> None:
    script.CONTROLS = 0
    with pytest.raises(AssertionError, match="this proves nothing"):
        script.publishing(script.cupy_library())


def test_a_failed_check_fails_the_run_and_the_others_are_done(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def skip(library: object) -> str:
        raise script.Skip("not here")

    def fail(library: object) -> str:
        raise ValueError("broken")

    script.CHECKS = {"x one": fail, "y two": skip, "z three": lambda library: "fine"}
    assert not script.run(script.cupy_library())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["FAIL", "skip", "ok"]
    assert "ValueError: broken" in lines[0]
    assert "not here" in lines[1]


def test_without_a_gpu_it_says_so_and_its_status_is_2() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT],
        env={"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "nothing was checked: this needs a GPU" in done.stdout
