"""Modules are trees to JAX: mapped, traced, differentiated and cached by it."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import subprocess
import sys
import weakref
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyparam as lp

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from tests.helpers import Bag, Box, Linear, never  # noqa: E402

ONES = lp.init.ones()


def tanh(x: Any) -> Any:
    return jnp.tanh(x)


class Tied(lp.Module):
    """An embedding that is also the head, a dense layer, a frozen scale, an int and constants."""

    def __init__(self, width: int = 3, device: str = "jax:cpu") -> None:
        self.embed = lp.Param((4, width), lp.init.normal(), device=device)
        self.layers = [Linear(width, width, lp.init.normal()).to_device(device) for _ in range(2)]
        self.scale = lp.Param(width, ONES, device=device, requires_grad=False)
        self.steps = lp.Param((), lp.init.constant(3), dtype="int32", device=device)
        self.head = self.embed.clone()
        self.name = "tied"
        self.config = {"width": width, "act": [tanh]}

    def __call__(self, ids: Any) -> Any:
        x = self.embed.value[ids]
        for layer in self.layers:
            x = self.config["act"][0](layer(x)) * self.scale.value
        return x @ self.head.value.T


PATHS = [
    *("embed", "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"),
    *("scale", "steps"),
]
IDS = jnp.array([0, 3, 1])


def loss(model: Any) -> Any:
    return (model(IDS) ** 2).sum()


def traced(model: Any) -> bool:
    return all(isinstance(leaf.value, jax.core.Tracer) for leaf in (model.embed, model.head))


def test_the_leaves_are_the_values_tied_ones_once_and_the_keys_are_the_paths() -> None:
    model = Tied()
    pairs, form = jax.tree_util.tree_flatten_with_path(model)
    assert [jax.tree_util.keystr(key) for key, _ in pairs] == [f".{path}" for path in PATHS]
    assert all(
        value is param.value for (_, value), param in zip(pairs, model.parameters(), strict=True)
    )
    assert form == jax.tree.structure(model)
    assert hash(form) == hash(jax.tree.structure(model))
    assert "layers.0.weight: id" in str(form)


def test_a_tree_put_together_again_is_a_module_with_the_same_params() -> None:
    model = Tied()
    rebuilt = jax.tree.unflatten(jax.tree.structure(model), jax.tree.leaves(model))
    assert type(rebuilt) is Tied
    assert rebuilt is not model
    assert rebuilt.layers is not model.layers
    for (path, was), (again, now) in zip(
        model.named_parameters(False), rebuilt.named_parameters(False), strict=True
    ):
        assert (path, was.id, was.requires_grad) == (again, now.id, now.requires_grad)
        assert now.path == path
        assert was.value is now.value
    assert rebuilt.head.is_tied_to(rebuilt.embed)
    assert (rebuilt.name, rebuilt.config) == (model.name, model.config)
    assert rebuilt.config is not model.config, "it is not to change with that one's"


def test_a_mapped_module_is_a_module_of_real_parameters() -> None:
    model = Tied()
    halved = jax.tree.map(lambda a: a.astype(jnp.bfloat16), model)
    assert halved.embed.dtype == "bfloat16"
    assert halved.embed.is_initialized
    assert halved.embed.device == lp.device("jax:cpu")
    assert model.embed.dtype == "float32"


def test_what_a_function_returned_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX runs ahead of Python: a step begins while the one before is still computed."""
    from lazyparam.backends._jax import JaxBackend

    def waits(*_: Any) -> None:
        raise AssertionError("this would wait for the array")

    model = Tied().initialize()
    form = jax.tree.structure(model)
    monkeypatch.setattr(JaxBackend, "publish", waits)
    new = jax.tree.unflatten(form, jax.jit(jax.tree.leaves)(model))
    assert isinstance(new.embed, lp.Param)
    assert new.embed.value.committed


def test_weak_types_and_homeless_arrays_in_a_tree_become_values_of_their_own() -> None:
    box = Box(lp.Param(3, ONES, device="jax:cpu"))
    new = jax.tree.map(lambda a: jnp.full(3, 2.0), box)
    assert (new.t.value.committed, new.t.value.weak_type) == (True, False)
    assert new.t.value.tolist() == [2, 2, 2]


def test_mappers_wishes_contexts_and_identities_go_through_jax() -> None:
    box = Box(
        lp.Param((2, 3), ONES, device="jax:cpu", requires_grad=False, id=5)
        .load_mapper(jnp.transpose, stored_shape=(3, 2))
        .save_mapper(jnp.transpose)
        .train()
    )
    mapped = jax.jit(lambda box: jax.tree.map(lambda a: a * 2, box))(box)
    assert (mapped.t.id, mapped.t.requires_grad, mapped.t.stored_shape) == (5, False, (3, 2))
    assert mapped.t.device.is_autodiff
    assert mapped.t.transform_for_save().value.shape == (3, 2)
    assert mapped.t.transform_for_load(jnp.zeros((3, 2))).value.shape == (2, 3)


def test_a_function_is_traced_once_for_a_model_and_all_that_come_from_it() -> None:
    runs = []

    @jax.jit
    def step(model: Tied) -> Tied:
        runs.append(traced(model))
        return jax.tree.map(lambda a: a + 1, model)

    model = Tied()
    for _ in range(3):
        model = step(model)
    step(copy.deepcopy(model))
    step(pickle.loads(pickle.dumps(model)))
    step(model.clone())
    assert runs == [True]


def test_flipping_what_is_trainable_traces_once_more_and_once_only() -> None:
    runs = []

    @jax.jit
    def f(model: Tied) -> Any:
        runs.append(model.scale.requires_grad)
        return loss(model)

    model = Tied()
    unfrozen = model.unfreeze()
    for each in (model, model, unfrozen, unfrozen, model, unfrozen.freeze().unfreeze()):
        f(each)
    assert runs == [False, True]


def test_another_identity_is_another_model() -> None:
    """Or its output would have the identities of the model that was traced first."""
    runs = []

    @jax.jit
    def f(box: Box) -> Box:
        runs.append(box.t.id)
        return box

    first, second = (Box(lp.Param(2, ONES, device="jax:cpu")) for _ in range(2))
    assert f(first).t.id == first.t.id
    assert f(second).t.id == second.t.id
    assert runs == [first.t.id, second.t.id]
    with pytest.raises(ValueError, match="id"):
        jax.tree.map(jnp.add, first, second)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (3, 3, True),
        (3, 4, False),
        (1, True, False),
        (1.0, 1, False),
        ("a", "a", True),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": [1]}, {"a": [2]}, False),
        (float("nan"), float("nan"), True),
        (0.0, -0.0, False),
        (np.ones(3), np.ones(3), False),
        (None, None, True),
    ],
)
def test_constants_are_compared_by_equality(one: object, other: object, same: bool) -> None:
    param = lp.Param(2, ONES, device="jax:cpu")
    forms = [jax.tree.structure(Bag(t=param, c=constant)) for constant in (one, one, other)]
    assert forms[0] == forms[1]
    assert (forms[0] == forms[2]) is same
    if same:
        assert hash(forms[0]) == hash(forms[2])


def test_constants_that_cannot_be_compared_are_compared_by_identity() -> None:
    class Touchy:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError

        __hash__ = None

    param, one = lp.Param(2, ONES, device="jax:cpu"), Touchy()
    first, again, other = (jax.tree.structure(Bag(t=param, c=c)) for c in (one, one, Touchy()))
    assert first == again
    assert first != other


def test_the_form_of_a_module_keeps_no_value_alive() -> None:
    """jax.jit keeps forms for as long as its cache lives."""
    model = Box(lp.Param(1000, ONES, device="jax:cpu").load_mapper(jnp.negative))
    value = weakref.ref(model.t.value)
    form = jax.tree.structure(model)
    f = jax.jit(lambda box: box.t.value.sum())
    f(model)
    del model
    gc.collect()
    assert value() is None
    assert form.num_leaves == 1
    assert f(Box(lp.Param(1000, ONES, device="jax:cpu"))) == 1000


@pytest.mark.parametrize("marker", [None, object(), 0, True, "text", 2.5, ("a", "pair")])
def test_anything_at_all_may_stand_where_values_were(marker: object) -> None:
    """JAX unflattens with None, with markers of its own, with axes and shardings."""
    model = Tied()
    form = jax.tree.structure(model)
    tree = jax.tree.unflatten(form, [marker] * form.num_leaves)
    assert isinstance(tree.embed, lp.Place)
    assert (tree.embed.id, tree.embed.shape) == (model.embed.id, (4, 3))
    assert tree.embed.is_tied_to(tree.head)
    assert "Place" in repr(tree)
    if marker is None:
        assert jax.tree.leaves(tree) == []
        with pytest.raises(lp.ModuleError, match=r"embed: nothing is here.*combine"):
            tree.embed.value
    else:
        assert tree.embed.value is marker
        assert jax.tree.leaves(tree) == jax.tree.leaves([marker] * form.num_leaves)


def test_a_place_reads_as_the_parameter_does() -> None:
    seen = []

    @jax.jit
    def f(box: Box) -> Any:
        place = box.t
        seen.append(place)
        assert isinstance(place, lp.Place)
        assert (place.shape, place.ndim, place.size, place.nbytes) == ((2, 3), 2, 6, 12)
        assert (place.dtype, place.kind, place.id, place.path) == ("bfloat16", "float", 9, "t")
        assert (place.device, place.requires_grad) == (lp.device("jax:cpu"), True)
        assert (place.is_active, place.is_initialized) == (True, True)
        assert place.val() is place.base() is place.into_value() is place.value
        assert "Place(t: bfloat16[2, 3], jax:cpu:0" in repr(place)
        with pytest.raises(jax.errors.TracerArrayConversionError):
            np.asarray(place)
        return place.val(timeout=1).sum()

    box = Box(lp.Param((2, 3), ONES, dtype="bfloat16", device="jax:cpu", id=9))
    assert f(box) == 6
    assert len(seen) == 1


def test_partition_splits_by_what_trains_and_initialises_nothing() -> None:
    """jax.grad raises TypeError on int leaves: none is trained (patrick-kidger/equinox#909)."""
    model = Bag(
        w=lp.Param(3, never, device="jax:cpu"),
        frozen=lp.Param(3, never, device="jax:cpu", requires_grad=False),
        count=lp.Param(3, never, device="jax:cpu", dtype="int32"),
    )
    trainable, frozen = model.partition()
    assert isinstance(trainable.w, lp.Param)
    assert trainable.w.is_tied_to(model.w)
    assert [path for path, _ in trainable.named_parameters()] == ["w"]
    assert [path for path, _ in frozen.named_parameters()] == ["frozen", "count"]
    assert trainable.num_params() == 3
    with pytest.raises(lp.ModuleError, match="another part"):
        frozen.w.value
    whole = lp.combine(frozen, trainable)
    assert all(param.is_tied_to(getattr(model, path)) for path, param in whole.named_parameters())
    assert not model.w.is_initialized


def test_gradients_are_a_module_with_nothing_where_nothing_trains() -> None:
    model = Tied()
    trainable, frozen = model.partition()
    grads = jax.jit(jax.grad(lambda t: loss(lp.combine(t, frozen))))(trainable)
    assert type(grads) is Tied
    assert isinstance(grads.scale, lp.Place)
    assert isinstance(grads.steps, lp.Place)
    assert isinstance(grads.embed, lp.Param)
    assert jax.tree.structure(grads) == jax.tree.structure(trainable)
    assert grads.layers[0].weight.id == model.layers[0].weight.id
    new = jax.tree.map(lambda p, g: p - 0.1 * g, trainable, grads)
    assert loss(lp.combine(new, frozen)) != loss(model)


def test_tied_parameters_get_the_sum_of_their_gradients() -> None:
    model = Tied()
    grads = jax.grad(lambda t, f: loss(lp.combine(t, f)))(*model.partition())

    def untied(embed: Any, head: Any) -> Any:
        x = embed[IDS]
        for layer in model.layers:
            x = jnp.tanh(x @ layer.weight.value.T + layer.bias.value)
        return ((x @ head.T) ** 2).sum()

    value = model.embed.value
    by_hand = sum(jax.grad(untied, argnums=(0, 1))(value, value))
    np.testing.assert_allclose(grads.embed.value, by_hand, rtol=1e-5, atol=1e-5)
    assert grads.head.is_tied_to(grads.embed)


def test_gradients_stop_at_a_frozen_clone_of_a_trained_parameter() -> None:
    """B07: the clone is frozen, the other is not; they are still one value."""
    w = lp.Param(3, ONES, device="jax:cpu")
    bag = Bag(w=w, fixed=w.clone().no_grad())
    trainable, frozen = bag.partition()
    assert list(frozen.parameters()) == []

    def f(part: Bag) -> Any:
        both = lp.combine(part, frozen)
        return (both.w.value * 2 + both.fixed.value * 100).sum()

    grads = jax.grad(f)(trainable)
    assert grads.w.value.tolist() == [2, 2, 2]
    new = lp.combine(jax.tree.map(lambda p, g: p - g, trainable, grads), frozen)
    assert new.fixed.value.tolist() == new.w.value.tolist() == [-1, -1, -1]
    assert new.fixed.is_tied_to(new.w)
    assert (new.w.requires_grad, new.fixed.requires_grad) == (True, False)


def test_parts_that_are_none_of_one_module_are_refused() -> None:
    trainable, frozen = Tied().partition()
    with pytest.raises(lp.ModuleError, match="not parts of one module"):
        lp.combine(trainable, Tied().partition()[1])
    with pytest.raises(lp.ModuleError, match="not parts of one module"):
        lp.combine(trainable, Box(lp.Param(3, ONES)))
    with pytest.raises(lp.ModuleError, match=r"embed: this parameter is in both parts"):
        lp.combine(trainable, trainable)
    assert lp.combine(frozen, frozen.partition()[0]).scale.requires_grad is False


def test_parts_are_copied_and_pickled_with_their_places() -> None:
    model = Tied()
    trainable, frozen = model.partition()
    for copied in (copy.deepcopy, lambda part: pickle.loads(pickle.dumps(part))):
        one, other = copied(trainable), copied(frozen)
        assert isinstance(one.scale, lp.Place)
        assert not one.scale.is_initialized
        assert other.embed.is_tied_to(other.head)
        whole = lp.combine(one, other)
        assert jax.tree.structure(whole) == jax.tree.structure(model)
        for was, now in zip(jax.tree.leaves(model), jax.tree.leaves(whole), strict=True):
            np.testing.assert_array_equal(was, now)


# Trees of lists, tuples, dicts and modules over a few parameters that are used again and again.
PARAMS = st.integers(0, 7)
TREES = st.recursive(
    PARAMS | st.sampled_from(["constant", 3.5, None]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.builds(lambda a, b: ("module", a, b), inner, inner),
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_any_tree_survives_jax_and_a_partition(tree: Any) -> None:
    base = [
        lp.Param(2, ONES, device="jax:cpu", dtype=("float32", "int32")[at == 3], id=at)
        for at in range(4)
    ]
    pool = base + [param.clone().set_requires_grad(bool(at % 2)) for at, param in enumerate(base)]

    def build(tree: Any) -> Any:
        if isinstance(tree, tuple) and tree and tree[0] == "module":
            return Bag(one=build(tree[1]), other=build(tree[2]))
        if isinstance(tree, list | tuple):
            return type(tree)(build(part) for part in tree)
        if isinstance(tree, dict):
            return {key: build(part) for key, part in tree.items()}
        return pool[tree] if type(tree) is int and tree < 8 else tree

    def look(module: Bag) -> list[Any]:
        each = list(module.named_parameters(False))
        ties = [[one.is_tied_to(other) for _, one in each] for _, other in each]
        return [[(path, p.id, p.requires_grad) for path, p in each], ties]

    module = Bag(root=build(tree))
    parts = module.partition()
    whole = lp.combine(*parts)
    assert look(whole) == look(module)
    trained = {p.id for _, p in module.named_parameters(False) if p.is_active}
    assert {p.id for p in parts[0].parameters()} == trained
    assert not any(p.is_initialized for p in pool)
    leaves, form = jax.tree.flatten(module)
    assert look(jax.tree.unflatten(form, leaves)) == look(module)
    assert len(leaves) == len(list(module.parameters()))
    assert (
        jax.tree.structure(whole) == form == jax.tree.structure(jax.tree.map(jnp.negative, module))
    )
    assert sum(len(jax.tree.leaves(part)) for part in parts) == len(leaves)
    again = jax.tree.unflatten(form, [None] * len(leaves))
    assert jax.tree.leaves(again) == []
    assert jax.tree.structure(lp.combine(again, jax.tree.unflatten(form, leaves))) == form


def test_a_trained_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model = Tied()
    trainable, frozen = model.partition()
    new = jax.tree.map(lambda p: p + 1, trainable)
    whole = lp.combine(new, frozen)
    whole.save_file(tmp_path / "model.safetensors")
    again = Tied().load_file(tmp_path / "model.safetensors")
    for path, param in again.named_parameters():
        np.testing.assert_array_equal(param.value, dict(whole.named_parameters())[path].value)
    new.save_file(tmp_path / "part.safetensors")  # a part is saved as a part
    with pytest.raises(lp.MissingParams, match="scale"):
        Tied().load_file(tmp_path / "part.safetensors")


def test_a_module_of_tracers_is_not_saved(tmp_path: Path) -> None:
    @jax.jit
    def f(box: Box) -> Any:
        for save in (box.state_dict, partial(box.save_file, tmp_path / "never")):
            with pytest.raises(lp.RecordError, match=r"t: what is here cannot be stored"):
                save()
        return box.t.value

    f(Box(lp.Param(3, ONES, device="jax:cpu")))
    assert not list(tmp_path.iterdir())


def test_the_abstract_module_has_shapes_and_brings_nothing_into_being() -> None:
    class Wide(lp.Module):
        def __init__(self) -> None:
            # 4 TiB, if it came into being.
            self.w = lp.Param((1 << 20, 1 << 20), never, device="jax:tpu:9")
            self.b = lp.Param(1 << 20, never, dtype="bfloat16")
            self.tie = self.b.clone()

        def __call__(self, x: Any) -> Any:
            return x @ self.w.value + self.b.value + self.tie.value

    model = Wide()
    abstract = model.abstract()
    assert [leaf.shape for leaf in jax.tree.leaves(abstract)] == [(1 << 20, 1 << 20), (1 << 20,)]
    assert abstract.b.dtype == "bfloat16"
    assert abstract.tie.is_tied_to(abstract.b)
    x = jax.ShapeDtypeStruct((2, 1 << 20), jnp.float32)
    out = jax.eval_shape(lambda model, x: model(x), abstract, x)
    assert (out.shape, out.dtype) == ((2, 1 << 20), jnp.float32)
    assert not model.w.is_initialized
    shapes = jax.eval_shape(lambda model: jax.tree.map(lambda a: a[None], model), abstract)
    assert shapes.b.shape == (1, 1 << 20)
    assert isinstance(shapes.b.value, jax.ShapeDtypeStruct)


def test_a_function_compiled_for_the_abstract_module_runs_on_the_real_one() -> None:
    model = Tied()
    compiled = jax.jit(loss).lower(model.abstract()).compile()
    assert not model.embed.is_initialized
    np.testing.assert_allclose(compiled(model), loss(model), rtol=1e-5, atol=1e-6)


def test_models_are_stacked_and_run_together() -> None:
    """One model with several seeds: the identities are the same, so the trees are."""
    base = Tied()
    models = [base.seed(seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *values: jnp.stack(values), *models)
    assert stacked.embed.shape == (3, 4, 3)
    losses = jax.vmap(loss)(stacked)
    np.testing.assert_allclose(losses, [loss(model) for model in models], rtol=1e-5, atol=1e-6)
    axes = jax.tree.map(lambda _: 0, base)
    np.testing.assert_allclose(
        jax.vmap(loss, in_axes=(axes,))(stacked), losses, rtol=1e-6, atol=1e-6
    )
    third = jax.tree.map(lambda a: a[2], stacked)
    np.testing.assert_array_equal(third.embed.value, models[2].embed.value)


def test_a_model_is_carried_through_scan_and_loops() -> None:
    trainable, frozen = Tied().partition()
    gradient = jax.grad(lambda t: loss(lp.combine(t, frozen)))

    def step(part: Tied, _: Any) -> tuple[Tied, Any]:
        return jax.tree.map(lambda p, g: p - 0.01 * g, part, gradient(part)), part.embed.value.sum()

    final, sums = jax.lax.scan(step, trainable, length=4)
    by_hand = trainable
    for _ in range(4):
        by_hand, _ = step(by_hand, None)
    assert isinstance(final.embed, lp.Param)
    assert sums.shape == (4,)
    np.testing.assert_allclose(final.embed.value, by_hand.embed.value, rtol=1e-5, atol=1e-6)
    looped = jax.lax.fori_loop(0, 4, lambda _, part: step(part, None)[0], trainable)
    np.testing.assert_allclose(looped.embed.value, final.embed.value, rtol=1e-6, atol=1e-6)
    kept = jax.lax.cond(True, lambda part: part, lambda part: step(part, None)[0], trainable)
    np.testing.assert_array_equal(kept.embed.value, trainable.embed.value)


def test_a_donated_module_is_gone_and_says_so() -> None:
    model = Tied()
    values = [leaf.copy() for leaf in map(np.asarray, jax.tree.leaves(model))]
    new = jax.jit(lambda m: jax.tree.map(lambda a: a + 1, m), donate_argnums=0)(model)
    for value, leaf in zip(values, jax.tree.leaves(new), strict=True):
        np.testing.assert_array_equal(leaf, value + 1)
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(model.embed.value)


def test_a_module_that_other_code_holds_is_not_changed_by_training() -> None:
    model = Tied()
    kept = model.clone()
    before = np.asarray(kept.embed.value).copy()
    jax.tree.map(lambda a: a * 0, model)
    np.testing.assert_array_equal(kept.embed.value, before)


def test_modules_on_numpy_are_trees_too_and_come_back_on_jax() -> None:
    model = Tied(device="cpu")
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(model))
    value = jax.jit(loss)(model)
    np.testing.assert_allclose(value, loss(model.to_device("jax:cpu")), rtol=1e-5, atol=1e-6)
    trained = jax.jit(lambda m: jax.tree.map(lambda a: a + 1, m))(model)
    assert trained.devices() == [lp.device("jax:cpu")]
    back = jax.tree.map(np.asarray, trained)
    assert back.devices() == [lp.device("cpu")]
    np.testing.assert_array_equal(back.embed.value, model.embed.value + 1)


class Pair(NamedTuple):
    one: Any
    two: Any


@dataclasses.dataclass
class Data:
    inner: Any
    label: str = "x"


def test_every_container_of_a_module_goes_through_jax() -> None:
    def p() -> lp.Param:
        return lp.Param(2, ONES, device="jax:cpu")

    shared = {"deep": p()}
    bag = Bag(
        pair=Pair(p(), 3),
        data=Data([p()]),
        places={0: p(), "a": [p(), "b"]},
        again=[shared, shared],
    )
    twice = jax.jit(lambda bag: jax.tree.map(lambda a: a * 2, bag))(bag)
    assert type(twice.pair) is Pair
    assert twice.pair.two == 3
    assert (twice.data.label, twice.data.inner[0].value.tolist()) == ("x", [2, 2])
    assert list(twice.places) == [0, "a"]
    assert twice.places["a"][1] == "b"
    assert twice.again[0] is twice.again[1]
    assert [path for path, _ in twice.named_parameters(False)] == [
        path for path, _ in bag.named_parameters(False)
    ]
    with pytest.raises(lp.ModuleError, match="path"):
        jax.tree.leaves(Bag(d={1: p(), "1": p()}))
    cyclic = Bag(t=p())
    cyclic.inner = [cyclic]
    with pytest.raises(lp.ModuleError, match="contains itself"):
        jax.tree.leaves(cyclic)


def test_bare_parameters_are_trees_as_well() -> None:
    params = {"w": lp.Param(3, ONES, device="jax:cpu"), "b": lp.Param(3, ONES, device="jax:cpu")}
    new = jax.tree.map(lambda a: a + 1, params)
    assert new["w"].id == params["w"].id
    assert new["w"].value.tolist() == [2, 2, 2]
    grads = jax.jit(jax.grad(lambda p: (p["w"].value * p["b"].value).sum()))(params)
    assert isinstance(grads["w"], lp.Param)
    assert grads["w"].value.tolist() == [1, 1, 1]
    assert jax.tree.map(lambda _: None, params)["w"].is_initialized is False


def test_gradients_are_found_by_parameter() -> None:
    """B13, pytorch/pytorch#8287: by identity, wherever the parameter is now."""
    model = Tied()
    grads = jax.grad(lambda t, f: loss(lp.combine(t, f)))(*model.partition())
    found = lp.Grads.from_tree(grads)
    assert set(found) == {p.id for p in model.parameters() if p.is_active}
    assert found[model.to_device("cpu").embed] is grads.embed.value
    assert found[grads.embed] is found[model.head] is grads.embed.value
    assert model.scale not in found
    assert found.get(grads.scale) is None


def test_a_class_that_its_author_registered_is_left_as_it_is() -> None:
    class Own(lp.Module):
        def __init__(self, t: Any) -> None:
            self.t = t

    from lazyparam import pytrees

    pytrees._registered.discard(Own)
    jax.tree.leaves(Own(lp.Param(1, ONES)))
    assert Own in pytrees._registered


def test_modules_become_trees_whatever_was_imported_first(tmp_path: Path) -> None:
    """Classes before JAX and after, and classes of classes; JAX is never imported by us."""
    code = (
        "import sys, pickle, lazyparam as lp\n"
        "class Early(lp.Module):\n"
        "    def __init__(self, device): self.t = lp.Param(2, lp.init.ones(), device=device)\n"
        "early = Early('cpu')\n"
        "assert 'jax' not in sys.modules\n"
        "import jax\n"
        "assert 'lazyparam.backends._jax' not in sys.modules\n"
        "late = Early('cpu')\n"
        "assert len(jax.tree.leaves(early)) == 1 and len(jax.tree.leaves([late, early])) == 2\n"
        "class Derived(Early): pass\n"
        "assert len(jax.tree.leaves(Derived('jax:cpu'))) == 1\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=100, cwd=Path(__file__).parent.parent
    )
    by_backend = (
        "import lazyparam as lp\n"
        "class Early(lp.Module):\n"
        "    def __init__(self): self.t = lp.Param(2, lp.init.ones(), device='jax:cpu')\n"
        "early = Early(); early.t.value\n"
        "import jax\n"
        "assert len(jax.tree.leaves(early)) == 1\n"
    )
    subprocess.run(
        [sys.executable, "-c", by_backend],
        check=True,
        timeout=100,
        cwd=Path(__file__).parent.parent,
    )


def test_without_jax_the_verbs_say_what_to_install() -> None:
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "import lazyparam as lp\n"
        "class Box(lp.Module):\n"
        "    def __init__(self): self.t = lp.Param(2, lp.init.ones())\n"
        "for verb in (Box().partition, Box().abstract):\n"
        "    try: verb()\n"
        "    except lp.BackendMissing as error: assert 'pip install jax' in str(error), error\n"
        "    else: raise SystemExit('no error')\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=100, cwd=Path(__file__).parent.parent
    )


def test_a_constant_that_is_changed_where_it_lies_is_noticed() -> None:
    """JAX's caches keep forms for long; they are not to change with somebody's list."""

    class Scaled(lp.Module):
        def __init__(self) -> None:
            self.w = lp.Param(2, ONES, device="jax:cpu")
            self.flags = [False]
            self.options = {"scale": [5.0]}

        def __call__(self) -> Any:
            return self.w.value * (self.options["scale"][0] if self.flags[0] else 1.0)

    model = Scaled()
    call = jax.jit(lambda model: model())
    assert call(model).tolist() == [1, 1]
    model.flags[0] = True
    assert call(model).tolist() == [5, 5]
    model.options["scale"][0] = 7.0
    assert call(model).tolist() == [7, 7]
    model.flags.clear()
    model.flags.append(False)
    assert call(model).tolist() == [1, 1]
    assert call(model.clone()).tolist() == [1, 1]


def test_a_constant_that_contains_itself_is_no_trouble() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    model = Bag(t=lp.Param(2, ONES, device="jax:cpu"), c=[loop])
    with pytest.raises(lp.ModuleError, match="contains itself"):
        jax.tree.structure(model)
