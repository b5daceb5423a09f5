"""One parameter: what it knows before it exists, and what its verbs do to intent."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Counting, never

DTYPES = ["float32", "int64", "bool"]


def ready(dtype: str = "float32") -> lp.Param:
    return lp.Param.from_tensor(np.ones((2, 3), dtype))


def lazy(dtype: str = "float32", **options: bool) -> lp.Param:
    return lp.Param((2, 3), lp.init.ones(), dtype=dtype, **options)


EITHER = pytest.mark.parametrize("make", [lazy, ready], ids=["lazy", "ready"])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_value_is_made_at_first_need_and_is_the_same_array_ever_after(dtype: str) -> None:
    """B03: every kind of tensor."""
    init = Counting()
    p = lp.Param((2, 3), init, dtype=dtype)
    assert not p.is_initialized
    first = p.val()
    assert p.is_initialized
    assert p.val() is first
    assert p.value is first
    assert p.base() is first
    assert p.into_value() is first
    assert init.runs == 1
    assert first.dtype == dtype


def test_everything_but_the_value_is_free_to_ask() -> None:
    """B35: asking, printing, comparing, cloning, moving and freezing never initialise."""
    p = lp.Param((4, 2), never, dtype="float16", requires_grad=False, id=7)
    assert (p.shape, p.ndim, p.size, p.nbytes) == ((4, 2), 2, 8, 16)
    assert (p.dtype, p.kind, p.id) == ("float16", "float", 7)
    assert p.device == lp.device("cpu")
    assert (p.requires_grad, p.is_active, p.is_initialized) == (False, False, False)
    assert p.stored_shape == (4, 2)
    assert "lazy: never" in repr(p)
    assert p.state == "lazy: never"
    assert hash(p) == hash(p)
    assert p == p
    assert p != lp.Param((4, 2), never)
    for other in (
        p.clone(),
        p.clone(independent=True),
        copy.copy(p),
        copy.deepcopy(p),
        p.to_device("cpu"),
        p.fork("cpu"),
        p.valid(),
        p.train(),
        p.no_grad(),
        p.set_requires_grad(True),
        p.materialize(),
        p.map(never),
        p.init_mapper(never),
        p.load_mapper(never),
        p.save_mapper(never),
        p.replace_load_mapper(None),
        p.replace_save_mapper(None),
        pickle.loads(pickle.dumps(p)),
    ):
        assert not other.is_initialized
        assert (other.shape, other.dtype, other.id) == ((4, 2), "float16", 7)
    assert not p.is_initialized


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_a_lazy_param_that_cannot_train_moves_without_initialising(dtype: str) -> None:
    """B28, B29: ints and bools move lazily too."""
    p = lp.Param(3, never, dtype=dtype)
    for moved in (p.to_device("cpu"), p.fork("cpu")):
        assert not moved.is_initialized
        assert moved.is_active is p.is_active is False


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_ints_and_bools_never_train_however_they_are_asked(dtype: str) -> None:
    p = lp.Param(3, lp.init.ones(), dtype=dtype).set_requires_grad(True)
    assert p.requires_grad
    assert not p.is_active


def test_freezing_a_lazy_param_keeps_it_lazy_and_train_does_not_undo_it() -> None:
    """B14: intent False, and it stays off through valid and train."""
    p = lp.Param(3, lp.init.ones()).set_requires_grad(False)
    assert not p.is_initialized
    assert not p.requires_grad
    p.val()
    assert not p.valid().train().requires_grad


def test_wanting_gradients_where_none_are_recorded_is_remembered() -> None:
    """B15, B17: on a plain device the value is untracked and the intent is kept."""
    for p in (
        lp.Param.initialized(np.ones(3, np.float32)),
        lp.Param(3, lp.init.ones(), requires_grad=False),
    ):
        was_ready = p.is_initialized
        wanted = p.set_requires_grad(True)
        assert wanted.is_initialized is was_ready
        assert wanted.requires_grad
        assert not p.requires_grad
        assert wanted.train().requires_grad
        np.testing.assert_array_equal(wanted.val(), p.val())


def test_a_param_made_from_a_tensor_is_trainable() -> None:
    """B16: from_tensor and from_data mean to train; initialized does what it is told."""
    assert lp.Param.from_tensor(np.ones(2, np.float32)).requires_grad
    assert lp.Param.from_data([1.0, 2.0], "cpu").requires_grad
    assert not lp.Param.initialized(np.ones(2, np.float32)).requires_grad
    assert lp.Param.initialized(np.ones(2, np.float32), requires_grad=True).requires_grad


def test_from_data_takes_numbers_nested_lists_and_arrays() -> None:
    assert lp.Param.from_data([[1.0, 2.0]]).dtype == "float32"
    assert lp.Param.from_data([1, 2]).dtype == "int64"
    assert lp.Param.from_data([True]).kind == "bool"
    assert lp.Param.from_data(np.ones(2)).dtype == "float64"
    assert lp.Param.from_data(3.5, dtype="float16").val() == np.float16(3.5)


@EITHER
def test_intent_survives_validation_and_an_identity_map(make) -> None:
    """B18: valid, then map."""
    p = make().valid().map(lambda a: a)
    assert p.requires_grad
    assert p.train().requires_grad


@EITHER
def test_intent_survives_consume_and_rebuild(make) -> None:
    """B19: valid, consume, from_mapped_value."""
    p = make().load_mapper(np.negative)
    identity, value, mapper = p.valid().consume()
    rebuilt = lp.Param.from_mapped_value(identity, value, mapper)
    assert rebuilt.id == p.id
    assert rebuilt.requires_grad
    assert rebuilt.train().requires_grad
    loaded = rebuilt.transform_for_load(np.full((2, 3), 2, np.float32))
    assert (loaded.val() == -2).all()
    np.testing.assert_array_equal(rebuilt.val(), p.val())


@EITHER
def test_intent_survives_a_load_during_validation(make) -> None:
    """B20: valid, then transform_for_load."""
    p = make().valid().transform_for_load(np.zeros((2, 3), np.float32))
    assert p.requires_grad
    assert p.train().requires_grad
    assert (p.val() == 0).all()


@EITHER
def test_the_whole_cycle_of_training_states(make) -> None:
    """B21: valid and train keep the intent, no_grad ends it."""
    p = make()
    seen = []
    for step in ("valid", "train", "no_grad", "valid", "train"):
        p = getattr(p, step)()
        seen.append(p.requires_grad)
    assert seen == [True, True, False, False, False]
    assert (p.val() == 1).all()


def test_counting_and_merging_a_lazy_param_leaves_it_lazy() -> None:
    """B23: materialize twice without an adapter: same id, still lazy."""
    p = lp.Param((2, 3), never)
    merged = p.materialize().materialize()
    assert p.size == merged.size == 6
    assert merged.id == p.id
    assert not merged.is_initialized


def test_a_moved_then_loaded_param_never_runs_its_initialiser() -> None:
    """B24, B37: the target's device and intent win, the id is the record's where it has one."""
    p = lp.Param(3, never, requires_grad=False).to_device("cpu")
    loaded = p.transform_for_load(np.arange(3, dtype=np.float32), id=99)
    assert loaded.val().tolist() == [0, 1, 2]
    assert (loaded.id, loaded.requires_grad) == (99, False)
    assert p.transform_for_load(np.ones(3, np.float32)).id == p.id
    assert not p.is_initialized


def test_the_intent_can_be_asked_without_initialising() -> None:
    """B34: the older text's planned_is_require_grad."""
    assert lp.Param(3, never).requires_grad
    assert not lp.Param(3, never, requires_grad=False).requires_grad


def test_an_init_mapper_on_a_clone_doubles_the_draw_and_leaves_the_original() -> None:
    """B36: the same draw, mapped."""
    p = lp.Param(5, Counting())
    doubled = p.clone().init_mapper(lambda a: a * 2)
    assert not doubled.is_initialized
    np.testing.assert_array_equal(doubled.val(), p.val() * 2)
    np.testing.assert_array_equal(doubled.val(), 2 * p.val())


@EITHER
def test_init_mapper_and_map_mean_the_same_lazy_or_ready(make) -> None:
    p = make()
    for verb in ("map", "init_mapper"):
        q = getattr(p, verb)(lambda a: a.T * 3, shape=(3, 2))
        assert q.shape == (3, 2)
        assert q.is_initialized is p.is_initialized
        assert (q.val() == 3).all()
        assert q.val().shape == (3, 2)
        assert q.requires_grad
    assert (p.val() == 1).all()
    assert p.shape == (2, 3)


@EITHER
def test_a_map_to_another_dtype_says_so(make) -> None:
    q = make().map(lambda a: a.astype("float16"), dtype="float16")
    assert q.dtype == "float16"
    assert q.val().dtype == np.float16


def test_load_mappers_chain_forwards_and_save_mappers_backwards() -> None:
    """Each pair that is added together undoes itself."""
    p = lp.Param(2, lp.init.zeros())
    for add, factor in ((1, 10), (2, 100)):
        p = p.load_mapper(lambda a, add=add, factor=factor: (a + add) * factor)
        p = p.save_mapper(lambda a, add=add, factor=factor: a / factor - add)
    loaded = p.transform_for_load(np.array([0, 1], np.float32))
    assert loaded.val().tolist() == [(1 * 10 + 2) * 100, (2 * 10 + 2) * 100]
    assert loaded.transform_for_save().val().tolist() == [0, 1]


def test_mappers_can_be_replaced_and_removed() -> None:
    p = lp.Param(2, lp.init.ones()).load_mapper(np.negative).save_mapper(np.negative)
    q = p.replace_load_mapper(np.square).replace_save_mapper(None)
    assert q.transform_for_load(np.full(2, 3, np.float32)).val().tolist() == [9, 9]
    assert q.transform_for_save().val().tolist() == [1, 1]
    assert p.transform_for_save().val().tolist() == [-1, -1]


def test_saving_twice_does_not_map_twice() -> None:
    p = lp.Param(2, lp.init.ones()).save_mapper(lambda a: a * 2)
    saved = p.transform_for_save()
    assert saved.val().tolist() == [2, 2]
    assert saved.transform_for_save().val().tolist() == [2, 2]
    assert saved.id == p.id


@EITHER
def test_a_stored_shape_is_kept_beside_the_live_one(make) -> None:
    """B41: stored [3, 2], live [2, 3], loaded twice in a row."""
    p = make().load_mapper(np.transpose, stored_shape=(3, 2)).save_mapper(np.transpose)
    assert (p.shape, p.stored_shape) == ((2, 3), (3, 2))
    for fill in (5, 6):
        p = p.transform_for_load(np.full((3, 2), fill, np.float32))
        assert p.val().shape == (2, 3)
        assert (p.val() == fill).all()
    assert p.transform_for_save().val().shape == (3, 2)
    with pytest.raises(lp.ShapeMismatch, match=r"expected \(3, 2\); found \(2, 3\)"):
        p.transform_for_load(np.zeros((2, 3), np.float32))


def test_a_transposing_init_mapper_keeps_the_declared_shape_as_the_stored_one() -> None:
    """B41: the shape in files is the one that was declared, once there are mappers."""
    p = lp.Param((3, 2), never).init_mapper(np.transpose, shape=(2, 3))
    assert p.stored_shape == (2, 3)
    p = p.load_mapper(np.transpose).save_mapper(np.transpose)
    assert (p.shape, p.stored_shape) == ((2, 3), (3, 2))


@EITHER
def test_intent_survives_copies_pickles_and_moves(make) -> None:
    """B43: frozen stays frozen, wanted stays wanted."""
    for wish in (True, False):
        p = make().set_requires_grad(wish)
        for other in (
            p.to_device("cpu"),
            p.fork("cpu"),
            p.clone(),
            copy.deepcopy(p),
            pickle.loads(pickle.dumps(p)),
            p.transform_for_load(np.ones((2, 3), np.float32)),
        ):
            assert other.requires_grad is wish


@pytest.mark.parametrize("dtype", [np.float32, np.dtype("f4"), "f32", "float32", "torch.float32"])
def test_a_dtype_may_be_spelled_in_any_of_the_usual_ways(dtype) -> None:
    p = lp.Param(2, lp.init.ones(), dtype=dtype)
    assert p.dtype == "float32"
    assert p.dtype == np.dtype("float32")


@pytest.mark.parametrize("shape", [3, np.int64(3), (3,), [3], np.array([3])])
def test_a_shape_may_be_an_int_or_any_sequence_of_ints(shape) -> None:
    assert lp.Param(shape, never).shape == (3,)


def test_ids_differ_unless_given() -> None:
    ids = {lp.Param(1, never).id for _ in range(1000)}
    assert len(ids) == 1000
    assert lp.Param(1, never, id=2**64 - 1).id == 2**64 - 1


def test_a_param_without_initialiser_has_to_be_loaded() -> None:
    """B54: never uninitialised memory."""
    p = lp.Param(3)
    assert p.state == "lazy: to be loaded"
    with pytest.raises(lp.InitError, match="Load a checkpoint"):
        p.val()
    assert p.transform_for_load(np.ones(3, np.float32)).val().tolist() == [1, 1, 1]


def test_numpy_takes_a_param_for_an_array() -> None:
    p = lp.Param((2, 2), lp.init.eye())
    assert np.asarray(p) is not None
    np.testing.assert_array_equal(np.asarray(p), np.eye(2))
    assert np.asarray(p, dtype="float64").dtype == np.float64
    copied = np.array(p)
    copied[:] = 0
    assert p.val()[0, 0] == 1
    np.testing.assert_array_equal(np.matmul(p, np.ones(2)), [1, 1])


def test_showing_a_param_runs_no_code_of_its_initialiser() -> None:
    """B35: not even to find its name."""

    class Touchy:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(name)

        def __call__(self, plan: lp.Plan) -> None:
            raise AssertionError

    p = lp.Param(2, Touchy())
    assert p.state == "lazy: Touchy"
    assert "Touchy" in repr(p)


def test_a_param_is_generic_at_run_time() -> None:
    assert lp.Param[np.ndarray] is not None
