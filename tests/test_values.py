"""What is handed out cannot be written to, and what was handed in cannot reach it."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import lazyparam as lp


@pytest.mark.parametrize(
    "param",
    [
        lp.Param(3, lp.init.ones()),
        lp.Param(3, lambda plan: np.ones(plan.shape, plan.dtype)),
        lp.Param((3, 1), lambda plan: np.ones((1, 3), plan.dtype).T),
        lp.Param.from_tensor(np.ones(3)),
        lp.Param.from_data([1.0, 1.0, 1.0]),
        lp.Param(3, lp.init.ones()).map(lambda a: a * 1),
        lp.Param(3, lp.init.ones()).map(lambda a: a[::-1]),
        lp.Param((), lambda plan: np.float32(1)),
    ],
)
def test_a_value_is_read_only_and_cannot_be_made_writable(param: lp.Param) -> None:
    """B55: no clone ever sees another's mutation."""
    value = param.val()
    assert isinstance(value, np.ndarray)
    with pytest.raises(ValueError, match="read-only"):
        value[...] = 0
    with pytest.raises(ValueError, match="WRITEABLE"):
        value.flags.writeable = True
    assert (param.val() == 1).all()


def test_an_array_that_its_maker_keeps_is_copied() -> None:
    """B55: neither an initialiser's own reference nor a view reaches the value."""
    kept = np.ones(3, np.float32)
    for make in (
        lambda plan: kept,
        lambda plan: kept[:],
        lambda plan: kept.reshape(3),
        lambda plan: np.broadcast_to(kept[:1], (3,)),
        lambda plan: np.frombuffer(kept, np.float32),
    ):
        p = lp.Param(3, make)
        p.val()
        kept[:] = 7
        assert p.val().tolist() == [1, 1, 1]
        kept[:] = 1
    p = lp.Param.from_tensor(kept)
    kept[:] = 7
    assert p.val().tolist() == [1, 1, 1]
    assert kept.flags.writeable


def test_a_read_only_array_is_copied_too_since_its_owner_can_thaw_it() -> None:
    """B55: by every door."""

    class Model(lp.Module):
        def __init__(self) -> None:
            self.t = lp.Param(3)

    for make in (
        lambda kept: lp.Param.from_tensor(kept),
        lambda kept: lp.Param.initialized(kept),
        lambda kept: lp.Param.from_data(kept),
        lambda kept: lp.Param(3, lambda plan: kept),
        lambda kept: lp.Param(3).transform_for_load(kept),
        lambda kept: Model().load_state_dict({"t": kept}).t,
        lambda kept: lp.Param(3, lp.init.zeros()).map(lambda a: kept),
    ):
        kept = np.ones(3, np.float32)
        kept.flags.writeable = False
        p = make(kept)
        p.val()
        kept.flags.writeable = True
        kept[:] = 7
        assert p.val().tolist() == [1, 1, 1]


def test_an_array_that_its_maker_refers_to_weakly_is_copied() -> None:
    """B55: a cache of weak references must not see its arrays frozen."""
    made = []

    def init(plan: lp.Plan) -> np.ndarray:
        array = np.ones(plan.shape, plan.dtype)
        made.append(weakref.ref(array))
        return array

    p = lp.Param(3, init)
    p.val()
    kept = made[0]()
    assert kept is None or kept.flags.writeable
    assert p.val().tolist() == [1, 1, 1]


def test_what_an_array_says_of_itself_does_not_count() -> None:
    class Liar(np.ndarray):
        shape = (2,)
        dtype = np.dtype("f4")

    def init(plan: lp.Plan) -> np.ndarray:
        return np.ones(3).view(Liar)

    with pytest.raises(lp.InitError, match=r"expected \(2,\); found \(3,\)"):
        lp.Param(2, init).val()


def test_nothing_behind_a_value_can_be_made_writable() -> None:
    """B55: not its base either."""
    for p in (
        lp.Param(3, lambda plan: np.ones(plan.shape, plan.dtype)),
        lp.Param.from_tensor(np.ones(3)),
        lp.Param((2, 3), lambda plan: np.ones((3, 2), plan.dtype).T),
    ):
        behind = p.val()
        while isinstance(behind, np.ndarray):
            with pytest.raises(ValueError, match="WRITEABLE"):
                behind.flags.writeable = True
            behind = behind.base
        with pytest.raises(TypeError, match=r"read-only|readonly|cannot modify"):
            memoryview(behind)[0] = 1


def test_an_array_that_nobody_keeps_is_taken_over_without_a_copy() -> None:
    address = []

    def init(plan: lp.Plan) -> np.ndarray:
        array = np.ones(plan.shape, plan.dtype)
        address.append(array.ctypes.data)
        return array

    assert lp.Param(1000, init).val().ctypes.data == address[0]


def test_layouts_are_kept_and_foreign_byte_orders_are_not() -> None:
    fortran = lp.Param((2, 3), lambda plan: np.asfortranarray(np.ones(plan.shape, plan.dtype)))
    assert fortran.val().flags.f_contiguous
    swapped = lp.Param(2, lambda plan: np.array([1, 2], ">f4"))
    assert swapped.val().tolist() == [1, 2]
    assert swapped.val().dtype.isnative


def test_a_draft_becomes_a_new_param_and_the_old_one_never_changes() -> None:
    """B55: changing needs an explicit verb, and it forks first."""
    p = lp.Param(3, lp.init.zeros(), requires_grad=False).save_mapper(np.negative)
    clone = p.clone()
    with p.writable() as draft:
        draft.array[1] = 5
        kept = draft.array
    q = draft.param
    assert q.val().tolist() == [0, 5, 0]
    assert p.val().tolist() == clone.val().tolist() == [0, 0, 0]
    assert (q.id, q.requires_grad, q.is_tied_to(p)) == (p.id, False, False)
    assert q.transform_for_save().val().tolist() == [0, -5, 0]
    kept[:] = 9
    assert q.val().tolist() == [0, 5, 0]


def test_a_draft_that_ends_in_an_error_becomes_nothing() -> None:
    p = lp.Param(3, lp.init.zeros())
    with pytest.raises(ZeroDivisionError), p.writable() as draft:
        draft.array[:] = 1
        raise ZeroDivisionError
    with pytest.raises(lp.LazyParamError, match="has not become"):
        _ = draft.param
    assert p.val().tolist() == [0, 0, 0]


def test_a_draft_keeps_shape_and_dtype() -> None:
    p = lp.Param(3, lp.init.zeros())
    for other in (np.zeros(4, np.float32), np.zeros(3)):
        with pytest.raises(lp.InitError, match="a draft keeps the shape and the dtype"):
            with p.writable() as draft:
                draft.array = other


def test_a_mapper_sees_a_read_only_value() -> None:
    def spoil(array: np.ndarray) -> np.ndarray:
        array[:] = 0
        return array

    p = lp.Param(3, lp.init.ones())
    with pytest.raises(ValueError, match="read-only"):
        p.map(spoil).val()
    assert p.val().tolist() == [1, 1, 1]
