"""Backends: one file per array library, each a handful of small functions.

A backend is the accent of one array library. The core asks it what an array is, moves arrays
through it, and hands out only what it has published.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from .._core import Device

__all__ = ["Backend"]


class Backend(Protocol):
    """What lazyparam asks of an array library."""

    name: str
    """The first part of the names of its devices."""

    array_type: str
    """What its arrays are called in messages."""

    def owns(self, x: object) -> bool:
        """Whether `x` is an array (or array scalar) of this library."""
        ...

    def meta(self, x: Any) -> tuple[tuple[int, ...], str]:
        """Shape, and the dtype's name (whatever the library calls it, if lazyparam has none)."""
        ...

    def device_of(self, x: Any) -> Device:
        """Where `x` lives, autodiff unset."""
        ...

    def probe(self, device: Device) -> None:
        """Return if `device` can be used, else raise DeviceUnavailable."""
        ...

    def scope(self, device: Device) -> AbstractContextManager[Any] | None:
        """The context in which initialisers and mappers run, or None if there is nothing to set."""
        ...

    def publish(self, x: Any, device: Device, sole: bool) -> Any:
        """An array equal to `x` that any thread may read and nobody can write.

        `sole` says that nobody else refers to `x`, so it may be kept without a copy.
        """
        ...

    def from_host(self, array: Any, device: Device) -> Any:
        """A NumPy array's elements on `device`; the dtype is kept."""
        ...

    def to_host(self, x: Any) -> Any:
        """A NumPy array with the elements of `x`; the dtype is kept."""
        ...

    def to_device(self, x: Any, device: Device) -> Any:
        """`x` on another device of this library."""
        ...

    def cast(self, x: Any, dtype: str) -> Any:
        """`x` with another dtype."""
        ...

    def copy(self, x: Any) -> Any:
        """The elements of `x` in memory of their own, writable."""
        ...
