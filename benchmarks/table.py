"""The final table, as plain text or Markdown, and the line about the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from lazyparam._core import instruction_set

from .harness import MIB, processors

HEAD = ("what", "lazyparam", "peer or limit", "ratio", "goal", "ok?")


@dataclass(frozen=True)
class Row:
    """One comparison; `ok` is None where there is no goal."""

    what: str
    ours: str
    peer: str = ""
    ratio: str = ""
    goal: str = ""
    ok: bool | None = None

    def cells(self) -> tuple[str, ...]:
        verdict = {None: "", True: "yes", False: "NO"}[self.ok]
        return (self.what, self.ours, self.peer, self.ratio, self.goal, verdict)


def plain(rows: Iterable[Row]) -> str:
    """The rows in columns."""
    lines = [HEAD, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def markdown(rows: Iterable[Row]) -> str:
    """The rows as a table of Markdown."""
    lines = [HEAD, ("---",) * len(HEAD), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine() -> str:
    """Where this was measured, and with what."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    peers = [name for name in ("torch", "jax") if find_spec(name)]
    names = ["lazyparam", "numpy", "safetensors", *peers]
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    return (
        f"{_processor()}, drawing with {instruction_set()}, {processors()} cores, "
        f"{memory:.0f} GiB, Linux {platform.release()}, "
        f"{platform.python_implementation()} {platform.python_version()}, {versions}"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def over_rounds(samples: Sequence[float], form: Callable[[float], str]) -> str:
    """The median, and the least and the most."""
    least, most = form(min(samples)), form(max(samples))
    middle = form(median(samples))
    return middle if least == most else f"{middle} ({least} – {most})"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """How many times ours theirs is, round by round."""
    return [their / our for our, their in zip(ours, theirs, strict=True)]


def times(ratio: float) -> str:
    if ratio < 0.1:
        return f"{ratio:.1g}×"
    return f"{ratio:.2f}×" if ratio < 10 else f"{ratio:.0f}×"


def duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def size(nbytes: float) -> str:
    return f"{nbytes / MIB:.0f} MiB"
