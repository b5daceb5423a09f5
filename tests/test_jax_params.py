"""Parameters on JAX: the rows of what must hold, and what JAX does where gradients are recorded.

Arrays of JAX record nothing: a value read is never tracked, whatever the context of the device, and
gradients come from transforming functions. Wish and context are kept as elsewhere.
"""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from tests.helpers import Bag, Boom, Box, Linear, never, race  # noqa: E402

PLAIN = lp.device("jax:cpu")
TRACKING = PLAIN.autodiff()
DTYPES = ["float32", "bfloat16", "int32", "bool"]


class Counting:
    """Counts its runs, and draws other numbers each time, with JAX's own functions."""

    def __init__(self, failures: int = 0) -> None:
        self.runs = 0
        self._failures = failures
        self._lock = threading.Lock()

    def __call__(self, plan: lp.Plan) -> Any:
        with self._lock:
            self.runs += 1
            run = self.runs
        if run <= self._failures:
            raise Boom(f"run {run}")
        return (jax.random.normal(jax.random.key(run), plan.shape) * 100).astype(plan.dtype)


def lazy(dtype: str = "float32", device: Any = PLAIN, **options: Any) -> lp.Param:
    return lp.Param((2, 3), lp.init.ones(), dtype=dtype, device=device, **options)


def ready(dtype: str = "float32", device: Any = PLAIN) -> lp.Param:
    return lp.Param.initialized(jnp.ones((2, 3), dtype), requires_grad=True, device=device)


EITHER = pytest.mark.parametrize("make", [lazy, ready], ids=["lazy", "ready"])
CONTEXT = pytest.mark.parametrize("device", [PLAIN, TRACKING], ids=["plain", "tracking"])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("eager_switching")
def test_threads_that_read_together_initialise_once_and_get_one_value(dtype: str) -> None:
    """B01, B02, B03, B05: with an initialiser that draws other numbers each time."""
    init = Counting()
    p = lp.Param((2, 3), init, dtype=dtype, device="jax:cpu")
    handles = [p if at % 2 else p.clone() for at in range(8)]
    values = race([handle.val for handle in handles])
    assert init.runs == 1
    assert all(value is values[0] for value in values)
    assert isinstance(values[0], jax.Array)
    assert values[0].dtype == dtype


def test_the_first_access_may_come_from_a_fresh_thread() -> None:
    """cupy/cupy#72: a thread that never touched JAX."""
    p = lp.Param(3, Counting(), device="jax:cpu")
    found = race([p.val])
    assert p.val() is found[0]


@CONTEXT
def test_a_clone_of_a_lazy_param_has_its_value(device: lp.Device) -> None:
    """B06: both report initialised, the same array."""
    init = Counting()
    p = lp.Param(4, init, device=device)
    q = p.clone()
    value = p.val()
    assert q.is_initialized
    assert q.val() is value
    assert init.runs == 1


@CONTEXT
@pytest.mark.parametrize("moment", ["before", "after"])
def test_freezing_a_clone_leaves_the_other_as_it_was(moment: str, device: lp.Device) -> None:
    """B07: before the shared initialisation as well as after."""
    p = lp.Param(4, Counting(), device=device)
    if moment == "after":
        p.val()
    q = p.clone().set_requires_grad(False)
    assert (p.requires_grad, q.requires_grad) == (True, False)
    np.testing.assert_array_equal(p.val(), q.val())
    assert (p.requires_grad, q.requires_grad) == (True, False)


def test_asking_a_module_for_its_devices_initialises_nothing() -> None:
    """B11: lazy float, int and bool params and a ready one; the same through a clone."""
    bag = Bag(
        **{dtype: lp.Param(3, never, dtype=dtype, device="jax:cpu") for dtype in DTYPES},
        there=lp.Param.from_tensor(jnp.ones(2)),
    )
    for module in (bag, bag.clone()):
        assert module.devices() == [PLAIN]
        assert not module.float32.is_initialized


@CONTEXT
def test_a_model_on_its_own_device_stays_lazy_until_gradients_are_computed(device) -> None:
    """B13: devices(), to_device(same), forward and backward, the backward by jax.grad."""
    linear = Linear(2, 1, lp.init.zeros()).to_device(device)
    assert linear.devices() == [PLAIN]
    moved = linear.to_device(linear.devices()[0])
    assert not moved.weight.is_initialized
    assert not moved.bias.is_initialized

    def loss(model):
        return (jnp.ones((1, 2)) @ model.weight.value.T + model.bias.value).sum()

    grads = jax.grad(loss)(moved)
    assert grads.weight.value.tolist() == [[1, 1]]
    assert grads.bias.value.tolist() == [1]


@CONTEXT
def test_freezing_a_lazy_param_keeps_it_lazy_and_train_does_not_undo_it(device) -> None:
    """B14: the wish is off, and stays off through valid and train."""
    p = lazy(device=device).set_requires_grad(False)
    assert not p.is_initialized
    assert not p.requires_grad
    p.val()
    assert not p.valid().train().requires_grad


@EITHER
def test_wanting_gradients_is_remembered_and_the_value_is_untracked_in_any_context(make) -> None:
    """B15, B16, B17: by nature; the wish decides to which part of the module it belongs."""
    p = make().set_requires_grad(False)
    wanted = p.set_requires_grad(True)
    assert wanted.is_initialized is p.is_initialized
    tracked = wanted.train()
    assert tracked.requires_grad
    assert tracked.device.is_autodiff
    assert not wanted.device.is_autodiff
    assert tracked.val() is wanted.val()
    trainable, _ = Box(tracked).partition()
    assert isinstance(trainable.t, lp.Param)
    assert isinstance(Box(p).partition()[0].t, lp.Place)


def test_a_param_made_from_a_tensor_is_trainable() -> None:
    """B16: from_tensor and from_data mean to train."""
    assert lp.Param.from_tensor(jnp.ones(2)).requires_grad
    data = lp.Param.from_data([1.0, 2.0], "jax:cpu")
    assert data.requires_grad
    assert isinstance(data.value, jax.Array)
    assert not lp.Param.initialized(jnp.ones(2)).requires_grad


@EITHER
def test_intent_survives_validation_with_a_map_a_rebuild_and_a_load(make) -> None:
    """B18, B19, B20."""
    p = make(device=TRACKING).valid()
    identity, value, mapper = p.consume()
    for other in (
        p.map(lambda a: a),
        lp.Param.from_mapped_value(identity, value, mapper),
        p.transform_for_load(jnp.zeros((2, 3))),
    ):
        assert other.requires_grad
        assert not other.device.is_autodiff
        assert other.train().device.is_autodiff
        assert other.id == p.id


@EITHER
def test_the_whole_cycle_of_training_states(make) -> None:
    """B21: valid and train keep the wish, no_grad ends it. No value is ever tracked."""
    p = make(device=TRACKING)
    seen = []
    for step in ("valid", "train", "no_grad", "valid", "train"):
        p = getattr(p, step)()
        seen.append((p.device.is_autodiff, p.requires_grad))
    assert seen == [(False, True), (True, True), (True, False), (False, False), (True, False)]
    assert (p.val() == 1).all()


@CONTEXT
def test_the_gradient_lands_on_the_mapped_value(device: lp.Device) -> None:
    """B22: init_mapper doubles ones; the gradient of the sum is ones, the mapped value the leaf."""
    p = lazy(device=device).init_mapper(lambda a: a * 2)
    assert not p.is_initialized
    grads = jax.grad(lambda box: box.t.value.sum())(Box(p))
    assert (p.value == 2).all()
    assert (grads.t.value == 1).all()
    assert grads.t.id == p.id


@CONTEXT
def test_leaves_that_record_gradients_are_asked_of_jax_in_vain(device: lp.Device) -> None:
    """In any context: JAX has none, and the error says what it has."""
    box = Box(lazy(device=device))
    for ask in (box.leaves, box.grads, lambda: lp.gradients(jnp.ones(()), box)):
        with pytest.raises(lp.AutodiffUnsupported, match=r"jax\.grad"):
            ask()
    assert not box.t.is_initialized
    assert Box(lazy(device=device).no_grad()).leaves() == []


def test_counting_and_merging_a_lazy_param_leaves_it_lazy() -> None:
    """B23: materialize twice without an adapter: same id, still lazy."""
    p = lp.Param((2, 3), never, device="jax:cpu")
    merged = p.materialize().materialize()
    assert Box(p).num_params() == 6
    assert merged.id == p.id
    assert not merged.is_initialized


def test_a_moved_then_loaded_param_never_runs_its_initialiser() -> None:
    """B24: the target's device and intent win."""
    p = lp.Param(3, never, requires_grad=False).to_device("jax:cpu")
    loaded = p.transform_for_load(np.arange(3, dtype=np.float32), id=99)
    assert loaded.val().tolist() == [0, 1, 2]
    assert (loaded.id, loaded.requires_grad, loaded.device) == (99, False, PLAIN)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_move_keeps_the_context_a_param_was_built_with(dtype: str) -> None:
    """B25, B28, B29, B30: plain stays plain, tracking stays tracking; lazy stays lazy."""
    for device, other in ((PLAIN, TRACKING), (TRACKING, PLAIN)):
        p = lp.Param(3, never, dtype=dtype, device=device)
        for moved in (p.to_device(other), p.fork(other)):
            assert not moved.is_initialized
            assert moved.device.is_autodiff is device.is_autodiff
            assert moved.is_active is p.is_active


def test_a_lazy_mapped_param_forks_lazily() -> None:
    """B31: in its own context, with the mapped value."""
    p = lazy(device=TRACKING).init_mapper(lambda a: a * 2).fork(PLAIN)
    assert not p.is_initialized
    assert p.device.is_autodiff
    assert (p.val() == 2).all()


def test_a_moved_clone_has_the_same_draw_whichever_is_read_first() -> None:
    """B32: moved to another library, lazy until read."""
    for first in (0, 1):
        init = Counting()
        p = lp.Param(4, init, device="jax:cpu")
        pair = [p.clone(), p.to_device("cpu")]
        assert not any(one.is_initialized for one in pair)
        pair[first].val()
        np.testing.assert_array_equal(pair[0].val(), pair[1].val())
        assert init.runs == 1


@pytest.mark.parametrize("copied", [lambda p: p.clone(independent=True), copy.deepcopy])
def test_an_independent_clone_draws_for_itself(copied: Callable) -> None:
    """B33: two reads differ, each is stable, and one leaves the other lazy."""
    init = Counting()
    p = lp.Param(4, init, device="jax:cpu")
    q = copied(p)
    first = q.val()
    assert not p.is_initialized
    assert not np.array_equal(first, p.val())
    assert q.val() is first


def test_asking_and_changing_initialises_nothing() -> None:
    """B34, B35: with an initialiser that raises."""
    p = lp.Param((4, 2), never, dtype="bfloat16", device=TRACKING, id=7)
    assert (p.shape, p.nbytes, p.requires_grad, p.is_active) == ((4, 2), 16, True, True)
    assert "lazy: never" in repr(p)
    for other in (
        *(p.clone(), copy.deepcopy(p), p.to_device("cpu"), p.fork("jax:cpu:1"), p.valid()),
        *(p.no_grad(), p.materialize(), p.map(never), p.load_mapper(never)),
        pickle.loads(pickle.dumps(p)),
        *Box(p).partition()[0].parameters(),
    ):
        assert not other.is_initialized
        assert (other.shape, other.dtype, other.id) == ((4, 2), "bfloat16", 7)
    Box(p).abstract()
    assert not p.is_initialized


@EITHER
def test_intent_and_context_survive_copies_pickles_and_moves(make) -> None:
    """B43: pytorch/pytorch#121157, mlverse/torch#491: frozen stays frozen, wanted stays wanted."""
    for wish in (True, False):
        for device in (PLAIN, TRACKING):
            p = make(device=device).set_requires_grad(wish)
            for other in (
                *(p.to_device("jax:cpu"), p.fork("jax:cpu"), p.clone(), copy.deepcopy(p)),
                pickle.loads(pickle.dumps(p)),
                p.transform_for_load(jnp.ones((2, 3))),
            ):
                assert other.requires_grad is wish
                assert other.device.is_autodiff is device.is_autodiff
                np.testing.assert_array_equal(other.val(), np.ones((2, 3)))


def test_a_wish_survives_ten_moves_between_libraries() -> None:
    """mlverse/torch#491: frozen stays frozen over moves."""
    p = lp.Param(3, lp.init.normal(), requires_grad=False)
    value = p.val()
    for at in range(10):
        p = p.to_device(("jax:cpu", "cpu")[at % 2])
        assert not p.requires_grad
    np.testing.assert_array_equal(p.val(), value)


def test_a_failing_initialiser_is_retried_and_metadata_answers_meanwhile() -> None:
    """B47: its own exception, a note with the path, the recipe in place."""
    init = Counting(failures=1)
    box = Box(lp.Param(3, init, device="jax:cpu"))
    with pytest.raises(Boom) as caught:
        box.t.val()
    assert any("t" in note for note in caught.value.__notes__)
    assert not box.t.is_initialized
    assert box.t.device == PLAIN
    assert box.t.val().shape == (3,)
    assert init.runs == 2


def test_reading_ones_own_value_is_a_named_error() -> None:
    """B48."""
    p = lp.Param(3, lambda plan: p.val(), device="jax:cpu")
    with pytest.raises(lp.LazyCycleError):
        p.val()


def test_clones_stay_tied_through_moves_copies_and_pickles() -> None:
    """B52, huggingface/accelerate#3668: one id, one value."""
    p = lp.Param(3, lp.init.normal(), device="jax:cpu")
    bag = Bag(a=p, b=p.clone())
    for tied in (
        *(bag.to_device("cpu").to_device("jax:cpu"), bag.fork("jax:cpu"), bag.freeze()),
        *(copy.deepcopy(bag), pickle.loads(pickle.dumps(bag)), bag.initialize()),
    ):
        assert tied.a.is_tied_to(tied.b)
        assert tied.a.id == tied.b.id
        assert tied.a.val() is tied.b.val()


def test_a_draft_of_an_immutable_array_is_given_another() -> None:
    """B55: there is nothing to write to; the draft's array is replaced."""
    p = lp.Param(3, lp.init.zeros(), device="jax:cpu")
    with p.writable() as draft:
        draft.array = draft.array.at[0].set(1)
    assert draft.param.value.tolist() == [1, 0, 0]
    assert isinstance(draft.param.value, jax.Array)
    assert draft.param.id == p.id
    assert p.value.tolist() == [0, 0, 0]


def test_values_cannot_be_written_to() -> None:
    """B55."""
    p = lp.Param(3, lp.init.zeros(), device="jax:cpu")
    with pytest.raises(TypeError, match="immutable"):
        p.value[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(p.value)[0] = 1


def test_a_seed_gives_the_same_bits_on_jax_and_on_numpy() -> None:
    """B56, huggingface/peft#2787: whatever the device, the order of access and the threads."""
    linear = Linear(64, 32, lp.init.normal())
    here = linear.seed(7)
    there = linear.to_device("jax:cpu").seed(7).initialize(threads=2)
    np.testing.assert_array_equal(np.asarray(there.weight.value), here.weight.value)


def test_a_lazy_param_pickles_as_its_recipe_and_a_ready_one_with_its_value_and_device() -> None:
    """B58, jax-ml/jax#14184: a device is kept as a text, whatever is the default elsewhere."""
    lazily = pickle.dumps(lp.Param((1000, 1000), lp.init.normal(), device="jax:cpu"))
    assert len(lazily) < 2000
    bag = Bag(
        seeded=lp.Param((4, 5), lp.init.normal(), device="jax:cpu", rng_name="w"),
        half=lp.Param.from_tensor(jnp.arange(6, dtype=jnp.bfloat16)),
    ).seed(3)
    bag.half.val()
    code = (
        "import sys, pickle, numpy as np\n"
        "bag = pickle.load(sys.stdin.buffer)\n"
        "assert str(bag.half.device) == 'jax:cpu:0' and bag.half.is_initialized\n"
        "assert not bag.seeded.is_initialized\n"
        "sys.stdout.buffer.write(np.asarray(bag.seeded.value).tobytes())\n"
        "sys.stdout.buffer.write(np.asarray(bag.half.value).tobytes())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(bag),
        capture_output=True,
        timeout=100,
        cwd=Path(__file__).parent.parent,
    )
    assert done.returncode == 0, done.stderr.decode()
    expected = np.asarray(bag.seeded.value).tobytes() + np.asarray(bag.half.value).tobytes()
    assert done.stdout == expected


@pytest.mark.parametrize("mode", ["copy", "view"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool", "float8_e4m3fn"])
def test_files_are_read_onto_jax_and_written_from_it(tmp_path: Path, dtype: str, mode: str) -> None:
    """ml_dtypes' dtypes too (safetensors/safetensors#598); nothing is read before it is needed."""
    path = tmp_path / "model.safetensors"
    numbers = jnp.arange(6).reshape(2, 3).astype(dtype)
    Box(lp.Param.from_tensor(numbers)).save_file(path)
    empty = Box(lp.Param((2, 3), never, dtype=dtype, device="jax:cpu"))
    loaded = empty.load_file(path, mode=mode)
    assert not loaded.t.is_initialized
    value = loaded.t.value
    assert value.committed
    assert np.asarray(value).tobytes() == np.asarray(numbers).tobytes()
    again = tmp_path / "again.safetensors"
    loaded.save_file(again)
    assert again.read_bytes() == path.read_bytes()


def test_a_viewed_value_that_is_donated_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    """The pages of a file are lent to JAX; donating them must not have it write there."""
    path = tmp_path / "model.safetensors"
    Box(lp.Param.from_tensor(jnp.ones(100_000))).save_file(path)
    before = path.read_bytes()
    box = Box(lp.Param(100_000, never, device="jax:cpu")).load_file(path, mode="view")
    doubled = jax.jit(lambda box: jax.tree.map(lambda a: a * 2, box), donate_argnums=0)(box)
    assert float(doubled.t.value.sum()) == 200_000
    assert path.read_bytes() == before
    del box
    assert float(doubled.t.value.sum()) == 200_000


def test_state_dicts_hold_arrays_of_jax_and_take_arrays_of_any_library() -> None:
    """B40: the dtype is never changed in silence."""
    box = Box(lp.Param((2, 3), lp.init.normal(), dtype="bfloat16", device="jax:cpu"))
    state = box.state_dict()
    assert isinstance(state["t"], jax.Array)
    fresh = Box(lp.Param((2, 3), never, dtype="bfloat16", device="jax:cpu"))
    for given in (state["t"], np.asarray(state["t"])):
        loaded = fresh.load_state_dict({"t": given})
        assert np.asarray(loaded.t.value).tobytes() == np.asarray(state["t"]).tobytes()
    elsewhere = fresh.to_device("cpu").load_state_dict(state)
    assert isinstance(elsewhere.t.value, np.ndarray)
    wide = Box(lp.Param((2, 3), never, device="jax:cpu"))
    assert wide.load_state_dict(state, dtype="cast").t.dtype == "float32"


def test_a_model_is_initialised_by_several_threads() -> None:
    """initialize(threads=2): native draws, functions of JAX, and values that are there."""
    bag = Bag(
        drawn=[lp.Param((50, 50), lp.init.normal(), device="jax:cpu") for _ in range(4)],
        called=[lp.Param((5, 5), Counting(), device="jax:cpu") for _ in range(4)],
        there=lp.Param.from_tensor(jnp.ones(3)),
    )
    assert bag.initialize(threads=2) is bag
    assert all(param.is_initialized for param in bag.parameters())
