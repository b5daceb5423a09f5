"""The public forms of the once-cell as one thing, to say once what holds for all of them.

A form makes, of a factory, something to read. The naive forms of `tests.naive` look the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

import lazyparam as lp
from tests.helpers import Boom, race

Factory = Callable[[], Any]


@dataclass(frozen=True)
class Made:
    """What a form made of a factory: called, it reads."""

    read: Callable[[], Any]
    holder: Any
    is_ready: Callable[[], bool] = lambda: False
    within: Callable[[float], Any] | None = None

    def __call__(self) -> Any:
        return self.read()


@dataclass(frozen=True)
class Form:
    """One way to have a value made once."""

    name: str
    make: Callable[[Factory], Made]
    # For those that are attributes: what makes one of a method.
    decorate: Callable[[Callable[[Any], Any]], Any] | None = None

    def __call__(self, factory: Factory) -> Made:
        return self.make(factory)


class InDict:
    """Keeps the value in its ``__dict__``."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory

    @lp.lazy
    def value(self) -> Any:
        return self.factory()


class InSlot:
    """Keeps the value in the slot ``_value``."""

    __slots__ = ("__weakref__", "_value", "factory")

    def __init__(self, factory: Factory) -> None:
        self.factory = factory

    @lp.lazy
    def value(self) -> Any:
        return self.factory()


class IsSlot:
    """Keeps the value in a slot that the attribute is another name of."""

    __slots__ = ("__weakref__", "_value", "factory")

    def __init__(self, factory: Factory) -> None:
        self.factory = factory

    @lp.lazy.in_slot("_value")
    def value(self) -> Any:
        return self.factory()


def _once_cell(factory: Factory) -> Made:
    cell = lp.OnceCell[Any]()
    return Made(
        lambda: cell.get_or_init(factory),
        cell,
        lambda: cell.is_set,
        lambda timeout: cell.get_or_init(factory, timeout=timeout),
    )


def _lazy_value(factory: Factory) -> Made:
    cell = lp.Lazy(factory)
    return Made(lambda: cell.value, cell, lambda: cell.is_ready, cell.get)


def _lazy_get(factory: Factory) -> Made:
    cell = lp.Lazy(factory)
    return Made(cell.get, cell, lambda: cell.is_ready, cell.get)


def _in_dict(factory: Factory) -> Made:
    owner = InDict(factory)
    return Made(lambda: owner.value, owner, lambda: "value" in vars(owner))


def _in_slot(factory: Factory) -> Made:
    owner = InSlot(factory)
    return Made(lambda: owner.value, owner, lambda: hasattr(owner, "_value"))


def _is_slot(factory: Factory) -> Made:
    owner = IsSlot(factory)
    return Made(lambda: owner.value, owner, lambda: hasattr(owner, "_value"))


def _once(factory: Factory) -> Made:
    function = lp.once(factory)
    return Made(function, function, lambda: function.is_ready)


ONCE_CELL = Form("OnceCell", _once_cell)
LAZY_VALUE = Form("Lazy.value", _lazy_value)
LAZY_GET = Form("Lazy.get", _lazy_get)
IN_DICT = Form("lazy in __dict__", _in_dict, lp.lazy)
IN_SLOT = Form("lazy in __slots__", _in_slot, lp.lazy)
IS_SLOT = Form("lazy.in_slot", _is_slot, lp.lazy.in_slot("_value"))
ONCE = Form("once", _once)

FORMS = (ONCE_CELL, LAZY_VALUE, LAZY_GET, IN_DICT, IN_SLOT, IS_SLOT, ONCE)
ATTRIBUTES = (IN_DICT, IN_SLOT, IS_SLOT)
CELLS = (ONCE_CELL, LAZY_VALUE)
# Those that can be asked to give up waiting.
PATIENT = (ONCE_CELL, LAZY_GET)


def of(*forms: Form) -> pytest.MarkDecorator:
    """Run a test for each of `forms`."""
    return pytest.mark.parametrize("form", forms, ids=[form.name for form in forms])


every_form = of(*FORMS)


class Runs:
    """A factory that counts its runs, takes a while and makes something new each time.

    The first `failures` runs raise Boom instead.
    """

    def __init__(self, seconds: float = 0.0, failures: int = 0) -> None:
        self.runs = 0
        self._seconds = seconds
        self._failures = failures
        self._lock = threading.Lock()

    def __call__(self) -> list[int]:
        with self._lock:
            self.runs += 1
            run = self.runs
        if self._seconds:
            time.sleep(self._seconds)
        if run <= self._failures:
            raise Boom(f"run {run}")
        return [run]


class Gate:
    """A factory that says when it is running, and goes on when it is told to finish."""

    def __init__(self) -> None:
        self.runs = 0
        self.running = threading.Event()
        self.finish = threading.Event()

    def __call__(self) -> list[int]:
        self.runs += 1
        self.running.set()
        assert self.finish.wait(30)
        return [self.runs]


class Meeting:
    """Where the first `size` threads that come wait for each other; who comes later does not."""

    def __init__(self, size: int, seconds: float = 20.0) -> None:
        self._seats = size
        self._lock = threading.Lock()
        self._barrier = threading.Barrier(size)
        self._seconds = seconds

    def __call__(self) -> None:
        with self._lock:
            self._seats -= 1
            is_one = self._seats >= 0
        if is_one:
            with suppress(threading.BrokenBarrierError):
                self._barrier.wait(self._seconds)


def started(work: Callable[[], Any]) -> threading.Thread:
    """A daemon thread that does `work`, whatever comes of it."""

    def run() -> None:
        try:
            work()
        except BaseException:
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def promptly(work: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What `work` gives or raises; that it does neither for `seconds` is a failure."""
    [outcome] = race([work], seconds)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def settle(thread: threading.Thread) -> None:
    """Wait for the end of `thread`."""
    thread.join(30)
    assert not thread.is_alive(), "a thread hangs"


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread is about to bring about."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.0005)
