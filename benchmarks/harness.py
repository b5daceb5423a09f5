"""Fair measuring: fresh processes, cases that take turns, warm memory, peaks. Linux only."""

from __future__ import annotations

import gc
import mmap
import os
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

K = TypeVar("K")
T = TypeVar("T")

PAGE = 4096
MIB = 1 << 20


class WrongResult(Exception):
    """A measured case gave something else than it should."""


@dataclass(frozen=True)
class Cost:
    """Seconds, and by how many bytes the peak of resident memory grew (mapped pages count)."""

    seconds: float
    peak: int


@dataclass(frozen=True)
class Scale:
    """How much is measured: small sizes and few rounds, or all of it."""

    quick: bool
    folder: Path

    def pick(self, full: T, quick: T) -> T:
        return quick if self.quick else full


def apart(work: Callable[..., T], *args: Any) -> T:
    """What ``work(*args)`` gives in a fresh process; its imports are done before it starts."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *args).result()


def take_turns(rounds: int, cases: Mapping[K, Callable[[], T]]) -> dict[K, list[T]]:
    """What every case gave in every round; within a round they run in an order of chance."""
    results: dict[K, list[T]] = {name: [] for name in cases}
    chance = random.Random(1)
    for _ in range(rounds):
        for name in chance.sample(list(cases), len(cases)):
            results[name].append(cases[name]())
    return results


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def cost(work: Callable[[], T], room: int = 0) -> tuple[T, Cost]:
    """What `work` gives, and what it cost.

    `room` is how many bytes of memory are made ready before; see `make_room`.
    """
    make_room(room)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = memory("VmRSS")
    start = time.perf_counter()
    made = work()
    seconds = time.perf_counter() - start
    return made, Cost(seconds, memory("VmHWM") - before)


def make_room(nbytes: int) -> None:
    """Touch that much memory and free it, on huge pages.

    A virtual machine may have given free memory back to its host. Whoever touches it next gets it
    back from there, ten times slower than from the kernel; that must hit none of the cases.
    """
    for _ in range(2 if nbytes else 0):
        with mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as fresh:
            fresh.madvise(mmap.MADV_HUGEPAGE)
            for at in range(0, nbytes, PAGE):
                fresh[at] = 1


def memory(what: str) -> int:
    """Bytes that this process has of `what`: a line of /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == what:
            return int(value.split()[0]) * 1024
    raise WrongResult(f"this system does not tell {what}")


def warm(path: Path) -> None:
    """Bring the file into the page cache."""
    block = bytearray(4 * MIB)
    with path.open("rb", buffering=0) as file:
        while file.readinto(block):
            pass
