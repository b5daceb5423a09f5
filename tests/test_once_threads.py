"""The once-cell among threads: one run, one object, no lock that others could need."""

from __future__ import annotations

import asyncio
import io
import random
import sys
import threading
import time
from types import MemberDescriptorType
from typing import Any

import pytest

import lazyparam as lp
from tests import once_scenarios as scenarios
from tests.helpers import race
from tests.once_forms import (
    ATTRIBUTES,
    CELLS,
    IN_DICT,
    Form,
    Gate,
    InDict,
    IsSlot,
    Runs,
    every_form,
    of,
    promptly,
    settle,
    started,
)

pytestmark = pytest.mark.usefixtures("eager_switching")


@every_form
def test_racing_threads_run_it_once(form: Form) -> None:
    """python/cpython#101890 (and its steering-council#172): what 3.12's cached_property gave up."""
    scenarios.racing_threads_run_it_once(form)


@every_form
def test_two_instances_are_made_at_the_same_time(form: Form) -> None:
    """python/cpython#87634, astropy/photutils#2366: a lock per class made instances take turns."""
    scenarios.instances_do_not_serialise(form)


@every_form
def test_a_slow_factory_gives_all_threads_one_list(form: Form) -> None:
    """python/cpython#103475: two threads got two lists from a `cache`d function."""
    made = form(Runs(scenarios.SLOW))
    assert len({id(value) for value in race([made] * 4)}) == 1


def test_a_singleton_stays_one_under_a_race() -> None:
    """python/cpython#141831: one made through lru_cache(maxsize=1)."""

    class Singleton:
        made = 0

        def __init__(self) -> None:
            time.sleep(scenarios.SLOW)
            type(self).made += 1

    instance = lp.once(Singleton)
    instances = race([instance] * 8)
    assert Singleton.made == 1
    assert set(map(type, instances)) == {Singleton}
    assert len(set(instances)) == 1


@every_form
def test_what_is_read_twice_in_each_racing_thread_is_the_same(form: Form) -> None:
    """python/cpython#150708, python/cpython#154069: `obj.p is obj.p` across racing threads."""
    for _ in range(20):
        made = form(Runs())
        pairs = race([lambda made=made: (made(), made())] * 4)
        assert len({id(value) for pair in pairs for value in pair}) == 1


@every_form
def test_locks_are_per_cell(form: Form) -> None:
    """discuss.python.org/t/23757: the scope of cached_property's lock."""
    gate = Gate()
    slow, fast = form(gate), form(Runs())
    reader = started(slow)
    assert gate.running.wait(30)
    assert promptly(fast) == [1]
    assert not slow.is_ready()
    gate.finish.set()
    settle(reader)
    assert slow() == [1]


def test_a_lazy_attribute_can_be_assigned_where_python_lets_it() -> None:
    """celery/kombu#1303, #1668, #1804: code that assigned, and relied on a hidden lock."""
    for form in ATTRIBUTES:
        made = form(Runs())
        if form.name == "lazy in __slots__":
            # Its slot can; the attribute itself says so clearly, on every version of Python.
            with pytest.raises(AttributeError, match="value"):
                made.holder.value = "mine"
            made.holder._value = "mine"
        else:
            made.holder.value = "mine"
        assert made() == made.holder.value == "mine"
    for form in CELLS:
        with pytest.raises(AttributeError, match=r"value|read-?only"):
            form(Runs()).holder.value = "mine"


def test_what_is_assigned_or_deleted_before_a_run_ends_is_that_runs_value() -> None:
    """celery/kombu#1668: as with cached_property, the run has the last word."""
    for form in ATTRIBUTES:
        gate = Gate()
        made = form(gate)
        reader = started(made)
        assert gate.running.wait(30)
        if form is IN_DICT:
            made.holder.value = "mine"
            del made.holder.value
        gate.finish.set()
        settle(reader)
        assert made() == [1]
        assert gate.runs == 1


def test_ten_threads_print_called_once(capsys: pytest.CaptureFixture[str]) -> None:
    """pydanny/cached-property#6: it was printed by each of them."""

    class Owner:
        @lp.lazy
        def value(self) -> int:
            print("called")
            return 1

    owner = Owner()
    assert race([lambda: owner.value] * 10) == [1] * 10
    assert capsys.readouterr().out == "called\n"


@of(*ATTRIBUTES)
def test_a_deletion_beside_readers_never_gives_anything_but_a_value(form: Form) -> None:
    """pydanny/cached-property#80, giampaolo/psutil#1948: no KeyError between check and read."""
    factory = Runs()
    made = form(factory)
    name = "value" if form is IN_DICT else "_value"
    found: set[str] = set()

    def read() -> None:
        for _ in range(300):
            found.add(type(made()).__name__)

    def forget() -> int:
        count = 0
        for _ in range(300):
            try:
                delattr(made.holder, name)
                count += 1
            except AttributeError:
                pass
        return count

    *read_errors, deletions, _ = race([read, read, read, forget, read])
    assert read_errors == [None] * 3
    assert found == {"list"}
    # Each run but the last one was deleted.
    made()
    assert factory.runs == deletions + 1


def test_five_readers_start_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    """pallets-eco/blinker#21: each thread wrote its start line."""

    class Owner:
        @lp.lazy
        def value(self) -> int:
            print("start")
            time.sleep(0.05)
            return 1

    owner = Owner()
    race([lambda: owner.value] * 5)
    assert capsys.readouterr().out == "start\n"


@every_form
def test_nobody_sees_a_value_half_built(form: Form) -> None:
    """astropy/astropy#11221: a parser built twice at once parsed wrongly."""
    scenarios.nobody_sees_a_value_half_built(form)


def test_a_value_that_is_there_is_read_without_any_lock() -> None:
    """pallets/flask#4993: a lock on each read; here it is a load, as for an attribute in a slot."""
    for cell in (lp.OnceCell, lp.Lazy):
        value = cell.__dict__["value"]
        if sys.version_info >= (3, 12):
            assert type(value) is MemberDescriptorType
    assert IsSlot.__dict__["value"] is IsSlot.__dict__["_value"]
    assert not hasattr(type(InDict.value), "__set__"), "the entry of a __dict__ comes first"


@every_form
def test_a_component_is_used_up_once(form: Form) -> None:
    """boto/boto3#1592, boto/botocore#2985: KeyError from the second to pop what is deferred."""
    scenarios.what_a_factory_uses_up_is_used_once(form)


@every_form
def test_random_delays_at_every_step_change_nothing(form: Form) -> None:
    """boto/botocore#3727: delays injected wherever threads may change places."""
    chance = random.Random(3)
    delays = [[chance.choice([0, 0, 1e-5, 3e-4]) for _ in range(5)] for _ in range(15)]
    for before, *within, after in delays:
        runs = []

        def factory(within: list[float] = within, runs: list[int] = runs) -> object:
            for delay in within:
                time.sleep(delay)
            runs.append(1)
            return object()

        made = form(factory)

        def read(made: Any = made, before: float = before, after: float = after) -> object:
            time.sleep(before)
            value = made()
            time.sleep(after)
            assert made() is value
            return value

        values = race([read] * 4)
        assert len(set(values)) == len(runs) == 1


def test_a_get_beside_a_reset_never_gives_a_marker_for_nothing() -> None:
    """ets-labs/python-dependency-injector#322: `reset()` between check and return gave None."""

    class Service:
        instance: lp.Lazy[list[int]] = lp.Lazy(lambda: [1])

    def reset() -> None:
        for _ in range(300):
            Service.instance = lp.Lazy(lambda: [1])

    def read() -> list[Any]:
        seen = [Service.instance.value for _ in range(300)]
        return [value for value in seen if value != [1]]

    assert race([read, read, reset, read]) == [[], [], None, []]


def test_a_cell_that_is_not_set_gives_the_default_and_nothing_else() -> None:
    """ets-labs/python-dependency-injector#322: while others set it."""
    for _ in range(30):
        cell = lp.OnceCell[int]()
        gets = race([lambda cell=cell: cell.get(7.5)] * 3 + [lambda cell=cell: cell.set(7)])
        assert set(gets[:3]) <= {7.5, 7}
        assert cell.get(7.5) == cell.value == 7


def test_concurrent_first_callers_share_an_event_loop() -> None:
    """Azure/azure-iot-sdk-python#1260: it was created twice."""

    @lp.once
    def loop() -> asyncio.AbstractEventLoop:
        time.sleep(scenarios.SLOW)
        return asyncio.new_event_loop()

    loops = race([loop] * 6)
    loop().close()
    assert len(set(loops)) == 1


def test_two_threads_that_show_a_cell_do_not_make_it() -> None:
    """ionelmc/python-lazy-object-proxy#83: printing a proxy ran its factory, twice."""
    for form in (*CELLS, IN_DICT):
        factory = Runs()
        made = form(factory)
        out = io.StringIO()
        race([lambda made=made, out=out: print(made.holder, file=out)] * 2)
        assert factory.runs == 0
        race([lambda made=made, out=out: print(made(), file=out)] * 2)
        assert factory.runs == 1
        assert out.getvalue().count("[1]") == 2


def test_no_wake_up_is_lost(proof: Any) -> None:
    """scala/scala3#2275: notify fell between the look at the flag and the wait."""
    cells = [lp.Lazy(object) for _ in range(proof(2_000, 100_000))]

    def read() -> list[object]:
        return [cell.value for cell in cells]

    one, other = race([read, read], proof(30, 600))
    assert all(map(lambda a, b: a is b, one, other))


@every_form
def test_a_lock_of_the_factory_is_no_obstacle(form: Form) -> None:
    """h5py/h5py#2064: an outer lock and the lazy one, taken in both orders."""
    scenarios.a_lock_of_the_factory_is_no_obstacle(form)


@every_form
def test_a_factory_that_lets_go_of_the_interpreter_does_not_meet_a_waiter_that_holds_it(
    form: Form,
) -> None:
    """PyO3/pyo3#973, #975, #4512, apache/arrow#8588, deedy5/primp#142, pybind/pybind11#4877."""

    def factory() -> str:
        sys.modules.pop("this_module_is_imported_once", None)
        import colorsys

        time.sleep(0.01)
        return colorsys.__name__

    made = form(factory)
    ticks: list[int] = []

    def bystander() -> None:
        while not made.is_ready():
            ticks.append(1)
            time.sleep(0.0005)

    first, second, _ = race([made, made, bystander])
    assert first is second
    assert first == "colorsys"


@every_form
def test_a_read_on_another_thread_needs_nothing_of_the_first(form: Form) -> None:
    """No thread affinity: made here, read there, read here."""
    made = form(Runs())
    assert promptly(made) is made() is promptly(made)


def test_a_slot_and_a_dict_of_one_object_do_not_get_in_each_others_way() -> None:
    """Several attributes of one instance are several cells."""

    class Owner:
        __slots__ = ("__dict__", "_slot")

        def __init__(self) -> None:
            self.both = threading.Barrier(2)

        @lp.lazy.in_slot("_slot")
        def slot(self) -> str:
            self.both.wait(20)
            return "slot"

        @lp.lazy
        def entry(self) -> str:
            self.both.wait(20)
            return "entry"

    owner = Owner()
    assert race([lambda: owner.slot, lambda: owner.entry]) == ["slot", "entry"]
    assert vars(owner)["entry"] == "entry"


def test_an_attribute_made_beside_readers_of_many_instances() -> None:
    """Each instance has its own run, whatever the threads do to the class meanwhile."""

    class Owner:
        def __init__(self, number: int) -> None:
            self.number = number

        @lp.lazy
        def value(self) -> list[int]:
            return [self.number]

    owners = [Owner(number) for number in range(50)]
    tables = race([lambda: [owner.value for owner in owners]] * 6)
    for table in tables:
        assert table == [[number] for number in range(50)]
        assert all(map(lambda a, b: a is b, table, tables[0]))
