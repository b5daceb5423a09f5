"""What type checkers are to see of the once-cell; `make lint` checks it, nothing runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, assert_type

import lazyparam as lp

T = TypeVar("T")

cell = lp.OnceCell[int]()
assert_type(cell.value, int)
assert_type(cell.get(), int | None)
assert_type(cell.get("none"), int | str)
assert_type(cell.get_or_init(lambda: 3, timeout=1.0), int)
assert_type(cell.is_set, bool)
cell.set(3)

number = lp.Lazy(lambda: 3)
assert_type(number, lp.Lazy[int])
assert_type(number.value, int)
assert_type(number.get(timeout=1.0), int)
assert_type(number.peek(), int | None)
assert_type(number.peek(b""), int | bytes)
assert_type(lp.Lazy.of("ready"), lp.Lazy[str])


async def awaiting() -> None:
    assert_type(await number.aget(), int)


def wants_a_float(lazy: lp.Lazy[float]) -> float:
    return lazy.value


# Covariant: what makes an int makes a float.
wants_a_float(number)
sequence: lp.Lazy[Sequence[object]] = lp.Lazy[list[int]](lambda: [1])


class Model:
    @lp.lazy
    def weights(self) -> list[int]:
        return [1]


class Larger(Model):
    @property
    def total(self) -> int:
        return sum(self.weights)


assert_type(Model().weights, list[int])
assert_type(Larger().weights, list[int])
assert_type(Model.weights, lp.lazy[list[int]])


class Slotted:
    __slots__ = ("_total", "_weights")

    @lp.lazy
    def weights(self) -> list[int]:
        return [1]

    @lp.lazy.in_slot("_total")
    def total(self) -> int:
        return sum(self.weights)


assert_type(Slotted().weights, list[int])
assert_type(Slotted().total, int)


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    _length: Any = field(init=False, repr=False, compare=False)

    @lp.lazy
    def length(self) -> float:
        return abs(self.x)


assert_type(Point(-1.0).length, float)


class Pair(Generic[T]):
    def __init__(self, one: T) -> None:
        self.one = one

    @lp.lazy
    def both(self) -> tuple[T, T]:
        return (self.one, self.one)


assert_type(Pair("a").both, tuple[str, str])


@lp.once
def settings() -> dict[str, int]:
    return {}


assert_type(settings, lp.Once[dict[str, int]])
assert_type(settings(), dict[str, int])
assert_type(settings.is_ready, bool)
