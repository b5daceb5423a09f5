"""Parameters on torch: what is tracked and when, moves, copies, files, and bad input."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Bag, Boom, Box, Held, Linear, Tied, never, race

torch = pytest.importorskip("torch")

PLAIN = lp.device("torch:cpu")
TRACKING = PLAIN.autodiff()

DTYPES = ["float32", "int64", "bool"]


def lazy(device: Any = PLAIN, dtype: str = "float32", **options: Any) -> lp.Param:
    return lp.Param((2, 3), lp.init.ones(), dtype=dtype, device=device, **options)


def called(device: Any = PLAIN, dtype: str = "float32", **options: Any) -> lp.Param:
    def make(plan: lp.Plan) -> Any:
        return torch.ones(plan.shape, dtype=getattr(torch, plan.dtype))

    return lp.Param((2, 3), make, dtype=dtype, device=device, **options)


def ready(device: Any = PLAIN, dtype: str = "float32", **options: Any) -> lp.Param:
    p = called(device, dtype, **options)
    p.val()
    return p


EITHER = pytest.mark.parametrize("make", [lazy, called, ready])


class Drawing:
    """An initialiser that counts its runs and draws other numbers each time."""

    def __init__(self) -> None:
        self.runs = 0
        self._lock = threading.Lock()

    def __call__(self, plan: lp.Plan) -> Any:
        with self._lock:
            self.runs += 1
            seed = self.runs
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(plan.shape, generator=generator)


# ---- one coming-into-being ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", [PLAIN, TRACKING], ids=["plain", "tracking"])
@pytest.mark.usefixtures("eager_switching")
def test_several_threads_read_one_lazy_param_and_get_one_tensor(dtype: str, device: Any) -> None:
    """B01, B02, B03, B05: the initialiser runs once, none fails, all get the same tensor."""
    init = Drawing()
    p = lp.Param((4, 5), init, device=device).map(
        lambda a: a.to(getattr(torch, dtype)), dtype=dtype
    )
    values = race([p.val] * 8)
    assert all(value is values[0] for value in values)
    assert init.runs == 1
    assert values[0].requires_grad is (device.is_autodiff and dtype == "float32")


def test_a_clone_reads_what_the_original_drew() -> None:
    """B06: both report initialised, the same memory."""
    p = lp.Param(5, Drawing(), device=TRACKING)
    q = p.clone()
    assert p.val() is q.val()
    assert p.is_initialized
    assert q.is_initialized


@pytest.mark.parametrize("before", [True, False], ids=["before init", "after init"])
def test_freezing_a_clone_does_not_freeze_the_original(before: bool) -> None:
    """B07: whenever the clone is taken and frozen."""
    p = lp.Param(5, Drawing(), device=TRACKING)
    if not before:
        p.val()
    frozen = p.clone().set_requires_grad(False)
    assert not frozen.val().requires_grad
    assert p.val().requires_grad
    assert (frozen.requires_grad, p.requires_grad) == (False, True)
    assert torch.equal(frozen.val(), p.val().detach())
    assert frozen.val().data_ptr() == p.val().data_ptr()


# ---- tracking ----------------------------------------------------------------------------------


def test_devices_then_the_same_device_then_backward_gives_the_right_gradients() -> None:
    """B13: asking for devices and moving to the same one initialises nothing."""
    model = Bag(
        weight=lp.Param((1, 2), lp.init.constant(3.0), device=TRACKING),
        bias=lp.Param(1, lp.init.zeros(), device=TRACKING),
    )
    assert model.devices() == [PLAIN]
    moved = model.to_device(model.devices()[0])
    assert not moved.weight.is_initialized
    assert not moved.bias.is_initialized
    out = torch.ones(1, 2) @ moved.weight.val().T + moved.bias.val()
    out.sum().backward()
    assert moved.weight.grad().tolist() == [[1, 1]]
    assert moved.bias.grad().tolist() == [1]


@EITHER
def test_freezing_on_a_tracking_device_holds_through_valid_and_train(make: Any) -> None:
    """B14: stays lazy if it was, untracked when read, and train does not undo it."""
    p = make(TRACKING)
    was = p.is_initialized
    frozen = p.set_requires_grad(False)
    assert frozen.is_initialized is was
    assert not frozen.requires_grad
    assert not frozen.val().requires_grad
    assert not frozen.valid().train().val().requires_grad


def test_wanting_gradients_on_a_plain_device_is_remembered_until_train() -> None:
    """B15: an untracked ready tensor."""
    p = lp.Param.initialized(torch.ones(3)).set_requires_grad(True)
    assert p.requires_grad
    assert not p.val().requires_grad
    assert p.train().val().requires_grad


def test_a_tensor_that_is_taken_is_untracked_until_train() -> None:
    """B16: from_tensor and from_data on a plain device."""
    for p in (
        lp.Param.from_tensor(torch.ones(3)),
        lp.Param.from_data([1.0, 1.0, 1.0], "torch:cpu"),
    ):
        assert p.requires_grad
        assert not p.val().requires_grad
        assert p.train().val().requires_grad
        assert p.train().val().is_leaf


def test_a_tensor_that_records_gradients_makes_a_param_in_that_context() -> None:
    """A leaf, an nn.Parameter or a result of recorded work becomes a leaf of its own."""
    source = torch.ones(3, requires_grad=True)
    for given in (source, torch.nn.Parameter(torch.ones(3)), source * 1):
        p = lp.Param.from_tensor(given)
        assert p.device.is_autodiff
        value = p.val()
        assert value.requires_grad
        assert value.is_leaf
        assert type(value) is torch.Tensor
        assert value.data_ptr() != given.data_ptr()
        value.sum().backward()
        assert source.grad is None


def test_changing_the_wish_of_a_lazy_param_keeps_it_lazy() -> None:
    """B17: wanted False, on a plain device, then wanted."""
    p = lazy(requires_grad=False).set_requires_grad(True)
    assert not p.is_initialized
    assert p.requires_grad
    assert not p.val().requires_grad
    assert p.train().val().requires_grad


@EITHER
def test_validation_and_a_map_untrack_and_train_restores(make: Any) -> None:
    """B18, B19, B20: an identity map, consume and rebuild, or a load; the wish is kept."""
    p = make(TRACKING)
    valid = p.valid()
    identity, value, mapper = valid.consume()
    for other, number in (
        (valid.map(lambda a: a), 1),
        (lp.Param.from_mapped_value(identity, value, mapper), 1),
        (valid.transform_for_load(torch.zeros(2, 3)), 0),
    ):
        assert other.requires_grad
        assert other.id == p.id
        assert not other.val().requires_grad
        assert (other.val() == number).all()
        assert other.train().val().requires_grad


@EITHER
def test_the_whole_cycle_of_training_states_on_torch(make: Any) -> None:
    """B21: tracked and wanted at each of six steps."""
    p = make(TRACKING)
    seen = [(p.val().requires_grad, p.requires_grad)]
    for step in ("valid", "train", "no_grad", "valid", "train"):
        p = getattr(p, step)()
        seen.append((p.val().requires_grad, p.requires_grad))
    assert seen == [
        (True, True),
        (False, True),
        (True, True),
        (False, False),
        (False, False),
        (False, False),
    ]


@EITHER
def test_the_mapped_value_is_the_leaf(make: Any) -> None:
    """B22: an init_mapper is no part of the graph, and its result gets the gradient."""
    p = make(TRACKING).init_mapper(lambda a: a * 2)
    assert (p.val() == 2).all()
    assert p.val().is_leaf
    p.val().sum().backward()
    assert (p.grad() == 1).all()
    assert not p.grad().requires_grad


def test_a_mapper_sees_an_untracked_value_and_records_nothing() -> None:
    def double(a: Any) -> Any:
        assert not a.requires_grad
        assert not torch.is_grad_enabled()
        return a * 2

    p = lazy(TRACKING)
    q = p.map(double)
    q.val().sum().backward()
    assert p.grad() is None


def test_moves_keep_the_context_that_a_param_was_built_with() -> None:
    """B25, B30: plain stays plain on a tracking device, tracking stays tracking on a plain one."""
    for make in (lazy, ready):
        for move in ("to_device", "fork"):
            assert not getattr(make(PLAIN), move)(TRACKING).val().requires_grad
            assert getattr(make(TRACKING), move)(PLAIN).val().requires_grad
            numpy = make(TRACKING)
            there_and_back = getattr(getattr(numpy, move)("numpy:cpu"), move)("torch:cpu")
            assert there_and_back.requires_grad
    assert not lazy(TRACKING).fork(PLAIN).is_initialized


@EITHER
def test_a_fork_has_a_leaf_and_a_gradient_of_its_own(make: Any) -> None:
    """#8287, #12627: the leaf is found by the parameter, so no move loses a gradient."""
    p = make(TRACKING)
    fork = p.fork(TRACKING)
    fork.val().sum().backward()
    assert p.grad() is None
    assert (fork.grad() == 1).all()
    with torch.no_grad():
        fork.val().zero_()
    assert (p.val() == 1).all()


@EITHER
def test_a_fork_of_a_mapped_param_is_tracked(make: Any) -> None:
    """B31: lazy with an init_mapper, forked to a tracking device."""
    p = make(TRACKING).init_mapper(lambda a: a + 1).fork(TRACKING)
    assert (p.val() == 2).all()
    assert p.val().requires_grad


def test_a_moved_param_has_the_draw_of_its_clone() -> None:
    """B32: whichever is read first, on whichever library."""
    for first in (0, 1):
        p = lp.Param(5, Drawing(), device=PLAIN)
        both = p.clone(), p.to_device("numpy:cpu")
        both[first].val()
        np.testing.assert_array_equal(both[0].val().numpy(), both[1].val())


def test_an_independent_clone_draws_for_itself() -> None:
    """B33, #65051, #83809: clone(independent=True) and deepcopy of a lazy param stay lazy."""
    init = Drawing()
    p = lp.Param(5, init, device=TRACKING)
    others = [p.clone(independent=True), copy.deepcopy(p)]
    values = [p.val(), *(other.val() for other in others)]
    assert init.runs == 3
    assert not torch.equal(values[0], values[1])
    assert others[0].val() is values[1]


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8", "int8"])
def test_an_int_or_bool_never_tracks_however_it_is_asked(dtype: str) -> None:
    """#99264, transformers#37720: silently, for the wish of a module is for all its parameters."""
    for make in (lazy, ready):
        p = make(TRACKING, dtype).set_requires_grad(True).train()
        assert p.requires_grad
        assert not p.is_active
        assert not p.val().requires_grad


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "complex64"])
def test_other_dtypes_track(dtype: str) -> None:
    p = lazy(TRACKING, dtype)
    p.val().abs().sum().backward()
    assert p.grad().dtype == getattr(torch, dtype)


def test_intent_survives_copies_pickles_moves_and_records(tmp_path: Path) -> None:
    """B43, mlverse/torch#491, #121157, torchtitan#4267: frozen stays frozen over random moves."""
    path = tmp_path / "model.safetensors"
    choice = random.Random(5)
    for wish in (True, False):
        p = ready(TRACKING).set_requires_grad(wish)
        Box(p).save_file(path)
        verbs: list[Callable[[lp.Param], lp.Param]] = [
            lambda p: p.to_device("torch:cpu"),
            lambda p: p.fork("torch:cpu"),
            lambda p: p.to_device("numpy:cpu").to_device("torch:cpu"),
            lambda p: pickle.loads(pickle.dumps(p)),
            copy.deepcopy,
            lambda p: Box(p).load_file(path).t,
            lambda p: Box(p).load_state_dict({"t": torch.ones(2, 3)}).t,
            lambda p: p.valid().train(),
        ]
        for _ in range(30):
            p = choice.choice(verbs)(p)
            assert p.requires_grad is wish
        assert p.train().val().requires_grad is wish


def test_valid_reads_the_memory_that_is_trained() -> None:
    p = lazy(TRACKING)
    with torch.no_grad():
        p.val().fill_(5)
    assert (p.valid().val() == 5).all()
    assert p.valid().val().data_ptr() == p.val().data_ptr()


def test_writing_to_the_untracked_value_is_noticed_by_a_graph_that_saved_the_leaf() -> None:
    p = lazy(TRACKING)
    loss = (p.val() ** 2).sum()
    p.valid().val().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_gradient_is_none_until_there_is_one() -> None:
    p = lazy(TRACKING)
    assert p.grad() is None
    assert not p.is_initialized
    p.val()
    assert p.grad() is None
    (p.val() * 3).sum().backward()
    assert (p.grad() == 3).all()
    assert (p.clone().grad() == 3).all()


# ---- failures ----------------------------------------------------------------------------------


def test_a_failing_initialiser_is_tried_again() -> None:
    """B47: its own exception with a note of the path, and the recipe stays in place."""
    runs = []

    def init(plan: lp.Plan) -> Any:
        runs.append(plan)
        if len(runs) == 1:
            raise Boom
        return torch.ones(plan.shape)

    model = Bag(layer=Bag(t=lp.Param(3, init, device=TRACKING)))
    with pytest.raises(Boom) as raised:
        model.layer.t.val()
    assert "layer.t" in raised.value.__notes__[0]
    assert torch.is_grad_enabled()
    assert not model.layer.t.is_initialized
    assert model.layer.t.val().tolist() == [1, 1, 1]


def test_an_initialiser_that_reads_its_own_param_is_named() -> None:
    """B48: at once, and what was switched off is on again."""

    def init(plan: lp.Plan) -> Any:
        return box.t.val()

    box = Box(lp.Param(3, init, device=TRACKING))
    with pytest.raises(lp.LazyCycleError, match="t"):
        box.t.val()
    assert torch.is_grad_enabled()


def test_an_initialiser_may_read_another_param() -> None:
    one = lp.Param(3, Drawing(), device=TRACKING)
    other = lp.Param(3, lambda plan: one.val() * 2, device=TRACKING)
    assert torch.equal(other.val(), one.val() * 2)
    assert other.val().is_leaf


def test_metadata_answers_while_an_initialiser_runs() -> None:
    """B49: on another thread, at once."""
    held = Held()
    p = lp.Param(3, lambda plan: torch.from_numpy(held(plan)), device=TRACKING)
    thread = threading.Thread(target=p.val)
    thread.start()
    assert held.running.wait(10)
    assert (p.shape, p.dtype, str(p.device)) == ((3,), "float32", "torch:cpu")
    assert not p.is_initialized
    assert p.grad() is None
    held.finish.set()
    thread.join()
    assert p.is_initialized


def test_who_waits_can_give_up_and_nobody_else_is_held_up() -> None:
    """B50: the initialisation goes on, and threads that want something else run meanwhile."""
    held = Held()
    p = lp.Param(3, lambda plan: torch.from_numpy(held(plan)), device=TRACKING)
    thread = threading.Thread(target=p.val)
    thread.start()
    assert held.running.wait(10)
    with pytest.raises(TimeoutError):
        p.val(timeout=0.05)
    assert lp.Param(3, lp.init.ones(), device=TRACKING).val().tolist() == [1, 1, 1]
    assert torch.is_grad_enabled()
    held.finish.set()
    thread.join()
    assert p.val().tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int16", "bool", "complex64"])
def test_numbers_and_arrays_become_params_on_torch(dtype: str) -> None:
    """B16: from_data, with the dtype of one's choice."""
    p = lp.Param.from_data([[1, 0]], "torch:cpu", dtype=dtype)
    assert p.val().dtype == getattr(torch, dtype)
    assert np.asarray(p).tolist() == [[1, 0]]
    host = np.asfortranarray(np.ones((2, 3), np.float16))
    q = lp.Param.from_tensor(host).to_device("torch:cpu")
    assert q.val().stride() == (1, 2)


@pytest.mark.parametrize(
    ("init", "match"),
    [
        (lambda plan: np.ones(plan.shape, np.float32), "not an array of the device's library"),
        (lambda plan: [1.0, 2.0, 3.0], "not an array of the device's library"),
        (lambda plan: torch.ones(4), r"another shape.*expected \(3,\); found \(4,\)"),
        (lambda plan: torch.ones(3, dtype=torch.float64), "another dtype"),
        (lambda plan: torch.ones(3, device="meta"), "a tensor on the meta device"),
        (lambda plan: torch.ones(3).to_sparse(), "layout sparse_coo"),
        (lambda plan: torch.inference_mode()(torch.ones)(3), "an inference tensor"),
    ],
)
def test_a_value_that_is_not_as_declared_is_refused_by_path(init: Any, match: str) -> None:
    box = Box(lp.Param(3, init, device=TRACKING))
    with pytest.raises(lp.InitError, match=match) as raised:
        box.t.val()
    assert "t" in str(raised.value.path)
    assert not box.t.is_initialized


def test_mixing_libraries_in_an_initialiser_fails_clearly() -> None:
    """Whatever torch itself says, or the check of what came of it; and the param stays lazy."""
    other = lp.Param(3, lp.init.ones())
    for init in (
        lambda plan: np.ones(3, np.float32) * other.val(),
        lambda plan: torch.stack([torch.ones(3), other.val()]),
        lambda plan: torch.matmul(torch.ones(3, 3), other.val()),
        lambda plan: other.val(),
    ):
        p = lp.Param(3, init, device="torch:cpu")
        with pytest.raises((TypeError, lp.InitError)) as raised:
            p.val()
        assert "library" in str(raised.value) or raised.value.__notes__
        assert not p.is_initialized


def test_a_device_that_is_not_there_is_an_error_at_use_only() -> None:
    """jax#14184, ludwig#3788, #14: declared, printed, pickled and moved anywhere; used nowhere."""
    p = lp.Param(3, lp.init.ones(), device="torch:cuda:63")
    again = pickle.loads(pickle.dumps(p))
    assert "torch:cuda:63" in repr(again)
    for _ in range(2):
        with pytest.raises(lp.DeviceUnavailable, match="torch:cuda:63"):
            again.val()
    assert again.to_device("torch:cpu").val().tolist() == [1, 1, 1]
    with pytest.raises(lp.DeviceUnavailable):
        lp.Param(3, never, device="torch:cuda:63").val()


def test_gradients_are_refused_where_none_are_recorded() -> None:
    with pytest.raises(lp.errors.AutodiffUnsupported):
        lp.device("numpy:cpu").autodiff()
    p = lp.Param(3, lp.init.ones())
    with pytest.raises(lp.errors.AutodiffUnsupported):
        p.grad()


def test_a_move_to_a_library_without_the_dtype_is_refused() -> None:
    p = lp.Param(3, lp.init.ones(), dtype="float6_e2m3fn", device="numpy:cpu")
    with pytest.raises(lp.DeviceError, match="torch has no dtype"):
        p.to_device("torch:cpu").val()


def test_a_device_object_of_torch_is_a_device() -> None:
    """scikit-learn#29107: the same place has one name; another library's is another."""
    assert lp.device(torch.device("cpu")) == PLAIN
    assert lp.device(torch.device("cuda")) == lp.device("torch:cuda:0")
    assert lp.device(torch.device("cpu")) != lp.device("cpu")
    assert lp.Param(3, lp.init.ones(), device=torch.device("cpu")).device == PLAIN
    assert str(lp.device("torch:mps")) == "torch:mps"


# ---- memory, copies and files --------------------------------------------------------------------


def test_a_value_is_nobody_elses_to_write_to() -> None:
    """B55: what comes in is copied, unless nobody else has it."""
    kept = torch.ones(3)
    for make in (
        lambda: lp.Param(3, lambda plan: kept, device="torch:cpu"),
        lambda: lp.Param.from_tensor(kept),
        lambda: lp.Param.initialized(kept),
        lambda: lp.Param(3, never, device="torch:cpu").transform_for_load(kept),
        lambda: Box(lp.Param(3, never, device="torch:cpu")).load_state_dict({"t": kept}).t,
        lambda: lp.Param(3, lp.init.ones(), device="torch:cpu").map(lambda a: a),
        lambda: lp.Param(3, lp.init.ones(), device="torch:cpu").map(lambda a: a[:]),
    ):
        p = make()
        p.val()
        kept.fill_(7)
        assert p.val().tolist() == [1, 1, 1]
        kept.fill_(1)


def test_what_a_map_hands_on_is_not_what_it_was_given() -> None:
    """B55: an identity map, or a view, is a parameter of its own."""
    p = lazy()
    for step in (lambda a: a, lambda a: a[:], lambda a: a.detach()):
        q = p.map(step)
        q.val().zero_()
        assert (p.val() == 1).all()


def test_a_tensor_that_an_initialiser_hands_over_is_not_copied() -> None:
    addresses = []

    def init(plan: lp.Plan) -> Any:
        tensor = torch.ones(plan.shape)
        addresses.append(tensor.data_ptr())
        return tensor

    for device in (PLAIN, TRACKING):
        assert lp.Param(1000, init, device=device).val().data_ptr() == addresses.pop()


def test_a_native_draw_is_the_same_on_every_library() -> None:
    """B56: bit by bit, in whatever order, and no tensor is copied on the way."""
    for dtype in ("float32", "float64", "bfloat16", "float16"):
        here = Box(lp.Param((64, 33), lp.init.normal(), dtype=dtype)).seed(11)
        there = Box(lp.Param((64, 33), lp.init.normal(), dtype=dtype, device=TRACKING)).seed(11)
        other = here.to_device("torch:cpu")
        expected = here.t.val().tobytes()
        for model in (there, other):
            assert np.asarray(model.t).tobytes() == expected


def test_a_draft_becomes_a_new_param_and_the_old_one_never_changes() -> None:
    p = lazy(TRACKING)
    with p.writable() as draft:
        assert not draft.array.requires_grad
        draft.array[0] = 5
        kept = draft.array
    kept.fill_(9)
    assert draft.param.val().tolist() == [[5, 5, 5], [1, 1, 1]]
    assert draft.param.val().requires_grad
    assert draft.param.id == p.id
    assert (p.val() == 1).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "bool", "complex64"])
@EITHER
def test_a_param_is_pickled_and_copied_lazy_or_ready(make: Any, dtype: str) -> None:
    """B58: as its recipe if it is lazy, as its elements if it is there."""
    p = lazy(TRACKING, dtype) if make is called else make(TRACKING, dtype)
    copies = pickle.loads(pickle.dumps(p)), copy.deepcopy(p)
    for other in copies:
        assert other.is_initialized is p.is_initialized
    for other in copies:
        assert (other.dtype, other.device, other.id) == (p.dtype, p.device, p.id)
        assert other.device.is_autodiff
        assert other.val().dtype == p.val().dtype
        assert np.asarray(other).tobytes() == np.asarray(p).tobytes()
        assert other.val().data_ptr() != p.val().data_ptr()
        assert other.val().requires_grad is p.val().requires_grad


def test_ties_survive_moves_copies_files_and_pickles(tmp_path: Path) -> None:
    """B52, accelerate#3668: one value, whatever happens to the model."""
    model = Tied(lp.init.normal()).seed(1).to_device("torch:cpu").train()
    path = tmp_path / "m.safetensors"
    model.save_file(path)
    for other in (
        model,
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        model.load_file(path, allow_missing=True),
        model.fork("torch:cpu"),
        model.valid().train(),
    ):
        assert other.embed.val() is other.head.val()
        assert len(other.leaves()) == 5


DICT_DTYPES = ["float32", "bfloat16", "float16", "float8_e5m2", "int64", "bool", "uint16"]


@pytest.mark.parametrize("dtype", DICT_DTYPES)
def test_tensors_go_to_state_dicts_and_files_and_come_back(dtype: str, tmp_path: Path) -> None:
    """#109873, safetensors#598: bf16 and fp8 too, bit by bit."""
    values = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    model = Box(lp.Param.initialized(values))
    path = tmp_path / "m.safetensors"
    model.save_file(path)
    state = model.state_dict()
    assert type(state["t"]) is torch.Tensor
    assert not state["t"].requires_grad
    empty = Box(lp.Param((2, 3), never, dtype=dtype, device="torch:cpu"))
    numpy = Box(lp.Param((2, 3), never, dtype=dtype))
    for loaded in (
        empty.load_file(path),
        empty.load_file(path, mode="copy"),
        empty.load_file(path, mode="view"),
        empty.load_state_dict(state),
        empty.load_state_dict({"t": torch.nn.Parameter(values, requires_grad=False)}),
        numpy.load_state_dict(state).to_device("torch:cpu"),
        numpy.load_file(path).to_device("torch:cpu"),
    ):
        assert loaded.t.dtype == dtype
        assert torch.equal(loaded.t.val().double(), values.double())


@pytest.mark.parametrize("layout", ["T", "strided", "flipped", "expanded"])
def test_a_tensor_of_any_layout_is_saved_as_what_it_is(layout: str, tmp_path: Path) -> None:
    """safetensors#825: transposed, strided, flipped and expanded tensors."""
    tensor = {
        "T": lambda: torch.arange(6.0).reshape(2, 3).T,
        "strided": lambda: torch.arange(6.0)[::2],
        "flipped": lambda: torch.arange(6.0).flip(0),
        "expanded": lambda: torch.arange(2.0)[:, None].expand(2, 3),
    }[layout]()
    path = tmp_path / "m.safetensors"
    model = Box(lp.Param.from_tensor(tensor))
    model.save_file(path)
    assert torch.equal(model.load_file(path).t.val(), tensor)


def test_safetensors_itself_reads_what_was_saved_from_torch(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "m.safetensors"
    values = torch.randn(4, 3).to(torch.bfloat16)
    Bag(w=lp.Param.from_tensor(values)).save_file(path)
    assert torch.equal(safetensors.load_file(path)["w"], values)


def test_a_mapped_file_reaches_torch_on_pages_of_its_own(stored: Any) -> None:
    """sglang#32896: a write in place reaches neither the file nor another reader."""
    path = stored(w=np.arange(1024, dtype=np.float32).reshape(32, 32))
    before = path.read_bytes()
    model = Bag(w=lp.Param((32, 32), device=TRACKING))
    one = model.load_file(path, mode="view")
    other = model.load_file(path, mode="view")
    with torch.no_grad():
        one.w.val().fill_(-1)
    assert torch.equal(other.w.val().detach().flatten(), torch.arange(1024.0))
    third = model.load_file(path, mode="view")
    assert torch.equal(third.w.val().detach().flatten(), torch.arange(1024.0))
    assert path.read_bytes() == before
    assert (one.w.val() == -1).all()


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of a process' memory")
def test_a_mapped_file_takes_no_memory_before_it_is_written_to(tmp_path: Path) -> None:
    """No copy is made: in another process, whose memory is its own."""
    size = 64 << 20
    path = tmp_path / "big.safetensors"
    Bag(w=lp.Param.from_tensor(torch.zeros(size // 4))).save_file(path)
    script = f"""
    import torch, lazyparam as lp

    def private():
        for line in open("/proc/self/smaps_rollup"):
            if line.startswith("Anonymous"):
                return int(line.split()[1]) * 1024

    class Model(lp.Module):
        def __init__(self):
            self.w = lp.Param({size // 4}, device="torch:cpu")

    torch.zeros(8).sum()
    before = private()
    value = Model().load_file({str(path)!r}, mode="view").w.val()
    assert value.sum() == 0
    assert private() - before < {size // 4}, private() - before
    value.fill_(1)
    assert private() - before >= {size}, private() - before
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=100)


def test_initialize_brings_a_model_on_torch_into_being_in_several_threads() -> None:
    model = Bag(
        layers=[Linear(8, 8, lp.init.normal()) for _ in range(8)],
        called=lp.Param(8, lambda plan: torch.ones(plan.shape)),
    )
    model = model.seed(3).to_device("torch:cpu").train()
    # A function's value is made where it was declared to be; this one is on torch from the start.
    model.called = lp.Param(8, lambda plan: torch.ones(plan.shape), device=TRACKING)
    model.initialize(threads=2)
    assert all(p.is_initialized for p in model.parameters())
    assert all(leaf.requires_grad and leaf.is_leaf for leaf in model.leaves())
    again = Bag(layers=[Linear(8, 8, lp.init.normal()) for _ in range(8)], called=0).seed(3)
    for path, param in again.named_parameters():
        assert np.asarray(dict(model.named_parameters())[path]).tobytes() == param.val().tobytes()


@pytest.mark.parametrize("device", [PLAIN, TRACKING], ids=["plain", "tracking"])
def test_a_cycle_through_a_param_on_torch_is_collected(device: Any) -> None:
    """B60: module, parameter, initialiser and back; lazy, and ready with a leaf and a gradient."""
    for read in (False, True):

        def build(read: bool = read) -> weakref.ref:
            box = Box(lp.Param(3, lambda plan: box and torch.ones(plan.shape), device=device))
            if read:
                value = box.t.val()
                if value.requires_grad:
                    value.sum().backward()
            return weakref.ref(box)

        gone = build()
        gc.collect()
        assert gone() is None


def test_a_cycle_through_a_tensor_is_left_to_torch() -> None:
    """B60: what can be reached is never cleared."""
    p = lp.Param(3, lp.init.ones(), device=TRACKING)
    value = p.val()
    value.owner = p
    gc.collect()
    assert value.tolist() == [1, 1, 1]
    assert value.owner.val() is value


def test_a_value_outlives_its_param() -> None:
    value = lp.Param(3, lp.init.ones(), device=TRACKING).val()
    gc.collect()
    assert value.tolist() == [1, 1, 1]
    (value * 2).sum().backward()
    assert value.grad.tolist() == [2, 2, 2]


def test_numpy_and_dlpack_see_a_detached_param() -> None:
    p = lazy(TRACKING)
    assert np.asarray(p).tolist() == [[1, 1, 1], [1, 1, 1]]
    assert torch.from_dlpack(p).tolist() == [[1, 1, 1], [1, 1, 1]]
    assert not torch.from_dlpack(p).requires_grad
    assert np.asarray(lazy(TRACKING, "bfloat16")).dtype.name == "bfloat16"


def test_nothing_of_a_move_between_libraries_is_shared() -> None:
    """jax#19123: a write on one side is not seen on the other."""
    here = lp.Param(3, lp.init.ones())
    there = here.to_device("torch:cpu")
    here.val()
    there.val().zero_()
    assert here.val().tolist() == [1, 1, 1]
    back = there.to_device("numpy:cpu")
    back.val()
    there.val().fill_(5)
    assert back.val().tolist() == [0, 0, 0]


# ---- what newcomers ran into ------------------------------------------------------------------


def test_a_mapper_that_writes_in_place_reaches_nobody_elses_elements(tmp_path: Path) -> None:
    """On save, on load, and derived: NumPy refuses it, and torch cannot."""
    p = lp.Param(3, lp.init.ones(), device="torch:cpu").save_mapper(lambda a: a.mul_(2))
    for _ in range(3):
        assert p.transform_for_save().val().tolist() == [2, 2, 2]
        Box(p).save_file(tmp_path / "x.safetensors")
        assert Box(p).state_dict()["t"].tolist() == [2, 2, 2]
    assert p.val().tolist() == [1, 1, 1]
    kept: list[torch.Tensor] = []

    def keep(a: torch.Tensor) -> torch.Tensor:
        kept.append(a)
        return a.neg_()

    assert p.map(keep).val().tolist() == [-1, -1, -1]
    kept[0].fill_(7)
    assert p.val().tolist() == [1, 1, 1]
    attempts: list[int] = []

    def fail_once(a: torch.Tensor) -> torch.Tensor:
        a.mul_(2)
        attempts.append(1)
        if len(attempts) == 1:
            raise Boom
        return a

    q = lp.Param(3, lp.init.ones(), device="torch:cpu").map(fail_once)
    with pytest.raises(Boom):
        q.val()
    assert q.val().tolist() == [2, 2, 2]


def test_the_plan_tells_what_torch_takes_for_its_dtype_and_device() -> None:
    def init(plan: lp.Plan) -> torch.Tensor:
        assert plan.native_dtype is torch.bfloat16
        assert plan.native_device == torch.device("cpu")
        return torch.ones(plan.shape, dtype=plan.native_dtype, device=plan.native_device)

    p = lp.Param(3, init, "bfloat16", "torch:cpu")
    assert p.val().tolist() == [1, 1, 1]


def test_a_gradient_is_found_by_every_handle_of_its_parameter() -> None:
    p = lp.Param(3, lp.init.ones(), device="torch:cpu").train()
    p.val().sum().backward()
    for handle in (p, p.valid(), p.clone()):
        assert handle.grad().tolist() == [1, 1, 1]
    assert p.no_grad().grad() is None


def test_a_state_dict_is_no_part_of_a_graph() -> None:
    model = Box(lp.Param(3, lp.init.ones(), device="torch:cpu")).train()
    state = model.state_dict()
    assert not state["t"].requires_grad
    assert state["t"].data_ptr() == model.t.val().data_ptr()


def test_a_loss_that_does_not_depend_on_the_module_is_an_error() -> None:
    one, other = (Box(lp.Param(3, lp.init.ones(), device="torch:cpu")).train() for _ in range(2))
    with pytest.raises(lp.ModuleError, match="depends on no parameter"):
        lp.gradients(one.t.val().sum(), other)
    with pytest.raises(lp.ModuleError, match="this is no loss"):
        lp.gradients(1.0, one)
    with pytest.raises(KeyError, match="no gradient of"):
        lp.gradients(one.t.val().sum(), one)[other.t]
