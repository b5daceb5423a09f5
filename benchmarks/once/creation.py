"""What a cell costs before it is read, in time and memory, and what its first read costs."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from random import Random
from time import perf_counter
from typing import Any, TypeAlias

import lazyparam as lp

from ..harness import Scale, WrongResult, apart
from ..table import Row, duration, times
from . import peers

COUNT = 1000
"""Objects made, or read for the first time, in one slice."""

FEW = 20
"""The same for wrapt, which makes a class for each of its proxies."""

VALUE = object()

Kind: TypeAlias = Callable[[peers.Make], Any]


def make() -> object:
    return VALUE


def get(made: Sequence[Any]) -> None:
    for one in made:
        one.get()


def value(made: Sequence[Any]) -> None:
    for one in made:
        _ = one.value


def wrapped(made: Sequence[Any]) -> None:
    for one in made:
        _ = one.__wrapped__


KINDS: dict[str, Kind] = {
    "one slot": peers.OneSlot,
    "Lazy": lp.Lazy,
    "@lazy, __dict__": peers.Lazily,
    "@lazy, __slots__": peers.LazilySlotted,
    "@lazy.in_slot": peers.LazilyInSlot,
    "cached_property": peers.Cached,
    "lock after a look": peers.DoubleChecked,
}
READS: dict[tuple[str, str], Callable[[Sequence[Any]], None]] = {
    ("Lazy", ".get()"): get,
    ("Lazy", ".value"): value,
    ("@lazy, __dict__", ".value"): value,
    ("@lazy, __slots__", ".value"): value,
    ("@lazy.in_slot", ".value"): value,
    ("cached_property", ".value"): value,
    ("lock after a look", ".get()"): get,
}
if peers.LazyObjectProxy:
    KINDS["wrapt"] = peers.LazyObjectProxy
    READS["wrapt", ".__wrapped__"] = wrapped
if peers.Proxy:
    KINDS["lazy_object_proxy"] = peers.Proxy
    READS["lazy_object_proxy", ".__wrapped__"] = wrapped


def count(kind: str) -> int:
    return FEW if kind == "wrapt" else COUNT


def creating(kind: str) -> float:
    """Seconds to make one."""
    new, rows = KINDS[kind], repeat(None, count(kind))
    start = perf_counter()
    made = [new(make) for _ in rows]
    return (perf_counter() - start) / len(made)


def reading(kind: str, read: str) -> float:
    """Seconds for one first read."""
    new = KINDS[kind]
    made = [new(make) for _ in range(count(kind))]
    start = perf_counter()
    READS[kind, read](made)
    seconds = (perf_counter() - start) / len(made)
    if eval(f"one{read}", {"one": made[-1]}) is not VALUE:
        raise WrongResult(f"the first read of {kind} gave something else")
    return seconds


def nbytes(kind: str) -> tuple[float, float]:
    """Bytes of one, before and after its first read."""
    new = KINDS[kind]
    reads = [read for name, read in READS if name == kind]
    made: list[Any] = [None] * count(kind)
    if reads:
        READS[kind, reads[0]]([new(make)])  # what is made at the first of all reads is not counted
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for at in range(len(made)):
            made[at] = new(make)
        new_ones = tracemalloc.get_traced_memory()[0]
        if reads:
            READS[kind, reads[0]](made)
        read_ones = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    return (new_ones - before) / len(made), (read_ones - before) / len(made)


def measure(rounds: int) -> tuple[dict[Any, float], dict[str, tuple[float, float]]]:
    """The best seconds of each case, which take turns; the bytes of each kind."""
    cases: dict[Any, Callable[[], float]] = {kind: partial(creating, kind) for kind in KINDS}
    cases |= {case: partial(reading, *case) for case in READS}
    best = dict.fromkeys(cases, float("inf"))
    chance = Random(1)
    gc.disable()
    try:
        for _ in range(rounds):
            for case in chance.sample(list(cases), len(cases)):
                best[case] = min(best[case], cases[case]())
            gc.collect()
    finally:
        gc.enable()
    return best, {kind: nbytes(kind) for kind in KINDS}


def run(scale: Scale) -> list[Row]:
    best, sizes = apart(measure, scale.pick(100, 5))

    def row(what: str, ours: Any, peer: Any, goal: float | None = None) -> Row:
        ratio = best[ours] / best[peer]
        name = "".join(peer)
        return Row(
            f"{what} {''.join(ours)}",
            duration(best[ours]),
            f"{name}: {duration(best[peer])}",
            f"{times(ratio)} the time",
            f"≤ {times(goal)}" if goal else "",
            ratio <= goal if goal else None,
        )

    def told(kind: str) -> str:
        new, read = sizes[kind]
        return f"{new:.0f} B" if round(new) == round(read) else f"{new:.0f} B, read {read:.0f} B"

    others = [kind for kind in KINDS if kind not in ("Lazy", "one slot") and "@" not in kind]
    by_lock = ("lock after a look", ".get()")
    by_dict = ("cached_property", ".value")
    rows = [row("create", "Lazy", "one slot", 1.2)]
    rows += [row("create", "Lazy", kind) for kind in others]
    rows += [
        Row(
            "memory of one Lazy",
            told("Lazy"),
            ", ".join(f"{kind}: {told(kind)}" for kind in ("one slot", *others)),
            goal="≤ 64 B",
            ok=round(max(sizes["Lazy"])) <= 64,
        ),
        row("first read", ("Lazy", ".get()"), by_lock, 1.2),
        row("first read", ("Lazy", ".value"), by_lock, 4.0),
        row("first read", ("@lazy, __dict__", ".value"), by_dict),
        row("first read", ("@lazy, __slots__", ".value"), by_dict),
        row("first read", ("@lazy.in_slot", ".value"), by_dict),
    ]
    proxies = [case for case in READS if case[1] == ".__wrapped__"]
    return rows + [row("first read", ("Lazy", ".value"), case) for case in proxies]
