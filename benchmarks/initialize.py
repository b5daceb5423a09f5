"""Draw a 1 GB model by `initialize`, with one thread and two, another Python thread ticking."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import TypeAlias

import numpy as np

import lazyparam as lp

from . import llama
from .harness import Scale, WrongResult, apart, make_room, processors, take_turns
from .heartbeat import Heart
from .llama import Size
from .table import Row, duration, ratios, times

Shapes: TypeAlias = dict[str, tuple[int, ...]]

GOAL = 1.7


class Model(lp.Module):
    """Parameters of these shapes, drawn from normal laws."""

    def __init__(self, shapes: Shapes) -> None:
        self.of = {name: lp.Param(shape, lp.init.normal(0, 0.02)) for name, shape in shapes.items()}


def llama_shapes(size: Size) -> Shapes:
    return {name.replace(".", "_"): shape for name, shape in llama.shapes(size).items()}


def one_large(size: Size) -> Shapes:
    """Little beside one large tensor: threads that take whole parameters would leave it to one."""
    width = 8 * size.width
    return {"norm": (width,), "embedding": (2 * size.vocabulary, size.width), "bias": (width,)}


CASES: dict[Callable[[Size], Shapes], str] = {
    llama_shapes: "{} tensors",
    one_large: "{} tensors, one of them nearly all",
}


def measure(shapes: Shapes, threads: int) -> tuple[float, float]:
    """Seconds, and the worst delay of the other thread."""
    model = Model(shapes).seed(42)
    make_room(model.num_params() * 4)
    with Heart() as heart:
        start = time.perf_counter()
        model.initialize(threads, progress=False)
        seconds = time.perf_counter() - start
    for name, param in model.of.items():
        key = lp.init.Key(42, "of", name)
        part = tuple(slice(0, min(3, extent)) for extent in param.shape)
        if not np.array_equal(
            param.value[part], lp.init.fill(lp.init.normal(0, 0.02), key, param.shape, box=part)
        ):
            raise WrongResult(f"{name} has other values than its key gives")
    return seconds, max(heart.late)


def measure_all(shapes: Shapes, rounds: int) -> dict[int, list[tuple[float, float]]]:
    return take_turns(rounds, {threads: partial(measure, shapes, threads) for threads in (1, 2)})


def run(scale: Scale) -> list[Row]:
    size = scale.pick(llama.FULL, llama.QUICK)
    rows = []
    for case, name in CASES.items():
        shapes = case(size)
        measured = apart(measure_all, shapes, scale.pick(31, 2))
        one, two = ([seconds for seconds, _ in measured[threads]] for threads in (1, 2))
        ratio = min(one) / min(two)
        usual = median(ratios(two, one))
        elements = sum(int(np.prod(shape)) for shape in shapes.values())
        late = {threads: median(late for _, late in measured[threads]) for threads in (1, 2)}
        rows.append(
            Row(
                f"initialize() {4 * elements / 1e9:.2g} GB, {name.format(len(shapes))}, 2 threads",
                f"{duration(min(two))}, a 1 ms tick late by {duration(late[2])}",
                f"1 thread: {duration(min(one))}, {duration(late[1])}",
                f"{times(ratio)} the speed, median round {times(usual)}",
                f"≥ {GOAL}× on idle processors" if processors() > 1 else "",
                ratio >= GOAL if processors() > 1 else None,
            )
        )
    return rows
