"""The real peft: what it trained gives the same outputs here, and what was trained here there."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest

import lazyparam as lp
from tests.helpers import Bag

peft = pytest.importorskip("peft")
torch = pytest.importorskip("torch")

# It warns of much: of models without a config, of names of its own.
pytestmark = pytest.mark.filterwarnings("ignore")

os.environ["HF_HUB_OFFLINE"] = "1"

X = torch.linspace(-1, 1, 5 * 8).reshape(5, 8)
TOKENS = torch.tensor([0, 3, 5, 3, 1])


class Theirs(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A small model, drawn at random."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(7, 8)
        self.q = torch.nn.Linear(8, 12)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(12, 12), torch.nn.Linear(12, 3)])

    def forward(self, x: Any, tokens: Any) -> Any:
        x = torch.tanh(self.q(x + self.embed(tokens)))
        return self.layers[1](torch.tanh(self.layers[0](x)))


def ours(theirs: Any) -> Any:
    """The same model here, with the same values."""

    def linear(layer: Any) -> Bag:
        return Bag(weight=lp.Param.from_tensor(layer.weight), bias=lp.Param.from_tensor(layer.bias))

    return Bag(
        embed=Bag(weight=lp.Param.from_tensor(theirs.embed.weight)),
        q=linear(theirs.q),
        layers=[linear(layer) for layer in theirs.layers],
    ).valid()


def outputs(model: Any, factored: bool = True) -> Any:
    def apply(x: Any, layer: Any) -> Any:
        weight = layer.weight if factored else layer.weight.val()
        return lp.linear(x, weight, layer.bias)

    x = torch.tanh(apply(X + model.embed.weight.val()[TOKENS], model.q))
    return apply(torch.tanh(apply(x, model.layers[0])), model.layers[1])


def fit(parameters: Any, run: Any) -> None:
    """A few steps, which move every factor away from zero."""
    optimizer = torch.optim.Adam(parameters, lr=0.05)
    for _ in range(10):
        optimizer.zero_grad()
        (run() - 1).square().mean().backward()
        optimizer.step()


CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {"target_modules": ["q", "layers.0"]},
    "suffix": {"target_modules": ["0", "1"]},
    "regex": {"target_modules": r"layers\.\d"},
    "rslora": {"target_modules": ["q"], "use_rslora": True, "lora_alpha": 5},
    "dora": {"target_modules": ["q", "layers.1"], "use_dora": True},
    "patterns": {
        "target_modules": ["q", "layers.0", "layers.1"],
        "rank_pattern": {"q": 3, r"layers\.1": 1},
        "alpha_pattern": {"0": 7},
    },
    "embedding": {"target_modules": ["embed", "q"]},
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_what_peft_trained_gives_the_same_outputs_here(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    theirs = Theirs()
    base = ours(theirs)
    wrapped = peft.get_peft_model(theirs, peft.LoraConfig(**({"r": 4, "lora_alpha": 8} | config)))
    fit([p for p in wrapped.parameters() if p.requires_grad], lambda: wrapped(X, TOKENS))
    wrapped.save_pretrained(tmp_path)
    loaded = lp.load_adapter(base, tmp_path)
    with torch.no_grad():
        expected = wrapped.eval()(X, TOKENS)
    assert not torch.allclose(outputs(base), expected, atol=1e-2)
    for factored in (True, False):
        torch.testing.assert_close(outputs(loaded, factored), expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(outputs(lp.merge(loaded)), expected, atol=1e-6, rtol=1e-6)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"target": ["q.weight", "layers.*.weight"]},
    "rslora": {"target": "q.weight", "rslora": True, "alpha": 3},
    "dora": {"target": ["q.weight", "layers.1.weight"], "dora": True},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_what_was_trained_here_gives_the_same_outputs_in_peft(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    theirs = Theirs()
    model = lp.apply_lora(ours(theirs), r=4, **options).seed(5).train()
    fit(model.leaves(), lambda: outputs(model))
    trained = model.valid()
    lp.save_adapter(trained, tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrapped = peft.PeftModel.from_pretrained(theirs, tmp_path)
    assert not [str(w.message) for w in caught if "key" in str(w.message)]
    with torch.no_grad():
        given = wrapped(X, TOKENS)
    torch.testing.assert_close(given, outputs(trained), atol=1e-6, rtol=1e-6)


def test_peft_adapts_what_was_adapted_here_and_nothing_else(tmp_path: Path) -> None:
    """Ranks and scales of their own, and a name that is the end of another."""
    theirs = Theirs()
    theirs.add_module("deep", torch.nn.ModuleDict({"q": torch.nn.Linear(8, 12)}))
    model = ours(theirs)
    model.deep = Bag(q=Bag(weight=lp.Param.from_tensor(theirs.deep.q.weight)))
    model = lp.apply_lora(model, r=4, target="q.weight")
    model = lp.apply_lora(model, r=2, alpha=3, target="layers.0.weight").seed(1).train()
    fit(model.leaves(), lambda: outputs(model))
    lp.save_adapter(model.valid(), tmp_path)
    wrapped = peft.PeftModel.from_pretrained(theirs, tmp_path)
    adapted = {name for name, _ in wrapped.named_modules() if name.endswith("lora_A")}
    assert adapted == {f"base_model.model.{name}.lora_A" for name in ("q", "layers.0")}
    with torch.no_grad():
        torch.testing.assert_close(wrapped(X, TOKENS), outputs(model.valid()), atol=1e-6, rtol=1e-6)


def test_an_embedding_that_was_adapted_here_is_one_in_peft(tmp_path: Path) -> None:
    theirs = Theirs()
    model = lp.apply_lora(ours(theirs), r=4, target="embed.weight", layout="IO").seed(2).train()
    fit(model.leaves(), lambda: outputs(model))
    lp.save_adapter(model.valid(), tmp_path, embeddings="embed.weight")
    wrapped = peft.PeftModel.from_pretrained(theirs, tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(wrapped(X, TOKENS), outputs(model.valid()), atol=1e-6, rtol=1e-6)


def test_a_convolution_goes_there_and_back(tmp_path: Path) -> None:
    torch.manual_seed(1)
    theirs = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3))
    base = [Bag(weight=lp.Param.from_tensor(theirs[0].weight))]
    wrapped = peft.get_peft_model(theirs, peft.LoraConfig(r=2, target_modules=["0"]))
    x = torch.randn(2, 3, 6, 6)
    fit([p for p in wrapped.parameters() if p.requires_grad], lambda: wrapped(x))
    wrapped.save_pretrained(tmp_path)
    loaded = lp.load_adapter(base, tmp_path)
    effective = loaded[0].weight.val()  # type: ignore[attr-defined]
    bias = wrapped.base_model.model[0].bias
    with torch.no_grad():
        given = torch.nn.functional.conv2d(x, effective, bias)
        torch.testing.assert_close(given, wrapped(x), atol=1e-5, rtol=1e-5)
    lp.save_adapter(loaded, tmp_path / "again")
    again = peft.PeftModel.from_pretrained(wrapped.unload(), tmp_path / "again")
    with torch.no_grad():
        torch.testing.assert_close(given, again(x), atol=1e-5, rtol=1e-5)
