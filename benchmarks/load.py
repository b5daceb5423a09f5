"""Declare, load and touch all of a 1 GB model: time and peak memory, page cache warm."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from safetensors.numpy import load_file

from . import checkpoint, llama
from .checkpoint import Arrays
from .harness import MIB, Cost, Scale, WrongResult, apart, cost, processors, take_turns, warm
from .llama import Llama, Size
from .table import Row, duration, over_rounds, ratios, size, times

SLACK = 64 * MIB


def ours(path: Path, size: Size) -> Arrays:
    model = Llama(size).load_file(path, mode="copy").initialize()
    return llama.values(model)


def plain_load_file(path: Path, size: Size) -> Arrays:
    return load_file(path)


def eager_then_copy(path: Path, size: Size) -> Arrays:
    arrays = {name: np.zeros(shape, np.float32) for name, shape in llama.shapes(size).items()}
    for name, array in load_file(path).items():
        arrays[name][...] = array
    return arrays


def by_hand(path: Path, size: Size) -> Arrays:
    stored = checkpoint.header(path)
    arrays = {name: np.empty(entry.shape, np.float32) for name, entry in stored.items()}
    with path.open("rb", buffering=0) as file, ThreadPoolExecutor(processors()) as pool:

        def read(name: str) -> None:
            got = os.preadv(file.fileno(), [arrays[name].data], stored[name].begin)
            if got != arrays[name].nbytes:
                raise WrongResult(f"{name}: a short read")

        list(pool.map(read, stored))
    return arrays


CASES = {
    ours: "",
    plain_load_file: "safetensors.numpy.load_file",
    eager_then_copy: "np.zeros each, load_file, copy in",
    by_hand: "os.preadv into np.empty, {} threads",
}


def measure(case: Callable[[Path, Size], Arrays], path: Path, size: Size) -> tuple[Cost, int]:
    def work() -> Arrays:
        arrays = case(path, size)
        checkpoint.touch(arrays.values())
        return arrays

    warm(path)
    arrays, spent = cost(work, room=3 * path.stat().st_size + SLACK)
    checkpoint.check(arrays, path)
    return spent, llama.runs


def run(scale: Scale) -> list[Row]:
    model, path = llama.prepare(scale)
    stored = path.stat().st_size
    measured = take_turns(
        scale.pick(7, 2), {case: partial(apart, measure, case, path, model) for case in CASES}
    )
    seconds = {case: [spent.seconds for spent, _ in measured[case]] for case in CASES}
    peaks = {case: max(spent.peak for spent, _ in measured[case]) for case in CASES}
    what = f"declare, load, touch {stored / 1e9:.2g} GB"
    rows = []
    for case, name in CASES.items():
        if case is ours:
            continue
        ratio = median(ratios(seconds[ours], seconds[case]))
        is_goal = case is plain_load_file
        rows.append(
            Row(
                what,
                over_rounds(seconds[ours], duration),
                f"{name.format(processors())}: {over_rounds(seconds[case], duration)}",
                f"{times(ratio)} the speed",
                "≥ 3×" if is_goal else "",
                ratio >= 3 if is_goal else None,
            )
        )
    for case in (plain_load_file, eager_then_copy):
        is_goal = case is plain_load_file
        rows.append(
            Row(
                "its peak memory, the worst round",
                f"file + {size(peaks[ours] - stored)}",
                f"{CASES[case]}: file + {size(peaks[case] - stored)}",
                f"{times(peaks[ours] / peaks[case])} the memory",
                f"≤ file + {size(SLACK)}" if is_goal else "",
                peaks[ours] <= stored + SLACK if is_goal else None,
            )
        )
    count = sum(runs for _, runs in measured[ours])
    rows.append(Row("initialisers run", str(count), goal="0", ok=count == 0))
    return rows
