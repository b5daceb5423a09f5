"""Training on JAX: the example falls as it should, as plain dicts of arrays do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from examples import train_jax as example  # noqa: E402


@pytest.fixture
def model(tmp_path: Path) -> example.Curve:
    path = tmp_path / "features.safetensors"
    example.pretrained(path)
    return example.declare(path)


def trained_by_hand(params: dict[str, Any], steps: int) -> tuple[dict[str, Any], list[float]]:
    """The example in plain JAX: dicts of arrays, and what is frozen apart from what is not."""
    frozen = {name: params[name] for name in params if name.startswith("features.")}
    trainable = {name: params[name] for name in params if name not in frozen}

    def dense(params: dict[str, Any], name: str, x: Any) -> Any:
        return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]

    @jax.jit
    def step(trainable: Any, velocity: Any, x: Any, y: Any) -> Any:
        def loss(trainable: Any) -> Any:
            hidden = jnp.tanh(dense(trainable, "hidden", jnp.cos(dense(frozen, "features", x))))
            return jnp.mean((dense(trainable, "out", hidden) - y) ** 2)

        value, grads = jax.value_and_grad(loss)(trainable)
        velocity = jax.tree.map(lambda v, g: example.MOMENTUM * v + g, velocity, grads)
        return jax.tree.map(lambda p, v: p - example.RATE * v, trainable, velocity), velocity, value

    x, y = example.data()
    velocity = jax.tree.map(jnp.zeros_like, trainable)
    losses = []
    for _ in range(steps):
        trainable, velocity, value = step(trainable, velocity, x, y)
        losses.append(float(value))
    return {**frozen, **trainable}, losses


def test_a_lazy_loaded_model_trains_as_plain_arrays_do(model: example.Curve) -> None:
    """200 steps: the losses and the parameters agree to 1e-6, and the loss falls."""
    assert not any(param.is_initialized for param in model.parameters())
    start = {
        path: jnp.asarray(np.asarray(param)) for path, param in model.clone().named_parameters()
    }
    trained, losses = example.train(model)
    params, expected = trained_by_hand(start, example.STEPS)
    np.testing.assert_allclose(losses, expected, atol=1e-6, rtol=0)
    assert losses[-1] < 0.1 * losses[0]
    for path, param in trained.named_parameters():
        np.testing.assert_allclose(param.value, params[path], atol=1e-6, rtol=0)
        assert param.id == dict(model.named_parameters())[path].id


def test_200_steps_trace_once_and_leave_the_first_model_alone(model: example.Curve) -> None:
    before = {path: np.asarray(param).copy() for path, param in model.named_parameters()}
    traces = example.step._cache_size()
    example.train(model, 20)
    assert example.step._cache_size() == traces + 1
    for path, param in model.named_parameters():
        np.testing.assert_array_equal(param.value, before[path])


def test_what_was_trained_is_saved_whole(model: example.Curve, tmp_path: Path) -> None:
    trained, _ = example.train(model, 5)
    trained.save_file(tmp_path / "trained.safetensors")
    again = example.Curve().load_file(tmp_path / "trained.safetensors")
    x, _ = example.data()
    np.testing.assert_array_equal(again(x), trained(x))
    assert not again.features.weight.requires_grad
    assert isinstance(trained.features.weight, lp.Param)


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example.main()
    assert "step 199" in capsys.readouterr().out
