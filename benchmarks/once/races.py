"""First reads by many threads at once: how often the value is made, how many values are seen."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import mean
from typing import TypeAlias

import lazyparam as lp

from ..harness import Scale, WrongResult, apart, take_turns
from ..table import Row, duration, times
from . import peers

PAUSE = 1e-3
BUSY = 20e-3

Read: TypeAlias = Callable[[], object]
Open: TypeAlias = Callable[[peers.Make], Read]
"""From what makes the value to what reads it."""


def read_value(kind: Callable[[peers.Make], object], make: peers.Make) -> Read:
    return partial(getattr, kind(make), "value")


def read_wrapped(kind: Callable[[peers.Make], object], make: peers.Make) -> Read:
    return partial(getattr, kind(make), "__wrapped__")


def read_double_checked(make: peers.Make) -> Read:
    return peers.DoubleChecked(make).get


LAZY = "Lazy"
ATTRIBUTE = "@lazy"
CACHED = "cached_property"
DOUBLE_CHECKED = "lock after a look"
ALONE = "one run alone"

OPEN: dict[str, Open] = {
    LAZY: partial(read_value, lp.Lazy),
    ATTRIBUTE: partial(read_value, peers.Lazily),
    CACHED: partial(read_value, peers.Cached),
    DOUBLE_CHECKED: read_double_checked,
}
if peers.LazyObjectProxy:
    OPEN["wrapt"] = partial(read_wrapped, peers.LazyObjectProxy)
if peers.Proxy:
    OPEN["lazy_object_proxy"] = partial(read_wrapped, peers.Proxy)

ONCE = (LAZY, ATTRIBUTE, DOUBLE_CHECKED)
"""Those that must make every value once."""


@dataclass(frozen=True)
class Race:
    """What one round came to; `runs` and `values` are those of one object."""

    seconds: float
    runs: float
    values: float


class Crowd:
    """Threads that start together, again and again."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._gate = threading.Barrier(size + 1)
        self._reads: Sequence[Read] | None = None
        self._begun = [0.0] * size
        self._ended = [0.0] * size
        self._found: list[object] = [None] * size
        self._threads = [threading.Thread(target=self._work, args=(at,)) for at in range(size)]
        for thread in self._threads:
            thread.start()

    def _work(self, at: int) -> None:
        while True:
            self._gate.wait()
            if self._reads is None:
                return
            read = self._reads[at]
            self._begun[at] = time.perf_counter()
            try:
                self._found[at] = read()
            except BaseException as error:
                self._found[at] = error
            self._ended[at] = time.perf_counter()
            self._gate.wait()

    def race(self, reads: Sequence[Read]) -> tuple[float, list[object]]:
        """Seconds from the first start to the last end, and what each thread got."""
        self._reads = reads
        self._gate.wait()
        self._gate.wait()
        found, self._found = self._found, [None] * self.size
        for one in found:
            if isinstance(one, BaseException):
                raise WrongResult("a read failed in a race") from one
        return max(self._ended) - min(self._begun), found

    def close(self) -> None:
        self._reads = None
        self._gate.wait()
        for thread in self._threads:
            thread.join()


@contextmanager
def crowd(size: int) -> Iterator[Crowd]:
    threads = Crowd(size)
    try:
        yield threads
    finally:
        threads.close()


@dataclass
class Maker:
    """Makes a new object each time, after some work, and counts."""

    work: Callable[[], object]
    runs: list[None] = field(default_factory=list)

    def __call__(self) -> object:
        self.runs.append(None)
        self.work()
        return object()


def one_object(name: str, threads: Crowd, work: Callable[[], object]) -> Race:
    """All threads read one object."""
    maker = Maker(work)
    seconds, found = threads.race([OPEN[name](maker)] * threads.size)
    race = Race(seconds, len(maker.runs), len({id(one) for one in found}))
    check(name, race)
    return race


def one_each(name: str, threads: Crowd, work: Callable[[], object]) -> Race:
    """Each thread reads an object of its own; they are of one class."""
    makers = [Maker(work) for _ in range(threads.size)]
    seconds, found = threads.race([OPEN[name](maker) for maker in makers])
    runs = sum(len(maker.runs) for maker in makers)
    race = Race(seconds, runs / threads.size, len({id(one) for one in found}) / threads.size)
    check(name, race)
    return race


def check(name: str, race: Race) -> None:
    if name in ONCE and (race.runs, race.values) != (1, 1):
        raise WrongResult(f"{name}: made {race.runs} times, {race.values} values")


def nap() -> None:
    time.sleep(PAUSE)


def spin(steps: int) -> None:
    for _ in range(steps):
        pass


def alone(work: Callable[[], object]) -> Race:
    start = time.perf_counter()
    work()
    return Race(time.perf_counter() - start, 1, 1)


def napping(size: int, rounds: int) -> dict[str, list[Race]]:
    with crowd(size) as threads:
        return take_turns(rounds, {name: partial(one_object, name, threads, nap) for name in OPEN})


def napping_apart(size: int, rounds: int) -> dict[str, list[Race]]:
    with crowd(size) as threads:
        return take_turns(rounds, {name: partial(one_each, name, threads, nap) for name in OPEN})


def spinning(size: int, rounds: int) -> dict[str, list[Race]]:
    trial = min(alone(partial(spin, 100_000)).seconds for _ in range(10))
    work = partial(spin, round(100_000 * BUSY / trial))
    with crowd(size) as threads:
        cases = {name: partial(one_object, name, threads, work) for name in OPEN}
        return take_turns(rounds, {ALONE: partial(alone, work), **cases})


def best(races: Sequence[Race]) -> float:
    return min(race.seconds for race in races)


def told(races: Sequence[Race]) -> str:
    """Best time; runs and values, in the mean and at most, unless always one."""
    runs, values = [race.runs for race in races], [race.values for race in races]
    if max(runs) == max(values) == 1:
        return f"{duration(best(races))}, 1 run, 1 value"
    return (
        f"{duration(best(races))}, {mean(runs):.1f} runs (up to {max(runs):.0f}), "
        f"{mean(values):.1f} values (up to {max(values):.0f})"
    )


def rows_of(what: str, races: dict[str, list[Race]], limit: str, goal: float) -> Iterator[Row]:
    """`Lazy` beside every peer, `lazy` beside the one that the goal is about, `limit`."""
    for mine, peers_of_it in ((LAZY, races.keys() - {LAZY, ATTRIBUTE}), (ATTRIBUTE, {limit})):
        for peer in (peer for peer in races if peer in peers_of_it):
            ratio = best(races[mine]) / best(races[peer])
            is_limit = peer == limit
            yield Row(
                f"{what}, {mine}",
                told(races[mine]),
                f"{peer}: {told(races[peer])}",
                f"{times(ratio)} the time",
                f"≤ {times(goal)}, 1 run" if is_limit else "",
                ratio <= goal if is_limit else None,
            )


def run(scale: Scale) -> list[Row]:
    rows: list[Row] = []
    for size in (2, 8, 64):
        races = apart(napping, size, scale.pick(200, 5))
        rows += rows_of(f"{size} threads, 1 object, 1 ms nap", races, DOUBLE_CHECKED, 1.4)
    races = apart(napping_apart, 64, scale.pick(50, 3))
    # Until 3.11 all objects of a class shared cached_property's lock.
    goal = 1.3 if sys.version_info >= (3, 12) else 0.1
    rows += rows_of("64 threads, 64 objects, 1 ms nap", races, CACHED, goal)
    races = apart(spinning, 8, scale.pick(30, 3))
    rows += rows_of("8 threads, 1 object, 20 ms of work", races, ALONE, 1.2)
    return rows
