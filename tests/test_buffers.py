"""Buffers: they move with their module, are made like parameters, and are never trained."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Bag, Boom, Counting, Linear, never, race


class Norm(lp.Module):
    """A scale to train, a mean to keep, and a table that every process makes for itself."""

    def __init__(self, init: Any = never) -> None:
        self.scale = lp.Param(3, init)
        self.mean = lp.Buffer(3, init)
        self.table = lp.Buffer((2, 2), lp.init.constant(5), "int64", persistent=False)


# ---- what a buffer is ----------------------------------------------------------------------------


def test_a_buffer_reads_as_a_parameter_does_and_asking_brings_nothing_into_being() -> None:
    """B35"""
    buffer = Norm().mean
    assert (buffer.shape, buffer.dtype, buffer.ndim, buffer.size) == ((3,), "float32", 1, 3)
    assert (buffer.nbytes, buffer.kind, str(buffer.device)) == (12, "float", "numpy:cpu")
    assert (buffer.path, buffer.stored_shape) == ("mean", (3,))
    assert buffer.persistent
    assert not buffer.requires_grad
    assert not buffer.is_active
    assert not buffer.is_initialized
    assert buffer.grad() is None
    assert repr(buffer).startswith("Buffer(mean: float32[3], numpy:cpu, lazy: ")
    assert repr(Norm().table).endswith(", not stored)")
    made = Norm(lp.init.ones()).mean
    assert made.value is made.val() is made.base() is made.into_value()
    assert np.asarray(made).tolist() == [1, 1, 1]
    assert np.from_dlpack(made).tolist() == [1, 1, 1]
    assert made.is_initialized


def test_a_buffer_always_says_how_it_comes_into_being() -> None:
    """transformers#34234, #45902, #48892 and torchtitan#4783: a table that no file had was whatever
    was in memory."""
    with pytest.raises(lp.DeclarationError, match="how it comes into being"):
        lp.Buffer(3, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        lp.Buffer(3)  # type: ignore[call-arg]
    with pytest.raises(lp.DeclarationError, match="not an initialiser"):
        lp.Buffer(3, 0)  # type: ignore[arg-type]


def test_a_buffer_can_be_made_of_what_is_there() -> None:
    array = np.arange(3, dtype=np.int32)
    for buffer in (lp.Buffer.from_tensor(array), lp.Buffer.from_data(array, persistent=False)):
        assert buffer.dtype == "int32"
        assert not buffer.requires_grad
    array[0] = 9
    assert buffer.value.tolist() == [0, 1, 2]
    assert not buffer.persistent
    assert lp.Buffer.from_data([0.5], dtype="float16").value.tolist() == [0.5]


def test_a_buffer_comes_into_being_once_and_a_failure_may_be_tried_again() -> None:
    """B02, B47"""
    counting = Counting(seconds=0.01, failures=1)
    buffer = Bag(b=lp.Buffer(3, counting)).b
    with pytest.raises(Boom) as caught:
        buffer.val()
    assert caught.value.__notes__ == ["while initialising b"]
    results = race([lambda: buffer.value.tobytes()] * 8)
    assert len({*results}) == 1
    assert counting.runs == 2


# ---- never trained -------------------------------------------------------------------------------

VERBS: dict[str, Callable[[Any], Any]] = {
    "unfreeze": lambda m: m.unfreeze(),
    "set_requires_grad": lambda m: m.set_requires_grad(True),
    "freeze and unfreeze": lambda m: m.freeze().unfreeze(),
    "train": lambda m: m.unfreeze().train(),
    "valid and train": lambda m: m.valid().train(),
    "map": lambda m: m.map(Wishing()),
    "clone": lambda m: m.unfreeze().clone(),
    "fork": lambda m: m.unfreeze().fork("cpu"),
    "seed": lambda m: m.unfreeze().seed(1),
    "materialize": lambda m: m.unfreeze().materialize(),
    "deepcopy": lambda m: copy.deepcopy(m.unfreeze()),
    "load_state_dict": lambda m: m.unfreeze().load_state_dict({"scale": ONES, "mean": ONES}),
}
ONES = np.ones(3, np.float32)


class Wishing(lp.ModuleMapper):
    def map_float(self, path: str, param: lp.Param[Any]) -> lp.Param[Any]:
        return param.set_requires_grad(True)


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_no_verb_of_a_module_makes_a_buffer_trained(verb: Callable[[Any], Any]) -> None:
    module = Norm(lp.init.ones())
    changed = verb(module)
    for _, buffer in changed.named_buffers():
        assert isinstance(buffer, lp.Buffer)
        assert not buffer.requires_grad
        assert not buffer.is_active
    assert changed.mean.id == module.mean.id
    assert changed.mean.persistent
    assert not changed.table.persistent
    assert changed.scale.requires_grad
    assert changed.num_params(trainable=True) == 3


def test_no_verb_of_a_buffer_makes_it_trained_or_changes_it() -> None:
    buffer = Norm(lp.init.ones()).mean
    for made in (
        buffer.set_requires_grad(True),
        buffer.no_grad(),
        buffer.train(),
        buffer.valid(),
        buffer.clone(),
        buffer.clone(independent=True),
        buffer.to_device("cpu"),
        buffer.fork("cpu"),
        buffer.map(lambda x: x),
        buffer.init_mapper(lambda x: x),
        buffer.load_mapper(lambda x: x),
        buffer.save_mapper(lambda x: x),
        buffer.materialize(),
        buffer.transform_for_load(ONES),
        copy.copy(buffer),
        copy.deepcopy(buffer),
    ):
        assert isinstance(made, lp.Buffer)
        assert made is not buffer
        assert not made.requires_grad
        assert made.persistent
        assert made.id == buffer.id
    assert not buffer.is_initialized
    assert buffer.map(lambda x: x + 1).value.tolist() == [2, 2, 2]
    assert buffer.value.tolist() == [1, 1, 1]
    assert buffer.transform_for_load(2 * ONES, id=5).id == 5


# ---- in a tree -----------------------------------------------------------------------------------


def test_buffers_are_no_parameters_of_a_module_as_in_torch() -> None:
    module = Bag(inner=Norm(), own=lp.Buffer((), never))
    assert [path for path, _ in module.named_parameters()] == ["inner.scale"]
    assert [p.path for p in module.parameters()] == ["inner.scale"]
    assert module.num_params() == 3
    assert [path for path, _ in module.named_buffers()] == ["inner.mean", "inner.table", "own"]
    assert module.inner.mean.path == "inner.mean"


def test_buffers_that_are_one_are_given_once_and_stay_one() -> None:
    """B52"""
    buffer = lp.Buffer(3, never)
    module = Bag(a=buffer, b=buffer, c=buffer.clone()).clone()
    assert [path for path, _ in module.named_buffers()] == ["a"]
    assert [path for path, _ in module.named_buffers(remove_duplicate=False)] == ["a", "b", "c"]
    assert module.a is module.b
    assert module.c.is_tied_to(module.a)
    for other in (module.unfreeze(), copy.deepcopy(module)):
        assert other.c.is_tied_to(other.a)
    assert dict(module.record().ties) == {"b": "a", "c": "a"}


def test_buffers_move_are_seeded_counted_among_devices_and_come_into_being() -> None:
    module = Bag(a=lp.Buffer(3, lp.init.normal()), b=lp.Param(3, lp.init.normal()))
    one, other = module.seed(3), module.seed(3)
    assert np.array_equal(one.a.value, other.a.value)
    assert not np.array_equal(one.a.value, module.seed(4).a.value)
    assert module.seed(3).initialize().a.is_initialized
    assert Bag(a=lp.Buffer(3, never)).devices() == [lp.device("cpu")]


def test_a_buffer_within_a_reparameterisation_is_one() -> None:
    class Masked(lp.Reparameterization):
        NAME = "masked"

        def __init__(self) -> None:
            self.mask = lp.Buffer(3, lp.init.zeros(), persistent=False)

        def apply(self, base: Any) -> Any:
            return base * self.mask.value

    module = Bag(w=lp.Param(3, lp.init.ones()).with_reparameterization(Masked())).unfreeze()
    assert [path for path, _ in module.named_buffers()] == ["w.masked.mask"]
    assert [path for path, _ in module.named_parameters()] == ["w"]
    assert list(module.record()) == ["w"]
    assert module.w.value.tolist() == [0, 0, 0]
    assert module.materialize().w.value.tolist() == [0, 0, 0]


def test_a_module_with_buffers_pickles() -> None:
    module = Norm(lp.init.normal())
    again = pickle.loads(pickle.dumps(module))
    assert not again.mean.is_initialized
    assert np.array_equal(again.mean.value, module.mean.value)
    assert not again.table.persistent
    assert again.table.id == module.table.id


def test_buffers_show_in_texts() -> None:
    module = Norm(lp.init.zeros())
    assert repr(module).splitlines()[2:4] == [
        "  mean: Buffer(float32[3], numpy:cpu, lazy: zeros()),",
        "  table: Buffer(int64[2, 2], numpy:cpu, lazy: constant(5), not stored),",
    ]
    summary = lp.summary(module)
    assert [row.is_buffer for row in summary.rows] == [False, True, True]
    assert summary.num_params == module.num_params() == 3
    assert summary.nbytes == 12 + 12 + 32
    assert str(summary).splitlines()[3].split()[-3:] == ["buffer", "lazy:", "zeros()"]


# ---- stored or not -------------------------------------------------------------------------------


def test_persistent_buffers_are_stored_and_others_never(tmp_path: Path) -> None:
    """B42"""
    module = Norm(lp.init.ones())
    path = tmp_path / "m.safetensors"
    module.save_file(path)
    assert list(module.state_dict()) == list(module.record()) == ["scale", "mean"]
    assert not module.table.is_initialized
    doors: list[Callable[[Norm], Norm]] = [
        lambda m: m.load_file(path),
        lambda m: m.load_state_dict(module.state_dict()),
        lambda m: m.load_record(module.record()),
    ]
    for door in doors:
        loaded = door(Norm())
        assert loaded.mean.value.tolist() == [1, 1, 1]
        assert isinstance(loaded.mean, lp.Buffer)
        assert loaded.table.value.tolist() == [[5, 5], [5, 5]]
    assert doors[2](Norm()).mean.id == module.mean.id


def test_a_persistent_buffer_that_no_file_has_is_missing_and_keeps_its_initialiser() -> None:
    """B54"""
    module = Norm(lp.init.constant(3))
    with pytest.raises(lp.MissingParams, match="'mean'"):
        module.load_state_dict({"scale": ONES})
    loaded = module.load_state_dict({"scale": ONES}, allow_missing=True)
    assert loaded.mean.value.tolist() == [3, 3, 3]


def test_a_tensor_for_a_buffer_that_is_not_stored_is_unexpected_and_the_reason_is_told() -> None:
    state = {"scale": ONES, "mean": ONES, "table": np.zeros((2, 2), np.int64)}
    with pytest.raises(lp.UnexpectedKeys, match="'table' is not read: that buffer is not persis"):
        Norm().load_state_dict(state)
    loaded = Norm().load_state_dict(state, allow_unexpected=True)
    assert loaded.table.value.tolist() == [[5, 5], [5, 5]]


def test_buffers_load_through_their_mappers_and_keep_their_kind() -> None:
    """B40, B41"""
    buffer = lp.Buffer((2, 3), never).load_mapper(np.transpose, (3, 2)).save_mapper(np.transpose)
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    loaded = Bag(b=buffer).load_state_dict({"b": array})
    assert np.array_equal(loaded.b.value, array.T)
    assert np.array_equal(loaded.record()["b"].value, array)
    with pytest.raises(lp.ShapeMismatch, match="expected ints"):
        Bag(b=lp.Buffer(3, never, "int64")).load_state_dict({"b": ONES}, dtype="cast")


# ---- JAX -----------------------------------------------------------------------------------------


def test_jax_finds_buffers_in_the_frozen_part_and_makes_them_again() -> None:
    jax = pytest.importorskip("jax")
    model = Bag(linear=Linear(3, 2, lp.init.ones()), shift=lp.Buffer(2, lp.init.constant(4)))
    model = model.to_device("jax:cpu")
    trainable, frozen = model.partition()
    assert not trainable.shift.is_initialized
    assert isinstance(frozen.shift, lp.Buffer)

    def loss(part: Bag) -> Any:
        whole = lp.combine(part, frozen)
        return (whole.linear(np.ones(3, np.float32)) + whole.shift.value).sum()

    value, gradients = jax.value_and_grad(loss)(trainable)
    assert float(value) == 2 * (3 + 1) + 2 * 4
    assert len(jax.tree.leaves(gradients)) == 2
    doubled = jax.tree.map(lambda x: x * 2, model)
    assert isinstance(doubled.shift, lp.Buffer)
    assert doubled.shift.value.tolist() == [8, 8]
    assert doubled.shift.id == model.shift.id
    assert not doubled.shift.requires_grad
    assert model.abstract().shift.shape == (2,)


# ---- groups --------------------------------------------------------------------------------------


def test_groups_select_buffers_and_still_nothing_trains_them() -> None:
    module = Norm(lp.init.ones())
    assert lp.ParamGroup.glob("*").paths(module) == ["scale", "mean", "table"]
    before = module.training_state()
    assert before == {"scale": True, "mean": False, "table": False}
    wished = module.unfreeze("scale").with_training_state(dict.fromkeys(before, True))
    assert wished.training_state() == before
    assert list(module.record("mean")) == ["mean"]


def test_a_quantiser_passes_buffers_over() -> None:
    module = Bag(w=lp.Param((2, 64), never), b=lp.Buffer((2, 64), never))
    packed = lp.quantize_weights(module, lp.quant.nf4())
    assert isinstance(packed.w, lp.QuantizedParam)
    assert isinstance(packed.b, lp.Buffer)


# ---- adapters ------------------------------------------------------------------------------------


def test_adapters_pass_buffers_over_and_are_refused_where_one_is_named() -> None:
    module = Bag(w=lp.Param((8, 4), never), b=lp.Buffer((8, 4), never))
    adapted = lp.apply_lora(module, r=2)
    assert isinstance(adapted.w, lp.AdaptedParam)
    assert isinstance(adapted.b, lp.Buffer)
    assert list(adapted.record()) == ["w", "w.lora.a", "w.lora.b", "b"]
    with pytest.raises(lp.ModuleError, match="b: this parameter cannot be adapted"):
        lp.apply_lora(module, r=2, target="b")
    with pytest.raises(lp.ModuleError, match="nothing is attached to a buffer"):
        module.b.with_reparameterization(adapted.w.reparameterization("lora"))


def test_an_adapter_file_that_names_a_buffer_is_refused(tmp_path: Path) -> None:
    layer = Bag(weight=lp.Param((8, 4), lp.init.ones()))
    lp.save_adapter(lp.apply_lora(Bag(layer=layer), r=2), tmp_path)
    module = Bag(layer=Bag(weight=lp.Buffer((8, 4), never)))
    with pytest.raises(lp.RecordError, match="no parameter for the module 'layer'"):
        lp.load_adapter(module, tmp_path)
