"""Fine-tune a real model with QLoRA: weights of four bits, and adapters that learn a few pairs.

Loads all-MiniLM-L6-v2 lazily, quantises the weights of attention and dense layers and trains LoRA
adapters over them: what a customer writes shall be near to what it is about, and far from the rest.
Then it merges the adapters, and compares.

    python examples/qlora.py [--bits 4] [--rank 8] [--steps 8] [--device torch:cpu]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn import functional

import lazyparam as lp

if __package__:
    from . import minilm
else:
    import minilm

Tensor: TypeAlias = torch.Tensor

TARGET = lp.ParamGroup.matching(r"encoder\..*\.(query|key|value|dense)\.weight")
PAIRS = (
    ("I cannot get in any more.", "password reset"),
    ("The parcel never came.", "lost delivery"),
    ("You took the money twice.", "billing error"),
    ("It shuts down all by itself.", "app crash"),
    ("I am moving next month.", "change of address"),
    ("I do not need it any longer.", "cancellation"),
    ("Can I have it in blue?", "product options"),
    ("The screen arrived in pieces.", "damaged goods"),
)


def build(device: str, bits: Any, rank: int) -> minilm.Encoder:
    """The encoder, in training. Nothing of it is there yet, and its floats will not stay."""
    folder = minilm.model_folder()
    loaded = minilm.declare(folder).load_file(
        folder / "model.safetensors", device=device, dtype="cast"
    )
    adapted = lp.apply_qlora(loaded, r=rank, alpha=2 * rank, target=TARGET, bits=bits)
    return adapted.seed(0).train()


def batch(sentences: Sequence[str], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and mask (batch, length), padded with zeros."""
    words = minilm.tokenizer(minilm.model_folder())
    encodings = [words.encode(sentence).ids for sentence in sentences]
    ids = np.zeros((len(encodings), max(map(len, encodings))), np.int32)
    for row, encoding in zip(ids, encodings, strict=True):
        row[: len(encoding)] = encoding
    tokens = torch.from_numpy(ids).to(device)
    return tokens, tokens > 0


def loss_of(model: minilm.Encoder, ids: Tensor, mask: Tensor) -> Tensor:
    """How badly each sentence finds its own topic, and each topic its sentence."""
    sentences, topics = model(ids, mask).chunk(2)
    likeness = sentences @ topics.T / 0.05
    own = torch.arange(len(sentences), device=likeness.device)
    there = functional.cross_entropy(likeness, own)
    return (there + functional.cross_entropy(likeness.T, own)) / 2


def train(model: minilm.Encoder, ids: Tensor, mask: Tensor, steps: int) -> list[float]:
    """The loss before each step and after the last one."""
    optimizer = torch.optim.AdamW(model.leaves(), lr=5e-4)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, ids, mask)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return [*losses, loss_of(model, ids, mask).item()]


def weights(model: minilm.Encoder) -> Iterator[Any]:
    """Those of the dense layers that are adapted."""
    for layer in model.encoder.layer:
        attention = layer.attention
        yield from (attention.self.query.weight, attention.self.key.weight)
        yield from (attention.self.value.weight, attention.output.dense.weight)
        yield from (layer.intermediate.dense.weight, layer.output.dense.weight)


def largest_difference(model: minilm.Encoder, merged: minilm.Encoder) -> float:
    """Between the effective weights of `model` and those that `merged` stores."""
    pairs = zip(weights(model), weights(merged), strict=True)
    return max((one.val() - other.base()).abs().max().item() for one, other in pairs)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bits", type=int, choices=(4, 8), default=4)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="torch:cpu")
    options = parser.parse_args(arguments)
    began = time.perf_counter()

    model = build(options.device, options.bits, options.rank)
    print("declared, loaded, quantised and adapted: ", minilm.in_being(model))
    count = sum(param.size for param in model.parameters() if param.is_active)
    print(f"to train: {count:,} numbers, in adapters of {len(list(weights(model)))} weights")
    declared = minilm.declare(minilm.model_folder())
    before, after = (sum(weight.nbytes for weight in weights(each)) for each in (declared, model))
    print(f"these weights: {before:,} bytes before, {after:,} quantised")

    sentences, topics = zip(*PAIRS, strict=True)
    ids, mask = batch([*sentences, *topics], model.leaves()[0].device)
    losses = train(model, ids, mask, options.steps)
    print("after training: ", minilm.in_being(model))
    print("loss: ", " ".join(f"{loss:.3f}" for loss in losses))

    trained = model.valid()
    merged = lp.merge(trained)
    print(f"merged against effective weights: {largest_difference(trained, merged):g} apart")
    with torch.no_grad():
        apart = (merged(ids, mask) - trained(ids, mask)).abs().max().item()
    print(f"sentence vectors of both: {apart:.0e} apart")
    print(f"{time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    # Layers this small gain nothing by more threads, and lose much where others want them too.
    torch.set_num_threads(1)
    main()
