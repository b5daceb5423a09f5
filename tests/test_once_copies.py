"""Copies, pickles, references and garbage: nothing forces a value, or keeps it for ever."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import lazyparam as lp
from tests import once_scenarios as scenarios
from tests.helpers import race
from tests.once_forms import (
    ATTRIBUTES,
    CELLS,
    FORMS,
    IN_DICT,
    LAZY_GET,
    LAZY_VALUE,
    ONCE,
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
from tests.once_scenarios import make_a_list

NOT_ONCE = [form for form in FORMS if form is not ONCE]
PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


@pytest.fixture
def only_explicit_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def again(thing: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(thing, protocol))


@lp.once
def shared_list() -> list[int]:
    return [1]


class Model:
    """Holds a cell, next to what the cell is made of."""

    def __init__(self) -> None:
        self.table = lp.Lazy(make_a_list)
        self.same = self.table
        self.box = lp.OnceCell[Any]()

    @lp.lazy
    def total(self) -> int:
        return sum(self.table.value)


# ---- copies --------------------------------------------------------------------------------------


@of(*CELLS)
def test_a_copy_is_the_same_cell(form: Form) -> None:
    """django/django#5276: a copy of an unevaluated lazy evaluated it."""
    made = form(Runs())
    assert copy.copy(made.holder) is made.holder
    assert not made.is_ready()


@of(*NOT_ONCE)
def test_a_deep_copy_and_a_pickle_never_make_a_value(form: Form) -> None:
    """pydantic/pydantic#2763, optuna/optuna#2256, cloudpipe/cloudpickle#447: "cannot pickle"."""
    scenarios.copies_and_pickles_never_make_it(form)


def read(holder: Any) -> Any:
    """The value of a holder that came out of a copy or a pickle."""
    return holder.get_or_init(make_a_list) if isinstance(holder, lp.OnceCell) else holder.value


@pytest.mark.parametrize("through", [copy.deepcopy, again], ids=["deepcopy", "pickle"])
@of(*NOT_ONCE)
def test_what_is_not_made_is_made_by_the_copy_for_itself(form: Form, through: Any) -> None:
    """pytorch/pytorch#65051: a deep copy of an uninitialised lazy parameter works."""
    made = form(make_a_list)
    copied = through(made.holder)
    assert read(copied) == [1, 2, 3]
    assert not made.is_ready()
    assert made() == [1, 2, 3]
    assert made() is not read(copied)
    assert read(copied) is read(copied)


@pytest.mark.parametrize("through", [copy.deepcopy, again], ids=["deepcopy", "pickle"])
@of(*NOT_ONCE)
def test_what_is_made_is_copied(form: Form, through: Any) -> None:
    """django/django#5276, #6030: pickles and copies of evaluated lazies."""
    made = form(make_a_list)
    made().append(4)
    copied = through(made.holder)
    assert read(copied) == [1, 2, 3, 4]
    assert read(copied) is not made()


@of(*ATTRIBUTES)
def test_a_shallow_copy_of_an_instance_shares_what_is_made(form: Form) -> None:
    """django/django#5276: and makes what is not."""
    made = form(Runs())
    before = copy.copy(made.holder)
    value = made()
    after = copy.copy(made.holder)
    assert after.value is value
    assert before.value == [2]
    assert before.value is not value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ties_survive_a_pickle(protocol: int) -> None:
    """pydantic/pydantic#2763: one cell under two names is one cell afterwards."""
    for is_read in (False, True):
        model = Model()
        if is_read:
            assert model.total == 6
        other = again(model, protocol)
        assert other.table is other.same
        assert other.table is not model.table
        assert other.table.is_ready is is_read
        assert other.total == 6


def test_ties_survive_a_deep_copy() -> None:
    """pydantic/pydantic#2763: by way of the memo, which the caller may bring."""
    model = Model()
    memo: dict[int, Any] = {}
    other = copy.deepcopy(model, memo)
    assert other.table is other.same
    assert copy.deepcopy(model.table, memo) is other.table
    assert memo[id(model.table)] is other.table
    assert other.table.value is not model.table.value
    assert copy.deepcopy([model.box] * 2)[0] is not model.box


@pytest.mark.parametrize("through", [copy.deepcopy, again], ids=["deepcopy", "pickle"])
def test_what_contains_itself_does_so_afterwards(through: Any) -> None:
    """django/django#6030: a value that refers to the cell it is in."""
    cell: lp.Lazy[Any] = lp.Lazy(list)
    cell.value.append(cell)
    other = through(cell)
    assert other.value[0] is other
    assert other is not cell

    box = lp.OnceCell[Any]()
    box.set({"self": box})
    other_box = through(box)
    assert other_box.value["self"] is other_box


class Named:
    """A factory that is an object and refers to the cell that it is for."""

    def __init__(self) -> None:
        self.cell: Any = None

    def __call__(self) -> str:
        return f"made for {self.cell!r}"


@pytest.mark.parametrize("through", [copy.deepcopy, again], ids=["deepcopy", "pickle"])
def test_a_factory_may_refer_to_its_cell(through: Any) -> None:
    """pydantic/pydantic#2763: it comes along in a pickle, and is shared by a deep copy."""
    factory = Named()
    factory.cell = lp.Lazy(factory)
    other = through(factory)
    assert not factory.cell.is_ready
    assert other.cell is not factory.cell
    state = "empty" if through is copy.deepcopy else "running"
    assert other.cell.value == f"made for <Lazy {state}>"


@pytest.mark.thread_unsafe(reason="has a class pickle otherwise for a while")
def test_a_cell_that_is_being_made_is_pickled_as_its_factory() -> None:
    """optuna/optuna#2256: neither waits for the one that runs."""
    gate = Gate()
    cell: lp.Lazy[Any] = lp.Lazy(gate)
    reader = started(cell.get)
    assert gate.running.wait(30)
    gate.__class__.__reduce__ = lambda self: (Runs, ())  # type: ignore[method-assign, assignment]
    try:
        assert promptly(lambda: again(cell)).value == [1]
    finally:
        del gate.__class__.__reduce__
    gate.finish.set()
    settle(reader)
    assert again(cell).is_ready


def test_a_factory_that_cannot_be_pickled_is_named_with_a_remedy() -> None:
    """cloudpipe/cloudpickle#447: a clear error, not one about a lock; a value is no trouble."""
    cell = lp.Lazy(lambda: 3)
    with pytest.raises(
        lp.PickleError, match=r"the factory .*<lambda> cannot be pickled.*top level"
    ):
        pickle.dumps(cell)
    with pytest.raises(pickle.PicklingError):
        pickle.dumps({"deep": [cell]})
    assert copy.deepcopy(cell).value == 3
    assert cell.value == 3
    assert again(cell).value == 3
    assert again(cell).is_ready


def test_the_other_process_makes_the_same_value() -> None:
    """optuna/optuna#2256: parallel jobs get the recipe, or the value if it is there."""
    cell = lp.Lazy(list)
    code = "import pickle, sys; a, b = pickle.load(sys.stdin.buffer); print(a.is_ready, a.value, b)"
    data = pickle.dumps([cell, lp.Lazy.of("there")])
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert done.stdout.decode().strip() == "False [] <Lazy ready 'there'>"


def test_a_once_function_is_pickled_and_copied_like_a_function() -> None:
    """django/django#6030: by its name, so there it is what it is there."""
    for through in (copy.copy, copy.deepcopy, again):
        assert through(shared_list) is shared_list
    assert not shared_list.is_ready

    @lp.once
    def local() -> int:
        return 1

    assert copy.deepcopy([local])[0] is local
    with pytest.raises((pickle.PicklingError, AttributeError), match="local"):
        pickle.dumps(local)


def test_copies_beside_a_run_are_whole() -> None:
    """pytorch/pytorch#65051: a copy has the value or makes one, at whatever moment it is taken."""
    for _ in range(30):
        cell: lp.Lazy[list[int]] = lp.Lazy(make_a_list)

        def copied(cell: lp.Lazy[list[int]] = cell) -> list[int]:
            return copy.deepcopy(cell).value

        def pickled(cell: lp.Lazy[list[int]] = cell) -> list[int]:
            return again(cell).value

        values = race([cell.get, copied, pickled, copied, pickled])
        assert values == [[1, 2, 3]] * 5


def test_a_deep_copy_that_fails_leaves_both_usable() -> None:
    class Stubborn:
        def __deepcopy__(self, memo: Any) -> Any:
            raise ValueError("not me")

    cell = lp.Lazy(Stubborn)
    copy.deepcopy(cell)
    cell.value
    with pytest.raises(ValueError, match="not me"):
        copy.deepcopy(cell)
    assert cell.is_ready


# ---- attributes and their classes ----------------------------------------------------------------


def rebuilt(owner: type) -> type:
    """A class made again from what is in it, attribute by attribute, as cloudpickle does."""
    slots = owner.__dict__.get("__slots__")
    body = {} if slots is None else {"__slots__": slots}
    other = types.new_class(owner.__name__, owner.__bases__, {}, lambda ns: ns.update(body))
    slots = () if slots is None else slots
    for name, value in owner.__dict__.items():
        if name not in ("__dict__", "__weakref__", "__slots__", "__doc__", *slots):
            if isinstance(value, lp.lazy):
                value = again_by_reduce(value)
            if isinstance(value, types.MemberDescriptorType):
                value = getattr(other, value.__name__)
            setattr(other, name, value)
    return other


def again_by_reduce(attribute: Any) -> Any:
    """What pickle makes of `attribute`, with its function as it is."""
    rebuild, arguments = attribute.__reduce__()
    return rebuild(*arguments)


@of(*ATTRIBUTES)
def test_a_class_that_is_rebuilt_from_its_parts_works(form: Form) -> None:
    """cloudpipe/cloudpickle#447: the parts are set one by one, and told no names."""
    owner = rebuilt(type(form(list).holder))
    factory = Runs()
    instance = owner(factory)
    assert race([lambda: instance.value] * 4) == [[1]] * 4
    assert factory.runs == 1
    assert not hasattr(instance, "other")


def module_method(self: Any) -> int:
    return 7


def test_an_attribute_pickles_with_its_name_and_slot() -> None:
    """cloudpipe/cloudpickle#447: the descriptor itself, by way of pickle."""
    attribute: lp.lazy[int] = lp.lazy(module_method, slot="_seventh")

    class Owner:
        __slots__ = ("_seventh",)
        seven: Any

    attribute.__set_name__(Owner, "seven")
    Owner.seven = again(Owner.__dict__.get("seven_", again(attribute)))
    assert Owner().seven == 7


# ---- garbage and references ----------------------------------------------------------------------


@every_form
def test_nothing_is_kept_alive_by_a_value_that_was_made(form: Form) -> None:
    """mozilla/mozci#189, PyCQA/flake8#1573, python/cpython#102618: as method caches do."""
    scenarios.nothing_is_kept_alive(form)


@of(*CELLS)
def test_the_factory_is_let_go_of_once_it_has_succeeded(form: Form) -> None:
    """golang/go#68636, JetBrains/kotlin-native#1878: its closure was pinned."""
    factory = Runs(failures=1)
    reference = weakref.ref(factory)
    made = form(factory)
    holder = made.holder
    with pytest.raises(scenarios.Boom):
        made()
    value = made()
    del made, factory
    assert reference() is None
    assert read(holder) is value


def test_a_destructor_of_the_factory_may_read_the_cell() -> None:
    """JetBrains/kotlin-native#3861: it is dropped when the cell is nobody's turn any more."""
    seen: list[Any] = []

    class Factory:
        def __call__(self) -> str:
            return "value"

        def __del__(self) -> None:
            seen.append(cell.value)

    cell = lp.Lazy(Factory())
    assert promptly(cell.get) == "value"
    gc.collect()
    assert seen == ["value"]


@every_form
def test_holders_can_be_referred_to_weakly(form: Form) -> None:
    """python-attrs/attrs#174: a weak reference to the cell."""
    made = form(list)
    reference = weakref.ref(made.holder)
    assert reference() is made.holder
    proxy = weakref.proxy(made.holder)
    if form in ATTRIBUTES or form is LAZY_VALUE:
        assert proxy.value is made()
    del made
    gc.collect()
    assert reference() is None


@pytest.mark.usefixtures("only_explicit_collections")
@every_form
def test_a_cycle_through_the_factory_is_collected(form: Form) -> None:
    """python/cpython#102618: holder -> factory -> holder."""

    class Factory:
        def __call__(self) -> list[Any]:
            return []

    factory = Factory()
    made = form(factory)
    factory.made = made  # type: ignore[attr-defined]
    factory.itself = factory  # type: ignore[attr-defined]
    reference = weakref.ref(made.holder)
    del made, factory
    gc.collect()
    assert reference() is None


@pytest.mark.usefixtures("only_explicit_collections")
@every_form
def test_a_cycle_through_the_value_is_collected(form: Form) -> None:
    """python/cpython#102618: holder -> value -> holder."""

    class Value:
        pass

    made = form(Value)
    made().holder = made.holder
    reference = weakref.ref(made.holder)
    del made
    gc.collect()
    assert reference() is None


@pytest.mark.usefixtures("only_explicit_collections")
def test_classes_with_lazy_attributes_are_collected() -> None:
    """python/cpython#102618: the class, its attributes and what they keep of the class."""

    def make() -> weakref.ref[type]:
        class Owner:
            __slots__ = ("__dict__", "_first", "_second")

            @lp.lazy
            def first(self) -> type:
                return Owner

            @lp.lazy.in_slot("_second")
            def second(self) -> type:
                return Owner

            @lp.lazy
            def third(self) -> type:
                return Owner

        owner = Owner()
        assert owner.first is owner.second is owner.third is Owner
        return weakref.ref(Owner)

    def plain() -> weakref.ref[type]:
        return weakref.ref(type("Plain", (), {}))

    reference, other = make(), plain()
    gc.collect()
    if other() is not None:
        pytest.skip("this interpreter keeps all classes, as free-threaded ones of 3.13 do")
    assert reference() is None


def test_a_holder_that_is_let_go_of_while_it_is_made_lives_until_it_is() -> None:
    """mozilla/mozci#189: the last reference goes while a thread is in the factory."""
    for form in (ONCE_CELL, LAZY_GET, IN_DICT):
        gate = Gate()
        made = form(gate)
        reference = weakref.ref(made.holder)
        values: list[Any] = []
        work = lambda made=made, values=values: values.append(made())  # noqa: E731
        readers = [started(work) for _ in range(2)]
        del work
        assert gate.running.wait(30)
        del made
        gate.finish.set()
        for reader in readers:
            settle(reader)
        del reader, readers
        assert values == [[1], [1]]
        gc.collect()
        assert reference() is None


def test_a_cell_at_the_place_of_one_that_died_is_another() -> None:
    """python/cpython#126692: places are used again, like the numbers of threads."""
    for number in range(2000):
        cell = lp.Lazy(lambda number=number: number)
        assert cell.value == number
        del cell
    for _ in range(200):
        with pytest.raises(scenarios.Boom):
            lp.Lazy(Runs(failures=1)).value
