"""Backends: one class for each array library, a handful of small methods.

A backend is the accent of one array library. The core asks it what an array is, moves arrays
through it, and hands out only what it has published. Whatever it is asked for while a value comes
into being, it is asked for within :meth:`Backend.scope`, on the thread that makes the value.

A library that lazyparam does not know is added by a package of anybody's: a class derived from
:class:`Backend`, and an entry point in the group ``lazyparam.backends`` that leads to it (or to an
object of it) under the name with which its devices begin. See the guide ``docs/backends.md``, and
``lazyparam.testing`` for tests that every backend passes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from .._core import Device
from ..errors import AutodiffUnsupported

__all__ = ["Backend"]


class Backend(ABC):
    """What lazyparam asks of an array library. What is not abstract suits most libraries."""

    name: ClassVar[str]
    """The first part of the names of its devices, such as ``"torch"``."""

    array_type: ClassVar[str]
    """What its arrays are called in messages, such as ``"a torch.Tensor"``."""

    packages: ClassVar[frozenset[str]]
    """The top-level packages that the types of its arrays and devices come from."""

    records_gradients: ClassVar[bool] = False
    """Whether its arrays record gradients by themselves; only then is `leaf` asked for."""

    is_mutable: ClassVar[bool] = False
    """Whether who gets an array can write to it: then nobody else may have its memory."""

    # ---- arrays and devices of the library --------------------------------------------------

    @abstractmethod
    def owns(self, x: object) -> bool:
        """Whether `x` is an array (or array scalar) of this library."""

    @abstractmethod
    def meta(self, x: Any) -> tuple[tuple[int, ...], str]:
        """Shape, and the dtype's name (whatever the library calls it, if lazyparam has none)."""

    @abstractmethod
    def device_of(self, x: Any) -> Device:
        """Where `x` lives, in its autodiff context if it records gradients.

        Raises:
            InitError: if it lives on several devices at once.
        """

    def parse(self, spec: object) -> str | None:
        """The name of the device that an object of the library stands for, or None.

        The index is that of the object, 0 if it has none: never that of a current device.
        """
        return None

    def check(self, x: Any) -> None:
        """Refuse what is not an array with elements: tracers, fakes, deleted buffers, masks.

        Raises:
            InitError: saying what it is and what to do.
        """
        return

    def native_device(self, device: Device) -> Any:
        """What functions of the library take for `device`."""
        return str(device)

    def native_dtype(self, name: str) -> Any:
        """What functions of the library take for the dtype called `name`."""
        return name

    # ---- making values ----------------------------------------------------------------------

    @abstractmethod
    def probe(self, device: Device) -> None:
        """Return if `device` can be used.

        Raises:
            DeviceUnavailable: if it cannot, with the library's own error as the cause.
        """

    def scope(self, device: Device) -> AbstractContextManager[Any] | None:
        """The context in which values are made, or None if there is nothing to set.

        In it `device` is the current one of this thread, and whatever the caller has switched on
        for its own computations (gradients, tracing, reduced precision) is off.
        """
        return None

    @abstractmethod
    def publish(self, x: Any, device: Device, sole: bool, ours: bool) -> Any:
        """An array equal to `x` that any thread may read from now on, all work on it done.

        Nobody else can write to it. `sole` says that nobody else refers to the object `x`; `ours`
        that it comes from `from_host`, `to_device`, `cast` or `copy`, and so has memory of its own.
        """

    def is_public(self, x: Any) -> bool:
        """Whether `publish` would give `x` itself, but for waiting until work on it is done.

        Trees of arrays then become trees of parameters without waiting.
        """
        return False

    @abstractmethod
    def from_host(self, array: Any, device: Device, sole: bool) -> Any:
        """A NumPy array's elements on `device`, in memory of their own; the dtype is kept.

        `sole` says that nobody else has the memory of `array`, so it may be kept; it is writable
        if `is_mutable`. Without, `array` may be anything that NumPy has: any order and strides,
        read-only, big-endian.

        Raises:
            DeviceError: if the library has no such dtype.
        """

    @abstractmethod
    def to_host(self, x: Any) -> Any:
        """A NumPy array with the elements of `x`; the dtype is kept. It may share memory."""

    @abstractmethod
    def to_device(self, x: Any, device: Device) -> Any:
        """`x` on another device of this library, in memory of its own."""

    @abstractmethod
    def cast(self, x: Any, dtype: str) -> Any:
        """`x` with another dtype of the same kind, in memory of its own.

        Raises:
            InitError: between kinds, and if an int does not fit.
        """

    @abstractmethod
    def copy(self, x: Any) -> Any:
        """The elements of `x` in memory of their own, writable if the library has such arrays."""

    def as_dtype_of(self, x: Any, other: Any) -> Any:
        """`x` with the dtype of `other`: rounded by the library itself, and differentiable."""
        return x if x.dtype == other.dtype else x.astype(other.dtype)

    def version(self, x: Any) -> object:
        """A number that changes whenever somebody writes to `x`; None if nobody can tell."""
        return None if self.is_mutable else 0

    # ---- gradients, where the library records them --------------------------------------------

    def detach(self, x: Any) -> Any:
        """`x` without its gradient, the same memory."""
        return x

    def leaf(self, x: Any) -> Any:
        """A leaf over the memory of `x` that records gradients."""
        return x

    def grad(self, x: Any) -> Any:
        """The gradient that the leaf `x` has by now, detached, or None."""
        raise AutodiffUnsupported(
            f"{self.array_type} does not record gradients",
            remedy='Move the parameter to a device that does, such as "torch:cpu", and train().',
        )

    def gradients(
        self, loss: Any, leaves: Sequence[Any], retain_graph: bool, create_graph: bool
    ) -> Sequence[Any]:
        """The gradient of `loss` by each of `leaves`, None where it does not depend on one.

        The leaves themselves stay as they are. Asked for if `records_gradients`.
        """
        raise AutodiffUnsupported(
            f"{self.array_type} does not record gradients",
            remedy='Move the module to a device that does, such as "torch:cpu", and train().',
        )
