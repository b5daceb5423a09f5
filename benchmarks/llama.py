"""A model with the tree and names of a Llama, declared lazily: 201 tensors, 1 GB of float32."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, NoReturn

import lazyparam as lp

from . import checkpoint
from .harness import Scale


class Size(NamedTuple):
    """Extents, in elements."""

    vocabulary: int
    width: int
    keys: int
    hidden: int
    layers: int


FULL = Size(vocabulary=32_000, width=896, keys=128, hidden=2_560, layers=22)
QUICK = Size(vocabulary=4_000, width=256, keys=64, hidden=704, layers=6)

runs = 0
"""How many initialisers have run in this process."""


def never(plan: lp.Plan) -> NoReturn:
    """An initialiser that counts its runs, of which there must be none."""
    global runs
    runs += 1
    raise AssertionError(f"an initialiser ran for {plan}")


class Weight(lp.Module):
    """A linear layer, an embedding or a norm: all have one weight."""

    def __init__(self, *shape: int) -> None:
        self.weight = lp.Param(shape, never)


class Attention(lp.Module):
    """Fewer keys than queries."""

    def __init__(self, size: Size) -> None:
        self.q_proj = Weight(size.width, size.width)
        self.k_proj = Weight(size.keys, size.width)
        self.v_proj = Weight(size.keys, size.width)
        self.o_proj = Weight(size.width, size.width)


class Mlp(lp.Module):
    """The gated part."""

    def __init__(self, size: Size) -> None:
        self.gate_proj = Weight(size.hidden, size.width)
        self.up_proj = Weight(size.hidden, size.width)
        self.down_proj = Weight(size.width, size.hidden)


class Layer(lp.Module):
    """Nine tensors."""

    def __init__(self, size: Size) -> None:
        self.self_attn = Attention(size)
        self.mlp = Mlp(size)
        self.input_layernorm = Weight(size.width)
        self.post_attention_layernorm = Weight(size.width)


class Body(lp.Module):
    """All but the head."""

    def __init__(self, size: Size) -> None:
        self.embed_tokens = Weight(size.vocabulary, size.width)
        self.layers = [Layer(size) for _ in range(size.layers)]
        self.norm = Weight(size.width)


class Llama(lp.Module):
    """The whole; its head is not tied."""

    def __init__(self, size: Size) -> None:
        self.model = Body(size)
        self.lm_head = Weight(size.vocabulary, size.width)


def shapes(size: Size) -> checkpoint.Shapes:
    """Path -> shape of every parameter."""
    return {path: param.shape for path, param in Llama(size).named_parameters()}


def values(model: lp.Module) -> checkpoint.Arrays:
    """Path -> value of every parameter."""
    return {path: param.value for path, param in model.named_parameters()}


def prepare(scale: Scale) -> tuple[Size, Path]:
    """The size to measure and a checkpoint of it."""
    size = scale.pick(FULL, QUICK)
    path = scale.folder / f"llama-{size.width}.safetensors"
    return size, checkpoint.make(path, shapes(size))
