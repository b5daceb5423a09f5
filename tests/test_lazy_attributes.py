"""`lazy` in all kinds of classes: slotted, frozen, generic, abstract, inherited, made anew."""

from __future__ import annotations

import abc
import copy
import dataclasses
import enum
import functools
import inspect
import pickle
import pydoc
import sys
import threading
import typing
import weakref
from collections.abc import Callable
from types import MemberDescriptorType
from typing import Any, Generic, NamedTuple, TypeVar

import pytest

import lazyparam as lp
from tests import once_scenarios as scenarios
from tests.helpers import Boom, race
from tests.once_forms import ATTRIBUTES, IN_SLOT, IS_SLOT, Form, Gate, Runs, of, settle, started

T = TypeVar("T")

# What says how to have the attribute, and the slots of the class.
WAYS = {
    "in __dict__": (lp.lazy, None),
    "in __slots__": (lp.lazy, ("_value",)),
    "as a slot": (lp.lazy.in_slot("_value"), ("_value",)),
    "in __slots__ beside a __dict__": (lp.lazy, ("_value", "__dict__")),
    "as a slot beside a __dict__": (lp.lazy.in_slot("_value"), ("_value", "__dict__")),
    "as a slot that is not there": (lp.lazy.in_slot("_value"), None),
}
every_way = pytest.mark.parametrize("way", WAYS)


def make(way: str, method: Any, *bases: type, **body: Any) -> Any:
    """A class whose attribute ``value`` is made by `method`."""
    decorate, slots = WAYS[way]
    if slots is not None:
        body["__slots__"] = slots
    return type("Owner", bases, {**body, "value": decorate(method)})


# ---- slots, dicts, both --------------------------------------------------------------------------


@of(IN_SLOT, IS_SLOT)
def test_a_slotted_class_has_lazy_attributes(form: Form) -> None:
    """python-attrs/attrs#164, pallets/werkzeug#2332: without a ``__dict__``."""
    scenarios.a_slotted_class_can_have_one(form)


@every_way
def test_a_value_is_made_once_per_instance(way: str) -> None:
    """python-attrs/attrs#164: wherever the class keeps it."""
    owner = make(way, lambda self: [id(self)])
    one, other = owner(), owner()
    assert race([lambda: one.value] * 4) == [[id(one)]] * 4
    assert one.value is one.value
    assert other.value == [id(other)]


@every_way
def test_a_slot_is_cleared_by_a_deletion_and_made_again(way: str) -> None:
    """pydanny/cached-property#80: deletion is the way to have it made again."""
    runs = Runs()
    owner = make(way, lambda self: runs())
    instance = owner()
    assert instance.value == [1]
    if way == "in __slots__" or way == "in __slots__ beside a __dict__":
        with pytest.raises(AttributeError, match="value"):
            del instance.value
        del instance._value
    else:
        del instance.value
    assert instance.value == [2]


@every_way
def test_a_subclass_with_a_dict_or_slots_of_its_own_keeps_values_where_the_base_does(
    way: str,
) -> None:
    """python-attrs/attrs#164: subclasses of slotted classes have a ``__dict__`` by default."""
    base = make(way, lambda self: [self])

    class WithDict(base):
        pass

    class WithSlots(base):
        __slots__ = ("more",)

    for owner in (WithDict, WithSlots):
        instance = owner()
        assert instance.value is instance.value
        assert instance.value == [instance]
    instance = WithDict()
    instance.extra = 1
    instance.value
    is_in_slot = WAYS[way][1] is not None
    assert sorted(vars(instance)) == (["extra"] if is_in_slot else ["extra", "value"])
    assert hasattr(instance, "_value") is is_in_slot


@every_way
def test_an_override_may_use_what_it_overrides(way: str) -> None:
    """python-attrs/attrs#164: ``super().value`` in a property."""
    base = make(way, lambda self: ["base"])

    class Owner(base):
        @property
        def value(self) -> list[str]:
            # What is read from a slot directly is found by `super` once it is there.
            if way.startswith("as a slot") and way != "as a slot that is not there":
                base().value
                return ["base", "owner"]
            return [*super().value, "owner"]

    assert Owner().value == ["base", "owner"]


def test_a_class_without_room_says_what_to_add() -> None:
    """python-attrs/attrs#164: functools says that there is no ``__dict__``, not what to do."""

    class Owner:
        __slots__ = ("x",)

        @lp.lazy
        def value(self) -> int:
            raise AssertionError("there is no room for it")

    with pytest.raises(
        lp.LazyTypeError, match=r'Owner\.value has no room.*Add "_value" to the __s'
    ):
        Owner().value


def refused(body: Callable[[], object]) -> str:
    """What the error says that making a class raises."""
    with pytest.raises((lp.LazyTypeError, RuntimeError)) as caught:
        body()
    # Before 3.12, Python wraps what __set_name__ raises.
    error = caught.value if isinstance(caught.value, lp.LazyTypeError) else caught.value.__cause__
    assert isinstance(error, lp.LazyTypeError)
    return str(error)


def test_a_slot_that_a_class_does_not_have_is_refused_when_the_class_is_made() -> None:
    def body() -> object:
        class Owner:
            __slots__ = ("_valu",)

            @lp.lazy.in_slot("_value")
            def value(self) -> int:
                return 1

        return Owner

    assert "Owner has no slot for its value; expected _value in its __slots__" in refused(body)


@pytest.mark.parametrize("what", [None, 3, "", "a b", lambda self: 1])
def test_in_slot_takes_the_name_of_a_slot(what: Any) -> None:
    with pytest.raises(lp.LazyTypeError, match=r'expected @lazy.in_slot\("_name"\)'):
        lp.lazy.in_slot(what)


def test_private_attributes_and_slots_have_the_names_that_python_gives_them() -> None:
    class _Owner:
        __slots__ = ("___third", "__one", "__other")

        @lp.lazy
        def _one(self) -> int:
            return 1

        @lp.lazy.in_slot("__other")
        def other(self) -> int:
            return 2

        @lp.lazy
        def __third(self) -> int:
            return 3

        def third(self) -> int:
            return self.__third

    owner = _Owner()
    assert (owner._one, owner.other) == (1, 2)
    assert (owner._one, owner.other) == (1, 2)
    with pytest.raises(lp.LazyTypeError, match="no room"):
        owner.third()


def test_a_mixin_without_slots_of_its_own_uses_those_of_the_class() -> None:
    """python-attrs/attrs#164: ``__slots__ = ()``, for classes with slots and without."""

    class Mixin:
        __slots__ = ()

        @lp.lazy
        def first(self) -> list[str]:
            return ["first"]

        @lp.lazy.in_slot("_second")
        def second(self) -> list[str]:
            return ["second"]

    class Slotted(Mixin):
        __slots__ = ("_first", "_second")

    class Plain(Mixin):
        pass

    class Bare(Mixin):
        __slots__ = ()

    for owner in (Slotted, Plain):
        instance = owner()
        assert race([lambda instance=instance: instance.first] * 3) == [["first"]] * 3
        assert instance.first is instance.first
        assert instance.second is instance.second
    assert hasattr(Slotted(), "_first") is False
    with pytest.raises(lp.LazyTypeError, match="to the __slots__ of"):
        Bare().first


def test_two_bases_each_bring_an_attribute() -> None:
    """python-attrs/attrs#1288: each with a `__getattr__` of its own for its slots."""

    class First:
        __slots__ = ("_first",)

        @lp.lazy.in_slot("_first")
        def first(self) -> list[str]:
            return ["first"]

    class Second:
        @lp.lazy
        def second(self) -> list[str]:
            return ["second"]

    class Third(First):
        __slots__ = ("_third",)

        @lp.lazy.in_slot("_third")
        def third(self) -> list[str]:
            return [*self.first, "third"]

    class Owner(Third, Second):
        pass

    owner = Owner()
    assert owner.third == ["first", "third"]
    assert owner.third is owner.third
    assert owner.first is owner.first
    assert owner.second is owner.second
    with pytest.raises(AttributeError, match="'Owner' object has no attribute 'fourth'") as caught:
        owner.fourth
    assert caught.value.name == "fourth"
    assert caught.value.obj is owner


@every_way
def test_a_subclass_may_have_a_getattr_of_its_own(way: str) -> None:
    """python-attrs/attrs#1288: it is asked for what is not there, and for nothing else."""
    base = make(way, lambda self: ["value"])

    class Owner(base):
        asked: typing.ClassVar[list[str]] = []

        def __getattr__(self, name: str) -> Any:
            self.asked.append(name)
            inherited = getattr(super(), "__getattr__", None)
            if inherited is not None:
                return inherited(name)
            raise AttributeError(name)

    owner = Owner()
    assert owner.value == ["value"]
    assert owner.value is owner.value
    with pytest.raises(AttributeError, match="other"):
        owner.other
    assert set(Owner.asked) <= {"value", "other"}
    assert Owner.asked[-1] == "other"


@every_way
def test_a_getattr_of_the_class_itself_goes_on_working(way: str) -> None:
    """python-attrs/attrs#1288: `in_slot` asks it for what it does not know."""
    owner = make(way, lambda self: [self.missing], __getattr__=lambda self, name: f"{name} made up")
    instance = owner()
    assert instance.value == ["missing made up"]
    assert instance.other == "other made up"
    assert instance.value is instance.value


@every_way
def test_a_getattribute_of_the_class_sees_each_read(way: str) -> None:
    """python-attrs/attrs#1288: and decides."""
    seen = []

    def look(self: Any, name: str) -> Any:
        seen.append(name)
        return object.__getattribute__(self, name)

    owner = make(way, lambda self: [1], __getattribute__=look)
    instance = owner()
    assert instance.value is instance.value
    assert seen.count("value") >= 2


def test_a_slot_that_the_method_fills_itself_is_what_it_returns() -> None:
    """celery/kombu#1303: a method that assigns what it makes."""
    for form in ATTRIBUTES:
        made = form(lambda: "returned")
        if form is not ATTRIBUTES[1]:
            made.holder.factory = lambda made=made: setattr(made.holder, "value", "x") or "returned"
        assert made() == made.holder.value == "returned"


def test_a_dict_that_is_replaced_while_the_value_is_made_has_it_afterwards() -> None:
    """giampaolo/psutil#1948: the entry goes into the ``__dict__`` that the instance has then."""
    runs = Runs()

    class Owner:
        @lp.lazy
        def value(self) -> list[int]:
            self.__dict__ = {"fresh": True}
            return runs()

    owner = Owner()
    assert owner.value is owner.value
    assert vars(owner) == {"fresh": True, "value": [1]}
    assert runs.runs == 1


def test_a_dict_that_another_thread_replaces_meanwhile_has_the_value_afterwards() -> None:
    """giampaolo/psutil#1948: one run for those who came before and those who came after."""
    gate = Gate()

    class Owner:
        @lp.lazy
        def value(self) -> list[int]:
            return gate()

    owner = Owner()
    values: list[Any] = []
    readers = [started(lambda: values.append(owner.value))]
    assert gate.running.wait(30)
    owner.__dict__ = {}
    readers.append(started(lambda: values.append(owner.value)))
    gate.finish.set()
    for reader in readers:
        settle(reader)
    assert values == [[1], [1]]
    assert vars(owner)["value"] is values[0] is values[1]


def overriding(way: str, gate: Gate) -> Any:
    """A class with an attribute that overrides another one, which it uses, in the same place."""
    base = make(way, lambda self: ["base"])

    def value(self: Any) -> list[str]:
        below = super(owner, self).value
        if gate() == [1]:
            raise Boom
        return [*below, "owner"]

    slots = WAYS[way][1]
    owner: Any = type(
        "Owner", (base,), {"__slots__": () if slots else ("x",), "value": lp.lazy(value)}
    )
    return owner


@pytest.mark.parametrize("way", ["in __dict__", "in __slots__", "in __slots__ beside a __dict__"])
def test_an_override_that_uses_what_it_overrides_shows_nobody_the_half_of_it(way: str) -> None:
    """astropy/astropy#11221: both are `lazy`, and have one place for their values."""
    gate = Gate()
    owner = overriding(way, gate)
    instance = owner()
    values: list[Any] = []
    readers = [started(lambda: values.append(instance.value)) for _ in range(2)]
    assert gate.running.wait(30)
    readers.append(started(lambda: values.append(instance.value)))
    gate.finish.set()
    for reader in readers:
        settle(reader)
    # The first run failed, and left nothing that looked like a value.
    assert values == [["base", "owner"]] * 2
    assert instance.value is values[0] is values[1]
    assert super(owner, instance).value == ["base"]
    assert instance.value is values[0]
    assert owner.__base__().value == ["base"]


def test_an_override_in_a_slot_of_what_is_kept_in_that_slot() -> None:
    """astropy/astropy#11221: the one by way of the other."""

    class Base:
        __slots__ = ("_value",)

        @lp.lazy
        def value(self) -> list[str]:
            return ["base"]

    class Owner(Base):
        __slots__ = ()

        @lp.lazy.in_slot("_value")
        def value(self) -> list[str]:
            below = super().value
            assert not hasattr(self, "_value")
            return [*below, "owner"]

    owner = Owner()
    assert owner.value is owner.value
    assert owner.value == ["base", "owner"]
    assert super(Owner, owner).value == Base().value == ["base"]


def test_what_is_overridden_is_made_for_each_use_of_super_wherever_it_was_kept() -> None:
    """astropy/astropy#11221: only what the override makes of it is kept."""
    runs = Runs()

    class Base:
        __slots__ = ("_value",)

        @lp.lazy
        def value(self) -> list[int]:
            return runs()

    class Owner(Base):
        __slots__ = ("_value",)

        @lp.lazy
        def value(self) -> list[int]:
            return [*super().value, 2]

    owner = Owner()
    assert owner.value is owner.value
    assert owner.value == [1, 2]
    assert runs.runs == 1
    assert [super(Owner, owner).value, super(Owner, owner).value] == [[2], [3]]
    assert owner.value == [1, 2]


@pytest.mark.parametrize("decorate", [lp.lazy.in_slot("_one"), lp.lazy])
@pytest.mark.parametrize("apart", [False, True])
def test_two_attributes_cannot_be_kept_in_one_slot(decorate: Any, apart: bool) -> None:
    def body() -> object:
        class Owner:
            __slots__ = ("_one",)
            one = decorate(lambda self: 1)
            if not apart:
                other = lp.lazy.in_slot("_one")(lambda self: 2)

        class Larger(Owner):
            __slots__ = ()
            other = lp.lazy.in_slot("_one")(lambda self: 2)

        return Larger

    assert "_one, which is that of one" in refused(body)


def test_a_slot_of_another_class_is_left_alone_where_there_is_a_dict() -> None:
    class Base:
        __slots__ = ("_value",)

        def __init__(self) -> None:
            self._value = "the base's own"

    class Owner(Base):
        @lp.lazy
        def value(self) -> str:
            return "made"

    owner = Owner()
    assert owner.value == "made"
    assert owner._value == "the base's own"
    assert vars(owner) == {"value": "made"}


def test_each_thread_has_its_own_value_where_it_has_its_own_dict() -> None:
    class Local(threading.local):
        @lp.lazy
        def value(self) -> list[int]:
            return [threading.get_ident()]

    local = Local()
    values = race([lambda: (local.value, local.value)] * 3)
    assert all(one is two for one, two in values)
    assert len({id(one) for one, _ in values}) == 3


def test_what_classes_beside_each_other_have_is_overridden_too() -> None:
    """astropy/astropy#11221: neither declares itself below the other."""
    gate = Gate()

    class Upper:
        @lp.lazy
        def value(self) -> list[str]:
            below = super().value
            gate()
            return ["upper", *below]

    class Lower:
        @lp.lazy
        def value(self) -> list[str]:
            return ["lower"]

    class Slotted:
        __slots__ = ("_value",)

        @lp.lazy
        def value(self) -> list[str]:
            return ["lower"]

    for lower in (Lower, Slotted):
        gate = Gate()
        owner = type("Owner", (Upper, lower), {})()
        values: list[Any] = []
        readers = [started(lambda values=values, owner=owner: values.append(owner.value))]
        assert gate.running.wait(30)
        readers.append(started(lambda values=values, owner=owner: values.append(owner.value)))
        gate.finish.set()
        for reader in readers:
            settle(reader)
        assert values == [["upper", "lower"]] * 2
        assert values[0] is values[1] is owner.value
        assert lower.value.__get__(owner) == ["lower"]


def test_an_abstract_attribute_in_a_slot_is_abstract() -> None:
    class Owner(abc.ABC):
        __slots__ = ("_value",)

        @lp.lazy.in_slot("_value")
        @abc.abstractmethod
        def value(self) -> int: ...

    with pytest.raises(TypeError, match="abstract"):
        Owner()


# ---- dataclasses and their kin -------------------------------------------------------------------


class Room:
    """Declares a slot that no dataclass takes for a field."""

    __slots__ = ("_length",)


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenPoint(Room):
    x: float

    @lp.lazy
    def length(self) -> float:
        return abs(self.x)


@dataclasses.dataclass(frozen=True, slots=True)
class FastPoint(Room):
    x: float

    @lp.lazy.in_slot("_length")
    def length(self) -> float:
        return abs(self.x)


@dataclasses.dataclass
class Point:
    x: float

    @lp.lazy
    def length(self) -> float:
        return abs(self.x)


@dataclasses.dataclass(frozen=True)
class FrozenDictPoint:
    x: float

    @lp.lazy
    def length(self) -> float:
        return abs(self.x)


@dataclasses.dataclass(slots=True)
class FieldPoint:
    x: float
    _length: Any = dataclasses.field(init=False, repr=False, compare=False)

    @lp.lazy
    def length(self) -> float:
        return abs(self.x)


@dataclasses.dataclass(slots=True)
class FastFieldPoint:
    x: float
    _length: Any = dataclasses.field(init=False, repr=False, compare=False)

    @lp.lazy.in_slot("_length")
    def length(self) -> float:
        return abs(self.x)


POINTS = (FrozenPoint, FastPoint, Point, FrozenDictPoint, FieldPoint, FastFieldPoint)


@pytest.mark.parametrize("kind", POINTS)
def test_dataclasses_have_lazy_attributes(kind: Any) -> None:
    """python-attrs/attrs#164: frozen, slotted (and so made anew), and both."""
    point = kind(-2.0)
    assert race([lambda: point.length] * 4) == [2.0] * 4
    assert point.length is point.length
    assert point == kind(-2.0)
    assert repr(point) == f"{kind.__name__}(x=-2.0)"
    assert dataclasses.replace(point, x=3.0).length == 3.0
    assert point.length == 2.0
    assert not hasattr(point, "height")
    with pytest.raises(AttributeError, match="height"):
        point.height


@pytest.mark.parametrize("kind", POINTS)
def test_a_method_that_raises_in_a_dataclass_is_tried_again(kind: Any) -> None:
    """python-attrs/attrs#1230: with its own error."""
    point = kind("text")
    for _ in range(2):
        with pytest.raises(TypeError, match="abs"):
            point.length


@pytest.mark.parametrize("kind", [FrozenPoint, FastPoint, Point, FrozenDictPoint])
def test_dataclasses_are_copied_and_pickled_read_or_not(kind: Any) -> None:
    """pydantic/pydantic#2763: a slot declared by a base is no field, so nobody looks for it."""
    for is_read in (False, True):
        point = kind(-2.0)
        if is_read:
            point.length
        for through in (copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))):
            assert through(point) == point
            assert through(point).length == 2.0
        assert dataclasses.asdict(point) == {"x": -2.0}


def test_a_class_made_anew_does_not_mistake_the_old_one_for_itself() -> None:
    """python-attrs/attrs#164: what attrs and dataclasses do for slots."""

    class Owner(Room):
        @lp.lazy.in_slot("_length")
        def length(self) -> list[int]:
            return [1]

    body = {k: v for k, v in vars(Owner).items() if k not in ("__dict__", "__weakref__")}
    anew = type("Owner", (Room,), {**body, "__slots__": ()})
    for owner in (Owner, anew):
        instance = owner()
        assert instance.length is instance.length
        assert instance.length == [1]
        with pytest.raises(AttributeError, match="'Owner' object has no attribute 'height'"):
            instance.height


class Bounded(NamedTuple):
    low: int
    high: int


class Interval(Bounded):
    """A named tuple with a ``__dict__``."""

    @lp.lazy
    def middle(self) -> float:
        return (self.low + self.high) / 2


class BareInterval(Bounded):
    """A named tuple without one."""

    __slots__ = ()

    @lp.lazy
    def middle(self) -> float:
        return (self.low + self.high) / 2


def test_named_tuples_have_lazy_attributes_where_there_is_room() -> None:
    """pydanny/cached-property#69, python/cpython#141216: else a clear error."""
    interval = Interval(1, 2)
    assert interval.middle is interval.middle
    assert interval.middle == 1.5
    assert interval == (1, 2)
    with pytest.raises(lp.LazyTypeError, match="no room"):
        BareInterval(1, 2).middle


class Colour(enum.Enum):
    RED = 1
    BLUE = 2

    @lp.lazy
    def name_in_small(self) -> str:
        return self.name.lower()


def test_members_of_enums_have_lazy_attributes() -> None:
    """pydanny/cached-property#69: the attribute is no member."""
    assert list(Colour) == [Colour.RED, Colour.BLUE]
    assert Colour.RED.name_in_small is Colour.RED.name_in_small
    assert Colour.BLUE.name_in_small == "blue"


class Shape(abc.ABC):
    @lp.lazy
    @abc.abstractmethod
    def area(self) -> float: ...

    @lp.lazy
    def doubled(self) -> float:
        return self.area * 2


class Square(Shape):
    @lp.lazy
    def area(self) -> float:
        return 4.0


def test_abstract_attributes_have_to_be_defined() -> None:
    """python-attrs/attrs#164: `abc` sees through the decorator."""
    with pytest.raises(TypeError, match="abstract"):
        Shape()  # type: ignore[abstract]
    assert Square().doubled == 8.0


class Pair(Generic[T]):
    def __init__(self, one: T) -> None:
        self.one = one

    @lp.lazy
    def both(self) -> tuple[T, T]:
        return (self.one, self.one)


def test_generic_classes_have_lazy_attributes() -> None:
    """microsoft/pyright#449, #9464, python/mypy#8516: `tests.typing_once` has what checkers see."""
    pair = Pair[str]("a")
    assert pair.both is pair.both
    assert pair.both == ("a", "a")
    assert typing.get_origin(lp.lazy[int]) is lp.lazy
    for generic in (lp.Lazy, lp.OnceCell, lp.Once, lp.lazy, lp.Param):
        assert typing.get_args(generic[int]) == (int,)
    assert lp.Lazy[int](lambda: 1).value == lp.OnceCell[int]().get_or_init(lambda: 1) == 1


# ---- class access, names, documentation ----------------------------------------------------------


class Documented:
    """Has all kinds of attributes."""

    __slots__ = ("__dict__", "_fast")

    @lp.lazy
    def weights(self) -> list[int]:
        """The weights, read from a file."""
        raise AssertionError

    @lp.lazy.in_slot("_fast")
    def fast(self) -> list[int]:
        """Read as fast as a slot."""
        raise AssertionError


def test_on_the_class_it_is_the_descriptor() -> None:
    """microsoft/pyright#4957, stefanholek/lazy#10: as for property; metadata are the method's."""
    weights = Documented.weights
    assert isinstance(weights, lp.lazy)
    assert weights.__doc__ == "The weights, read from a file."
    assert weights.__name__ == "weights"
    assert weights.__qualname__ == "Documented.weights"
    assert weights.__module__ == __name__
    assert weights.__wrapped__.__get__(None, Documented) is weights.__wrapped__
    assert repr(weights) == "<lazy Documented.weights>"
    assert inspect.signature(weights.__wrapped__).parameters.keys() == {"self"}
    assert isinstance(Documented.fast, MemberDescriptorType)
    assert isinstance(inspect.getattr_static(Documented(), "weights"), lp.lazy)


def test_help_shows_the_attribute_and_runs_nothing() -> None:
    """stefanholek/lazy#10: documentation of the class and of the cells."""
    text = pydoc.render_doc(Documented, renderer=pydoc.plaintext)
    assert "The weights, read from a file." in text
    assert "fast" in text
    for thing in (lp.Lazy, lp.OnceCell, lp.lazy, lp.Once, lp.once, lp.Lazy(list), lp.lazy.in_slot):
        assert pydoc.render_doc(thing, renderer=pydoc.plaintext)
        assert inspect.getdoc(thing)
    for cell in (lp.Lazy, lp.OnceCell):
        assert "The value" in inspect.getdoc(cell.value)  # type: ignore[operator]
    assert dir(Documented())
    assert "value" in dir(lp.Lazy(list))


def test_what_has_no_name_says_so() -> None:
    """python-attrs/attrs#164: assigned to a class that was there already."""

    class Owner:
        pass

    Owner.late = lp.lazy(lambda self: 1)  # type: ignore[attr-defined]
    with pytest.raises(lp.LazyTypeError, match=r"does not know its name.*__set_name__"):
        Owner().late  # type: ignore[attr-defined]
    Owner.late.__set_name__(Owner, "late")  # type: ignore[attr-defined]
    assert Owner().late == 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        lp.lazy(list).__set_name__(Owner, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        lp.lazy(list).__set_name__(3, "name")  # type: ignore[arg-type]


def test_one_attribute_cannot_have_two_names() -> None:
    """python-attrs/attrs#164: the two would share a value, or not; nobody could tell."""
    expected = lp.LazyTypeError if sys.version_info >= (3, 12) else RuntimeError
    with pytest.raises(expected) as caught:

        class Owner:
            @lp.lazy
            def one(self) -> int:
                return 1

            other = one

    error = caught.value if sys.version_info >= (3, 12) else caught.value.__cause__
    assert isinstance(error, lp.LazyTypeError)
    assert (error.expected, error.found) == ("one", "other")


def test_one_attribute_may_be_in_two_classes_under_one_name() -> None:
    """python-attrs/attrs#164: each instance has its own value."""
    shared = lp.lazy(lambda self: [self])

    class One:
        value = shared

    class Other:
        __slots__ = ("_value",)
        value = shared

    for instance in (One(), Other()):
        assert instance.value is instance.value
        assert instance.value == [instance]


def test_a_metaclass_has_no_room_for_values_of_its_classes() -> None:
    """python/cpython#141216: the ``__dict__`` of a class is not to be written to."""

    class Meta(type):
        @lp.lazy
        def registry(cls) -> list[int]:
            return []

    class Owner(metaclass=Meta):
        pass

    with pytest.raises(lp.LazyTypeError, match="no room"):
        Owner.registry


@pytest.mark.parametrize("what", [3, "name", None, property(list), classmethod(list)])
def test_what_is_not_a_function_is_refused(what: Any) -> None:
    """maxfischer2781/asyncstdlib#149: when it is given."""
    for make_one in (lp.lazy, lp.Lazy, lp.lazy.in_slot("_x"), lp.OnceCell().get_or_init):
        with pytest.raises(lp.LazyTypeError, match="what makes the value is a function"):
            make_one(what)


def test_methods_of_every_kind_make_values() -> None:
    """sqlalchemy/sqlalchemy#5581: builtins, partials, objects and functions."""

    class Callable:
        def __call__(self, instance: Any) -> list[Any]:
            return [instance]

    class Owner:
        length = lp.lazy(len)
        listed = lp.lazy(functools.partial(map, lambda item: item * 2))
        called = lp.lazy(Callable())

        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Any:
            return iter((1, 2))

    owner = Owner()
    assert owner.length == 3
    assert owner.listed is owner.listed
    assert list(owner.listed) == [2, 4]
    assert owner.called == [owner]


def test_a_private_name_is_what_python_makes_of_it() -> None:
    """python-attrs/attrs#164: two underscores."""

    class Owner:
        @lp.lazy
        def __value(self) -> list[int]:
            return [1]

        def read(self) -> list[int]:
            return self.__value

    owner = Owner()
    assert owner.read() is owner.read()
    assert vars(owner) == {"_Owner__value": [1]}


def test_instances_that_compare_equal_or_cannot_be_hashed_have_their_own_values() -> None:
    """mozilla/mozci#189: a method cache mixes up the one, and refuses the other."""

    @dataclasses.dataclass
    class Owner:
        number: int

        @lp.lazy
        def value(self) -> list[int]:
            return [self.number]

    one, other = Owner(1), Owner(1)
    assert one == other
    assert one.value == other.value
    assert one.value is not other.value


def test_an_instance_is_not_kept_by_its_value_or_the_class() -> None:
    """python/cpython#102618: weak references to self."""
    for way in WAYS:
        owner = make(way, lambda self: [1])
        if "__weakref__" not in vars(owner) and WAYS[way][1] is not None:
            owner = type("Sub", (owner,), {})
        instance = owner()
        reference = weakref.ref(instance)
        assert instance.value == [1]
        del instance
        assert reference() is None
