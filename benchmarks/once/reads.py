"""Reads of a value that is there, against a slot and against what others do."""

from __future__ import annotations

import sys
import timeit
from random import Random

import lazyparam as lp

from ..harness import Scale, WrongResult, apart
from ..table import Row, duration, times
from . import peers

UNROLLED = 50
SLICE = 2.5e-3
"""Seconds: short enough that some rounds meet no other work of the machine."""

SLOT = "unit.slot"
CACHED = "cached.value"
NO_OP = "lazy.__copy__()"
DOUBLE_CHECKED = "dcl.get()"

CASES = {
    SLOT: "a slot of a Python object",
    CACHED: "functools.cached_property",
    NO_OP: "a PyO3 method that does nothing",
    "p.is_tied_to(p)": "a PyO3 method that does next to nothing",
    DOUBLE_CHECKED: "a lock taken after a look, in Python",
    "lazy.value": "Lazy",
    "lazy.get()": "Lazy",
    "cell.value": "OnceCell",
    "p.value": "Param",
    "p.val()": "Param",
    "with_dict.value": "@lazy, class with a __dict__",
    "slotted.value": "@lazy, class with __slots__",
    "in_slot.value": "@lazy.in_slot",
    "wrapt_proxy.__wrapped__": "wrapt.LazyObjectProxy",
    "lop_proxy.__wrapped__": "lazy_object_proxy.Proxy",
}

IN_LINE = sys.version_info >= (3, 12)
"""Whether this interpreter reads the slots of classes with a ``__getattr__`` in line."""


def objects() -> dict[str, object]:
    """What the cases read, by the names that they have in there."""
    p = lp.Param((8, 8), lp.init.zeros()).clone()
    value = p.val()
    cell = lp.OnceCell[object]()
    cell.set(value)

    def make() -> object:
        return value

    found = {
        "unit": peers.OneSlot(value),
        "p": p,
        "cell": cell,
        "lazy": lp.Lazy(make),
        "cached": peers.Cached(make),
        "dcl": peers.DoubleChecked(make),
        "with_dict": peers.Lazily(make),
        "slotted": peers.LazilySlotted(make),
        "in_slot": peers.LazilyInSlot(make),
    }
    if peers.LazyObjectProxy:
        found["wrapt_proxy"] = peers.LazyObjectProxy(make)
    if peers.Proxy:
        found["lop_proxy"] = peers.Proxy(make)
    return found


def measure(rounds: int) -> dict[str, float]:
    """The best seconds for one read in each way; the ways take turns."""
    names = objects()
    cases = [case for case in CASES if case.partition(".")[0] in names]
    value = eval(SLOT, names)
    expected = {NO_OP: names["lazy"], "p.is_tied_to(p)": True}
    for case in cases:
        if eval(case, names) is not expected.get(case, value):
            raise WrongResult(f"{case} gives something else than it should")
    timers = {case: timeit.Timer("\n".join([case] * UNROLLED), globals=names) for case in cases}
    passes = {
        case: max(1, round(SLICE / (min(timer.repeat(5, 200)) / 200)))
        for case, timer in timers.items()
    }
    best = dict.fromkeys(cases, float("inf"))
    chance = Random(1)
    for _ in range(rounds):
        for case in chance.sample(cases, len(cases)):
            each = timers[case].timeit(passes[case]) / passes[case] / UNROLLED
            best[case] = min(best[case], each)
    return best


def run(scale: Scale) -> list[Row]:
    best = apart(measure, scale.pick(200, 10))

    def row(ours: str, peer: str, goal: float | None = None) -> Row:
        ratio = best[ours] / best[peer]
        return Row(
            f"read {ours}, {CASES[ours]}",
            duration(best[ours]),
            f"{peer}, {CASES[peer]}: {duration(best[peer])}",
            f"{times(ratio)} the time",
            f"≤ {times(goal)}" if goal else "",
            ratio <= goal if goal else None,
        )

    at_a_slots_speed = 1.15 if IN_LINE else None
    rows = [
        row("lazy.value", SLOT, at_a_slots_speed),
        row("cell.value", SLOT, at_a_slots_speed),
        row("p.value", SLOT, at_a_slots_speed),
        row("in_slot.value", SLOT, at_a_slots_speed),
        row("slotted.value", SLOT),
        row("lazy.value", CACHED, 1 / 2.8 if IN_LINE else 1.0),
        row("p.value", CACHED, None if IN_LINE else 1.0),
        row("with_dict.value", CACHED, 1.05),
        row("slotted.value", CACHED),
        row("lazy.get()", NO_OP, 1.4),
        row("p.val()", "p.is_tied_to(p)", 1.4),
        row("lazy.get()", DOUBLE_CHECKED, 0.5),
        row("lazy.value", DOUBLE_CHECKED),
    ]
    proxies = ("wrapt_proxy.__wrapped__", "lop_proxy.__wrapped__")
    return rows + [row("lazy.value", peer) for peer in proxies if peer in best]
