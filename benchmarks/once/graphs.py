"""Random graphs of cells that need each other: cycles are told, and nobody waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from random import Random

import lazyparam as lp

from ..harness import Scale, WrongResult, apart
from ..table import Row

CELLS = 6
READERS = 4
LIMIT = 10.0
"""Seconds after which a reader hangs."""


class Graph:
    """Cells whose makers read other cells; without cycles if `order` is to be kept."""

    def __init__(self, chance: Random, acyclic: bool) -> None:
        self.needs = [
            chance.sample(range(at if acyclic else CELLS), min(at if acyclic else CELLS, 2))
            for at in range(CELLS)
        ]
        self.runs = [0] * CELLS
        self.cells = [lp.Lazy(self._maker(at)) for at in range(CELLS)]
        self.cycles: list[lp.LazyCycleError] = []
        self.values: list[tuple[int, int]] = []

    def _maker(self, at: int) -> Callable[[], int]:
        def make() -> int:
            self.runs[at] += 1
            time.sleep(2e-4)
            return 1 + sum(self.cells[need].value for need in self.needs[at])

        return make

    def read(self, order: list[int]) -> None:
        for at in order:
            try:
                self.values.append((at, self.cells[at].value))
            except lp.LazyCycleError as error:
                self.cycles.append(error)

    def expected(self, at: int) -> int:
        return 1 + sum(self.expected(need) for need in self.needs[at])


def race(chance: Random, acyclic: bool) -> tuple[bool, int]:
    """Whether a reader hung, and how many cycles were told."""
    graph = Graph(chance, acyclic)
    threads = [
        threading.Thread(target=graph.read, args=(chance.sample(range(CELLS), CELLS),), daemon=True)
        for _ in range(READERS)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + LIMIT
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        return True, len(graph.cycles)
    if acyclic:
        if graph.runs != [1] * CELLS or len(graph.values) != CELLS * READERS:
            raise WrongResult(f"runs {graph.runs}, {len(graph.values)} values")
        if any(value != graph.expected(at) for at, value in graph.values):
            raise WrongResult("a cell has the wrong value")
    elif not graph.cycles:
        raise WrongResult("a cycle has gone unnoticed")
    return False, len(graph.cycles)


def measure(rounds: int) -> tuple[int, int, int, int]:
    chance = Random(1)
    with_cycles = [race(chance, acyclic=False) for _ in range(rounds)]
    without = [race(chance, acyclic=True) for _ in range(rounds)]
    return (
        sum(hung for hung, _ in with_cycles),
        sum(told for _, told in with_cycles),
        sum(hung for hung, _ in without),
        sum(told for _, told in without),
    )


def run(scale: Scale) -> list[Row]:
    rounds = scale.pick(300, 20)
    hung, told, hung_without, told_without = apart(measure, rounds)
    return [
        Row(
            f"{rounds} random graphs with cycles, {READERS} threads",
            f"{hung} hang, {told} LazyCycleErrors in {rounds * READERS * CELLS} reads",
            goal="0 hang",
            ok=hung == 0,
        ),
        Row(
            f"{rounds} random graphs without cycles, {READERS} threads",
            f"{hung_without} hang, {told_without} LazyCycleErrors",
            goal="0 hang, 0 errors",
            ok=hung_without == told_without == 0,
        ),
    ]
