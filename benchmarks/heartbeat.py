"""By how much a thread that ticks every millisecond is late while the 1 GB model is loaded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Self, TypeAlias

import numpy as np
from safetensors.numpy import load_file

from . import checkpoint, llama
from .checkpoint import Arrays
from .harness import Scale, apart, make_room, processors, take_turns, warm
from .llama import Llama, Size
from .table import Row, duration, over_rounds

TICK = 1e-3
LIMIT = 5e-3

Case: TypeAlias = Callable[[Path, Llama], Arrays | None]


class Heart:
    """A thread that ticks, and notes by how many seconds each tick was late."""

    def __init__(self) -> None:
        self._stop = False
        self.late: list[float] = []
        self._thread = threading.Thread(target=self._beat)

    def __enter__(self) -> Self:
        self._thread.start()
        time.sleep(20 * TICK)
        self.late.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self._thread.join()

    def _beat(self) -> None:
        before = time.perf_counter()
        while not self._stop:
            time.sleep(TICK)
            now = time.perf_counter()
            self.late.append(now - before - TICK)
            before = now


def idle(path: Path, declared: Llama) -> None:
    time.sleep(0.3)


def ours(path: Path, declared: Llama, threads: int | None = None) -> Arrays:
    return llama.values(declared.load_file(path, mode="copy").initialize(threads))


def ours_one_thread(path: Path, declared: Llama) -> Arrays:
    return ours(path, declared, 1)


def plain_load_file(path: Path, declared: Llama) -> Arrays:
    return load_file(path)


CASES: dict[Case, str] = {
    ours: "initialize(), {} threads",
    ours_one_thread: "initialize(threads=1)",
    idle: "nothing else running",
    plain_load_file: "safetensors.numpy.load_file",
}


def measure(case: Case, path: Path, size: Size) -> list[float]:
    declared = Llama(size)
    warm(path)
    make_room(2 * path.stat().st_size)
    with Heart() as heart:
        arrays = case(path, declared)
    if arrays is not None:
        checkpoint.check(arrays, path)
    return heart.late


def run(scale: Scale) -> list[Row]:
    model, path = llama.prepare(scale)
    measured = take_turns(
        scale.pick(9, 2), {case: partial(apart, measure, case, path, model) for case in CASES}
    )
    worst = {case: [max(late) for late in measured[case]] for case in CASES}
    rare = {case: np.quantile([*chain(*measured[case])], 0.999) for case in CASES}

    def told(case: Case) -> str:
        return f"{over_rounds(worst[case], duration)}, 99.9 % {duration(rare[case])}"

    return [
        Row(
            f"worst delay of a 1 ms tick, {CASES[mine].format(processors())}",
            told(mine),
            f"{CASES[peer]}: {told(peer)}",
            goal="≤ 5 ms, median round" if peer is idle else "",
            ok=median(worst[mine]) <= LIMIT if peer is idle else None,
        )
        for mine in (ours, ours_one_thread)
        for peer in (idle, plain_load_file)
    ]
