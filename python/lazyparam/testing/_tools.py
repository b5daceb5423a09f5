"""What the conformance tests share: elements of every dtype, odd layouts, initialisers, races."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import ml_dtypes as _ml_dtypes  # noqa: F401  # said here, once, that the tests need it
import numpy as np

import lazyparam as lp

from .. import _core, _host

T = TypeVar("T")
Host = np.ndarray[Any, Any]

DTYPES = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"),
)
"""Every dtype that a parameter may have."""

UNSTORABLE = frozenset({"complex128"})
"""Dtypes that a safetensors file cannot hold."""

_BITS = {"bool": 1, "float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}
"""The bits in use of dtypes that do not fill their byte."""


def sample(dtype: str, shape: tuple[int, ...] = (4, 4)) -> Host:
    """Elements of all sorts: random bits, so NaNs, infinities and subnormals are among them."""
    held = _host.dtype(dtype)
    rng = np.random.default_rng(5)
    size = int(np.prod(shape, dtype=np.int64))
    raw = rng.integers(0, 256, size * held.itemsize, np.uint8)
    raw &= (1 << _BITS.get(dtype, 8)) - 1
    return raw.view(held).reshape(shape)


def bits(host: Host) -> tuple[str, tuple[int, ...], bytes]:
    """All there is to know of an array's elements: equal bits, equal tuples."""
    native = host.astype(host.dtype.newbyteorder("="), copy=False)
    return native.dtype.name, native.shape, native.tobytes()


def _read_only(host: Host) -> Host:
    host.flags.writeable = False
    return host


def _unaligned(host: Host) -> Host:
    raw = bytearray(1) + host.tobytes()
    return np.frombuffer(raw, host.dtype, offset=1).reshape(host.shape)


LAYOUTS: dict[str, Callable[[str], Host]] = {
    "plain": sample,
    "without axes": lambda dtype: sample(dtype, ()),
    "empty": lambda dtype: sample(dtype, (0, 3)),
    "Fortran order": lambda dtype: np.asfortranarray(sample(dtype)),
    "transposed": lambda dtype: sample(dtype, (2, 3, 4)).transpose(2, 0, 1),
    "strided": lambda dtype: sample(dtype, (4, 8))[::2, 1::3],
    "backwards": lambda dtype: sample(dtype)[::-1, ::-1],
    "one, backwards": lambda dtype: sample(dtype, (1,))[::-1],
    "repeated": lambda dtype: np.broadcast_to(sample(dtype, (1, 4)), (3, 4)),
    "read-only": lambda dtype: _read_only(sample(dtype)),
    "unaligned": lambda dtype: _unaligned(sample(dtype)),
    "big-endian": lambda dtype: sample(dtype).astype(_host.dtype(dtype).newbyteorder(">")),
}
"""Arrays of the host in every layout that NumPy has."""

NARROW_INTS = ("int8", "uint8", "int16", "int32", "int64")


def kind_of(dtype: str) -> str:
    return _core.dtype_kind(dtype)


class Boom(Exception):
    """What a failing initialiser raises."""


def never(plan: lp.Plan) -> NoReturn:
    """An initialiser that must not run."""
    raise AssertionError(f"an initialiser ran for {plan}")


class Counting:
    """An initialiser that counts its runs, takes a while, and draws other numbers each time.

    `arrays` makes an array of the backend from one of the host. The first `failures` runs raise
    :class:`Boom`.
    """

    def __init__(
        self, arrays: Callable[[Host], Any], seconds: float = 0.0, failures: int = 0
    ) -> None:
        self.runs = 0
        self._arrays = arrays
        self._seconds = seconds
        self._failures = failures
        self._lock = threading.Lock()

    def __call__(self, plan: lp.Plan) -> Any:
        with self._lock:
            self.runs += 1
            run = self.runs
        if self._seconds:
            time.sleep(self._seconds)
        if run <= self._failures:
            raise Boom(f"run {run}")
        draw = np.random.default_rng(1000 + run).standard_normal(plan.shape) * 100
        return self._arrays(np.asarray(draw).astype(_host.dtype(plan.dtype)))


class Held:
    """An initialiser that says when it is running, and goes on when it is told to finish."""

    def __init__(self, arrays: Callable[[Host], Any]) -> None:
        self.running = threading.Event()
        self.finish = threading.Event()
        self._arrays = arrays

    def __call__(self, plan: lp.Plan) -> Any:
        self.running.set()
        assert self.finish.wait(30)
        return self._arrays(np.ones(plan.shape, plan.dtype))


def race(work: Sequence[Callable[[], T]], seconds: float = 60.0) -> list[T | BaseException]:
    """What each of `work` gives or raises, run by threads that start together and change often."""
    barrier = threading.Barrier(len(work))
    outcomes: list[Any] = [None] * len(work)

    def run(at: int) -> None:
        barrier.wait(seconds)
        try:
            outcomes[at] = work[at]()
        except BaseException as error:
            outcomes[at] = error

    threads = [threading.Thread(target=run, args=(at,), daemon=True) for at in range(len(work))]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
    finally:
        sys.setswitchinterval(interval)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return outcomes


def new_file_in(folder: Path) -> Path:
    """A path in a folder of its own: threads that run one test together share `folder`."""
    return Path(tempfile.mkdtemp(dir=folder)) / "model.safetensors"


class Box(lp.Module):
    """One parameter: ``t``."""

    def __init__(self, param: lp.Param[Any]) -> None:
        self.t = param


class Pair(lp.Module):
    """Two parameters: ``one`` and ``two``."""

    def __init__(self, one: Any, two: Any) -> None:
        self.one = one
        self.two = two


class Mixed(lp.Module):
    """One lazy parameter of each kind, and a ready one."""

    def __init__(self, kinds: Sequence[str], ready: lp.Param[Any], device: lp.Device) -> None:
        self.lazy = [lp.Param((2, 3), never, dtype=dtype, device=device) for dtype in kinds]
        self.ready = ready
