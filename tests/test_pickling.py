"""A lazy parameter pickles as its recipe, a ready one as its value; ties stay."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest

import lazyparam as lp
from tests.checkpoint_files import run_python
from tests.helpers import Linear, Tied


def draw(plan: lp.Plan) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(plan.shape).astype(plan.dtype)


class Filler:
    def __init__(self, fill: float) -> None:
        self.fill = fill

    def __call__(self, plan: lp.Plan) -> np.ndarray:
        return np.full(plan.shape, self.fill, plan.dtype)


def again(thing):
    return pickle.loads(pickle.dumps(thing))


def test_a_lazy_param_with_a_named_initialiser_pickles_as_its_recipe() -> None:
    """B58: bytes of recipe, not of weights."""
    for init in (lp.init.zeros(), lp.init.constant(2), draw, Filler(3)):
        p = lp.Param((1000, 1000), init, requires_grad=False)
        data = pickle.dumps(p)
        assert len(data) < 1000
        q = pickle.loads(data)
        assert not p.is_initialized
        assert not q.is_initialized
        assert (q.id, q.shape, q.dtype, q.requires_grad) == (p.id, p.shape, p.dtype, False)
        np.testing.assert_array_equal(q.val(), p.val())


def test_the_other_process_gets_the_same_value() -> None:
    """B58: a recipe means the same there."""
    p = lp.Param((2, 2), lp.init.eye()).init_mapper(np.negative)
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).val().tolist())"
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(p), capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == str(p.val().tolist())


@pytest.mark.parametrize("what", ["initialiser", "mapper"])
def test_a_lambda_fails_to_pickle_with_a_remedy(what: str) -> None:
    """B58: a named error that says what to use instead."""
    model = Linear(2, 2, lp.init.ones())
    if what == "initialiser":
        model.weight = lp.Param(2, lambda plan: None)
    else:
        model.weight = model.weight.init_mapper(lambda a: a)
    next(model.named_parameters())[1]._found_at("weight")
    with pytest.raises(lp.PickleError, match=f"weight: the {what} .*<lambda>.*lazyparam.init"):
        pickle.dumps(model)
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(model.weight.load_mapper(lambda a: a))


def test_a_lambda_does_not_matter_once_the_value_is_there() -> None:
    p = lp.Param(2, lambda plan: np.ones(plan.shape, plan.dtype))
    p.val()
    assert again(p).val().tolist() == [1, 1]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "bool", "int8"])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_ready_param_pickles_as_its_value(dtype: str, protocol: int) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    p = lp.Param.from_tensor(np.array([[0, 1], [1, 0]]).astype(kind))
    q = pickle.loads(pickle.dumps(p, protocol))
    assert q.is_initialized
    assert q.dtype == dtype
    assert q.val().dtype == kind
    np.testing.assert_array_equal(q.val(), p.val())
    assert not q.val().flags.writeable


def test_clones_that_are_pickled_together_stay_tied() -> None:
    """B52: lazy or ready, and their intent stays their own."""
    for read in (False, True):
        p = lp.Param(3, draw)
        if read:
            p.val()
        q, r = again([p, p.clone().no_grad()])
        assert q.is_tied_to(r)
        assert (q.requires_grad, r.requires_grad) == (True, False)
        assert q.val() is r.val()
        assert not q.is_tied_to(p)


def test_what_is_derived_from_a_shared_draw_still_shares_it() -> None:
    p = lp.Param(3, draw)
    both = again({"p": p, "negative": p.init_mapper(np.negative)})
    np.testing.assert_array_equal(both["negative"].val(), -both["p"].val())
    assert both["p"].is_initialized


@pytest.mark.parametrize(
    "through",
    [
        lambda p: again(p),
        lambda p: again([p, p.clone()])[1],
        lambda p: p.clone(),
        lambda p: p.clone(independent=True),
        lambda p: lp.Param.from_mapped_value(*p.consume()),
        lambda p: drafted(p),
    ],
)
def test_a_declared_shape_is_remembered_through(through) -> None:
    """B41: stored [2, 3], live [3, 2], however the handle came about."""
    p = lp.Param((2, 3), lp.init.ones()).map(np.transpose, shape=(3, 2)).load_mapper(np.transpose)
    q = through(p)
    assert (q.shape, q.stored_shape) == ((3, 2), (2, 3))
    assert q.transform_for_load(np.zeros((2, 3), np.float32)).val().shape == (3, 2)


def drafted(p: lp.Param) -> lp.Param:
    with p.writable() as draft:
        draft.array[:] = 2
    return draft.param


def test_mappers_shapes_and_paths_survive() -> None:
    """B41: with load and save mappers, stored shape and live shape."""
    p = lp.Param((2, 3), lp.init.ones(), dtype="float16")
    p = p.load_mapper(np.transpose, stored_shape=(3, 2)).save_mapper(np.transpose)
    p._found_at("a.b")
    q = again(p)
    assert (q.shape, q.stored_shape, q.path) == ((2, 3), (3, 2), "a.b")
    loaded = q.transform_for_load(np.ones((3, 2), np.float16))
    assert loaded.val().shape == (2, 3)
    assert loaded.transform_for_save().val().shape == (3, 2)


def test_a_loaded_model_pickles_as_a_reference_to_its_file(tmp_path) -> None:
    """B58: a checkpoint is just another recipe; changed files are noticed."""
    path = tmp_path / "m.safetensors"
    Tied(draw).save_file(path)
    model = Tied().load_file(path)
    data = pickle.dumps(model)
    assert len(data) < 10_000
    copied = pickle.loads(data)
    assert copied.head.is_tied_to(copied.embed)
    for name, value in copied.state_dict().items():
        np.testing.assert_array_equal(value, model.state_dict()[name])
    Linear(2, 2, draw).save_file(path)
    with pytest.raises(lp.FormatError, match="not the one that was pickled"):
        pickle.loads(data)


def test_devices_initialisers_and_plans_pickle() -> None:
    for thing in (lp.device("cuda:3"), lp.init.constant(2)):
        assert again(thing) == thing


def test_a_ready_value_for_a_library_that_is_not_there_waits_on_the_host() -> None:
    """jax-ml/jax#14184, ludwig-ai/ludwig#3788: a model of a GPU, on a machine without."""
    pytest.importorskip("torch")
    param = lp.Param.from_data([1.0, 2.0], "torch:cpu")
    assert param.is_initialized
    code = f"""
        import pickle, sys
        sys.modules["torch"] = None
        import lazyparam as lp
        param = pickle.loads({pickle.dumps(param)!r})
        assert (param.shape, str(param.device)) == ((2,), "torch:cpu")
        assert not param.is_initialized and "derived" in repr(param)
        for _ in range(2):
            try:
                param.val()
            except lp.BackendMissing:
                pass
            else:
                raise AssertionError("it was read")
        assert param.to_device("cpu").val().tolist() == [1, 2]
        again = pickle.loads(pickle.dumps(param))
        assert again.to_device("cpu").val().tolist() == [1, 2]
    """
    done = run_python(textwrap.dedent(code))
    assert (done.returncode, done.stderr) == (0, "")
