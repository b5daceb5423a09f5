"""Reference cycles through parameters are collected, and nothing reachable is ever cleared."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import lazyparam as lp

pytestmark = pytest.mark.thread_unsafe(reason="switches the collector off and counts what is left")


@pytest.fixture(autouse=True)
def _only_explicit_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Owner(lp.Module):
    """A module whose initialiser refers back to it."""

    def __init__(self) -> None:
        self.scale = 2.0
        self.weight = lp.Param(3, self.draw)

    def draw(self, plan: lp.Plan) -> np.ndarray:
        return np.full(plan.shape, self.scale, plan.dtype)

    def rescale(self, array: np.ndarray) -> np.ndarray:
        return array * self.scale


def is_collected(make: Callable[[], lp.Module]) -> bool:
    """Whether what `make` makes, which only cycles refer to, is gone after a collection."""
    reference = weakref.ref(make())
    assert reference() is not None, "only a collection can break a cycle"
    gc.collect()
    return reference() is None


def test_a_cycle_through_a_lazy_param_is_collected() -> None:
    """B60: module -> param -> initialiser -> module."""
    assert is_collected(Owner)


def test_a_cycle_through_a_derived_param_is_collected() -> None:
    """B60: through mappers as well as through their source."""

    def make() -> Owner:
        owner = Owner()
        for _ in range(3):
            owner.weight = owner.weight.init_mapper(owner.rescale)
        return owner

    assert is_collected(make)


def test_a_cycle_through_load_and_save_mappers_is_collected() -> None:
    """B60: each handle owns its own mappers, so clones are no obstacle."""

    def make() -> Owner:
        owner = Owner()
        weight = lp.Param(3, lp.init.ones()).load_mapper(owner.rescale).save_mapper(owner.rescale)
        owner.weight, owner.other = weight, weight.clone()
        return owner

    assert is_collected(make)


def test_a_cycle_through_a_ready_param_is_collected() -> None:
    """B60: an object that holds a ready param, and that its mapper refers to."""

    def make() -> Owner:
        owner = Owner()
        owner.weight = owner.weight.save_mapper(owner.rescale)
        owner.weight.val()
        return owner

    assert is_collected(make)


def test_a_read_breaks_every_cycle_through_an_initialiser() -> None:
    """B60: also where several handles share the state; then no collection is needed."""

    def make(*, read: bool) -> weakref.ref[Owner]:
        owner = Owner()
        owner.clone_of_weight = owner.weight.clone()
        if read:
            owner.weight.val()
        return weakref.ref(owner)

    assert make(read=True)() is None
    assert make(read=False)() is not None


def test_what_several_handles_share_is_never_cleared_while_one_is_reachable() -> None:
    """B60, law 9: two garbage handles and a live one over the same dict."""

    class Init(dict):
        def __call__(self, plan: lp.Plan) -> np.ndarray:
            return np.full(plan.shape, self["fill"], plan.dtype)

    init = Init(fill=4.0)
    p = lp.Param(2, init)
    garbage = [p.clone(), p.clone()]
    garbage.append(garbage)
    del garbage
    gc.collect()
    assert init == {"fill": 4.0}

    solo = lp.Param(2, init)
    cycle = [solo, lp.Param(2, init)]
    cycle.append(cycle)
    del solo, cycle
    gc.collect()
    assert init == {"fill": 4.0}
    assert p.val().tolist() == [4, 4]


def test_a_param_read_while_it_is_being_collected_says_so_or_works() -> None:
    outcomes = []

    class Late(Owner):
        def __del__(self) -> None:
            try:
                outcomes.append(self.weight.val().tolist())
            except lp.InitError as error:
                outcomes.append(str(error))

    late = Late()
    del late
    gc.collect()
    assert outcomes == [[2.0, 2.0, 2.0]]


def test_the_initialiser_is_dropped_once_the_value_is_there() -> None:
    """Burn's T30: what a closure captured is freed."""

    class Init:
        def __call__(self, plan: lp.Plan) -> np.ndarray:
            return np.ones(plan.shape, plan.dtype)

    init = Init()
    reference = weakref.ref(init)
    p = lp.Param(2, init)
    derived = p.init_mapper(np.negative)
    del init
    derived.val()
    assert p.is_initialized
    assert reference() is None


def test_loading_lets_go_of_the_initialiser() -> None:
    class Init:
        def __call__(self, plan: lp.Plan) -> np.ndarray:
            raise AssertionError

    init = Init()
    reference = weakref.ref(init)
    p = lp.Param(2, init)
    loaded = p.transform_for_load(np.ones(2, np.float32))
    del init, p
    assert reference() is None
    assert loaded.val().sum() == 2


def test_a_collection_inside_an_initialiser_is_harmless() -> None:
    def init(plan: lp.Plan) -> np.ndarray:
        gc.collect()
        return np.ones(plan.shape, plan.dtype)

    p = lp.Param(2, init)
    q = p.map(lambda a: (gc.collect(), a * 2)[1])
    assert q.val().tolist() == [2, 2]


def test_params_can_be_referred_to_weakly() -> None:
    p = lp.Param(2, lp.init.ones())
    reference = weakref.ref(p)
    assert reference() is p
    del p
    assert reference() is None
