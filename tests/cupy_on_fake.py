"""lazyparam's CuPy backend over the fake of ``fake_cupy``, and a world in which CuPy is that."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from unittest import mock

import pytest

from lazyparam import devices
from lazyparam.backends import Backend

from . import fake_cupy


def _backend() -> Backend:
    """A second copy of the module, beside one over the real CuPy."""
    spec = find_spec("lazyparam.backends._cupy")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # This key alone: to restore the whole of sys.modules would forget what is imported meanwhile.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", fake_cupy)
        spec.loader.exec_module(module)
    return module.BACKEND


BACKEND = _backend()


@contextmanager
def fake_gpus(count: int = 2, kernel_seconds: float = 0.0) -> Iterator[fake_cupy.Machine]:
    """In here "cupy" is the fake, with so many GPUs."""
    known = devices._KNOWN["cupy"]._replace(module=__name__)
    fake_cupy.machine.plug(count, kernel_seconds)
    devices._loaded.cache_clear()
    try:
        with mock.patch.dict(devices._KNOWN, cupy=known):
            yield fake_cupy.machine
    finally:
        devices._loaded.cache_clear()
