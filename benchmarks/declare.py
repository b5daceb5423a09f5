"""Declare 100,000 parameters: time and resident memory for each."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any, TypeAlias

import lazyparam as lp

from .harness import Cost, Scale, WrongResult, apart, cost, take_turns
from .table import Row, duration, over_rounds, ratios, times

SHAPE = (64, 64)

Case: TypeAlias = Callable[[int], Sequence[Any]]


class Slots:
    """What a parameter has to remember, as a plain Python object."""

    __slots__ = ("device", "dtype", "id", "init", "shape")

    def __init__(self, shape: tuple[int, ...], init: object, dtype: str, device: str) -> None:
        self.shape = tuple(shape)
        self.init = init
        self.dtype = dtype
        self.device = device
        self.id = random.getrandbits(64)


def ours(count: int) -> Sequence[Any]:
    zeros = lp.init.zeros()
    return [lp.Param(SHAPE, zeros, "float32", "cpu") for _ in range(count)]


def ours_by_default(count: int) -> Sequence[Any]:
    zeros = lp.init.zeros()
    return [lp.Param(SHAPE, zeros) for _ in range(count)]


def slots(count: int) -> Sequence[Any]:
    zeros = lp.init.zeros()
    return [Slots(SHAPE, zeros, "float32", "cpu") for _ in range(count)]


def torch_meta(count: int) -> Sequence[Any]:
    torch = import_module("torch")
    return [torch.nn.Parameter(torch.empty(SHAPE, device="meta")) for _ in range(count)]


def measure(case: Case, count: int) -> Cost:
    case(10)  # imports what it needs
    made, spent = cost(partial(case, count), room=64 << 20)
    if len(made) != count or any(tuple(one.shape) != SHAPE for one in made):
        raise WrongResult("not what was declared")
    if isinstance(made[0], lp.Param) and any(one.is_initialized for one in made):
        raise WrongResult("a declaration brought a value into being")
    return spent


def run(scale: Scale) -> list[Row]:
    count = scale.pick(100_000, 10_000)
    has_torch = find_spec("torch") is not None
    peers: dict[Case, str] = {slots: "a Python object with slots"}
    if has_torch:
        peers[torch_meta] = "torch.nn.Parameter on meta"
    measured = take_turns(
        scale.pick(7, 2),
        {case: partial(apart, measure, case, count) for case in (ours, ours_by_default, *peers)},
    )
    seconds = {case: [spent.seconds / count for spent in measured[case]] for case in measured}
    memory = {case: [spent.peak / count for spent in measured[case]] for case in measured}

    def told(case: Case) -> str:
        return f"{over_rounds(seconds[case], duration)}, {median(memory[case]):.0f} B"

    rows = []
    for mine, what in ((ours, ""), (ours_by_default, ", dtype and device by default")):
        for peer, name in peers.items():
            time = median(ratios(seconds[peer], seconds[mine]))
            space = median(ratios(memory[peer], memory[mine]))
            rows.append(
                Row(
                    f"declare one of {count:,} params{what}",
                    told(mine),
                    f"{name}: {told(peer)}",
                    f"{times(time)} the time, {times(space)} the memory",
                )
            )
    if not has_torch:
        rows.append(Row("the same against torch meta parameters", "", "torch not installed"))
    return rows
