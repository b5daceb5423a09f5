"""What would wait for ever is refused at once, and names the cells it would wait for."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import pytest

import lazyparam as lp
from tests import once_scenarios as scenarios
from tests.helpers import race
from tests.once_forms import (
    CELLS,
    FORMS,
    ONCE_CELL,
    PATIENT,
    Form,
    Gate,
    Meeting,
    Runs,
    every_form,
    of,
    promptly,
    settle,
    started,
)

pytestmark = pytest.mark.usefixtures("eager_switching")


@every_form
def test_a_factory_that_reads_itself_is_refused_at_once(form: Form) -> None:
    """Suor/funcy#184, #186: a once-function that called itself hung."""
    start = time.monotonic()
    scenarios.a_factory_that_reads_itself_is_refused(form, 20.0)
    assert time.monotonic() - start < 1


@every_form
def test_a_cycle_is_not_remembered(form: Form) -> None:
    """The cell is empty afterwards, and a factory that no longer needs itself makes it."""
    needs_itself = True

    def factory() -> Any:
        return made() if needs_itself else "value"

    made = form(factory)
    for _ in range(2):
        with pytest.raises(lp.LazyCycleError):
            promptly(made)
        assert not made.is_ready()
    needs_itself = False
    assert promptly(made) == "value"


@every_form
def test_a_factory_may_survive_its_own_cycle(form: Form) -> None:
    """The outer initialiser catches the error and finishes."""
    scenarios.a_factory_may_survive_its_own_cycle(form)


def test_the_error_names_the_cells_in_the_order_of_their_needs() -> None:
    """Two of them, and one that is not part of the cycle but of the way to it."""

    class Owner:
        __slots__ = ("__dict__", "_second")

        @lp.lazy
        def first(self) -> Any:
            return self.second

        @lp.lazy.in_slot("_second")
        def second(self) -> Any:
            return third()

    owner = Owner()

    @lp.once
    def third() -> Any:
        return fourth.value

    def make_fourth() -> Any:
        return fifth.get_or_init(make_fifth)

    def make_fifth() -> Any:
        return owner.first

    fourth = lp.Lazy(make_fourth)
    fifth = lp.OnceCell[Any]()
    with pytest.raises(lp.LazyCycleError) as caught:
        owner.first
    here = "test_the_error_names_the_cells_in_the_order_of_their_needs.<locals>"
    assert caught.value.cells == (
        f"{here}.Owner.first",
        f"{here}.Owner.second",
        f"Lazy({here}.third)",
        f"Lazy({here}.make_fourth)",
        f"OnceCell({here}.make_fifth)",
    )
    assert isinstance(caught.value, RuntimeError)
    assert "greenlets" in str(caught.value)


@pytest.mark.parametrize("form", CELLS, ids=lambda form: form.name)
def test_a_cell_read_by_its_factory_directly_is_named_alone(form: Form) -> None:
    def factory() -> Any:
        return made()

    made = form(factory)
    with pytest.raises(lp.LazyCycleError, match="itself") as caught:
        made()
    [name] = caught.value.cells
    assert name.endswith("factory)")
    assert name.startswith(form.name.split(".")[0])


@of(*PATIENT)
def test_what_a_thread_inside_the_factory_waits_for_is_not_seen_but_may_be_given_up(
    form: Form,
) -> None:
    """matklad/once_cell#65, PR 92: the thread is joined, so nothing but a timeout ends this."""
    outcomes: list[Any] = []

    def inner() -> None:
        try:
            outcomes.append(made.within(0.05))  # type: ignore[misc]
        except TimeoutError as error:
            outcomes.append(error)

    def factory() -> str:
        thread = threading.Thread(target=inner)
        thread.start()
        thread.join(30)
        return "value"

    made = form(factory)
    assert promptly(made) == "value"
    [outcome] = outcomes
    assert isinstance(outcome, TimeoutError)
    assert promptly(made) == "value"


@every_form
def test_a_thread_that_the_factory_gives_up_joining_gets_the_value(form: Form) -> None:
    """matklad/once_cell#65, for what has no timeout of its own."""
    threads: list[threading.Thread] = []
    inner: list[Any] = []

    def factory() -> str:
        threads.append(started(lambda: inner.append(made())))
        threads[0].join(0.03)
        assert threads[0].is_alive()
        return "value"

    made = form(factory)
    assert promptly(made) == "value"
    settle(threads[0])
    assert inner == ["value"]


@every_form
def test_two_that_need_each_other_from_two_threads_are_refused(form: Form) -> None:
    """scala/scala3#25370, coursera/courier#82: a cycle error in bounded time, never a hang."""
    for _ in range(3):
        scenarios.two_that_need_each_other_are_refused(form)


@pytest.mark.parametrize("other", FORMS, ids=lambda form: form.name)
def test_cells_of_different_forms_that_need_each_other_are_refused(other: Form) -> None:
    """scala/scala3#25370: A is a cell, B anything; a param is a cell like any other."""
    both_are_in = Meeting(2)

    def make_one() -> Any:
        both_are_in()
        return two()

    def make_two() -> Any:
        both_are_in()
        return one()

    one, two = ONCE_CELL(make_one), other(make_two)
    errors = race([one, two])
    # Each got its own; the one that closed the cycle knows both.
    assert all(isinstance(error, lp.LazyCycleError) for error in errors), errors
    assert max(len(error.cells) for error in errors) == 2
    assert not one.is_ready()
    assert not two.is_ready()


def test_a_param_and_a_cell_that_need_each_other_are_refused() -> None:
    """scala/scala3#25370: parameters are cells like any other."""
    both_are_in = Meeting(2)

    def init(plan: lp.Plan) -> Any:
        both_are_in()
        return cell.value

    def factory() -> Any:
        both_are_in()
        return param.value

    param, cell = lp.Param(2, init), lp.Lazy(factory)
    errors = race([param.val, cell.get])
    assert all(isinstance(error, lp.LazyCycleError) for error in errors), errors


@of(*PATIENT)
def test_a_foreign_lock_is_not_seen_but_may_be_given_up(form: Form) -> None:
    """topjohnwu/Magisk#5178: the factory wants a lock whose holder reads the cell."""
    lock = threading.Lock()
    wants = threading.Event()

    def factory() -> str:
        wants.set()
        with lock:
            return "value"

    made = form(factory)
    assert made.within is not None
    with lock:
        reader = started(made)
        assert wants.wait(30)
        with pytest.raises(TimeoutError, match="another thread"):
            made.within(0.02)
    settle(reader)
    assert made.within(0) == "value"


@every_form
def test_a_greenlet_that_comes_back_to_a_cell_of_its_thread_is_refused(form: Form) -> None:
    """Kotlin/kotlinx.coroutines#1682: an error, never a second run, never a hang."""
    greenlet = pytest.importorskip("greenlet")
    runs = []

    def factory() -> str:
        runs.append(1)
        main.switch("inside")
        return "value"

    made = form(factory)
    main = greenlet.getcurrent()
    first = greenlet.greenlet(lambda: made())
    second = greenlet.greenlet(lambda: made())
    assert first.switch() == "inside"
    with pytest.raises(lp.LazyCycleError, match="greenlets of one thread"):
        second.switch()
    assert first.switch() == "value"
    assert made() == "value"
    assert runs == [1]


@every_form
def test_a_greenlet_that_is_killed_in_a_factory_gives_the_turn_back(form: Form) -> None:
    """Kotlin/kotlinx.coroutines#1682: the run ends by `GreenletExit`, as by any other error."""
    greenlet = pytest.importorskip("greenlet")
    runs = []

    def factory() -> str:
        runs.append(1)
        if len(runs) == 1:
            main.switch()
        return "value"

    made = form(factory)
    main = greenlet.getcurrent()
    suspended = greenlet.greenlet(lambda: made())
    suspended.switch()
    waiting: list[Any] = []
    waiter = started(lambda: waiting.append(made()))
    time.sleep(0.01)
    del suspended
    settle(waiter)
    assert waiting == ["value"]
    assert made() == "value"
    assert len(runs) == 2


@every_form
def test_a_generator_that_comes_back_to_a_cell_of_its_thread_is_refused(form: Form) -> None:
    """Kotlin/kotlinx.coroutines#1682: the same with what Python itself suspends."""

    def steps() -> Any:
        yield
        yield made()

    def factory() -> str:
        suspended = steps()
        next(suspended)
        with pytest.raises(lp.LazyCycleError):
            next(suspended)
        return "value"

    made = form(factory)
    assert promptly(made) == "value"


@every_form
def test_a_collection_in_a_factory_that_has_threads_waiting_is_harmless(form: Form) -> None:
    """awolverp/cachebox#84: `__traverse__` took the lock that the initialiser held."""
    inside = threading.Event()

    def factory() -> Any:
        inside.set()
        gc.collect()
        time.sleep(0.002)
        gc.collect()
        return [made.holder]

    made = form(factory)
    values = race([made] * 3)
    gc.collect()
    assert values[0] is values[1] is values[2]


@every_form
def test_a_collection_beside_a_running_factory_is_harmless(form: Form) -> None:
    """awolverp/cachebox#84: from another thread."""
    gate = Gate()
    made = form(gate)
    readers = [started(made), started(made)]
    assert gate.running.wait(30)
    promptly(gc.collect)
    gate.finish.set()
    for reader in readers:
        settle(reader)
    assert made() == [1]


@every_form
def test_a_destructor_that_reads_the_cell_in_its_factory_is_refused(form: Form) -> None:
    """awolverp/cachebox#84: on the same thread, called by the collector, say."""
    seen: list[Any] = []

    class Witness:
        def __del__(self) -> None:
            try:
                seen.append(made())
            except lp.LazyCycleError as error:
                seen.append(error)

    def factory() -> str:
        witness = Witness()
        witness.itself = witness  # type: ignore[attr-defined]
        del witness
        gc.collect()
        return "value"

    made = form(factory)
    assert promptly(made) == "value"
    [error] = seen
    assert isinstance(error, lp.LazyCycleError)


@every_form
def test_a_destructor_of_the_value_may_read_others(form: Form) -> None:
    """awolverp/cachebox#84: the collector finds the cell and its value in a cycle."""
    seen = []
    other = lp.Lazy(lambda: "other")

    class Value:
        def __del__(self) -> None:
            seen.append(other.value)

    made = form(Value)
    made().holder = made.holder
    del made
    promptly(gc.collect)
    assert seen == ["other"]


def test_a_chain_without_a_cycle_is_no_cycle() -> None:
    """Many threads that enter it at different places wait for each other, one way."""
    cells: list[lp.Lazy[int]] = [lp.Lazy(lambda: time.sleep(0.003) or 0)]
    for _ in range(20):
        cells.append(lp.Lazy(lambda before=cells[-1]: before.value + 1))
    values = race([cell.get for cell in cells[::2]])
    assert values == list(range(0, 21, 2))


@every_form
def test_a_thread_that_waits_needs_the_cells_it_is_making(form: Form) -> None:
    """A ring of four, each in a thread of its own; the last to wait is refused, then all are."""
    size = 4
    all_are_in = Meeting(size)

    def factory(at: int) -> Any:
        all_are_in()
        return ring[(at + 1) % size]()

    ring = [form(lambda at=at: factory(at)) for at in range(size)]
    errors = race(ring)
    assert all(isinstance(error, lp.LazyCycleError) for error in errors), errors
    assert max(len(error.cells) for error in errors) == size


def test_running_out_of_stack_is_an_error_that_leaves_all_usable() -> None:
    """A RecursionError is no cycle, and no cell remembers it."""
    runs = Runs()
    cells = [lp.Lazy(runs)]
    for _ in range(3000):
        cells.append(lp.Lazy(lambda before=cells[-1]: before.value))
    with pytest.raises(RecursionError):
        cells[-1].value
    for cell in cells[::50]:
        cell.value
    assert cells[-1].value == [1]
    assert runs.runs == 1
