"""Fine-tune on torch: a lazy model, a checkpoint of its body, 200 steps, and torch alone beside it.

Declares a network, loads the pretrained body from a file, draws the new head from a seed, freezes
the first layer and trains the rest with an optimiser of torch. A `torch.nn.Module` that starts from
the same numbers is trained, too: the losses agree. The result is saved and read back.

    python examples/train_torch.py [--optimizer adam] [--device torch:cpu] [--steps 200]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import torch
from torch.nn import functional

import lazyparam as lp

Tensor: TypeAlias = torch.Tensor

INPUTS, HIDDEN, OUTPUTS = 8, 32, 2
OPTIMIZERS: dict[str, Callable[[Sequence[Tensor]], torch.optim.Optimizer]] = {
    "sgd": lambda leaves: torch.optim.SGD(leaves, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "adam": lambda leaves: torch.optim.Adam(leaves, lr=3e-3),
}


class Linear(lp.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight = lp.Param((outputs, inputs), lp.init.kaiming_uniform())
        self.bias = lp.Param(outputs, lp.init.zeros())

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight.value, self.bias.value)


class Net(lp.Module):
    def __init__(self) -> None:
        self.body = [Linear(INPUTS, HIDDEN), Linear(HIDDEN, HIDDEN)]
        self.head = Linear(HIDDEN, OUTPUTS)

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.body:
            x = torch.tanh(layer(x))
        return self.head(x)


class Plain(torch.nn.Module):
    """The same network as torch has it, with the numbers of `net`."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        layers = [*net.body, net.head]
        self.layers = torch.nn.ModuleList()
        for layer in layers:
            own = torch.nn.Linear(*layer.weight.shape[::-1])
            for name in ("weight", "bias"):
                param = getattr(layer, name)
                value = param.value.detach().clone()
                setattr(own, name, torch.nn.Parameter(value, requires_grad=param.is_active))
            self.layers.append(own)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return self.layers[-1](x)


def pretrained(path: Path) -> None:
    """Write what somebody else has trained: a body, without a head."""
    donor = Net().seed(1)
    del donor.head
    donor.save_file(path)


def build(checkpoint: Path, device: str) -> Net:
    """The network with a loaded body and a new head, in training. Nothing is there yet."""
    net = Net().seed(2).to_device(device)
    net = net.load_file(checkpoint, allow_missing=True)
    net.body[0] = net.body[0].freeze()
    return net.train()


def examples(device: torch.device) -> tuple[Tensor, Tensor]:
    """Points and what a fixed function makes of them."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(256, INPUTS, generator=generator)
    y = torch.stack([x[:, 0] * x[:, 1], torch.sin(2 * x[:, 2])], dim=1)
    return x.to(device), y.to(device)


def train(
    model: Callable[[Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    x: Tensor,
    y: Tensor,
    steps: int,
) -> list[float]:
    """The loss before each step and after the last one."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return [*losses, functional.mse_loss(model(x), y).item()]


def run(
    folder: Path, optimizer: str, device: str, steps: int
) -> tuple[list[float], list[float], Net]:
    """Train both; the losses with lazyparam, those with torch alone, and the trained network."""
    checkpoint = folder / "body.safetensors"
    pretrained(checkpoint)
    net = build(checkpoint, device)
    assert not any(param.is_initialized for param in net.parameters())
    plain = Plain(net)
    x, y = examples(net.leaves()[0].device)
    make = OPTIMIZERS[optimizer]
    ours = train(net, make(net.leaves()), x, y, steps)
    torchs = train(plain, make([p for p in plain.parameters() if p.requires_grad]), x, y, steps)
    return ours, torchs, net


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="adam")
    parser.add_argument("--device", default="torch:cpu")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        ours, torchs, net = run(folder, options.optimizer, options.device, options.steps)
        print(f"{'step':>5}  {'lazyparam':>10}  {'torch alone':>11}")
        for step in range(0, len(ours), max(1, options.steps // 5)):
            print(f"{step:>5}  {ours[step]:>10.6f}  {torchs[step]:>11.6f}")
        apart = max(abs(one - other) for one, other in zip(ours, torchs, strict=True))
        print(f"largest difference: {apart:.1e}")
        trained = folder / "trained.safetensors"
        net.save_file(trained)
        again = Net().to_device(options.device).load_file(trained)
        x, _ = examples(net.leaves()[0].device)
        same = torch.equal(again(x), net.valid()(x))
        print(f"saved {trained.stat().st_size} bytes; read back, it answers the same: {same}")


if __name__ == "__main__":
    main()
