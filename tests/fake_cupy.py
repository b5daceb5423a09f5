"""A CuPy without a GPU, over NumPy: devices, streams and memory with CuPy's rules, made strict.

What is a race or a mix-up on a GPU, and goes wrong there once in a thousand times, goes wrong here
every time:

* Work is put on a stream and done when somebody waits for the stream, not before. So a copy from
  the host sees what the host's array holds by then.
* Reading what another stream has still work on raises :class:`Race`.
* Memory that is freed is overwritten, on the stream that it was allocated on, as its pool may.
* An array used on another device than its own raises :class:`Mixed` (CuPy tries peer access).
* A Device that several threads are inside of at once raises :class:`Mixed` (cupy#5006).
* Threads begin on device 0, each with a default stream of its own.

The module stands for ``cupy`` itself; `machine` is the computer that it finds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

__version__ = "14.2.0"

FREED = 0xA5
"""What memory holds that nobody has written to, or that has been given back."""


class CUDARuntimeError(RuntimeError):
    """What CuPy raises for an error of the CUDA runtime."""


class Race(AssertionError):
    """An array was used while another stream had work on it to do."""


class Mixed(AssertionError):
    """A device, or an array of one, was used where another one was meant."""


class Machine:
    """What is plugged in, and what has been done with it."""

    def __init__(self) -> None:
        self.plug()

    def plug(self, count: int = 2, kernel_seconds: float = 0.0) -> None:
        """Begin anew with `count` GPUs, on which each kernel takes a while."""
        self.count = count
        self.kernel_seconds = kernel_seconds
        self.allocated = [0] * count
        self.entered: list[tuple[int, int]] = []
        """Thread and device of each time that a Device was entered."""
        self.streams: list[Stream] = []
        self.here = threading.local()

    @property
    def device(self) -> int:
        """The current device of this thread."""
        return getattr(self.here, "device", 0)

    def use(self, index: int) -> None:
        if not 0 <= index < self.count:
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        self.here.device = index

    def stream(self) -> Stream:
        """The current stream of this thread on its current device."""
        current = self.here.__dict__.setdefault("streams", {})
        if self.device not in current:
            current[self.device] = Stream()
        return current[self.device]


class Stream:
    """A queue of work for a device."""

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        self.device_id = machine.device
        self._work: list[Callable[[], None]] = []
        self._lock = threading.RLock()
        self._capturing = False
        self._before: list[Stream] = []
        machine.streams.append(self)

    def put(self, work: Callable[[], None]) -> None:
        with self._lock:
            self._work.append(work)

    def synchronize(self) -> None:
        if self._capturing:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: stream is capturing")
        while True:
            with self._lock:
                if not self._work:
                    return
                self._work.pop(0)()

    def is_capturing(self) -> bool:
        return self._capturing

    def begin_capture(self) -> None:
        self._capturing = True

    def end_capture(self) -> None:
        self._capturing = False
        self._work.clear()

    def __enter__(self) -> Self:
        self._before.append(machine.stream())
        machine.here.streams[self.device_id] = self
        return self

    def __exit__(self, *_: object) -> None:
        machine.here.streams[self.device_id] = self._before.pop()


class Device:
    """A GPU by its number; the current one of this thread without."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, device: int | None = None) -> None:
        self.id = machine.device if device is None else int(device)
        self._before: list[tuple[int, int]] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __enter__(self) -> Self:
        thread = threading.get_ident()
        if any(other != thread for other, _ in self._before):
            raise Mixed("two threads are inside of one Device")
        self._before.append((thread, machine.device))
        machine.use(self.id)
        machine.entered.append((thread, self.id))
        return self

    def __exit__(self, *_: object) -> None:
        machine.use(self._before.pop()[1])

    def synchronize(self) -> None:
        for stream in list(machine.streams):
            if stream.device_id == self.id:
                stream.synchronize()


class BaseMemory:
    """A block on the current device."""

    def __init__(self, size: int) -> None:
        if machine.stream().is_capturing():
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: malloc while capturing")
        self.buffer = np.full(size, FREED, np.uint8)
        self.device_id = machine.device
        self.stream = machine.stream()
        self.unfinished: list[Stream] = []
        """The streams of writes that are not done."""
        machine.allocated[self.device_id] += size

    def __del__(self) -> None:
        if hasattr(self, "stream"):
            buffer = self.buffer
            self.stream.put(lambda: buffer.fill(FREED))


class Memory(BaseMemory):
    """A block of the runtime."""


class MemoryAsync(BaseMemory):
    """A block of the driver's pool."""


class PooledMemory(BaseMemory):
    """A block of CuPy's pool."""


class UnownedMemory(BaseMemory):
    """A block that belongs to another library."""


class MemoryPointer:
    """Where an array begins."""

    def __init__(self, mem: BaseMemory) -> None:
        self.mem = mem


machine = Machine()


def _supported(dtype: Any) -> np.dtype[Any]:
    """As CuPy 14 has it: bfloat16, but none other of ml_dtypes' types."""
    found = np.dtype(dtype)
    known = found.kind in "?biufcb" and found.itemsize <= 16 and found.isbuiltin != 2
    if found.name in ("float128", "longdouble") or not (known or found.name == "bfloat16"):
        raise ValueError(f"Unsupported dtype {found}")
    return found.newbyteorder("=")


class ndarray:  # noqa: N801
    """An array on a device."""

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: MemoryPointer | None = None, order: str = "C"
    ) -> None:
        held = _supported(dtype)
        extents = (shape,) if isinstance(shape, int) else tuple(int(extent) for extent in shape)
        size = int(np.prod(extents, dtype=np.int64)) * held.itemsize
        self.data = MemoryPointer(PooledMemory(size)) if memptr is None else memptr
        self.base: ndarray | None = None
        self._host: np.ndarray = np.ndarray(
            extents, held, self.data.mem.buffer, order="F" if order == "F" else "C"
        )

    # ---- what it is ----

    shape = property(lambda self: self._host.shape)
    strides = property(lambda self: self._host.strides)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    itemsize = property(lambda self: self._host.itemsize)
    device = property(lambda self: Device(self.data.mem.device_id))

    @property
    def flags(self) -> SimpleNamespace:
        flags = self._host.flags
        return SimpleNamespace(
            c_contiguous=flags.c_contiguous,
            f_contiguous=flags.f_contiguous,
            owndata=self.base is None,
        )

    def __repr__(self) -> str:
        return f"array({self.get()})"

    def __len__(self) -> int:
        return len(self._host)

    # ---- views ----

    def _viewed(self, host: np.ndarray) -> ndarray:
        view = object.__new__(type(self))
        view.data, view._host = self.data, host
        view.base = self if self.base is None else self.base
        return view

    def view(self, dtype: Any = None) -> ndarray:
        return self._viewed(self._host.view() if dtype is None else self._host.view(dtype))

    def reshape(self, *shape: Any) -> ndarray:
        return self._viewed(self._host.reshape(*shape))

    @property
    def T(self) -> ndarray:  # noqa: N802
        return self._viewed(self._host.T)

    def __getitem__(self, at: Any) -> ndarray:
        return self._viewed(self._host[at if isinstance(at, tuple) else (at, ...)])

    # ---- work ----

    def __setitem__(self, at: Any, value: Any) -> None:
        _launch(
            lambda there, *given: there.__setitem__(at, *(given or (value,))),
            self,
            *[value for value in (value,) if isinstance(value, ndarray)],
        )

    def fill(self, value: Any) -> None:
        self[...] = value

    def copy(self, order: str = "C") -> ndarray:
        if self.data.mem.device_id != machine.device:
            if not (self._host.flags.c_contiguous or self._host.flags.f_contiguous):
                raise NotImplementedError("CuPy cannot copy non-contiguous array between devices.")
            return _made(np.copyto, self.shape, self.dtype, self, peer=True)
        if order == "K":
            order = "F" if self._host.flags.fnc else "C"
        return _made(np.copyto, self.shape, self.dtype, self, order=order)

    def __bool__(self) -> bool:
        return bool(self.item())

    def astype(self, dtype: Any, copy: bool = True) -> ndarray:
        cast = _supported(dtype)
        return _made(lambda there, x: np.copyto(there, x, "unsafe"), self.shape, cast, self)

    def get(self) -> np.ndarray:
        _check(machine.stream(), self)
        machine.stream().synchronize()
        return self._host.copy()

    def _reduced(self, name: str, *args: Any) -> ndarray:
        like = getattr(np.zeros((1,) * self.ndim, self.dtype), name)()
        return _made(
            lambda there, x: np.copyto(there, getattr(x, name)(*args)), (), like.dtype, self
        )

    def min(self) -> ndarray:
        return self._reduced("min")

    def max(self) -> ndarray:
        return self._reduced("max")

    def sum(self) -> ndarray:
        return self._reduced("sum")

    def item(self) -> Any:
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Use .get().")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.data.mem.device_id

    def __array_ufunc__(self, function: Any, method: str, *given: Any, **options: Any) -> Any:
        assert method == "__call__"
        assert not options
        return _computed(function, *given)

    def __add__(self, other: Any) -> ndarray:
        return _computed(np.add, self, other)

    def __sub__(self, other: Any) -> ndarray:
        return _computed(np.subtract, self, other)

    def __mul__(self, other: Any) -> ndarray:
        return _computed(np.multiply, self, other)

    def __truediv__(self, other: Any) -> ndarray:
        return _computed(np.true_divide, self, other)

    def __matmul__(self, other: Any) -> ndarray:
        return _computed(np.matmul, self, other)

    def __neg__(self) -> ndarray:
        return _computed(np.negative, self)

    __radd__ = __add__
    __rmul__ = __mul__


class DistributedArray(ndarray):
    """Of ``cupyx.distributed.array``: parts on several devices."""

    device = property(lambda self: Device(-1))


def _check(stream: Stream, *arrays: ndarray, peer: bool = False) -> None:
    for array in arrays:
        memory = array.data.mem
        if memory.device_id != machine.device and not peer:
            raise Mixed(f"an array of device {memory.device_id} is used on {machine.device}")
        if any(other is not stream for other in memory.unfinished):
            raise Race("another stream has work to do on this array")


def _launch(kernel: Callable[..., Any], out: ndarray, *given: ndarray, peer: bool = False) -> None:
    """Put `kernel`, which writes to the first of its arrays, on the current stream."""
    stream = machine.stream()
    for array in (out, *given):
        # There are no kernels for others.
        _supported(array.dtype)
    _check(stream, out)
    _check(stream, *given, peer=peer)
    unfinished = out.data.mem.unfinished
    # Not the arrays themselves: queued work keeps no memory from being freed.
    hosts = [array._host for array in (out, *given)]

    def work() -> None:
        if machine.kernel_seconds:
            time.sleep(machine.kernel_seconds)
        kernel(*hosts)
        unfinished.remove(stream)

    unfinished.append(stream)
    stream.put(work)


def _made(
    kernel: Callable[..., Any],
    shape: Sequence[int],
    dtype: Any,
    *given: ndarray,
    order: str = "C",
    peer: bool = False,
) -> ndarray:
    out = ndarray(shape, dtype, order=order)
    _launch(kernel, out, *given, peer=peer)
    return out


def _computed(function: Any, *given: Any) -> ndarray:
    for other in given:
        if isinstance(other, np.ndarray):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    hosts = [one._host if isinstance(one, ndarray) else one for one in given]
    # What comes out is known from empty arrays of the same shapes.
    blank = [np.ones_like(one) if isinstance(one, np.ndarray) else one for one in hosts]
    like = np.asarray(function(*blank))
    arrays = [one for one in given if isinstance(one, ndarray)]

    def kernel(there: np.ndarray, *_: np.ndarray) -> None:
        np.copyto(there, function(*hosts))

    return _made(kernel, like.shape, like.dtype, *arrays)


def array(
    obj: Any,
    dtype: Any = None,
    copy: bool | None = True,
    order: str = "K",
    subok: bool = False,
    *,
    blocking: bool = False,
) -> ndarray:
    if isinstance(obj, ndarray):
        return _plain(obj.copy(order))
    # The array itself, not what it holds now.
    host = np.asarray(obj, dtype)
    layout = "F" if order in "KA" and host.flags.fnc else "C"
    there = ndarray(host.shape, host.dtype, order=layout)
    _launch(lambda there: np.copyto(there, host), there)
    return there


def _plain(made: ndarray) -> ndarray:
    made.__class__ = ndarray
    return made


def asarray(a: Any, dtype: Any = None) -> ndarray:
    return a if isinstance(a, ndarray) and dtype in (None, a.dtype) else array(a, dtype)


def empty(shape: Any, dtype: Any = float) -> ndarray:
    return ndarray(shape, dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> ndarray:
    made = ndarray(shape, np.asarray(fill_value).dtype if dtype is None else dtype)
    made.fill(fill_value)
    return made


def zeros(shape: Any, dtype: Any = float) -> ndarray:
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: Any = float) -> ndarray:
    return full(shape, 1, dtype)


def _count() -> int:
    if not machine.count:
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return machine.count


cuda = SimpleNamespace(
    Device=Device,
    Memory=Memory,
    MemoryAsync=MemoryAsync,
    Stream=Stream,
    UnownedMemory=UnownedMemory,
    get_current_stream=lambda: machine.stream(),
    memory=SimpleNamespace(PooledMemory=PooledMemory),
    runtime=SimpleNamespace(CUDARuntimeError=CUDARuntimeError, getDeviceCount=_count, is_hip=False),
)

for _public in (ndarray, DistributedArray, Device, Stream):
    _public.__module__ = "cupy"
