"""The scenarios tell a once-cell from what is usually written: ours passes, naive forms do not.

A test that every implementation passes would prove nothing. Each family of scenarios has some that
a naive form is seen to fail, by a wrong answer or by a hang, in a process of its own.
"""

from __future__ import annotations

import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tests import naive
from tests import once_scenarios as scenarios
from tests.once_forms import FORMS, IN_DICT, IN_SLOT, LAZY_VALUE, Form


class Row(NamedTuple):
    """A scenario that `form` does not pass; `seconds` are long enough to be sure of it."""

    scenario: str
    form: Form
    seconds: float
    how: str
    ours: Form = LAZY_VALUE


HANGS = "a thread hangs"
OLD = sys.version_info < (3, 12)

FAMILIES = {
    "locking": [
        Row("racing_threads_run_it_once", naive.LRU_CACHE, 0.3, "runs"),
        Row("racing_threads_run_it_once", naive.CACHED_PROPERTY, 0.3, "passes" if OLD else "runs"),
        Row("what_a_factory_uses_up_is_used_once", naive.LRU_CACHE, 0.2, "KeyError"),
        Row("instances_do_not_serialise", naive.LOCKED_PROPERTY, 0.5, "BrokenBarrierError"),
        Row("a_lock_of_the_factory_is_no_obstacle", naive.LOCKED_PROPERTY, 0.5, HANGS),
    ],
    "cycles": [
        Row("a_factory_that_reads_itself_is_refused", naive.DOUBLE_CHECKED, 0.5, HANGS),
        Row("a_factory_that_reads_itself_is_refused", naive.REENTRANT, 20, "recursion depth"),
        Row("a_factory_that_reads_itself_is_refused", naive.CACHED_PROPERTY, 20, "recursion depth"),
        Row("two_that_need_each_other_are_refused", naive.DOUBLE_CHECKED, 1.0, HANGS),
        Row("two_that_need_each_other_are_refused", naive.REENTRANT, 1.0, HANGS),
        Row("a_factory_may_survive_its_own_cycle", naive.DOUBLE_CHECKED, 0.5, HANGS),
    ],
    "failures": [
        Row("each_failure_is_its_own_threads", naive.LRU_CACHE, 0.3, "runs"),
        Row("a_failure_is_not_for_ever", naive.ONE_FUTURE, 20, "run 1"),
        Row("a_waiter_takes_over_from_one_who_failed", naive.ONE_FUTURE, 20, "the other's error"),
        Row("an_attribute_error_is_not_masked", naive.CACHED_PROPERTY, 20, "masked by", IN_DICT),
    ],
    "processes, copies, classes": [
        Row("a_forked_child_makes_it_for_itself", naive.DOUBLE_CHECKED, 1.0, "fails or hangs"),
        Row("a_forked_child_makes_it_for_itself", naive.REENTRANT, 1.0, "fails or hangs"),
        Row("copies_and_pickles_never_make_it", naive.DOUBLE_CHECKED, 20, "cannot pickle"),
        Row("copies_and_pickles_never_make_it", naive.REENTRANT, 20, "cannot pickle"),
        Row("nothing_is_kept_alive", naive.LRU_CACHE, 20, "kept alive"),
        Row("a_slotted_class_can_have_one", naive.CACHED_PROPERTY, 20, "__dict__", IN_SLOT),
        Row("a_coroutine_function_is_refused", naive.CACHED_PROPERTY, 20, "coroutine object"),
    ],
}
ROWS = [row for rows in FAMILIES.values() for row in rows]


@pytest.fixture(scope="module")
def found() -> dict[str, Future[list[str]]]:
    """The verdicts on each family, naive and ours in turn, all processes at once."""
    pool = ThreadPoolExecutor(len(FAMILIES))
    futures = {}
    for family, rows in FAMILIES.items():
        both = [
            it
            for row in rows
            for it in [
                (row.scenario, row.form.name, row.seconds),
                (row.scenario, row.ours.name, None),
            ]
        ]
        futures[family] = pool.submit(scenarios.run_alone, both)
    pool.shutdown(wait=False)
    return futures


@pytest.mark.parametrize(
    ("family", "at"),
    [(family, at) for family, rows in FAMILIES.items() for at in range(len(rows))],
    ids=[f"{row.scenario}-{row.form.name}" for row in ROWS],
)
def test_a_naive_form_does_not_pass_what_ours_does(
    family: str, at: int, found: dict[str, Future[list[str]]]
) -> None:
    """Every family of notes on public issues: Python 3.12 gave up the lock of cached_property."""
    row = FAMILIES[family][at]
    verdicts = found[family].result(110)
    theirs, ours = verdicts[2 * at : 2 * at + 2]
    assert ours == "passes"
    if row.how == "passes":
        assert theirs == "passes"
    else:
        assert theirs.startswith("fails: ")
        assert row.how in theirs


def test_the_scenarios_are_about_what_every_form_can_do() -> None:
    """So the rows above are of one kind: names that are known, and of naive forms."""
    assert {row.scenario for row in ROWS} <= set(scenarios.SCENARIOS)
    assert {row.form.name for row in ROWS} <= {form.name for form in naive.FORMS}
    assert not {form.name for form in FORMS} & {form.name for form in naive.FORMS}
