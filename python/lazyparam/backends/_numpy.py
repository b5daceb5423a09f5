"""NumPy: one device, ``numpy:cpu``; arrays are handed out read-only."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core, _host
from .._core import Buffer, Device
from ..errors import DeviceUnavailable, InitError

_CPU = Device("numpy:cpu")


class NumpyBackend:
    """Arrays are ``numpy.ndarray``; fp8, fp4 and bfloat16 elements are those of ml_dtypes."""

    name = "numpy"
    array_type = "a NumPy array"

    def owns(self, x: object) -> bool:
        return isinstance(x, np.ndarray | np.generic)

    def meta(self, x: Any) -> tuple[tuple[int, ...], str]:
        return x.shape, _host.name_of(x.dtype)

    def device_of(self, x: Any) -> Device:
        return _CPU

    def probe(self, device: Device) -> None:
        if device != _CPU:
            raise DeviceUnavailable("NumPy has one device", expected="numpy:cpu", found=str(device))

    def scope(self, device: Device) -> None:
        return None

    def publish(self, x: Any, device: Device, sole: bool) -> np.ndarray[Any, Any]:
        # Looking at `np.ma` imports it; a plain array is no reason to.
        if type(x) is not np.ndarray and isinstance(x, np.ma.MaskedArray):
            raise InitError(
                "a masked array is not a parameter's value",
                remedy="Call .filled(...) on it.",
            )
        array = np.asarray(x)
        fresh = (sole and array is x) or isinstance(x, np.generic)
        native = array.dtype.newbyteorder("=")
        if native != array.dtype:
            array, fresh = array.astype(native), True
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        if root.flags.writeable or not (root.base is None or isinstance(root.base, Buffer)):
            # Memory that somebody may still write to. An array that owns its memory and that
            # nobody else refers to is taken over; anything else is copied.
            if not (fresh and array.base is None):
                array = np.array(array, order="K", copy=True, subok=False)
            array.flags.writeable = False
        elif array is not root or root.base is not None:
            return array
        # A view of read-only memory cannot be made writable again; its owner could.
        return array.view()

    def from_host(self, array: Any, device: Device) -> Any:
        return array

    def to_host(self, x: Any) -> Any:
        return x

    def to_device(self, x: Any, device: Device) -> Any:
        return x

    def cast(self, x: Any, dtype: str) -> Any:
        kind = _core.dtype_kind(dtype)
        if _core.dtype_kind(x.dtype) != kind:
            raise InitError(
                "one kind of numbers is not cast to another",
                expected=f"{kind}s, to be cast to {dtype}",
                found=x.dtype.name,
            )
        cast = x.astype(_host.dtype(dtype))
        # NumPy wraps ints that do not fit, without a word.
        if kind == "int" and not np.can_cast(x.dtype, cast.dtype) and x.size:
            limits = np.iinfo(cast.dtype)
            for number in (int(x.min()), int(x.max())):
                if not limits.min <= number <= limits.max:
                    raise InitError(f"{number} does not fit {dtype}")
        return cast

    def copy(self, x: Any) -> Any:
        return np.array(x, order="K", copy=True)


BACKEND = NumpyBackend()
