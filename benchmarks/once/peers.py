"""What is measured beside the cells of lazyparam: other ways to make a value once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import lazyparam as lp

Make: TypeAlias = Callable[[], object]
"""What makes the value."""


def _optional(module: str, name: str) -> Any:
    return getattr(import_module(module), name) if find_spec(module) else None


LazyObjectProxy = _optional("wrapt", "LazyObjectProxy")
Proxy = _optional("lazy_object_proxy", "Proxy")

MISSING = [
    name
    for name, kind in (("wrapt", LazyObjectProxy), ("lazy-object-proxy", Proxy))
    if kind is None
]


class OneSlot:
    """The unit: an object with one slot, of a class with nothing else."""

    __slots__ = ("slot",)

    def __init__(self, slot: object) -> None:
        self.slot = slot


UNSET = object()


class DoubleChecked:
    """What careful people write by hand: a lock, and a look before and after taking it."""

    __slots__ = ("_lock", "_make", "_value")

    def __init__(self, make: Make) -> None:
        self._lock = threading.Lock()
        self._make: Make | None = make
        self._value: object = UNSET

    def get(self) -> object:
        value = self._value
        if value is UNSET:
            with self._lock:
                value = self._value
                if value is UNSET:
                    assert self._make is not None
                    value = self._value = self._make()
                    self._make = None
        return value


class Cached:
    """`functools.cached_property`."""

    def __init__(self, make: Make) -> None:
        self.make = make

    @cached_property
    def value(self) -> object:
        return self.make()


class Lazily:
    """`lazy` on a class with a ``__dict__``."""

    def __init__(self, make: Make) -> None:
        self.make = make

    @lp.lazy
    def value(self) -> object:
        return self.make()


class LazilySlotted:
    """`lazy` on a class with slots."""

    __slots__ = ("_value", "make")

    def __init__(self, make: Make) -> None:
        self.make = make

    @lp.lazy
    def value(self) -> object:
        return self.make()


class LazilyInSlot:
    """`lazy.in_slot`."""

    __slots__ = ("_value", "make")

    def __init__(self, make: Make) -> None:
        self.make = make

    @lp.lazy.in_slot("_value")
    def value(self) -> object:
        return self.make()
