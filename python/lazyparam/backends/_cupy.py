"""CuPy: NVIDIA and AMD GPUs, ``cupy:cuda:0`` and so on.

CuPy works on queues (streams), and a thread has a current device and a current stream. So
everything here happens on the declared device, whatever the thread had before, and nothing is
shared before the work on it is done.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from weakref import getweakrefcount

import numpy as np

from .. import _host
from .._core import Device
from ..errors import DeviceError, DeviceUnavailable, InitError, InitInTransform
from . import Backend

# Type checkers need no CuPy.
cupy: Any = import_module("cupy")

# What is counted of an attribute that only its holder has; how arguments count is Python's affair.
_HOLDER = SimpleNamespace(held=object())
_ONE_HOLDER = sys.getrefcount(_HOLDER.held)

_HAS_BFLOAT16 = int(cupy.__version__.partition(".")[0]) >= 14


class CupyBackend(Backend):
    """Arrays are ``cupy.ndarray``; bfloat16 and fp8 elements are those of ml_dtypes.

    CuPy 14 computes with bfloat16. The fp8, fp6 and fp4 types are kept and moved, but CuPy has no
    kernels for them: cast them, or view them as uint8.
    """

    name = "cupy"
    array_type = "a cupy.ndarray"
    packages = frozenset({"cupy"})
    is_mutable = True

    def owns(self, x: object) -> bool:
        return isinstance(x, cupy.ndarray)

    def meta(self, x: Any) -> tuple[tuple[int, ...], str]:
        return x.shape, _host.name_of(x.dtype)

    def device_of(self, x: Any) -> Device:
        return Device(f"cupy:cuda:{_index_of(x)}")

    def parse(self, spec: object) -> str | None:
        return f"cupy:cuda:{spec.id}" if isinstance(spec, cupy.cuda.Device) else None

    def check(self, x: Any) -> None:
        _index_of(x)

    def native_device(self, device: Device) -> Any:
        return cupy.cuda.Device(device.index or 0)

    def native_dtype(self, name: str) -> Any:
        return _host.dtype(name)

    def probe(self, device: Device) -> None:
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise DeviceUnavailable(
                f"{device} cannot be used: CuPy finds no GPU",
                found=str(error),
                remedy='Move the parameters to "cpu", or load them there: device="cpu".',
            ) from error
        if device.kind != "cuda" or device.index is None or device.index >= count:
            raise DeviceUnavailable(
                f"there is no {device}",
                expected="cupy:cuda:0" if count == 1 else f"cupy:cuda:0 to cupy:cuda:{count - 1}",
                found=str(device),
            )

    @contextmanager
    def scope(self, device: Device) -> Iterator[None]:
        # A new object each time: CuPy's remembers in itself which device to go back to (cupy#5006).
        with cupy.cuda.Device(device.index):
            # CuPy cannot tell on AMD's.
            is_nvidia = not cupy.cuda.runtime.is_hip
            if is_nvidia and cupy.cuda.get_current_stream().is_capturing():
                raise InitInTransform(
                    "a value cannot come into being while this stream is captured into a graph",
                    remedy="Read the parameter once before the capture begins.",
                )
            yield

    def publish(self, x: Any, device: Device, sole: bool, ours: bool) -> Any:
        with cupy.cuda.Device(device.index) as here:
            if not ours:
                # Its maker may have worked on streams of his own.
                here.synchronize()
            published = x if sole and (ours or _has_memory_alone(x)) else _copied(x)
            cupy.cuda.get_current_stream().synchronize()
        return published

    def from_host(self, array: Any, device: Device, sole: bool) -> Any:
        host = np.asarray(array)
        host = host.astype(host.dtype.newbyteorder("="), copy=False)
        with cupy.cuda.Device(device.index):
            try:
                there = _as(cupy.array(_words(host), order="C", copy=True), host.dtype)
            except (TypeError, ValueError) as error:
                raise DeviceError(
                    f"CuPy has no dtype {host.dtype.name}",
                    found=str(error),
                    remedy="Declare or load it with another dtype.",
                ) from error
            # The elements are on their way still, and whoever has the host's may write to them.
            cupy.cuda.get_current_stream().synchronize()
        return there

    def to_host(self, x: Any) -> np.ndarray[Any, Any]:
        with cupy.cuda.Device(_index_of(x)) as here:
            here.synchronize()
            host: np.ndarray[Any, Any] = _words(x).get()
        elements: np.ndarray[Any, Any] = _as(host, x.dtype)
        return elements

    def to_device(self, x: Any, device: Device) -> Any:
        with cupy.cuda.Device(_index_of(x)) as here:
            here.synchronize()
            # CuPy copies between devices what is contiguous.
            words = _words(x)
            whole = words if words.flags.c_contiguous else words.copy()
            cupy.cuda.get_current_stream().synchronize()
        with cupy.cuda.Device(device.index):
            there = whole.copy()
            # Else the memory of `whole` is somebody else's before it has been read.
            cupy.cuda.get_current_stream().synchronize()
        return _as(there, x.dtype)

    def cast(self, x: Any, dtype: str) -> Any:
        _host.refuse_other_kind(x.dtype.name, dtype)
        wanted = _host.dtype(dtype)
        if not (_computes_with(x.dtype) and _computes_with(wanted)):
            return self.from_host(_host.cast(self.to_host(x), dtype), self.device_of(x), True)
        with cupy.cuda.Device(_index_of(x)) as here:
            here.synchronize()
            _host.refuse_misfits(x, dtype)
            return x.astype(wanted)

    def copy(self, x: Any) -> Any:
        with cupy.cuda.Device(_index_of(x)) as here:
            here.synchronize()
            return _copied(x)


def _index_of(x: Any) -> int:
    """The number of the one GPU that has `x`.

    Raises:
        InitError: if it is distributed over several, which CuPy numbers -1.
    """
    index: int = x.device.id
    if index < 0:
        raise InitError(
            "an array on several devices is not a parameter's value",
            expected="a cupy.ndarray on one GPU",
            found=type(x).__name__,
        )
    return index


def _is_added(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` is none of NumPy's own, but one of ml_dtypes'."""
    return dtype.isbuiltin == 2


def _computes_with(dtype: np.dtype[Any]) -> bool:
    return not _is_added(dtype) or (_HAS_BFLOAT16 and dtype.name == "bfloat16")


def _words(x: Any) -> Any:
    """The elements of `x`, of NumPy or CuPy, as ints where the dtype is one of ml_dtypes'.

    For those ints there are kernels and a way over the bus in every version of CuPy.
    """
    return x.view(f"uint{8 * x.dtype.itemsize}") if _is_added(x.dtype) else x


def _as(x: Any, dtype: np.dtype[Any]) -> Any:
    """What `_words` has made of an array of `dtype`, as that again."""
    return x.view(dtype) if _is_added(dtype) else x


def _copied(x: Any) -> Any:
    """A copy on the current device and stream; of an object of a derived class, a plain array."""
    return _as(cupy.array(_words(x), order="K", copy=True, subok=False), x.dtype)


def _has_memory_alone(x: Any) -> bool:
    """Whether only `x` leads to its memory, and CuPy will free it with `x`.

    A view has a base. What came from another library (DLPack, the CUDA array interface) is memory
    that CuPy does not own. Arrays may also be built over the pointer of another one.
    """
    its_own = (cupy.cuda.Memory, cupy.cuda.MemoryAsync, cupy.cuda.memory.PooledMemory)
    return (
        type(x) is cupy.ndarray
        and x.base is None
        and isinstance(x.data.mem, its_own)
        and sys.getrefcount(x.data) == _ONE_HOLDER
        and sys.getrefcount(x.data.mem) == _ONE_HOLDER
        and not getweakrefcount(x)
    )


BACKEND = CupyBackend()
