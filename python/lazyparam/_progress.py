"""A progress bar over bytes, or whatever a caller puts in its place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Progress: TypeAlias = bool | Callable[[int, int], object] | None
"""None: a bar if standard error is a terminal. A bool: a bar, or none. A function: called with
the bytes done so far and the bytes in all."""


@contextmanager
def reporting(
    progress: Progress, total: int, what: str
) -> Iterator[Callable[[int], object] | None]:
    """A function to call with the bytes done so far, while the bar (if any) is shown."""
    if callable(progress):
        yield lambda done: progress(done, total)
    elif total and (sys.stderr.isatty() if progress is None else progress):
        with _bar(total, what) as advance:
            yield advance
    else:
        yield None


@contextmanager
def _bar(total: int, what: str) -> Iterator[Callable[[int], object]]:
    # tqdm has a lock and a thread for the whole process, which a fork would break; a bar that is
    # not shown needs neither, and one that is has its own lock and no thread.
    from threading import RLock

    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0

    Bar.set_lock(RLock())
    with Bar(total=total, desc=what, unit="B", unit_scale=True) as bar:
        yield lambda done: bar.update(done - bar.n)
