"""Read the value of a ready parameter, against the least that PyO3 and Python can do."""

from __future__ import annotations

import timeit
from functools import cached_property
from random import Random
from typing import Any

import lazyparam as lp

from .harness import Scale, WrongResult, apart
from .table import Row, duration, times

UNROLLED = 50
SLICE = 2.5e-3
"""Seconds: short enough that some rounds meet no other work of the machine."""

CASES = {
    "p.val()": "",
    "p.value": "",
    "p.is_tied_to(p)": "a PyO3 method that does next to nothing",
    "p.requires_grad": "a PyO3 getter that does next to nothing",
    "o.slot": "a slot of a Python object",
    "o.cached": "functools.cached_property",
}


class Plain:
    """An object with a slot and, in its ``__dict__``, a cached property."""

    __slots__ = ("__dict__", "slot")

    def __init__(self, value: Any) -> None:
        self.slot = value

    @cached_property
    def cached(self) -> Any:
        return self.slot


def measure(rounds: int) -> dict[str, float]:
    """The best seconds for one read in each way; the ways take turns."""
    p = lp.Param((8, 8), lp.init.zeros()).clone()
    o = Plain(p.val())
    if not (p.val() is p.value is o.slot is o.cached and p.is_tied_to(p)):
        raise WrongResult("the reads differ")
    timers = {
        code: timeit.Timer("\n".join([code] * UNROLLED), globals={"p": p, "o": o}) for code in CASES
    }
    passes = {}
    for code, timer in timers.items():
        passes[code] = max(1, round(SLICE / (min(timer.repeat(5, 200)) / 200)))
    best = dict.fromkeys(CASES, float("inf"))
    chance = Random(1)
    for _ in range(rounds):
        for code in chance.sample(list(CASES), len(CASES)):
            each = timers[code].timeit(passes[code]) / passes[code] / UNROLLED
            best[code] = min(best[code], each)
    return best


def run(scale: Scale) -> list[Row]:
    best = apart(measure, scale.pick(200, 10))

    def row(ours: str, peer: str, goal: float | None = None) -> Row:
        ratio = best[ours] / best[peer]
        return Row(
            f"{ours} of a ready param",
            duration(best[ours]),
            f"{peer}, {CASES[peer]}: {duration(best[peer])}",
            f"{times(ratio)} the time",
            f"≤ {times(goal)}" if goal else "",
            ratio <= goal if goal else None,
        )

    return [
        row("p.val()", "p.is_tied_to(p)", 1.4),
        row("p.val()", "o.slot"),
        row("p.value", "p.requires_grad"),
        row("p.value", "o.slot"),
        row("p.value", "o.cached"),
    ]
