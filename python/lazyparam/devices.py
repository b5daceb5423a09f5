"""Devices, and the backends that serve them.

A :class:`Device` is a plain value: it is parsed from text without importing a library or
touching a driver. The library is imported when a value is first made on the device.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from ._core import Device
from .errors import BackendMissing

if TYPE_CHECKING:
    from .backends import Backend

__all__ = ["Device", "backend_of", "device"]

# name -> (module of this package, what to install)
_BACKENDS: dict[str, tuple[str, str]] = {
    "numpy": ("lazyparam.backends._numpy", "numpy"),
}


def device(spec: str | Device) -> Device:
    """The device that `spec` names.

    The grammar is ``[backend ":"] kind [":" index]``. Bare kinds have one documented meaning:
    ``"cpu"`` is ``"numpy:cpu"``, ``"cuda"`` is ``"cupy:cuda:0"``.

    Raises:
        DeviceParseError: if the text is not of that form.

    >>> device("cpu")
    Device('numpy:cpu')
    >>> str(device("torch:cuda:1"))
    'torch:cuda:1'
    """
    return Device(spec)


@cache
def backend_of(device: Device) -> Backend:
    """The backend that serves `device`; imports its library at the first call.

    Raises:
        BackendMissing: if this version has no such backend or its library is not installed.
    """
    try:
        module, package = _BACKENDS[device.backend]
    except KeyError:
        raise BackendMissing(
            f"this version of lazyparam has no backend {device.backend!r}",
            expected=f"one of {', '.join(sorted(_BACKENDS))}",
            found=str(device),
            remedy='Declare the parameter on "cpu".',
        ) from None
    try:
        backend: Backend = import_module(module).BACKEND
    except ImportError as error:
        raise BackendMissing(
            f"device {device} needs {package}, which is not installed",
            remedy=f"pip install {package}",
        ) from error
    return backend
