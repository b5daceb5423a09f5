"""NumPy: one device, ``numpy:cpu``; arrays are handed out read-only."""

from __future__ import annotations

from typing import Any
from weakref import getweakrefcount

import numpy as np

from .. import _host
from .._core import Buffer, Device
from ..errors import DeviceUnavailable, InitError
from . import Backend

_CPU = Device("numpy:cpu")


class NumpyBackend(Backend):
    """Arrays are ``numpy.ndarray``; fp8, fp4 and bfloat16 elements are those of ml_dtypes."""

    name = "numpy"
    array_type = "a NumPy array"
    packages = frozenset({"numpy", "ml_dtypes"})

    def owns(self, x: object) -> bool:
        return isinstance(x, np.ndarray | np.generic)

    def meta(self, x: Any) -> tuple[tuple[int, ...], str]:
        # A subclass may say anything of itself.
        plain = np.asarray(x)
        return plain.shape, _host.name_of(plain.dtype)

    def device_of(self, x: Any) -> Device:
        return _CPU

    def native_device(self, device: Device) -> str:
        return "cpu"  # as in the array API standard

    def native_dtype(self, name: str) -> Any:
        return _host.dtype(name)

    def probe(self, device: Device) -> None:
        if device != _CPU:
            raise DeviceUnavailable("NumPy has one device", expected="numpy:cpu", found=str(device))

    def check(self, x: Any) -> None:
        # Looking at `np.ma` imports it; a plain array is no reason to.
        if type(x) is not np.ndarray and isinstance(x, np.ma.MaskedArray):
            raise InitError(
                "a masked array is not a parameter's value",
                remedy="Call .filled(...) on it.",
            )

    def publish(self, x: Any, device: Device, sole: bool, ours: bool) -> np.ndarray[Any, Any]:
        array = np.asarray(x)
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        if isinstance(root.base, Buffer) and root.base.is_readonly:
            return array
        native = array.dtype.newbyteorder("=")
        if native != array.dtype:
            array, sole = array.astype(native), True
        elif array is not x:
            sole = isinstance(x, np.generic)
        # Memory that somebody may write to. An array that owns its memory and that nobody else
        # refers to is taken over; anything else is copied.
        kept = sole and array.flags.owndata and array.flags.forc and not getweakrefcount(array)
        if not kept:
            array = np.array(array, order="A", copy=True, subok=False)
        if not array.size:
            array.flags.writeable = False
            return array.view()
        # Over a buffer of ours, nobody can make it writable again, nor its base.
        memory: Any = Buffer.lend(array.ravel(order="K").view(np.uint8))
        return np.ndarray(array.shape, array.dtype, memory, 0, array.strides)

    def from_host(self, array: Any, device: Device, sole: bool) -> Any:
        return array if sole else np.array(array, order="K", copy=True, subok=False)

    def to_host(self, x: Any) -> Any:
        return x

    def to_device(self, x: Any, device: Device) -> Any:
        return x

    def cast(self, x: Any, dtype: str) -> Any:
        return _host.cast(x, dtype)

    def copy(self, x: Any) -> Any:
        return np.array(x, order="K", copy=True)


BACKEND = NumpyBackend()
