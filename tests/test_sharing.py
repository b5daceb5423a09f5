"""Clones share one coming-into-being; forks and independent copies do not."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Counting


def test_a_clone_of_a_lazy_param_has_its_value() -> None:
    """B06: both report initialised, bit-equal."""
    init = Counting()
    p = lp.Param(4, init)
    q = p.clone()
    value = p.val()
    assert q.is_initialized
    assert q.val() is value
    assert init.runs == 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_freezing_a_clone_leaves_the_other_as_it_was(moment: str) -> None:
    """B07: before the shared initialisation as well as after."""
    p = lp.Param(4, Counting())
    if moment == "after":
        p.val()
    q = p.clone().set_requires_grad(False)
    assert (p.requires_grad, q.requires_grad) == (True, False)
    np.testing.assert_array_equal(p.val(), q.val())
    assert (p.requires_grad, q.requires_grad) == (True, False)


def test_a_moved_clone_has_the_same_draw_whichever_is_read_first() -> None:
    """B32: lazy until a value is read; then both agree bit for bit."""
    for first in (0, 1):
        init = Counting()
        p = lp.Param(4, init)
        pair = [p.clone(), p.fork("cpu")]
        assert not any(one.is_initialized for one in pair)
        pair[first].val()
        np.testing.assert_array_equal(pair[0].val(), pair[1].val())
        assert init.runs == 1


@pytest.mark.parametrize("copied", [lambda p: p.clone(independent=True), copy.deepcopy])
def test_an_independent_clone_draws_for_itself(copied) -> None:
    """B33: two reads differ, each is stable, and one leaves the other lazy."""
    init = Counting()
    p = lp.Param(4, init)
    q = copied(p)
    assert not q.is_initialized
    first = q.val().copy()
    assert not p.is_initialized
    assert not np.array_equal(first, p.val())
    np.testing.assert_array_equal(q.val(), first)
    assert init.runs == 2


def test_an_independent_clone_of_a_ready_param_has_memory_of_its_own() -> None:
    p = lp.Param.from_tensor(np.arange(3.0))
    q = p.clone(independent=True)
    assert not np.shares_memory(p.val(), q.val())
    np.testing.assert_array_equal(p.val(), q.val())


def test_clones_are_tied_and_what_is_derived_is_not() -> None:
    """B52: intent is the handle's, so freezing does not untie."""
    p = lp.Param(3, lp.init.ones())
    assert p.is_tied_to(p.clone())
    assert p.is_tied_to(copy.copy(p).no_grad().valid())
    assert p.clone().id == p.id
    for other in (p.fork("cpu"), p.map(lambda a: a), p.clone(independent=True), copy.deepcopy(p)):
        assert not p.is_tied_to(other)
        assert other.id == p.id


def test_clones_that_are_copied_together_stay_tied() -> None:
    """B52: by deepcopy, derived ones included."""
    init = Counting()
    p = lp.Param(3, init)
    first, second, derived = copy.deepcopy([p, p.clone(), p.init_mapper(np.negative)])
    assert first.is_tied_to(second)
    assert not first.is_tied_to(p)
    np.testing.assert_array_equal(derived.val(), -first.val())
    assert init.runs == 1
    p.val()
    assert init.runs == 2


def test_dropping_one_clone_does_not_disturb_the_other() -> None:
    p = lp.Param(3, lp.init.ones())
    q = p.init_mapper(lambda a: a + 1)
    r = q.clone()
    del p, q
    assert r.val().tolist() == [2, 2, 2]
