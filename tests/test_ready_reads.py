"""Methods and descriptors that give at once what is there do all else as ever."""

from __future__ import annotations

import gc
import inspect
import sys
import weakref
from typing import Any

import pytest

import lazyparam as lp
from lazyparam._core import LazyAttribute


def ready_lazy() -> Any:
    lazy = lp.Lazy(list)
    assert lazy.value == []
    return lazy.get


def empty_lazy() -> Any:
    return lp.Lazy(list).get


def ready_param() -> Any:
    p = lp.Param(2, lp.init.zeros())
    p.val()
    return p.val


def empty_param() -> Any:
    return lp.Param(2, lp.init.zeros()).val


all_states = pytest.mark.parametrize(
    "method", [ready_lazy, empty_lazy, ready_param, empty_param], ids=lambda make: make.__name__
)


@all_states
@pytest.mark.parametrize("timeout", [None, 0, 1, 0.5, -0.0, float("inf"), True])
def test_a_timeout_is_taken_by_position_and_by_name(method: Any, timeout: float | None) -> None:
    assert method()(timeout) is not None
    assert method()(timeout=timeout) is not None
    get = method()
    assert get(timeout) is get() is get(timeout=timeout)


@all_states
@pytest.mark.parametrize(
    ("args", "keywords", "error"),
    [
        (("1",), {}, TypeError),
        ((1, 2), {}, TypeError),
        ((), {"timeout": "1"}, TypeError),
        ((), {"timeouts": 1}, TypeError),
        ((), {"timeout": 1, "default": 2}, TypeError),
        ((1,), {"timeout": 1}, TypeError),
        ((10**400,), {}, OverflowError),
    ],
)
def test_wrong_arguments_are_refused_whether_the_value_is_there_or_not(
    method: Any, args: tuple[Any, ...], keywords: dict[str, Any], error: type[Exception]
) -> None:
    get = method()
    with pytest.raises(error):
        get(*args, **keywords)
    assert get() is get()


@pytest.mark.parametrize("method", [lp.Lazy.get, lp.Param.val])
def test_the_methods_tell_what_they_take(method: Any) -> None:
    assert str(inspect.signature(method)) == "(self, /, timeout=None)"
    assert "timeout: seconds to wait" in method.__doc__
    with pytest.raises(TypeError):
        method(object())
    with pytest.raises(TypeError):
        method()


def test_a_failure_of_the_function_passes_through_get_as_it_is() -> None:
    error = KeyError("no")

    def fail() -> None:
        raise error

    lazy = lp.Lazy(fail)
    with pytest.raises(KeyError) as caught:
        lazy.get()
    assert caught.value is error
    assert error.__context__ is None
    with pytest.raises(KeyError):
        lazy.get(timeout=1)


class Slotted:
    __slots__ = ("_it", "runs")

    def __init__(self) -> None:
        self.runs = 0

    @lp.lazy
    def it(self) -> object:
        self.runs += 1
        return object()


class Narrower(Slotted):
    __slots__ = ()


class Wider(Slotted):
    """With a ``__dict__``; the slot is still there."""


class Mixin:
    __slots__ = ()

    @lp.lazy
    def it(self) -> object:
        return object()


class Mixed(Mixin):
    __slots__ = ("_it",)


class MixedDict(Mixin):
    """The mixin has no slot, this class has no slots."""


@pytest.mark.parametrize("kind", [Slotted, Narrower, Wider, Mixed, MixedDict])
def test_a_slot_is_found_wherever_a_class_has_it(kind: type[Any]) -> None:
    one = kind()
    value = one.it
    assert one.it is value
    if kind is MixedDict:
        assert vars(one) == {"it": value}
    else:
        assert one._it is value
        assert "it" not in getattr(one, "__dict__", {})
        del one._it
        assert one.it is not value


def test_what_the_method_puts_into_the_slot_itself_is_overwritten_once() -> None:
    class Own:
        __slots__ = ("_it", "seen")

        @lp.lazy
        def it(self) -> int:
            self._it = 1
            self.seen = self.it
            return 2

    one = Own()
    assert (one.it, one.it, one.seen) == (2, 2, 1)


def test_a_foreign_object_gets_what_it_would_from_any_descriptor() -> None:
    attribute = Slotted.__dict__["it"]
    assert attribute.__get__(None, Slotted) is attribute
    assert Slotted.it is attribute
    with pytest.raises(lp.LazyTypeError):
        attribute.__get__(3)
    with pytest.raises(TypeError):
        attribute.__get__()
    with pytest.raises(TypeError):
        LazyAttribute.__get__(3, Slotted())


@pytest.mark.thread_unsafe(reason="counts references")
def test_attributes_come_and_go_without_a_trace() -> None:
    def method(self: object) -> int:
        return 1

    for kind in (LazyAttribute, lp.lazy):
        kind(method)
        before = sys.getrefcount(kind)
        for _ in range(100):
            kind(method)
        assert sys.getrefcount(kind) == before
        attribute = kind(method)
        ref = weakref.ref(attribute)
        del attribute
        assert ref() is None


def test_classes_with_lazy_attributes_are_collected() -> None:
    def declare(slots: tuple[str, ...]) -> Any:
        class Gone:
            __slots__ = slots

            @lp.lazy
            def it(self) -> int:
                return 1

        assert Gone().it == 1
        return weakref.ref(Gone)

    refs = [declare(("_it",)), declare(("__dict__",))]
    plain = weakref.ref(type("Plain", (), {}))
    gc.collect()
    if plain() is not None:
        pytest.skip("this interpreter keeps all classes, as free-threaded ones of 3.13 do")
    assert [ref() for ref in refs] == [None, None]
