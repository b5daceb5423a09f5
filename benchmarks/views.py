"""Open the 1 GB model as views of the file, then touch every page."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from safetensors.numpy import load_file

from . import checkpoint, llama
from .harness import Scale, apart, memory, take_turns, warm
from .llama import Llama, Size
from .table import Row, duration, over_rounds, ratios, size, times


class Sample(NamedTuple):
    """Seconds to open, seconds to touch all, bytes of private memory that this took."""

    opening: float
    touching: float
    private: int


def measure(case: Callable[[Path, Size], Sample], path: Path, size: Size) -> Sample:
    warm(path)
    return case(path, size)


def ours(path: Path, size: Size) -> Sample:
    declared = Llama(size)
    before = memory("RssAnon")
    start = time.perf_counter()
    model = declared.load_file(path, mode="view")
    opened = time.perf_counter()
    checkpoint.touch(param.value for param in model.parameters())
    touched = time.perf_counter()
    private = memory("RssAnon") - before
    checkpoint.check(llama.values(model), path)
    return Sample(opened - start, touched - opened, private)


def numpy_views(path: Path, size: Size) -> Sample:
    return _eager(checkpoint.views, path)


def plain_load_file(path: Path, size: Size) -> Sample:
    return _eager(load_file, path)


def _eager(load: Callable[[Path], checkpoint.Arrays], path: Path) -> Sample:
    before = memory("RssAnon")
    start = time.perf_counter()
    arrays = load(path)
    opened = time.perf_counter()
    checkpoint.touch(arrays.values())
    touched = time.perf_counter()
    private = memory("RssAnon") - before
    checkpoint.check(arrays, path)
    return Sample(opened - start, touched - opened, private)


PEERS = {numpy_views: "json and np.memmap", plain_load_file: "safetensors.numpy.load_file (copies)"}


def run(scale: Scale) -> list[Row]:
    model, path = llama.prepare(scale)
    stored = path.stat().st_size
    measured = take_turns(
        scale.pick(7, 2),
        {case: partial(apart, measure, case, path, model) for case in (ours, *PEERS)},
    )
    opening = {case: [sample.opening for sample in measured[case]] for case in measured}
    touching = {case: [sample.touching for sample in measured[case]] for case in measured}
    private = {case: max(sample.private for sample in measured[case]) for case in measured}
    rows = [
        Row(
            f"open {stored / 1e9:.2g} GB as views",
            over_rounds(opening[ours], duration),
            f"{name}: {over_rounds(opening[case], duration)}",
            f"{times(median(ratios(opening[ours], opening[case])))} the speed",
            "< 5 ms",
            median(opening[ours]) < 5e-3,
        )
        for case, name in PEERS.items()
    ]
    rows.append(
        Row(
            "touch every page of the views",
            over_rounds(touching[ours], duration),
            f"{PEERS[numpy_views]}: {over_rounds(touching[numpy_views], duration)}",
            f"{times(median(ratios(touching[ours], touching[numpy_views])))} the speed",
        )
    )
    rows.append(
        Row(
            "private memory after that, the worst round",
            size(private[ours]),
            f"{PEERS[plain_load_file]}: {size(private[plain_load_file])}",
        )
    )
    return rows
