"""The once-cell: reads, creation, first reads, races, waits; the peers take turns with it."""

from __future__ import annotations

from ..harness import Scale
from ..table import Row
from . import creation, graphs, peers, races, reads, waits

PARTS = (reads, creation, races, waits, graphs)


def run(scale: Scale) -> list[Row]:
    rows = [row for part in PARTS for row in part.run(scale)]
    return rows + [Row(f"the same against {name}", "", "not installed") for name in peers.MISSING]
