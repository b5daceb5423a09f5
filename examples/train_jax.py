"""Training on JAX: a model whose features are loaded and frozen, and whose head is trained.

Declares the model lazily, loads the features from a checkpoint, draws the rest from a seed, and
fits a noisy curve with jit and grad over the part that trains; prints the loss, saves the result.

    python examples/train_jax.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import lazyparam as lp

FEATURES, WIDTH, STEPS, RATE, MOMENTUM = 64, 32, 200, 0.05, 0.9


class Dense(lp.Module):
    def __init__(self, inputs: int, outputs: int, device: str, init: lp.init.Init | None) -> None:
        self.weight = lp.Param((outputs, inputs), init, device=device)
        self.bias = lp.Param(outputs, init, device=device)

    def __call__(self, x: Any) -> Any:
        return x @ self.weight.value.T + self.bias.value


class Curve(lp.Module):
    """Frozen random features, and two layers to train on top."""

    def __init__(self, device: str = "jax:cpu") -> None:
        # Without an initialiser: these have to come from a checkpoint.
        self.features = Dense(1, FEATURES, device, None).freeze()
        self.hidden = Dense(FEATURES, WIDTH, device, lp.init.normal(std=0.1))
        self.out = Dense(WIDTH, 1, device, lp.init.normal(std=0.1))

    def __call__(self, x: Any) -> Any:
        return self.out(jnp.tanh(self.hidden(jnp.cos(self.features(x)))))


def pretrained(path: Path) -> None:
    """Write the checkpoint that a real program would have."""
    features = Dense(1, FEATURES, "cpu", lp.init.normal(std=2.0)).seed(1)
    features.save_file(path)


def data() -> tuple[Any, Any]:
    """A noisy curve: x and y, both (256, 1)."""
    x = jnp.linspace(-2, 2, 256)[:, None]
    noise = jax.random.normal(jax.random.key(0), x.shape)
    return x, jnp.sin(3 * x) + 0.1 * noise


@jax.jit
def step(trainable: Curve, velocity: Curve, frozen: Curve, x: Any, y: Any) -> Any:
    """One step of gradient descent with momentum; modules in, modules out."""

    def loss(part: Curve) -> Any:
        return jnp.mean((lp.combine(part, frozen)(x) - y) ** 2)

    value, grads = jax.value_and_grad(loss)(trainable)
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, grads)
    trainable = jax.tree.map(lambda p, v: p - RATE * v, trainable, velocity)
    return trainable, velocity, value


def train(model: Curve, steps: int = STEPS) -> tuple[Curve, list[float]]:
    """The trained model, and the loss before each step."""
    x, y = data()
    trainable, frozen = model.partition()
    velocity = jax.tree.map(jnp.zeros_like, trainable)
    losses = []
    for _ in range(steps):
        trainable, velocity, value = step(trainable, velocity, frozen, x, y)
        losses.append(float(value))
    return lp.combine(trainable, frozen), losses


def declare(checkpoint: Path) -> Curve:
    """The model, lazy: its features from `checkpoint`, the rest from a seed."""
    return (
        Curve()
        .seed(42)
        .load_file(checkpoint, rename=lambda name: f"features.{name}", allow_missing=True)
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, result = (
            Path(folder) / "features.safetensors",
            Path(folder) / "trained.safetensors",
        )
        pretrained(checkpoint)
        model = declare(checkpoint)
        print(lp.summary(model), "\n")
        trained, losses = train(model)
        for at in (0, 10, 50, 100, STEPS - 1):
            print(f"step {at:3}  loss {losses[at]:.4f}")
        trained.save_file(result)
        again = Curve().load_file(result)
        x, y = data()
        print(f"saved, loaded: loss {float(jnp.mean((again(x) - y) ** 2)):.4f}")


if __name__ == "__main__":
    main()
