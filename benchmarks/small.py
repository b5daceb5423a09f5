"""A checkpoint of 20,000 tensors of 4 KiB: what each tensor costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeAlias

from safetensors import safe_open
from safetensors.numpy import load_file

import lazyparam as lp
from lazyparam._core import Checkpoint

from . import checkpoint, llama
from .checkpoint import Shapes
from .harness import Scale, WrongResult, apart, take_turns, warm
from .llama import never
from .table import Row, duration, over_rounds, ratios, times

Laps: TypeAlias = dict[str, float]
"""Seconds by phase."""

Case: TypeAlias = Callable[[Path, int], Laps]

PER_EXPERT = 4
EXPERTS = 50


class Expert(lp.Module):
    """Four tensors of 4 KiB."""

    def __init__(self) -> None:
        self.gate = lp.Param((32, 32), never)
        self.up = lp.Param((32, 32), never)
        self.down = lp.Param((32, 32), never)
        self.scale = lp.Param(1024, never)


class Layer(lp.Module):
    """Experts side by side."""

    def __init__(self) -> None:
        self.experts = [Expert() for _ in range(EXPERTS)]


class Mixture(lp.Module):
    """Layers of experts, `count` tensors in all."""

    def __init__(self, count: int) -> None:
        self.layers = [Layer() for _ in range(count // (EXPERTS * PER_EXPERT))]


class Clock:
    """Notes the seconds of one phase after the other."""

    def __init__(self) -> None:
        self.laps: Laps = {}
        self._since = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._since
        self._since = time.perf_counter()


def opening(path: Path, count: int) -> Laps:
    clock = Clock()
    opened = Checkpoint(path)
    clock.lap("open")
    if len(opened) != count:
        raise WrongResult(f"{len(opened)} tensors")
    return clock.laps


def safetensors_opening(path: Path, count: int) -> Laps:
    clock = Clock()
    with safe_open(path, framework="numpy") as opened:
        clock.lap("open")
        if len(opened.keys()) != count:
            raise WrongResult(f"{len(opened.keys())} tensors")
    return clock.laps


def ours(path: Path, count: int, mode: str = "copy", threads: int | None = None) -> Laps:
    clock = Clock()
    model = Mixture(count)
    clock.lap("declare")
    plan = model.plan_load(path, mode=mode)  # type: ignore[arg-type]
    clock.lap("plan")
    model = plan.commit()
    clock.lap("commit")
    model.initialize(threads)
    clock.lap("initialize")
    checkpoint.touch(param.value for param in model.parameters())
    clock.lap("touch")
    checkpoint.check(llama.values(model), path)
    return clock.laps


def ours_one_thread(path: Path, count: int) -> Laps:
    return ours(path, count, threads=1)


def ours_views(path: Path, count: int) -> Laps:
    return ours(path, count, mode="view")


def plain_load_file(path: Path, count: int) -> Laps:
    clock = Clock()
    arrays = load_file(path)
    clock.lap("load")
    checkpoint.touch(arrays.values())
    clock.lap("touch")
    checkpoint.check(arrays, path)
    return clock.laps


CASES: tuple[Case, ...] = (
    opening,
    safetensors_opening,
    ours,
    ours_one_thread,
    ours_views,
    plain_load_file,
)


def measure(case: Case, path: Path, count: int) -> Laps:
    warm(path)
    return case(path, count)


def shapes(count: int) -> Shapes:
    """Path -> shape of every parameter."""
    return {path: param.shape for path, param in Mixture(count).named_parameters()}


def run(scale: Scale) -> list[Row]:
    count = scale.pick(20_000, 2_000)
    path = checkpoint.make(scale.folder / f"mixture-{count}.safetensors", shapes(count))
    measured = take_turns(
        scale.pick(7, 2), {case: partial(apart, measure, case, path, count) for case in CASES}
    )

    def lap(case: Case, *names: str) -> list[float]:
        return [sum(laps[name] for name in names or laps) for laps in measured[case]]

    def row(what: str, our: list[float], peer: str, their: list[float], goal: float = 0) -> Row:
        return Row(
            what,
            over_rounds(our, duration),
            f"{peer}: {over_rounds(their, duration)}",
            f"{times(median(ratios(our, their)))} the speed",
            f"< {duration(goal)}" if goal else "",
            median(our) < goal if goal else None,
        )

    peer = "safetensors.numpy.load_file"
    theirs = lap(plain_load_file)
    rows = [
        row(
            f"open {count:,} tensors of 4 KiB",
            lap(opening),
            "safe_open",
            lap(safetensors_opening),
            0.01,
        ),
        row("declare, load, touch them, copies", lap(ours), peer, theirs),
        row("the same with initialize(threads=1)", lap(ours_one_thread), peer, theirs),
        row("the same as views", lap(ours_views), peer, theirs),
    ]
    per_tensor = {
        name: median(lap(ours, name)) / count
        for name in ("declare", "plan", "commit", "initialize")
    }
    rows.append(
        Row(
            "of which, for each tensor",
            ", ".join(f"{name} {duration(each)}" for name, each in per_tensor.items()),
            f"{peer}: {duration(median(lap(plain_load_file, 'load')) / count)}",
        )
    )
    return rows
