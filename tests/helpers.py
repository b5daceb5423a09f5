"""Initialisers that count or fail, races behind a barrier, and small models."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

import lazyparam as lp

T = TypeVar("T")


def never(plan: lp.Plan) -> NoReturn:
    """An initialiser that must not run."""
    raise AssertionError(f"an initialiser ran for {plan}")


class Boom(Exception):
    """What a failing initialiser raises."""


class Counting:
    """An initialiser that counts its runs, takes a while, and draws other numbers each time.

    The first `failures` runs raise Boom instead.
    """

    def __init__(self, seconds: float = 0.0, failures: int = 0) -> None:
        self.runs = 0
        self._seconds = seconds
        self._failures = failures
        self._lock = threading.Lock()

    def __call__(self, plan: lp.Plan) -> np.ndarray:
        with self._lock:
            self.runs += 1
            run = self.runs
        if self._seconds:
            time.sleep(self._seconds)
        if run <= self._failures:
            raise Boom(f"run {run}")
        draw = np.random.default_rng(1000 + run).standard_normal(plan.shape) * 100
        return np.asarray(draw).astype(plan.dtype)


class Held:
    """An initialiser that says when it is running, and goes on when it is told to finish."""

    def __init__(self) -> None:
        self.running = threading.Event()
        self.finish = threading.Event()

    def __call__(self, plan: lp.Plan) -> np.ndarray:
        self.running.set()
        assert self.finish.wait(30)
        return np.ones(plan.shape, plan.dtype)


class Box(lp.Module):
    """One parameter: ``t``."""

    def __init__(self, param: lp.Param[Any]) -> None:
        self.t = param


class Bag(lp.Module):
    """Attributes of the test's choice, in its order."""

    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)


def values(module: lp.Module) -> dict[str, bytes]:
    """The bits of all parameters, by path."""
    return {path: param.value.tobytes() for path, param in module.named_parameters(False)}


def race(work: Sequence[Callable[[], T]], seconds: float = 30.0) -> list[T | BaseException]:
    """What each of `work` gives or raises, run by threads that start together.

    A thread that is not done within `seconds` fails the test.
    """
    barrier = threading.Barrier(len(work))
    results: list[Any] = [None] * len(work)

    def run(at: int) -> None:
        barrier.wait(seconds)
        try:
            results[at] = work[at]()
        except BaseException as error:
            results[at] = error

    threads = [threading.Thread(target=run, args=(at,), daemon=True) for at in range(len(work))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return results


class Linear(lp.Module):
    """A dense layer with the initialisers of the test's choice."""

    def __init__(self, inputs: int, outputs: int, init: Any = never) -> None:
        self.weight = lp.Param((outputs, inputs), init)
        self.bias = lp.Param(outputs, init)

    def __call__(self, x: Any) -> Any:
        return x @ self.weight.value.T + self.bias.value


class Tied(lp.Module):
    """An embedding whose weight is also the head's, and something in between."""

    def __init__(self, init: Any = never) -> None:
        self.embed = lp.Param((4, 3), init)
        self.middle = [Linear(3, 3, init), Linear(3, 3, init)]
        self.head = self.embed.clone()
