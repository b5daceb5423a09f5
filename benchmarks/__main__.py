"""Run the benchmarks and print one table."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from pathlib import Path

from . import (
    adapters,
    declare,
    heartbeat,
    imports,
    init,
    initialize,
    load,
    once,
    quant,
    small,
    table,
    views,
)
from .harness import Scale

ALL = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        load,
        views,
        small,
        heartbeat,
        declare,
        imports,
        once,
        init,
        initialize,
        quant,
        adapters,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of: {', '.join(ALL)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds: a trial")
    parser.add_argument(
        "--markdown", action="store_true", help="a table to paste, with the machine"
    )
    parser.add_argument("--folder", type=Path, help="where to write the files (and remove them)")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in ALL]:
        parser.error(f"no benchmark is called {', '.join(unknown)}")

    rows: list[table.Row] = []
    with tempfile.TemporaryDirectory(prefix="lazyparam-", dir=args.folder) as folder:
        scale = Scale(args.quick, Path(folder))
        for name in args.names or ALL:
            start = time.perf_counter()
            print(f"{name}: {ALL[name].__doc__} ...", end=" ", flush=True, file=sys.stderr)
            rows += ALL[name].run(scale)
            print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)

    if args.quick:
        # The goals are for the full sizes.
        rows = [dataclasses.replace(row, goal="", ok=None) for row in rows]
    print()
    if args.markdown:
        print(f"{table.machine()}.\n")
    print(table.markdown(rows) if args.markdown else table.plain(rows))
    print(
        "\nMedians over rounds that take turns (least – most); ratios are medians round by round. "
        "Of `once`, `init`, `initialize` and `quant`, the best of many short rounds that take "
        "turns, and the ratios of those."
    )
    if args.quick:
        print("A trial with small sizes: it shows that all works, not how fast.")


if __name__ == "__main__":
    main()
