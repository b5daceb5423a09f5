"""What has to hold of a value that is made once, as functions of how it is made.

Most fail for one naive form or another: see `tests.test_once_naive`. `seconds` is how long a
factory takes, or how long a scenario waits for what will not happen.
"""

from __future__ import annotations

import copy
import gc
import inspect
import json
import os
import pickle
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import lazyparam as lp
from tests import checkpoint_files as files
from tests import naive
from tests.helpers import Boom, race
from tests.once_forms import FORMS, Form, Gate, Meeting, Runs, promptly, settle, started

SLOW = 0.006  # longer than the interpreter's own switch interval
THREADS = 8


# ---- locking and history -------------------------------------------------------------------------


def racing_threads_run_it_once(form: Form, seconds: float = SLOW) -> None:
    """All get the one object that one run made."""
    factory = Runs(seconds)
    made = form(factory)
    values = race([made] * THREADS)
    assert factory.runs == 1, f"{factory.runs} runs"
    assert all(value is values[0] for value in values), values


def instances_do_not_serialise(form: Form, seconds: float = 20.0) -> None:
    """Two of a kind are made at the same time: each factory waits for the other to have begun."""
    both = threading.Barrier(2)
    ones = [form(lambda: both.wait(seconds)) for _ in range(2)]
    outcomes = race(ones)
    assert sorted(map(repr, outcomes)) == ["0", "1"], outcomes


def a_lock_of_the_factory_is_no_obstacle(form: Form, seconds: float = 20.0) -> None:
    """One factory wants a lock whose holder reads another cell; nothing global is held."""
    foreign = threading.Lock()
    wants = threading.Event()

    def factory() -> int:
        wants.set()
        assert foreign.acquire(timeout=30)
        foreign.release()
        return 1

    one, other = form(factory), form(lambda: 2)

    def holder() -> Any:
        assert wants.wait(30)
        return other()

    with foreign:
        readers = [started(one), started(one)]
        assert promptly(holder, seconds) == 2
    for reader in readers:
        settle(reader)
    assert one() == 1


def what_a_factory_uses_up_is_used_once(form: Form, seconds: float = SLOW) -> None:
    """A second run would find nothing left."""
    left = {"component": object()}
    expected = left["component"]

    def factory() -> object:
        time.sleep(seconds)
        found = left.pop("component")
        time.sleep(seconds)
        return found

    made = form(factory)
    outcomes = race([made] * THREADS)
    assert outcomes == [expected] * THREADS, outcomes


def nobody_sees_a_value_half_built(form: Form, seconds: float = SLOW) -> None:
    """Every reader gets all of it."""

    def factory() -> list[int]:
        numbers: list[int] = []
        for number in range(5):
            numbers.append(number)
            time.sleep(seconds / 5)
        return numbers

    made = form(factory)
    found = race([lambda: tuple(made())] * THREADS)
    assert found == [(0, 1, 2, 3, 4)] * THREADS


# ---- re-entry, deadlock, cycles ------------------------------------------------------------------


def is_refusal(outcome: object) -> bool:
    """Whether `outcome` says that waiting would never end; running out of stack does not."""
    return isinstance(outcome, RuntimeError) and not isinstance(outcome, RecursionError)


def a_factory_that_reads_itself_is_refused(form: Form, seconds: float = 20.0) -> None:
    """At once, and it does not run a second time."""
    runs = []

    def factory() -> Any:
        runs.append(1)
        return made()

    made = form(factory)
    [outcome] = race([made], seconds)
    assert is_refusal(outcome), outcome
    assert runs == [1]


def two_that_need_each_other_are_refused(form: Form, seconds: float = 20.0) -> None:
    """From two threads, each in the one and about to read the other."""
    both_are_in = Meeting(2)

    def factory(other: int) -> Any:
        both_are_in()
        return ones[other]()

    ones = [form(lambda: factory(1)), form(lambda: factory(0))]
    outcomes = race(ones, seconds)
    assert all(map(is_refusal, outcomes)), outcomes


def a_factory_may_survive_its_own_cycle(form: Form, seconds: float = 20.0) -> None:
    """It catches the error, and what it returns is the value."""

    def factory() -> str:
        with suppress(RuntimeError):
            made()
        return "value"

    made = form(factory)
    assert promptly(made, seconds) == made() == "value"


# ---- exceptions, interrupts ----------------------------------------------------------------------


def each_failure_is_its_own_threads(form: Form, seconds: float = SLOW) -> None:
    """As many runs as failures and one; all others get what that one made."""
    for failures in (1, 3):
        factory = Runs(seconds, failures)
        made = form(factory)
        outcomes = race([made] * THREADS)
        assert factory.runs == failures + 1, f"{factory.runs} runs"
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        values = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        assert sorted(map(str, errors)) == [f"run {run + 1}" for run in range(failures)], errors
        assert values == [[failures + 1]] * (THREADS - failures)
        assert all(value is values[0] for value in values)


def a_failure_is_not_for_ever(form: Form, seconds: float = 20.0) -> None:
    """The next call runs the factory, which has not been used up."""
    factory = Runs(failures=2)
    made = form(factory)
    errors = []
    for _ in range(2):
        try:
            promptly(made, seconds)
        except Boom as error:
            errors.append(error)
    assert [str(error) for error in errors] == ["run 1", "run 2"], errors
    assert promptly(made, seconds) is promptly(made, seconds)
    assert factory.runs == 3


def a_waiter_takes_over_from_one_who_failed(form: Form, seconds: float = 20.0) -> None:
    """Whoever waited gets a value, not the other's error."""
    gate = Gate()

    def factory() -> list[int]:
        value = gate()
        if value == [1]:
            raise Boom
        return value

    made = form(factory)
    first = started(made)
    assert gate.running.wait(30)
    second: list[Any] = []
    waiter = started(lambda: second.append(made()))
    time.sleep(0.02)
    gate.finish.set()
    waiter.join(seconds)
    assert second == [[2]], "the waiter got nothing, or the other's error"
    settle(first)


def an_attribute_error_is_not_masked(form: Form, seconds: float = 20.0) -> None:
    """The class's `__getattr__` is not asked for what its method failed to make."""
    assert form.decorate is not None

    def value(self: Any) -> Any:
        raise AttributeError("the factory's own")

    def __getattr__(self: Any, name: str) -> str:  # noqa: N807
        return f"no {name} here"

    body = {"value": form.decorate(value), "__getattr__": __getattr__}
    owner = type("Owner", (), body)()
    try:
        found = owner.value
    except (AttributeError, RuntimeError) as error:
        assert "the factory's own" in str(error)  # noqa: PT017 - one of two, for two kinds of form
    else:
        raise AssertionError(f"masked by {found!r}")


# ---- fork, copies, garbage, classes, async -------------------------------------------------------


def _fork(seconds: float) -> int:
    """`os.fork`, with a child that ends after `seconds` at the latest."""
    with warnings.catch_warnings():
        # Forking beside threads, from Python 3.12 on.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_REAL, seconds)
    return child


def _status(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _ending(work: Callable[[], None]) -> None:
    """Do `work`, and end this process."""
    try:
        work()
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def a_forked_child_makes_it_for_itself(form: Form, seconds: float = 20.0) -> None:
    """What another thread is making in the parent is nobody's in the child."""
    gate = Gate()
    made = form(gate)
    reader = started(made)
    assert gate.running.wait(30)

    def work() -> None:
        gate.finish.set()
        # A new thread may well have the system's number of the one that has not come along.
        values = race([made, made])
        assert values == [[2], [2]], values
        assert values[0] is values[1] is made()

    child = _fork(seconds)
    if child == 0:
        _ending(work)
    assert _status(child) == 0, "the child fails or hangs"
    gate.finish.set()
    settle(reader)
    assert made() == [1]


def one_who_forks_in_a_factory_keeps_the_turn(form: Form, seconds: float = 20.0) -> None:
    """Parent and child each finish what they began, and nobody else begins it there."""
    codes = []

    def factory() -> str:
        child = _fork(seconds)
        if child == 0:
            return "child"
        codes.append(_status(child))
        return "parent"

    def in_child() -> None:
        assert race([made, made]) == ["child"] * 2

    def while_it_runs() -> str:
        value = factory()
        if value == "child":
            try:
                made()
            except lp.LazyCycleError:
                return value
            os._exit(2)
        return value

    made = form(while_it_runs)
    value = made()
    if value == "child":
        _ending(in_child)
    assert race([made, made]) == ["parent"] * 2
    assert codes == [0]


def make_a_list() -> list[int]:
    """A factory that can be pickled."""
    return [1, 2, 3]


def copies_and_pickles_never_make_it(form: Form, seconds: float = 20.0) -> None:
    """A deep copy and a pickle of what is not ready make their own; of what is, they have it."""
    factory = Unpicklable()
    holder = form(factory).holder
    copy.deepcopy(holder)
    assert factory.runs == 0
    made = form(make_a_list)
    assert pickle.loads(pickle.dumps(made.holder)) is not None
    copied = copy.deepcopy(made.holder)
    assert copied is not None
    assert not made.is_ready()


class Unpicklable(Runs):
    """Not deep-copied, so that its runs are counted here."""

    def __deepcopy__(self, memo: object) -> Unpicklable:
        return self


def nothing_is_kept_alive(form: Form, seconds: float = 20.0) -> None:
    """Whoever holds the value goes when nobody holds them."""
    made = form(list)
    made()
    holder = weakref.ref(made.holder)
    del made
    gc.collect()
    assert holder() is None, "kept alive"


def a_slotted_class_can_have_one(form: Form, seconds: float = 20.0) -> None:
    """Without a ``__dict__``, where there is a slot for it."""
    assert form.decorate is not None
    body = {"__slots__": ("_value",), "value": form.decorate(lambda self: [1])}
    owner = type("Owner", (), body)()
    assert owner.value is owner.value
    assert owner.value == [1]


def a_coroutine_function_is_refused(form: Form, seconds: float = 20.0) -> None:
    """When it is given, or else when it is first called; its coroutine would be used up."""

    async def load() -> int:
        return 1

    try:
        found = form(load)()
    except TypeError as error:
        assert "coroutine function" in str(error)  # noqa: PT017 - naive forms give other errors
    else:
        if inspect.iscoroutine(found):
            found.close()
        raise AssertionError(f"gave {found!r}")


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        racing_threads_run_it_once,
        instances_do_not_serialise,
        a_lock_of_the_factory_is_no_obstacle,
        what_a_factory_uses_up_is_used_once,
        nobody_sees_a_value_half_built,
        a_factory_that_reads_itself_is_refused,
        two_that_need_each_other_are_refused,
        a_factory_may_survive_its_own_cycle,
        each_failure_is_its_own_threads,
        a_failure_is_not_for_ever,
        a_waiter_takes_over_from_one_who_failed,
        an_attribute_error_is_not_masked,
        a_forked_child_makes_it_for_itself,
        one_who_forks_in_a_factory_keeps_the_turn,
        copies_and_pickles_never_make_it,
        nothing_is_kept_alive,
        a_slotted_class_can_have_one,
        a_coroutine_function_is_refused,
    )
}


# ---- in a process of its own ---------------------------------------------------------------------


def verdict(scenario: Callable[..., None], form: Form, limit: float, seconds: float | None) -> str:
    """What comes of `scenario` for `form` within `limit` seconds."""
    said = ["hangs"]

    def run() -> None:
        try:
            scenario(form, *([] if seconds is None else [seconds]))
        except BaseException as error:
            said.append(f"fails: {type(error).__name__}: {error}")
        else:
            said.append("passes")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit)
    return said[-1].replace("\n", " ")


def run_alone(rows: Sequence[tuple[str, str, float | None]]) -> list[str]:
    """The verdicts on scenarios for forms, both by name, in a process of its own."""
    code = "import sys; from tests.once_scenarios import main; main(sys.argv[1])"
    done = files.run_python(code, json.dumps(rows), timeout=110)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def main(rows: str) -> None:
    """Print the verdicts on `rows`, a line for each."""
    known = {form.name: form for form in (*FORMS, *naive.FORMS)}
    for scenario, form, seconds in json.loads(rows):
        print(verdict(SCENARIOS[scenario], known[form], 60, seconds), flush=True)
    # Those that hang do not hold this up.
    os._exit(0)
