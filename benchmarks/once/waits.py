"""What ends a wait for another thread's value: Ctrl-C, and a fork that leaves the thread behind."""

from __future__ import annotations

import os
import select
import signal
import struct
import threading
import time
import warnings
from functools import partial

from ..harness import Scale, WrongResult, apart, take_turns
from ..table import Row, duration, over_rounds
from .races import ATTRIBUTE, DOUBLE_CHECKED, LAZY, OPEN, Maker, Read

NAP = 0.25
"""How long the value takes to make."""

LIMIT = 0.1
"""By how much Ctrl-C, or a child beyond its own initialisation, may take longer than nothing."""

PATIENCE = 1.5
"""How long a forked child is waited for."""


def begun(name: str) -> tuple[Maker, Read, threading.Thread]:
    """A value that another thread is making, slowly."""
    maker = Maker(partial(time.sleep, NAP))
    read = OPEN[name](maker)
    other = threading.Thread(target=read)
    other.start()
    while not maker.runs:
        time.sleep(1e-4)
    return maker, read, other


def interrupting(name: str) -> float:
    """Seconds from Ctrl-C to the KeyboardInterrupt of a main thread that waits."""
    maker, read, other = begun(name)
    pressed = 0.0

    def press() -> None:
        nonlocal pressed
        time.sleep(NAP / 5)
        pressed = time.perf_counter()
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    try:
        read()
    except KeyboardInterrupt:
        seconds = time.perf_counter() - pressed
    else:
        raise WrongResult(f"{name}: the wait was not interrupted")
    finally:
        presser.join()
        other.join()
    read()
    if len(maker.runs) != 1:
        raise WrongResult(f"{name}: Ctrl-C had the value made {len(maker.runs)} times")
    return seconds


def forking(name: str) -> float:
    """Seconds until a child has the value that a thread of its parent's was making; or infinite."""
    _, read, other = begun(name)
    back, out = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork: that is the point
        child = os.fork()
    if child == 0:
        try:
            start = time.perf_counter()
            read()
            os.write(out, struct.pack("d", time.perf_counter() - start))
        finally:
            os._exit(0)
    os.close(out)
    if select.select([back], [], [], PATIENCE)[0]:
        answer = os.read(back, 8)
    else:
        answer = struct.pack("d", float("inf"))
        os.kill(child, signal.SIGKILL)
    os.close(back)
    os.waitpid(child, 0)
    other.join()
    if len(answer) != 8:
        raise WrongResult(f"{name}: the child failed")
    seconds: float = struct.unpack("d", answer)[0]
    return seconds


def measure(
    rounds: int, once: tuple[str, ...]
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupted = take_turns(rounds, {name: partial(interrupting, name) for name in once})
    forked = take_turns(rounds, {name: partial(forking, name) for name in once})
    return interrupted, forked


def seconds(value: float) -> str:
    return "never (hangs)" if value == float("inf") else duration(value)


def run(scale: Scale) -> list[Row]:
    if not hasattr(os, "fork"):
        return [Row("Ctrl-C and fork", "", "not on this system")]
    interrupted, forked = apart(measure, scale.pick(10, 2), (LAZY, ATTRIBUTE, DOUBLE_CHECKED))
    rows = []
    for mine in (LAZY, ATTRIBUTE):
        rows.append(
            Row(
                f"Ctrl-C while waiting, {mine}",
                over_rounds(interrupted[mine], duration),
                f"{DOUBLE_CHECKED}: {over_rounds(interrupted[DOUBLE_CHECKED], duration)}",
                goal="≤ 100 ms, every round",
                ok=max(interrupted[mine]) <= LIMIT,
            )
        )
        rows.append(
            Row(
                f"read in a child forked meanwhile, {mine}",
                over_rounds(forked[mine], seconds),
                f"{DOUBLE_CHECKED}: {over_rounds(forked[DOUBLE_CHECKED], seconds)}",
                goal=f"≤ {NAP:.2f} s + 100 ms, every round",
                ok=max(forked[mine]) <= NAP + LIMIT,
            )
        )
    return rows
