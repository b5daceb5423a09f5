"""Many rounds of everything, short in the normal suite and long under ``--proof``."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

import lazyparam as lp
from tests import checkpoint_files as files
from tests import naive
from tests.helpers import Boom, race
from tests.once_forms import FORMS, LAZY_VALUE, Form, Made, Runs, every_form

pytestmark = [pytest.mark.usefixtures("eager_switching"), pytest.mark.timeout(900)]

Sizes = Callable[[int, int], int]


@every_form
def test_races_with_failing_factories(form: Form, proof: Sizes) -> None:
    """abseil/abseil-cpp#1823, scala/scala3#2275: 3,000 races of 8 threads over all forms."""
    chance = random.Random(5)
    for _ in range(proof(12, 3_000 // len(FORMS) + 1)):
        failures = chance.randrange(4)
        factory = Runs(chance.choice([0, 0, 1e-4, 1e-3]), failures)
        made = form(factory)
        outcomes = race([made] * 8, 60)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        values = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        assert all(type(error) is Boom for error in errors), errors
        assert sorted(map(str, errors)) == [f"run {run + 1}" for run in range(failures)]
        assert len(set(map(id, errors))) == failures
        assert factory.runs == failures + 1
        assert all(value is values[0] for value in values)
        assert values[0] == [failures + 1]


@every_form
def test_64_threads_and_64_objects(form: Form, proof: Sizes) -> None:
    """python/cpython#87634: each thread reads all of them, in an order of its own."""
    for seed in range(proof(1, 10)):
        factories = [Runs(0.001) for _ in range(64)]
        mades = [form(factory) for factory in factories]

        def read(thread: int, mades: list[Made] = mades, seed: int = seed) -> list[Any]:
            order = list(range(64))
            random.Random(64 * seed + thread).shuffle(order)
            values: list[Any] = [None] * 64
            for at in order:
                values[at] = mades[at]()
            return values

        tables = race([lambda thread=thread: read(thread) for thread in range(64)], 120)
        assert all(factory.runs == 1 for factory in factories)
        for table in tables:
            assert all(map(lambda a, b: a is b, table, tables[0]))


class Graph:
    """Values that need each other: each is one more than the largest it needs."""

    def __init__(self, needs: list[list[int]], forms: list[Form]) -> None:
        self.needs = needs
        self.runs = [0] * len(needs)
        self.nodes = [form(lambda at=at: self.make(at)) for at, form in enumerate(forms)]

    def make(self, at: int) -> int:
        self.runs[at] += 1
        time.sleep(0)
        return 1 + max((self.nodes[other]() for other in self.needs[at]), default=0)

    def read(self, threads: int, chance: random.Random) -> list[list[int | BaseException]]:
        """What each thread finds at each node, reading all in its own order."""

        def one(order: list[int]) -> list[Any]:
            found: list[Any] = [None] * len(order)
            for at in order:
                try:
                    found[at] = self.nodes[at]()
                except lp.LazyCycleError as error:
                    found[at] = error
            return found

        orders = [chance.sample(range(len(self.nodes)), len(self.nodes)) for _ in range(threads)]
        found = race([lambda order=order: one(order) for order in orders], 60)
        for outcome in found:
            assert not isinstance(outcome, BaseException), outcome
        return found  # type: ignore[return-value]


def reachable(needs: list[list[int]], start: int) -> set[int]:
    """What `start` needs, directly or through others."""
    seen: set[int] = set()
    left = list(needs[start])
    while left:
        at = left.pop()
        if at not in seen:
            seen.add(at)
            left += needs[at]
    return seen


def behind_a_cycle(needs: list[list[int]]) -> set[int]:
    """The nodes that can never be made: those on a cycle, and those that need one of them."""
    on_cycles = {at for at in range(len(needs)) if at in reachable(needs, at)}
    return {at for at in range(len(needs)) if on_cycles & ({at} | reachable(needs, at))}


def heights(needs: list[list[int]]) -> list[int]:
    """What the nodes of a graph without cycles come to."""
    known: dict[int, int] = {}

    def height(at: int) -> int:
        if at not in known:
            known[at] = 1 + max(map(height, needs[at]), default=0)
        return known[at]

    return [height(at) for at in range(len(needs))]


def test_random_graphs_with_cycles(proof: Sizes) -> None:
    """scala/scala3#25370: no hang; refused is what is behind a cycle, and nothing else."""
    chance = random.Random(11)
    refused = 0
    for _ in range(proof(25, 300)):
        size = chance.randint(2, 9)
        needs = [chance.sample(range(size), chance.randint(0, min(2, size))) for _ in range(size)]
        hopeless = behind_a_cycle(needs)
        graph = Graph(needs, [chance.choice(FORMS) for _ in range(size)])
        for found in graph.read(chance.randint(2, 6), chance):
            errors = {at for at, it in enumerate(found) if isinstance(it, lp.LazyCycleError)}
            assert errors == hopeless
        assert all(graph.runs[at] == 1 for at in range(size) if at not in hopeless)
        refused += len(hopeless)
        # With the cycles broken, what was refused can be made.
        for at in range(size):
            graph.needs[at] = [other for other in needs[at] if other > at]
        ready = {at: graph.nodes[at]() for at in range(size) if at not in hopeless}
        for found in graph.read(3, chance):
            assert not any(isinstance(it, BaseException) for it in found)
            assert {at: found[at] for at in ready} == ready
    assert refused


def test_random_graphs_without_cycles(proof: Sizes) -> None:
    """scala/scala3#25370: never a cycle error, each node once."""
    chance = random.Random(13)
    for _ in range(proof(25, 300)):
        size = chance.randint(2, 14)
        needs = [chance.sample(range(at), min(at, chance.randint(0, 3))) for at in range(size)]
        expected = heights(needs)
        graph = Graph(needs, [chance.choice(FORMS) for _ in range(size)])
        for found in graph.read(chance.randint(2, 8), chance):
            assert found == expected
        assert graph.runs == [1] * size


def test_everything_at_once(proof: Sizes) -> None:
    """boto/botocore#3727: readers, timeouts, failures, copies and forgetting, on shared cells."""
    chance = random.Random(17)
    for _ in range(proof(10, 300)):
        factory = Runs(chance.choice([0, 2e-4]), failures=chance.randrange(3))
        cell = lp.Lazy(factory)
        box = lp.OnceCell[Any]()

        def patient(cell: lp.Lazy[Any] = cell) -> Any:
            while True:
                try:
                    return cell.get(timeout=1e-4)
                except (TimeoutError, Boom):
                    continue

        def through(cell: lp.Lazy[Any] = cell, box: lp.OnceCell[Any] = box) -> Any:
            while True:
                try:
                    return box.get_or_init(lambda: cell.value)
                except Boom:
                    continue

        def copied(cell: lp.Lazy[Any] = cell) -> Any:
            copy.deepcopy(cell)
            repr(cell)
            return patient()

        values = race([patient, through, copied, patient, through, copied], 60)
        assert all(value is cell.value for value in values), values
        assert factory.runs >= 1


# ---- the watchdogs themselves --------------------------------------------------------------------


def deadlocked() -> Made:
    """What hangs when it is read."""
    made = naive.DOUBLE_CHECKED(lambda: made())
    return made


def test_a_thread_that_hangs_fails_a_race() -> None:
    """The canary of `race`: a known deadlock is seen."""
    with pytest.raises(AssertionError, match="a thread hangs"):
        race([deadlocked(), LAZY_VALUE(list)], 0.2)


CANARY = """
from tests.test_once_stress import deadlocked

def test_it_hangs():
    deadlocked()()
"""


def test_a_test_that_hangs_is_a_failure(tmp_path: Any) -> None:
    """The canary of pytest's own timeout, which all tests run under."""
    pytest.importorskip("pytest_timeout")
    (tmp_path / "test_canary.py").write_text(CANARY)
    done = files.run_python(
        "import pytest, sys; sys.exit(pytest.main(sys.argv[1:]))",
        *("-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, "-o", "timeout_method=thread"),
        *("-o", "timeout=1", tmp_path / "test_canary.py"),
    )
    assert done.returncode != 0
    assert "Timeout" in done.stdout + done.stderr
    assert "test_it_hangs" in done.stdout + done.stderr
