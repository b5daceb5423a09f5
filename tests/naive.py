"""How a value made once is usually written, to show that the scenarios tell the difference."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tests.once_forms import Factory, Form, Made

_UNSET = object()


class CachedProperty:
    """The standard library's, whose lock went with Python 3.12."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory

    @functools.cached_property
    def value(self) -> Any:
        return self.factory()


class LruCached:
    """A method cache."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory

    @functools.lru_cache(maxsize=None)  # noqa: UP033 - the name it is known by
    def value(self) -> Any:
        return self.factory()


class DoubleChecked:
    """Look, lock, look again, make."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory
        self._value: Any = _UNSET
        self._lock: Any = threading.Lock()

    @property
    def value(self) -> Any:
        if self._value is _UNSET:
            with self._lock:
                if self._value is _UNSET:
                    self._value = self.factory()
        return self._value


class Reentrant(DoubleChecked):
    """The same with a lock that its owner may take again, as wrapt has it."""

    def __init__(self, factory: Factory) -> None:
        super().__init__(factory)
        self._lock = threading.RLock()


class locked_property:  # noqa: N801
    """``functools.cached_property`` as it was until Python 3.11: one lock for all instances."""

    def __init__(self, method: Callable[[Any], Any]) -> None:
        self.method = method
        self.lock = threading.RLock()

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        values = vars(instance)
        if self.name not in values:
            with self.lock:
                if self.name not in values:
                    values[self.name] = self.method(instance)
        return values[self.name]


class LockedProperty:
    """All instances share a lock."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory

    @locked_property
    def value(self) -> Any:
        return self.factory()


class OneFuture:
    """The first who asks makes it, all others get what came of that: Go's ``sync.OnceValue``."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory
        self.future: Future[Any] = Future()
        self.is_taken = threading.Lock()

    @property
    def value(self) -> Any:
        if self.is_taken.acquire(blocking=False):
            try:
                self.future.set_result(self.factory())
            except BaseException as error:
                self.future.set_exception(error)
        return self.future.result()


def _owned(owner: type) -> Callable[[Factory], Made]:
    def make(factory: Factory) -> Made:
        holder = owner(factory)
        return Made(lambda: holder.value, holder)

    return make


def _lru(factory: Factory) -> Made:
    holder = LruCached(factory)
    return Made(holder.value, holder)


CACHED_PROPERTY = Form(
    "functools.cached_property", _owned(CachedProperty), functools.cached_property
)
LRU_CACHE = Form("functools.lru_cache", _lru, functools.lru_cache(maxsize=None))
DOUBLE_CHECKED = Form("double-checked lock", _owned(DoubleChecked))
REENTRANT = Form("RLock per object", _owned(Reentrant))
LOCKED_PROPERTY = Form("one RLock for all", _owned(LockedProperty), locked_property)
ONE_FUTURE = Form("one future", _owned(OneFuture))

FORMS = (CACHED_PROPERTY, LRU_CACHE, DOUBLE_CHECKED, REENTRANT, LOCKED_PROPERTY, ONE_FUTURE)
