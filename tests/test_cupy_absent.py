"""The real CuPy on a machine without a GPU, and lazyparam where CuPy is not even looked at."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

TRIPWIRE = "raise AssertionError('cupy was imported')\n"

needs_cupy = pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy; no GPU")


def run(code: str, *path: Path) -> None:
    """Run a script in a process of its own that sees no GPU, with `path` before all others."""
    env = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "HIP_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join([*map(str, path), *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["cupy", "cupy_backends", "torch", "jax"])
def test_importing_declaring_and_printing_import_no_array_library(
    module: str, tmp_path: Path
) -> None:
    """dask-cuda#32, #719, #384: an import would make a context on the first GPU."""
    (tmp_path / f"{module}.py").write_text(TRIPWIRE)
    run(
        """
        import copy, pickle
        import lazyparam as lp

        class Model(lp.Module):
            def __init__(self):
                self.weight = lp.Param((4, 4), lp.init.normal(), device="cuda:1")
                self.bias = lp.Param(4, lp.init.zeros(), device="cpu").to_device("cupy:cuda")

        model = Model().seed(3)
        for twin in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert "cupy:cuda:1" in repr(twin)
            assert [str(device) for device in twin.devices()] == ["cupy:cuda:1", "cupy:cuda:0"]
            assert twin.num_params() == 20
        here = model.to_device("cpu")
        assert here.weight.val().shape == (4, 4)
        assert lp.device("cuda:1") == model.weight.device
        """,
        tmp_path,
    )


@needs_cupy
def test_without_a_gpu_devices_are_understood() -> None:
    """CuPy's own objects too, although they cannot be hashed and some of CuPy cannot be called."""
    run(
        """
        import cupy, pickle
        import lazyparam as lp

        for index in (0, 3):
            device = lp.device(cupy.cuda.Device(index))
            assert device == lp.device(f"cuda:{index}")
            assert {device: 1}[pickle.loads(pickle.dumps(device))] == 1
        assert str(lp.Param(2, device=cupy.cuda.Device(1)).device) == "cupy:cuda:1"
        """
    )


@needs_cupy
def test_without_a_gpu_a_value_is_refused_clearly_and_alike_each_time() -> None:
    """cupy#9091: and the parameter stays lazy, so another place can have it."""
    run(
        """
        import numpy as np
        import lazyparam as lp

        p = lp.Param(3, lp.init.ones(), device="cuda")
        called = lp.Param(3, lambda plan: 1 / 0, device="cuda:1")
        moved = lp.Param(3, lp.init.ones()).to_device("cuda:2")
        ready = lp.Param.from_tensor(np.ones(3, np.float32))
        said = set()
        for read in (p.val, p.val, called.val, moved.val, lambda: ready.to_device("cuda")):
            try:
                read()
            except lp.DeviceUnavailable as error:
                assert "CuPy finds no GPU" in str(error), error
                assert type(error.__cause__).__name__ == "CUDARuntimeError", error.__cause__
                said.add(str(error).partition("cannot")[2])
            else:
                raise AssertionError("it was made")
        assert len(said) == 1, said
        assert not (p.is_initialized or called.is_initialized or moved.is_initialized)
        assert p.to_device("cpu").val().tolist() == [1, 1, 1]
        """
    )


@needs_cupy
def test_a_draw_that_was_moved_to_a_gpu_that_is_not_there_can_be_moved_on() -> None:
    """Native draws are the same everywhere, so the place in between need not be there."""
    run(
        """
        import lazyparam as lp

        moved = lp.Param(3, lp.init.ones()).to_device("cuda")
        assert moved.to_device("cpu").val().tolist() == [1, 1, 1]
        """
    )


@needs_cupy
def test_arrays_of_the_real_cupy_tell_what_they_are() -> None:
    """Over memory that is somebody else's, which needs no GPU to be looked at."""
    run(
        """
        import cupy, ml_dtypes
        import lazyparam as lp
        from lazyparam.backends._cupy import BACKEND, _has_memory_alone, _words
        from lazyparam.devices import backend_holding

        memory = cupy.cuda.UnownedMemory(4096, 1024, object(), device_id=1)
        pointer = cupy.cuda.MemoryPointer(memory, 0)
        x = cupy.ndarray((4, 6), "u1", memptr=pointer)
        assert backend_holding(x) is BACKEND
        assert BACKEND.owns(x) and not BACKEND.owns(pointer)
        assert BACKEND.meta(x) == ((4, 6), "uint8")
        assert BACKEND.device_of(x) == lp.device("cuda:1")
        for dtype in ("bfloat16", "float8_e4m3fn", "float4_e2m1fn"):
            y = x.view(getattr(ml_dtypes, dtype))
            assert BACKEND.meta(y)[1] == dtype
            assert _words(y).dtype.kind == "u"
            assert _words(y.T).shape == y.T.shape
        assert not _has_memory_alone(x)
        assert BACKEND.parse(x) is None
        """
    )


@needs_cupy
def test_the_backend_uses_only_what_cupy_has_and_so_does_the_fake() -> None:
    run(
        """
        import inspect
        import cupy
        from tests import fake_cupy as fake

        for name in ("ndarray", "cuda.Device", "cuda.Stream"):
            there, here = cupy, fake
            for part in name.split("."):
                there, here = getattr(there, part), getattr(here, part)
            missing = {public for public in vars(here) if public[0] != "_"} - set(dir(there))
            assert missing <= {"put", "device_id"}, (name, missing)
        for name in ("array", "asarray", "empty", "full", "ones", "zeros"):
            known = set(inspect.signature(getattr(cupy, name)).parameters)
            assert set(inspect.signature(getattr(fake, name)).parameters) <= known, name
        for name in vars(fake.cuda):
            assert hasattr(cupy.cuda, name), name
        for name in vars(fake.cuda.runtime):
            assert hasattr(cupy.cuda.runtime, name), name
        assert cupy.cuda.memory.PooledMemory
        assert issubclass(fake.CUDARuntimeError, RuntimeError)
        assert issubclass(cupy.cuda.runtime.CUDARuntimeError, RuntimeError)
        from cupyx.distributed.array import DistributedArray
        assert issubclass(DistributedArray, cupy.ndarray)
        """
    )
