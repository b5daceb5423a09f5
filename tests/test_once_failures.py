"""A factory that raises: its own error, in its own thread, and another chance for the next."""

from __future__ import annotations

import gc
import sys
import threading
import time
import traceback
import weakref
from contextlib import suppress
from typing import Any

import pytest

import lazyparam as lp
from tests import once_scenarios as scenarios
from tests.helpers import Boom, race
from tests.once_forms import (
    ATTRIBUTES,
    CELLS,
    IN_DICT,
    IN_SLOT,
    IS_SLOT,
    PATIENT,
    Form,
    Gate,
    Runs,
    every_form,
    of,
    promptly,
    settle,
    started,
)

pytestmark = pytest.mark.usefixtures("eager_switching")


@every_form
def test_each_failure_is_its_own_threads_alone(form: Form) -> None:
    """BlueBrain/Brion#232, openzim/libzim#671: exactly as many runs as failures, and one."""
    scenarios.each_failure_is_its_own_threads(form)


@every_form
def test_after_the_first_call_fails_the_next_one_runs(form: Form) -> None:
    """PaddlePaddle/Paddle#6681, pytorch/pytorch#78051, abseil/abseil-cpp#1823: call_once hung."""
    made = form(Runs(failures=1))
    with pytest.raises(Boom):
        promptly(made)
    assert not made.is_ready()
    assert promptly(made) == [2]


@every_form
def test_a_retry_finds_the_factory_still_there(form: Form) -> None:
    """matklad/once_cell#46: it had been consumed by the run that failed."""
    scenarios.a_failure_is_not_for_ever(form)


@every_form
def test_a_transient_failure_does_not_poison(form: Form) -> None:
    """dotnet/corefx#32337, dotnet/runtime#114147, havit/Havit.Blazor#1690: cached exceptions."""
    made = form(Runs(failures=5))
    errors = []
    for _ in range(5):
        with pytest.raises(Boom) as caught:
            made()
        errors.append(caught.value)
    assert len(set(map(id, errors))) == 5
    # The traceback of an error that is raised anew grows with each raise; these do not.
    assert len({len(traceback.extract_tb(error.__traceback__)) for error in errors}) == 1
    assert made() == [6]


@every_form
def test_a_waiter_takes_over_from_one_who_failed(form: Form) -> None:
    """BlueBrain/Brion#232: with the waiters there already when it fails."""
    scenarios.a_waiter_takes_over_from_one_who_failed(form)


@pytest.mark.parametrize(
    "error",
    [
        AttributeError("mine"),
        ValueError("mine"),
        KeyboardInterrupt("mine"),
        SystemExit(3),
        GeneratorExit("mine"),
        StopIteration("mine"),
        lp.LazyCycleError("mine"),
        MemoryError("mine"),
    ],
    ids=lambda error: type(error).__name__,
)
@every_form
def test_whatever_a_factory_raises_is_raised_once_as_it_is(
    form: Form, error: BaseException
) -> None:
    """ionelmc/python-lazy-object-proxy#3: any error was swallowed, and the factory run again."""
    runs = []

    def factory() -> Any:
        runs.append(1)
        error.__traceback__ = None
        raise error

    made = form(factory)
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            made()
        assert caught.value is error
        assert error.__context__ is None
        assert error.__cause__ is None
        assert not getattr(error, "__notes__", None)
    assert runs == [1, 1]
    assert not made.is_ready()


@every_form
def test_an_error_raised_while_another_is_handled_has_that_one_as_context(form: Form) -> None:
    """What Python itself does is not undone: only fakes are missing."""

    def factory() -> Any:
        try:
            raise KeyError("inner")
        except KeyError:
            raise Boom("outer")  # noqa: B904

    with pytest.raises(Boom) as caught:
        form(factory)()
    assert isinstance(caught.value.__context__, KeyError)
    assert caught.value.__context__.__context__ is None


@every_form
def test_an_error_of_the_factory_lets_go_of_its_frames(form: Form) -> None:
    """dotnet/runtime#114147: a cached exception pins what its frames refer to."""

    class Big:
        pass

    bigs = []

    def factory() -> Any:
        big = Big()
        bigs.append(weakref.ref(big))
        raise Boom

    made = form(factory)
    with suppress(Boom):
        made()
    gc.collect()
    assert bigs[0]() is None


@of(*ATTRIBUTES)
def test_a_lazy_attribute_is_not_masked_by_the_classes_getattr(form: Form) -> None:
    """ionelmc/python-lazy-object-proxy#3, python-attrs/attrs#1230: it was said to be missing."""
    scenarios.an_attribute_error_is_not_masked(form)


def test_an_attribute_error_of_a_class_with_getattr_is_a_runtime_error_from_it() -> None:
    """python-attrs/attrs#1230: also in a slot, and where a base has the `__getattr__`."""

    class Base:
        __slots__ = ("_value",)

        def __getattr__(self, name: str) -> str:
            return f"no {name} here"

    class Fast(Base):
        __slots__ = ()

        @lp.lazy.in_slot("_value")
        def value(self) -> Any:
            raise AttributeError("mine")

        def __getattr__(self, name: str) -> str:
            return f"no {name} here"

    with pytest.raises(AttributeError, match="mine"):
        Fast().value
    assert Fast().other == "no other here"

    class Owner(Base):
        @lp.lazy
        def value(self) -> Any:
            raise AttributeError("mine")

        @lp.lazy
        def entry(self) -> Any:
            return self._nothing + 1  # a str and an int

    with pytest.raises(
        RuntimeError, match=r"Owner\.value raised an AttributeError: mine"
    ) as caught:
        Owner().value
    assert isinstance(caught.value.__cause__, AttributeError)
    with pytest.raises(TypeError):
        Owner().entry
    assert Owner().other == "no other here"


@pytest.mark.parametrize("form", [IN_DICT, IN_SLOT, IS_SLOT], ids=lambda form: form.name)
def test_an_attribute_error_of_a_class_without_getattr_is_as_it_is(form: Form) -> None:
    """python-attrs/attrs#1230: and `hasattr` says what it says of properties."""
    error = AttributeError("mine")

    def factory() -> Any:
        raise error

    made = form(factory)
    with pytest.raises(AttributeError) as caught:
        made()
    assert caught.value is error
    assert error.__context__ is None
    assert not hasattr(made.holder, "value")


def test_a_property_that_overrides_a_slot_is_not_answered_by_what_it_overrides() -> None:
    """python-attrs/attrs#1230: an AttributeError of the one ran the method of the other."""

    class Base:
        __slots__ = ("_value",)

        @lp.lazy.in_slot("_value")
        def value(self) -> str:
            return "base"

    class Owner(Base):
        __slots__ = ()

        @property
        def value(self) -> Any:  # type: ignore[override]
            raise AttributeError("mine")

    with pytest.raises(AttributeError):
        Owner().value
    assert Base().value == "base"


def test_hasattr_initialises_and_says_what_came_of_it() -> None:
    """`hasattr(lazy, "value")` is a read like any other."""
    runs = Runs()
    cell = lp.Lazy(runs)
    assert hasattr(cell, "value")
    assert runs.runs == 1

    def fails() -> Any:
        raise AttributeError("mine")

    assert not hasattr(lp.Lazy(fails), "value")
    with pytest.raises(Boom):
        hasattr(lp.Lazy(Runs(failures=1)), "value")
    # An UnsetError is no AttributeError: a box without a value has the attribute, and no value.
    with pytest.raises(lp.UnsetError):
        hasattr(lp.OnceCell(), "value")


@of(*PATIENT)
def test_giving_up_leaves_the_run_alone(form: Form) -> None:
    """A timeout ends the wait, not the initialisation."""
    gate = Gate()
    made = form(gate)
    assert made.within is not None
    reader = started(made)
    assert gate.running.wait(30)
    for timeout in (0, 0.001, 0.02):
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            made.within(timeout)
        assert time.monotonic() - start < 5
    gate.finish.set()
    settle(reader)
    assert made.within(0) == [1]
    assert gate.runs == 1


@of(*PATIENT)
def test_a_timeout_does_not_cut_short_ones_own_run(form: Form) -> None:
    made = form(Runs(0.03))
    assert made.within is not None
    assert made.within(0.001) == [1]


@of(*PATIENT)
def test_a_timeout_is_a_number_of_seconds(form: Form) -> None:
    made = form(Runs())
    assert made.within is not None
    for timeout in (-1, float("nan"), -float("inf")):
        with pytest.raises(ValueError, match="timeout"):
            made.within(timeout)
    for nonsense in ("1", [], object()):
        with pytest.raises(TypeError):
            made.within(nonsense)  # type: ignore[arg-type]
    assert not made.is_ready()
    assert made.within(float("inf")) == [1]


@every_form
def test_a_failing_run_that_nobody_waits_for_leaves_nothing_behind(form: Form) -> None:
    """100 threads fail one after the other, each in a thread that then ends."""
    made = form(Runs(failures=100))
    for run in range(100):
        [outcome] = race([made])
        assert str(outcome) == f"run {run + 1}"
    assert made() == [101]


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, 0.0, NotImplemented, ...], ids=repr)
@every_form
def test_falsy_values_are_values(form: Form, value: Any) -> None:
    """ets-labs/python-dependency-injector#322: no marker is a value, and no value a marker."""
    runs = []

    def factory() -> Any:
        runs.append(1)
        return value

    made = form(factory)
    assert made() is value
    assert made() is value
    assert made.is_ready()
    assert runs == [1]


@of(*CELLS)
def test_a_value_that_is_an_exception_is_a_value(form: Form) -> None:
    made = form(lambda: ValueError("kept"))
    assert made() is made()


def test_a_cell_whose_factory_left_by_an_error_in_a_thread_is_free() -> None:
    """A thread that dies in a factory (by `SystemExit`, say) leaves the turn to others."""
    inside = threading.Event()
    runs = []

    def factory() -> str:
        runs.append(1)
        if len(runs) == 1:
            inside.set()
            time.sleep(0.01)
            sys.exit("silently")
        return "value"

    cell = lp.Lazy(factory)
    thread = started(cell.get)
    assert inside.wait(30)
    assert promptly(cell.get) == "value"
    settle(thread)
