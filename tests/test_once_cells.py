"""OnceCell, Lazy and once by themselves, and what ``.value`` is as an attribute."""

from __future__ import annotations

import functools
import pickle
import sys
import textwrap
import time
from types import MemberDescriptorType
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests import checkpoint_files as files
from tests.helpers import race
from tests.once_forms import (
    CELLS,
    LAZY_GET,
    ONCE_CELL,
    Form,
    Gate,
    Runs,
    every_form,
    of,
    promptly,
    settle,
    started,
)

# ---- OnceCell ------------------------------------------------------------------------------------


def test_a_cell_is_empty_then_has_one_value_for_ever() -> None:
    cell = lp.OnceCell[int]()
    assert not cell.is_set
    assert cell.get() is None
    assert cell.get("default") == cell.get(default="default") == "default"
    assert repr(cell) == "<OnceCell empty>"
    with pytest.raises(lp.UnsetError, match=r"no value yet.*get_or_init") as caught:
        cell.value
    assert isinstance(caught.value, LookupError)
    cell.set(3)
    assert cell.is_set
    assert cell.get("default") == cell.value == cell.get_or_init(lambda: 4) == 3
    assert repr(cell) == "<OnceCell ready 3>"
    with pytest.raises(lp.AlreadySetError, match="has a value") as again:
        cell.set(4)
    assert isinstance(again.value, RuntimeError)
    assert cell.value == 3


def test_exactly_one_of_those_who_set_together_does() -> None:
    """python/cpython#141831: and the others are told."""
    for _ in range(20):
        cell = lp.OnceCell[int]()
        outcomes = race([lambda at=at, cell=cell: cell.set(at) for at in range(6)])
        winners = [at for at, outcome in enumerate(outcomes) if outcome is None]
        assert winners == [cell.value]
        assert sum(isinstance(outcome, lp.AlreadySetError) for outcome in outcomes) == 5


def test_setting_waits_for_a_factory_that_runs() -> None:
    """It has the turn; if it fails, whoever sets has the next."""
    for failures in (0, 1):
        gate, cell = Gate(), lp.OnceCell[Any]()

        def factory(gate: Gate = gate, failures: int = failures) -> list[int]:
            value = gate()
            if failures:
                raise ValueError
            return value

        reader = started(lambda cell=cell, factory=factory: cell.get_or_init(factory))
        assert gate.running.wait(30)
        outcomes: list[Any] = []
        setter = started(lambda cell=cell, out=outcomes: out.append(race([lambda: cell.set(7)])[0]))
        time.sleep(0.01)
        assert not outcomes
        assert repr(cell) == "<OnceCell running>"
        gate.finish.set()
        settle(reader)
        settle(setter)
        if failures:
            assert outcomes == [None]
            assert cell.value == 7
        else:
            assert isinstance(outcomes[0], lp.AlreadySetError)
            assert cell.value == [1]


def test_a_factory_that_sets_its_own_cell_is_refused() -> None:
    """Suor/funcy#184: another way of needing itself."""
    cell = lp.OnceCell[int]()

    def factory() -> int:
        with pytest.raises(lp.LazyCycleError):
            cell.set(1)
        with pytest.raises(lp.LazyCycleError):
            cell.get_or_init(lambda: 2)
        assert cell.get("nothing") == "nothing"
        return 3

    assert promptly(lambda: cell.get_or_init(factory)) == 3


def test_different_factories_of_one_cell_run_once_in_all() -> None:
    """python/cpython#103475: whoever comes first makes it for the others."""
    cell = lp.OnceCell[Any]()
    factories = [Runs(0.006) for _ in range(6)]
    values = race([lambda factory=factory: cell.get_or_init(factory) for factory in factories])
    assert sum(factory.runs for factory in factories) == 1
    assert all(value is values[0] for value in values)


def test_a_factory_is_looked_at_only_if_it_is_needed() -> None:
    cell = lp.OnceCell[int]()
    cell.set(1)
    assert cell.get_or_init(None, timeout=-1) == 1  # type: ignore[arg-type]


# ---- Lazy ----------------------------------------------------------------------------------------


def test_looking_at_a_lazy_never_makes_it() -> None:
    runs = Runs()
    cell = lp.Lazy(runs)
    assert not cell.is_ready
    assert cell.peek() is None
    assert cell.peek("default") == cell.peek(default="default") == "default"
    assert repr(cell) == str(cell) == f"{cell}" == "<Lazy empty>"
    assert bool(cell)
    assert cell == cell
    assert cell != lp.Lazy(runs)
    assert hash(cell) == hash(cell)
    assert len({cell, cell, lp.Lazy(runs)}) == 2
    assert dir(cell)
    assert runs.runs == 0
    assert cell.value == [1]
    assert cell.peek("default") is cell.value is cell.get() is cell.get(timeout=0)
    assert repr(cell) == "<Lazy ready [1]>"


def test_a_lazy_that_is_born_ready_has_no_factory() -> None:
    for value in (None, 3, [1]):
        cell = lp.Lazy.of(value)
        assert cell.is_ready
        assert cell.value is value
        assert cell.peek("default") is value


def test_the_states_are_shown_while_it_is_made() -> None:
    gate = Gate()
    for form in CELLS:
        gate = Gate()
        made = form(gate)
        reader = started(made)
        assert gate.running.wait(30)
        kind = type(made.holder).__name__
        assert repr(made.holder) == f"<{kind} running>"
        assert not made.is_ready()
        gate.finish.set()
        settle(reader)
        assert repr(made.holder) == f"<{kind} ready [1]>"


def test_what_contains_itself_is_shown_once() -> None:
    cell: lp.Lazy[Any] = lp.Lazy(list)
    cell.value.append(cell)
    assert repr(cell) == "<Lazy ready [<Lazy ready ...>]>"


def test_an_error_of_a_values_repr_is_that_of_the_cells() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        repr(lp.Lazy.of(Shy()))


def test_cells_are_final_and_take_what_they_say() -> None:
    """No subclass can change what a read is; a value is wrapped by `of`."""
    for cell in (lp.Lazy, lp.OnceCell):
        with pytest.raises(TypeError, match="base type"):
            type("Sub", (cell,), {})
    for call in (
        lp.Lazy,
        lambda: lp.Lazy(list, list),
        lambda: lp.Lazy(factory=list),
        lambda: lp.OnceCell(1),
        lambda: lp.Lazy.of(),
        lambda: lp.Lazy(list)(),
    ):
        with pytest.raises(TypeError):
            call()


# ---- .value as an attribute ----------------------------------------------------------------------


def test_a_value_is_a_member_that_python_reads_in_line() -> None:
    """pallets/flask#4993: from Python 3.12 on, no call at all."""
    for kind in (lp.Lazy, lp.OnceCell, lp.Param):
        descriptor = kind.__dict__["value"]
        if sys.version_info >= (3, 12):
            assert type(descriptor) is MemberDescriptorType
        assert descriptor.__name__ == "value"
        assert descriptor.__objclass__ is kind
        assert "value" in descriptor.__doc__.lower()


def holders() -> list[tuple[Any, str]]:
    """One of each class with a ``value``, read and not, and what else gives it."""
    param = lp.Param(2, lp.init.ones())
    read = lp.Param(2, lp.init.ones())
    read.value
    box = lp.OnceCell[int]()
    box.set(1)
    return [
        (lp.Lazy(list), "get"),
        (lp.Lazy.of(3), "get"),
        (param, "val"),
        (read, "val"),
        (lp.Param.initialized(np.ones(2)), "val"),
        (box, "get"),
    ]


def test_a_value_is_the_same_object_however_it_is_asked_for() -> None:
    for holder, method in holders():
        value = holder.value
        assert getattr(holder, method)() is value
        assert holder.value is value
        assert getattr(holder, "value") is value  # noqa: B009
    for holder, method in holders():
        value = getattr(holder, method)()
        assert holder.value is value is holder.value


def test_a_value_cannot_be_assigned_or_deleted() -> None:
    """celery/kombu#1668: a clear failure on every version of Python."""
    for holder, _ in holders():
        for change in (
            lambda holder=holder: setattr(holder, "value", 3),
            lambda holder=holder: delattr(holder, "value"),
        ):
            with pytest.raises((AttributeError, TypeError), match=r"read-?only|writable"):
                change()
        assert holder.value is holder.value


def test_an_attribute_that_is_not_there_is_named_as_python_does() -> None:
    """python-attrs/attrs#1230: with name and object, so suggestions work, and nothing is made."""
    for holder, _ in [*holders(), (lp.Lazy(Runs(failures=9)), "")]:
        with pytest.raises(AttributeError, match="has no attribute 'valeu'") as caught:
            holder.valeu
        assert caught.value.name == "valeu"
        assert caught.value.obj is holder
        assert caught.value.__context__ is None
        assert caught.value.__cause__ is None
        assert not hasattr(holder, "_value")
        with pytest.raises(AttributeError):
            holder.valeu = 1


@of(*CELLS)
def test_an_attribute_error_of_the_factory_has_no_fake_context(form: Form) -> None:
    """python-attrs/attrs#1230: "during handling of the above exception" would be a lie."""
    error = AttributeError("mine", name="other", obj=3)

    def factory() -> Any:
        raise error

    made = form(factory)
    with pytest.raises(AttributeError) as caught:
        made()
    assert caught.value is error
    assert (error.name, error.obj) == ("other", 3)
    assert error.__context__ is None
    assert error.__suppress_context__ is False


def test_the_names_behind_value_are_not_for_use() -> None:
    """What answers for a value that is not there does not answer for anything else."""
    cell = lp.Lazy(list)
    if sys.version_info >= (3, 12):
        assert not hasattr(cell, "_missing")
        assert cell.__getattr__("value") == []
        with pytest.raises(AttributeError):
            cell.__getattr__("get")
    assert getattr(cell, "nothing", "default") == "default"


# ---- once ----------------------------------------------------------------------------------------


@lp.once
def documented() -> int:
    """What it says."""
    return 3


@pytest.mark.thread_unsafe(reason="its function runs once")
def test_a_once_function_is_still_that_function() -> None:
    """stefanholek/lazy#10: metadata, signature, the function itself."""
    assert documented.__name__ == "documented"
    assert documented.__qualname__ == "documented"
    assert documented.__doc__ == "What it says."
    assert documented.__module__ == __name__
    assert documented.__wrapped__() == 3
    assert not documented.is_ready
    assert repr(documented) == "<once documented: <Lazy empty>>"
    assert documented() == 3
    assert documented.is_ready
    assert repr(documented) == "<once documented: <Lazy ready 3>>"


@pytest.mark.parametrize(
    "function",
    [lambda a: a, functools.partial(lambda a, b: a, 1), lambda *, key: key, Runs.__call__],
    ids=["one", "partial", "keyword", "method"],
)
def test_a_function_with_parameters_is_refused(function: Any) -> None:
    """once is no cache: with a remedy."""
    with pytest.raises(lp.LazyTypeError, match=r"no arguments.*@lazy.*lru_cache"):
        lp.once(function)


@pytest.mark.parametrize(
    "function",
    [lambda a=1: a, lambda *args, **kwargs: 1, functools.partial(lambda a: a, 1), int, Runs()],
    ids=["default", "star", "partial", "type", "object"],
)
def test_whatever_can_be_called_without_arguments_is_called_once(function: Any) -> None:
    """sqlalchemy/sqlalchemy#5581: partials and objects have no name of their own."""
    made = lp.once(function)
    assert "empty" in repr(made)
    assert made() is made()
    assert "ready" in repr(made)
    with pytest.raises(TypeError):
        made(1)  # type: ignore[call-arg]


def test_a_once_function_of_a_partial_cannot_be_pickled_and_says_so() -> None:
    """cloudpipe/cloudpickle#447: there is no name to find it by."""
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(lp.once(functools.partial(int, 3)))


def test_attributes_of_the_function_do_not_get_in_the_way() -> None:
    """stefanholek/lazy#10: metadata are copied, whatever they are called."""

    def function() -> int:
        return 3

    function._cell = "its own"  # type: ignore[attr-defined]
    function.note = "kept"  # type: ignore[attr-defined]
    made = lp.once(function)
    assert made() == 3
    assert made.note == "kept"  # type: ignore[attr-defined]
    assert lp.once(made)() == 3


def test_a_method_that_has_a_self_is_told_of_lazy() -> None:
    """mozilla/mozci#189: a cache per class is not what a method wants."""
    with pytest.raises(lp.LazyTypeError, match="@lazy for methods"):

        class Owner:
            @lp.once
            def value(self) -> int:
                return 1


@every_form
def test_a_value_is_made_with_the_callers_context(form: Form) -> None:
    """The factory runs in the thread that asked, not in one of ours."""
    import contextvars
    import threading

    variable = contextvars.ContextVar("variable", default="default")
    made = form(lambda: (variable.get(), threading.get_ident()))
    variable.set("mine")
    assert made() == ("mine", threading.get_ident())


def test_a_cell_is_cheap_to_make_and_to_forget() -> None:
    """100,000 of them, none read: no threads, no locks, no files."""
    cells = [lp.Lazy(list) for _ in range(100_000)]
    assert not any(cell.is_ready for cell in cells)
    boxes = [ONCE_CELL(list), LAZY_GET(list)]
    assert [made() for made in boxes] == [[], []]


@pytest.mark.parametrize("gone", ["lazyparam._core", "lazyparam"])
def test_a_second_import_leaves_the_classes_as_they_are(gone: str) -> None:
    """Tools that reload, and interpreters in one process: the classes are the process's."""
    code = f"""
    import sys
    import lazyparam as lp
    before = lp.Lazy(lambda: 1)
    for name in [name for name in sys.modules if name.startswith({gone!r})]:
        del sys.modules[name]
    import lazyparam, lazyparam._core
    for Lazy in (lp.Lazy, lazyparam.Lazy):
        assert Lazy(lambda: 2).value == Lazy(lambda: 2).get() == Lazy(lambda: 2).get(timeout=9) == 2
    assert before.get() == before.value == 1
    assert lazyparam.Param(2, lazyparam.init.ones()).val().tolist() == [1, 1]
    """
    done = files.run_python(textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
