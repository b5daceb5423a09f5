"""Adapters on JAX: partition trains factors only, traces see the choice, and gradients pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Bag, never

jax = pytest.importorskip("jax")

X = np.arange(12, dtype="f4").reshape(4, 3) / 10


def net(init: Any = None, **options: Any) -> Any:
    init = init or lp.init.normal()
    bag = Bag(
        w=lp.Param((4, 3), init, device="jax:cpu"),
        b=lp.Param(4, init, device="jax:cpu"),
    )
    return lp.apply_lora(bag, r=2, **options).seed(3)


def loss(trainable: Any, frozen: Any, x: Any) -> Any:
    model = lp.combine(trainable, frozen)
    return ((lp.linear(x, model.w, model.b) - 1) ** 2).mean()


def trained(model: Any) -> Any:
    """With factors that are not zero."""
    trainable, frozen = model.partition()
    return lp.combine(jax.tree.map(lambda x: x + 0.5, trainable), frozen)


def test_attaching_and_taking_apart_brings_nothing_into_being() -> None:
    trainable, frozen = net(never).partition()
    assert trainable.w.reparameterization("lora").a.requires_grad
    assert not any(p.is_initialized for p in (*trainable.parameters(), *frozen.parameters()))


@pytest.mark.parametrize("dora", [False, True])
def test_partition_trains_the_factors_only(dora: bool) -> None:
    """B44."""
    trainable, frozen = net(dora=dora).partition()
    names = ["w.lora.a", "w.lora.b", *(["w.lora.magnitude"] if dora else [])]
    assert [path for path, _ in trainable.named_parameters()] == names
    assert len(jax.tree.leaves(trainable)) == len(names)
    step = jax.jit(jax.value_and_grad(loss))
    losses = []
    for _ in range(30):
        value, grads = step(trainable, frozen, X)
        trainable = jax.tree.map(lambda p, g: p - 0.01 * g, trainable, grads)
        losses.append(float(value))
    assert losses[-1] < losses[0] / 2
    model = lp.combine(trainable, frozen)
    assert isinstance(model.w, lp.AdaptedParam)
    merged = lp.merge(model)
    assert np.allclose(merged.w.val(), model.w.val(), atol=1e-6)


def test_the_traced_value_is_that_of_the_eager_one() -> None:
    for dora in (False, True):
        model = trained(net(dora=dora))
        traced = jax.jit(lambda m: m.w.val())(model)
        assert np.allclose(traced, model.w.val(), atol=1e-6)
        given = jax.jit(lambda m, x: lp.linear(x, m.w, m.b))(model, X)
        assert np.allclose(given, X @ np.asarray(model.w.val()).T + model.b.val(), atol=1e-5)


def test_gradients_of_the_factored_form_are_those_of_the_dense_one() -> None:
    model = trained(net())
    factored = jax.grad(lambda m: (lp.linear(X, m.w) ** 2).sum())(model)
    dense = jax.grad(lambda m: ((X @ m.w.val().T) ** 2).sum())(model)
    for one, other in zip(jax.tree.leaves(factored), jax.tree.leaves(dense), strict=True):
        assert np.allclose(one, other, atol=1e-4)


def test_gradients_reach_base_and_magnitude() -> None:
    """B45."""
    p = lp.Param((4, 3), lp.init.normal(), device="jax:cpu")
    model = Bag(w=p.with_reparameterization(lp.WeightNorm()))
    assert np.array_equal(model.w.val(), model.w.base())
    grads = lp.Grads.from_tree(jax.grad(lambda m: (m.w.val() * np.arange(3.0)).sum())(model))
    assert all(np.asarray(grads[param]).any() for param in model.parameters())


def test_no_gradient_passes_the_norm_of_dora() -> None:
    model = trained(net(dora=True))
    lora = model.w.reparameterization("lora")
    grads = lp.Grads.from_tree(jax.grad(lambda m: (m.w.val() ** 2).sum())(model))

    def by_hand(a: Any) -> Any:
        v = model.w.base() + lora.scale * a @ lora.b.val()
        norm = jax.lax.stop_gradient((v**2).sum(axis=1, keepdims=True) ** 0.5)
        return ((v * lora.magnitude.val() / norm) ** 2).sum()

    assert np.allclose(grads[lora.a], jax.grad(by_hand)(lora.a.val()), rtol=1e-4)


def test_a_compiled_function_tells_one_choice_of_adapters_from_another() -> None:
    """The choice is no parameter, but part of the form; or the first would be taken for all."""
    model = trained(net())
    read = jax.jit(lambda m: m.w.val())
    both = [np.asarray(read(lp.activate(model, *names))) for names in (["lora"], [])]
    assert np.allclose(both[0], model.w.val(), atol=1e-6)
    assert np.array_equal(both[1], model.w.base())


def test_what_goes_through_a_compiled_function_keeps_its_adapters() -> None:
    model = lp.activate(trained(net(dora=True)), "lora")
    through = jax.jit(lambda m: jax.tree.map(lambda x: x * 1, m))(model)
    assert through.w.active == ("lora",)
    assert type(through.w.reparameterization("lora")) is lp.DoraAdapter
    assert [p.requires_grad for p in through.parameters()] == [
        p.requires_grad for p in model.parameters()
    ]
    assert np.array_equal(through.w.val(), model.w.val())


def test_batched_adapters_share_one_base() -> None:
    """One base and a factor for each user, mapped over by vmap."""
    trainable, frozen = trained(net()).partition()
    many = jax.tree.map(lambda x: np.stack([np.asarray(x), np.asarray(x) * 2]), trainable)
    given = jax.vmap(lambda t: lp.linear(X, lp.combine(t, frozen).w))(many)
    assert given.shape == (2, 4, 4)
    alone = lp.linear(X, lp.combine(trainable, frozen).w)
    assert np.allclose(given[0], alone, atol=1e-5)
