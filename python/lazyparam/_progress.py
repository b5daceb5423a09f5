"""A progress bar over bytes, or whatever a caller puts in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from tqdm import tqdm

Progress: TypeAlias = bool | Callable[[int, int], object] | None
"""None: a bar if standard error is a terminal. A bool: a bar, or none. A function: called with
the bytes done so far and the bytes in all."""


@contextmanager
def reporting(progress: Progress, total: int, what: str) -> Iterator[Callable[[int], object]]:
    """A function to call with the bytes done so far, while the bar (if any) is shown."""
    if callable(progress):
        yield lambda done: progress(done, total)
        return
    disable = None if progress is None else not progress
    with tqdm(total=total, desc=what, unit="B", unit_scale=True, disable=disable) as bar:
        yield lambda done: bar.update(done - bar.n)
