"""Flags in JAX, to which they are static."""

from __future__ import annotations

from typing import Any

import pytest

import lazyparam as lp
from tests.test_flags import Dropout, net

jax = pytest.importorskip("jax")


def test_flags_are_static_to_jax() -> None:
    """A traced function goes by what it saw; for another state it is traced again."""
    traced = []

    @jax.jit
    def run(model: Dropout, x: Any) -> Any:
        traced.append(model.training.is_enabled)
        return model(x)

    model = Dropout()
    assert jax.tree.leaves(model) == []
    assert [float(run(model, 8.0)), float(run(model.valid(), 8.0)), float(run(model, 8.0))] == [
        *(4.0, 8.0, 4.0)
    ]
    assert float(run(model.valid().train(), 8.0)) == 4.0
    assert traced == [True, False]


def test_modules_with_flags_survive_jax() -> None:
    model = net(lp.init.ones()).to_device("jax:cpu").valid()
    out = jax.tree.map(lambda x: x + 1, model)
    assert lp.summary(out).flags == lp.summary(model).flags
    trainable, rest = model.partition()
    assert lp.summary(lp.combine(trainable, rest)).flags == lp.summary(model).flags
    shapes = jax.eval_shape(lambda model: model, net().abstract())
    assert len(lp.summary(shapes).flags) == 2
