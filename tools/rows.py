"""The table of what must hold, row by row, and the tests that show it: ``docs/dev/rows.md``.

    python tools/rows.py            # writes the table
    python tools/rows.py --check    # fails if it is stale, or if a row has no test
    python tools/rows.py B07 B52    # prints all tests of these rows

A test names its rows in its docstring, or in the doc comment above a Rust test: ``B07``,
``B14, B15``, or ``B14–B21``. A class of tests may name rows too, and counts as one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "dev" / "rows.md"
PYTHON = ("tests", "python/lazyparam/testing")
RUST = ("rust/core/tests", "rust/bytes/tests")

HOLDS = {
    "B01": "one parameter may be used from many threads, with and without a GIL",
    "B02": "threads that read a lazy parameter together: one initialisation, one value for all",
    "B03": "that is so for floats, ints and bools",
    "B04": "flags and tensors are told apart; only tensors have gradient, device, shape and loads",
    "B05": "whoever wins the race, a random draw is the same bits for all",
    "B06": "a clone of a lazy parameter shares its value and is ready when it is",
    "B07": "freezing a clone leaves the other's wish, before and after the value is there",
    "B08": "validation does not run an adapter, and does not remove it",
    "B09": "merging an adapter: the value, identity, wish, stored shape and leaf that result",
    "B10": "QLoRA: packed base through validation, training, records and merging, exactly",
    "B11": "a module tells its devices without initialising any kind of parameter",
    "B12": "so it does with adapters",
    "B13": "gradients are right after asking for devices and moving, which initialise nothing",
    "B14": "a lazy parameter can be frozen unread, and training mode does not unfreeze it",
    "B15": "on a plain device the wish is kept and the value untracked, until it trains elsewhere",
    "B16": "what is made from a tensor wishes to train, on a plain device too",
    "B17": "the wish can be set on a lazy parameter of a plain device, which stays lazy",
    "B18": "validation and then a map keep the wish",
    "B19": "validation, taking apart and rebuilding keep the wish",
    "B20": "validation and then a load keep the wish",
    "B21": "validation and training mode restore each other; freezing is for good",
    "B22": "what a lazy mapper gives is the leaf, and gets the gradient",
    "B23": "counting and merging without adapter leave a parameter lazy, and its identity",
    "B24": "what is moved and then loaded never runs its initialiser",
    "B25": "a lazy move keeps whether the parameter was built to record gradients",
    "B26": "adapters outlive moves and forks, of lazy and of ready bases",
    "B27": "a lazy mapper sees the effective value, adapter and all",
    "B28": "ints move lazily",
    "B29": "bools move lazily",
    "B30": "a fork to the plain spelling of a device that records keeps recording",
    "B31": "so does the fork of a lazily mapped parameter",
    "B32": "moving one of two clones leaves them lazy, with one and the same draw",
    "B33": "an independent clone, and a deep copy, draw for themselves",
    "B34": "the wish can be asked without initialising",
    "B35": "no question, copy, move, freeze or load initialises",
    "B36": "a clone can be mapped: the draw of the original, which stays as it was",
    "B37": "a record loads unread; device and wish are the target's, the identity the record's",
    "B38": "the record of a group has its parameters and no others",
    "B39": "unused, missing and misshapen entries: refused by name, allowed on request",
    "B40": "dtypes of a load: kept or cast on request, never in silence, never from int to float",
    "B41": "loads are checked against the stored shape; transposed ones go round, twice too",
    "B42": "records have parameters and marked buffers, no plain arrays or skipped fields",
    "B43": "the wish outlives records, pickles, copies and moves",
    "B44": "a new LoRA changes nothing, has its own identities, and is all that trains",
    "B45": "weight norm: same value when attached; base and magnitude get gradients",
    "B46": "flags: off in validation, on again in training, unless disabled; freezing disables",
    "B47": "a failure keeps its type, names the path, and can be tried again or cured by a load",
    "B48": "initialisers that need each other are an error at once, never a hang",
    "B49": "metadata answers while an initialiser runs",
    "B50": "waiting can be interrupted, and lets other threads run",
    "B51": "adapters outlive every verb, copy and pickle, but not detaching and merging",
    "B52": "ties outlive every verb, load, copy and pickle; saved and counted once",
    "B53": "a failed load changes nothing and lists all that is wrong with it",
    "B54": "what a load does not find keeps its own initialiser",
    "B55": "nobody's writing reaches another's value",
    "B56": "same seed, same bits, whatever the order, threads, clones and devices",
    "B57": "nothing global: threads with other models, modes and devices are no bother",
    "B58": "a lazy parameter pickles as its recipe; a lambda is refused with advice",
    "B59": "a chain of 100,000 mappers is read and dropped without recursion",
    "B60": "cycles through an initialiser are collected, and nothing reachable is cleared",
}

NAMED = re.compile(r"\bB(\d\d)\b(?:[–-]B(\d\d)\b)?")
RUST_TEST = re.compile(
    r"((?:^[ \t]*///.*\n)+)"  # what is said of it
    r"(?:^[ \t]*#\[.*\]\n)*?^[ \t]*#\[test\]\n(?:^[ \t]*#\[.*\]\n)*"
    r"^[ \t]*fn (\w+)",
    re.MULTILINE,
)

HEAD = """\
# Rows: what must hold, and the tests that show it

Made by `python tools/rows.py` from the docstrings of the tests, which name their rows (`B07`);
`make test` fails if this page is stale or a row has no test. Where a row has many tests, files are
listed, with counts; `python tools/rows.py B07` prints all by name. The tests of
`python/lazyparam/testing` are the conformance suite, which runs once for each backend
([what each of them can](../backends.md)).

| row | what holds | tests |
|---|---|---|
"""

FULL = 4
"""Rows of more tests than this list files with counts."""


class Shown(NamedTuple):
    """A test, and what it says of itself."""

    file: str
    name: str
    says: str


def rows_in(text: str) -> list[str]:
    """The rows that a docstring names, those within a range included."""
    rows: list[str] = []
    for first, last in NAMED.findall(text):
        rows += (f"B{row:02}" for row in range(int(first), int(last or first) + 1))
    return rows


def python_tests(file: str, source: str) -> Iterator[Shown]:
    """Test functions, test methods, and classes that have some, with their docstrings."""
    scopes: list[tuple[str, ast.Module | ast.ClassDef]] = [("", ast.parse(source))]
    while scopes:
        prefix, scope = scopes.pop(0)
        for node in scope.body:
            if isinstance(node, ast.ClassDef):
                scopes.append((f"{prefix}{node.name}.", node))
            elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith(("test_", "Test")):
                yield Shown(file, prefix + node.name, ast.get_docstring(node) or "")


def rust_tests(file: str, source: str) -> Iterator[Shown]:
    """Test functions that have a doc comment."""
    for says, name in RUST_TEST.findall(source):
        yield Shown(file, name, says)


def all_tests() -> Iterator[Shown]:
    """Every test of the repository that says something of itself, file by file."""
    for folder in PYTHON:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from python_tests(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    for folder in RUST:
        for path in sorted((ROOT / folder).rglob("*.rs")):
            yield from rust_tests(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))


def tests_by_row() -> dict[str, list[Shown]]:
    """Each row that is known or named, with its tests in the order of their files."""
    table: dict[str, list[Shown]] = {row: [] for row in HOLDS}
    for test in all_tests():
        for row in dict.fromkeys(rows_in(test.says)):
            table.setdefault(row, []).append(test)
    return table


def cell(tests: list[Shown]) -> str:
    """The tests of one row as one cell of the table."""
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.file, []).append(test.name)
    parts: list[str] = []
    for file, names in files.items():
        link = f"[{file}](../../{file})"
        if len(tests) <= FULL:
            parts.append(f"{link}: " + ", ".join(f"`{name}`" for name in names))
        else:
            parts.append(link + (f" ({len(names)})" if len(names) > 1 else ""))
    return "; ".join(parts)


def page() -> str:
    """The whole of the page."""
    table = tests_by_row()
    return HEAD + "".join(f"| {row} | {HOLDS[row]} | {cell(table[row])} |\n" for row in HOLDS)


def faults() -> list[str]:
    """What is wrong with the rows and with the page, in words."""
    table = tests_by_row()
    found = [f"{row} has no test: {HOLDS[row]}" for row in HOLDS if not table[row]]
    for row in table.keys() - HOLDS.keys():
        found += (f"{test.file}: {test.name} names {row}, which is no row" for test in table[row])
    if not PAGE.exists() or PAGE.read_text("utf-8") != page():
        found.append(f"{PAGE.relative_to(ROOT)} is stale: python tools/rows.py")
    return found


def main(arguments: list[str]) -> int:
    """Do what the command line says; the status is 1 if something is wrong."""
    if arguments == ["--check"]:
        found = faults()
        print(*found, sep="\n", end="\n" if found else "")
        return bool(found)
    table = tests_by_row()
    if unknown := [row for row in arguments if row not in HOLDS]:
        print("no such row:", *unknown)
        return 1
    for row in arguments:
        print(f"{row}: {HOLDS[row]}")
        print(*(f"  {test.file}: {test.name}" for test in table[row]), sep="\n")
    if not arguments:
        PAGE.write_text(page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
