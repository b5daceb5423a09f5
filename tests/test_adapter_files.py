"""Adapters in folders of their own: what is written, read, and refused before anything is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import lazyparam as lp
from tests.helpers import Bag, Linear, never
from tests.test_lora import trained


def model(init: Any = never) -> Bag:
    return Bag(q=Linear(4, 6, init), out=[Linear(6, 2, init)])


def adapted(init: Any = never, **options: Any) -> Any:
    return trained(lp.apply_lora(model(init), r=2, **options))


def write(folder: Path, arrays: dict[str, Any], **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    named = {f"base_model.model.{name}": np.asarray(a, "f4") for name, a in arrays.items()}
    save_file(named, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q"]} | config
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


A, B = np.arange(8.0).reshape(2, 4), np.arange(12.0).reshape(6, 2)
FACTORS = {"q.lora_A.weight": A, "q.lora_B.weight": B}


def test_a_folder_has_the_factors_and_their_config_and_nothing_of_the_base(tmp_path: Path) -> None:
    lp.save_adapter(adapted(), tmp_path / "new" / "folder")
    stored = load_file(tmp_path / "new" / "folder" / "adapter_model.safetensors")
    assert {name: array.shape for name, array in stored.items()} == {
        "base_model.model.q.lora_A.weight": (2, 4),
        "base_model.model.q.lora_B.weight": (6, 2),
        "base_model.model.out.0.lora_A.weight": (2, 6),
        "base_model.model.out.0.lora_B.weight": (2, 2),
    }
    config = json.loads((tmp_path / "new" / "folder" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["use_dora"]) == (2, 16, False)
    assert config["target_modules"] == ["out.0", "q"]
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == [
        *("adapter_config.json", "adapter_model.safetensors"),
    ]


@pytest.mark.parametrize("dora", [False, True])
@pytest.mark.parametrize("layout", ["OI", "IO"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_was_saved_loads_and_gives_the_same_values(
    tmp_path: Path, dora: bool, layout: Any, dtype: str
) -> None:
    init = lp.init.normal()
    saved = adapted(init, dora=dora, layout=layout, dtype=dtype).seed(1)
    lp.save_adapter(saved, tmp_path)
    loaded = lp.load_adapter(model(init).seed(1), tmp_path)
    for one, other in ((saved.q, loaded.q), (saved.out[0], loaded.out[0])):
        assert one.weight.val().tobytes() == other.weight.val().tobytes()
        node = other.weight.reparameterization("lora")
        assert type(node) is (lp.DoraAdapter if dora else lp.LoraAdapter)
        assert (node.layout, node.a.dtype) == (layout, dtype)
        assert not node.a.requires_grad


def test_loading_reads_nothing_before_it_is_needed_and_runs_no_initialiser(tmp_path: Path) -> None:
    """huggingface/peft#208, #2437, #463: no base is touched, no factor drawn."""
    loaded = lp.load_adapter(model(), write(tmp_path, FACTORS), requires_grad=True)
    assert not any(param.is_initialized for param in loaded.parameters())
    lora = loaded.q.weight.reparameterization("lora")
    assert np.array_equal(lora.a.val(), B)
    assert np.array_equal(lora.b.val(), A)
    assert (lora.scale, lora.a.requires_grad) == (2.0, True)
    assert isinstance(loaded.out[0].weight, lp.Param)
    assert loaded.q.bias.requires_grad, "what is trained stays as it is"
    state = loaded.state_dict  # its own files have factors in their own shape
    assert callable(state)
    assert lora.a.stored_shape == (6, 2)


def test_factors_keep_the_dtype_of_the_file_whatever_the_base_has(tmp_path: Path) -> None:
    """huggingface/peft#1090, #2421, #2891: there a float16 file became float32, or not."""
    folder = write(tmp_path, FACTORS)
    low = Bag(q=Bag(weight=lp.Param((6, 4), lp.init.ones(), "bfloat16")))
    for options, dtype in (({}, "float32"), ({"dtype": "float16"}, "float16")):
        lora = lp.load_adapter(low, folder, **options).q.weight.reparameterization("lora")  # type: ignore[arg-type]
        assert (lora.a.dtype, lora.a.val().dtype) == (dtype, dtype)


def test_adapters_are_loaded_switched_and_dropped(tmp_path: Path) -> None:
    base = Bag(q=Bag(weight=lp.Param((6, 4), lp.init.normal())))
    one = write(tmp_path / "one", FACTORS)
    two = write(tmp_path / "two", {name: -array for name, array in FACTORS.items()}, lora_alpha=2)
    both = lp.load_adapter(lp.load_adapter(base, one, "one"), two, "two", active=False)
    weight = base.q.weight.val()
    assert both.q.weight.base() is weight
    assert np.allclose(both.q.weight.val(), weight + 2 * B @ A)
    assert both.q.weight.active == ("one",)
    swapped = lp.activate(both, "two")
    assert np.allclose(swapped.q.weight.val(), weight + B @ A)
    assert lp.without_adapters(swapped, "two", "one").q.weight.val() is weight
    alone = lp.load_adapter(base, one, "one", active=False)
    assert alone.q.weight.val() is weight
    with pytest.raises(lp.ModuleError, match="by the name 'one' already"):
        lp.load_adapter(both, two, "one")


def test_patterns_of_ranks_and_alphas_are_honoured(tmp_path: Path) -> None:
    arrays = FACTORS | {
        "out.0.lora_A.weight": np.ones((3, 6)),
        "out.0.lora_B.weight": np.ones((2, 3)),
    }
    patterns: dict[str, Any] = {"rank_pattern": {"0": 3}, "alpha_pattern": {r"out\.\d": 9}}
    loaded = lp.load_adapter(model(), write(tmp_path, arrays, **patterns))
    assert loaded.out[0].weight.reparameterization("lora").scale == 3.0
    assert loaded.q.weight.reparameterization("lora").scale == 2.0
    rooted = lp.load_adapter(model(), write(tmp_path, arrays, use_rslora=True, **patterns))
    assert rooted.out[0].weight.reparameterization("lora").scale == pytest.approx(9 / 3**0.5)


def test_adapters_of_different_ranks_are_told_apart(tmp_path: Path) -> None:
    mixed = lp.apply_lora(model(), r=2, alpha=6, target="q.weight")
    mixed = trained(lp.apply_lora(mixed, r=1, alpha=5, target="out.0.weight", rslora=True))
    lp.save_adapter(mixed, tmp_path)
    loaded = lp.load_adapter(model(), tmp_path)
    for path in ("q", "out"):
        one, other = (
            (m.q if path == "q" else m.out[0]).weight.reparameterization("lora")
            for m in (mixed, loaded)
        )
        assert (one.rank, one.scale) == (other.rank, other.scale)


def test_names_that_end_alike_are_told_apart(tmp_path: Path) -> None:
    """PEFT takes the end of a name for the name."""
    nested = Bag(q=Linear(4, 6), deep=Bag(q=Linear(4, 6)))
    lp.save_adapter(trained(lp.apply_lora(nested, r=2, target="q.weight")), tmp_path / "one")
    config = json.loads((tmp_path / "one" / "adapter_config.json").read_text())
    assert config["target_modules"] == "q"
    both = lp.apply_lora(lp.apply_lora(nested, r=2, target="q.*"), r=1, target="deep.q.weight")
    lp.save_adapter(trained(both), tmp_path / "two")
    loaded = lp.load_adapter(nested, tmp_path / "two")
    assert loaded.q.weight.reparameterization("lora").rank == 2
    assert loaded.deep.q.weight.reparameterization("lora").rank == 1


def test_embeddings_and_convolutions_have_shapes_of_their_own(tmp_path: Path) -> None:
    def net() -> Bag:
        return Bag(
            embed=Bag(weight=lp.Param((10, 4), lp.init.normal())),
            conv=Bag(weight=lp.Param((6, 4, 3, 3), lp.init.normal())),
        ).seed(2)

    arrays = {
        "embed.lora_embedding_A": np.random.default_rng(1).standard_normal((2, 10)),
        "embed.lora_embedding_B": np.random.default_rng(2).standard_normal((4, 2)),
        "conv.lora_A.weight": np.random.default_rng(3).standard_normal((2, 4, 3, 3)),
        "conv.lora_B.weight": np.random.default_rng(4).standard_normal((6, 2, 1, 1)),
    }
    loaded = lp.load_adapter(net(), write(tmp_path, arrays))
    delta = 2 * (arrays["embed.lora_embedding_B"] @ arrays["embed.lora_embedding_A"]).T
    assert np.allclose(loaded.embed.weight.val(), net().embed.weight.val() + delta, atol=1e-5)
    up, down = arrays["conv.lora_B.weight"].reshape(6, 2), arrays["conv.lora_A.weight"]
    delta = 2 * (up @ down.reshape(2, -1)).reshape(6, 4, 3, 3)
    assert np.allclose(loaded.conv.weight.val(), net().conv.weight.val() + delta, atol=1e-5)

    lp.save_adapter(loaded, tmp_path / "again", embeddings="embed.weight")
    again = load_file(tmp_path / "again" / "adapter_model.safetensors")
    for name, array in arrays.items():
        assert np.array_equal(again[f"base_model.model.{name}"], np.asarray(array, "f4"))
    with pytest.raises(lp.RecordError, match="one config cannot tell these adapters apart"):
        lp.save_adapter(loaded, tmp_path / "mixed")
    with pytest.raises(lp.ModuleError, match="an embedding has a row for each input"):
        lp.save_adapter(adapted(), tmp_path / "no", embeddings="q.weight")


def test_names_are_translated_both_ways(tmp_path: Path) -> None:
    def there(path: str) -> str:
        return "model.layers." + path.removesuffix(".weight")

    lp.save_adapter(adapted(), tmp_path, rename=there)
    assert "base_model.model.model.layers.q.lora_A.weight" in load_file(
        tmp_path / "adapter_model.safetensors"
    )
    names = {"model.layers.q": "q.weight", "model.layers.out.0": "out.0.weight"}
    loaded = lp.load_adapter(model(), tmp_path, rename=names)
    assert loaded.out[0].weight.reparameterization("lora") is not None
    bare = Bag(q=lp.Param((6, 4), never), out=[lp.Param((2, 6), never)])
    lp.save_adapter(trained(lp.apply_lora(bare, r=2)), tmp_path / "bare")
    assert lp.load_adapter(bare, tmp_path / "bare").q.reparameterization("lora") is not None


REFUSED: dict[str, dict[str, Any]] = {
    "another method": {"peft_type": "IA3"},
    "trained biases": {"bias": "lora_only"},
    "biases of factors": {"lora_bias": True},
    "saved modules": {"modules_to_save": ["head"]},
    "tokens": {"trainable_token_indices": [1]},
    "bare parameters": {"target_parameters": ["experts"]},
    "repeated layers": {"layer_replication": [[0, 4]]},
    "aLoRA": {"alora_invocation_tokens": [3]},
    "QALoRA": {"use_qalora": True},
    "PiSSA": {"init_lora_weights": "pissa_niter_4"},
}


@pytest.mark.parametrize("config", REFUSED.values(), ids=REFUSED)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(lp.RecordError, match=r"another kind of adapter|not supported: ") as caught:
        lp.load_adapter(model(), write(tmp_path, FACTORS, **config))
    if "peft_type" not in config:
        assert next(iter(config)) in str(caught.value)


def refuse(folder: Path, message: str, module: Any = None, **options: Any) -> None:
    module = module or model()
    with pytest.raises(lp.RecordError, match=message):
        lp.load_adapter(module, folder, **options)
    assert isinstance(module.q.weight, lp.Param)


BAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another rank": (FACTORS, {"r": 3}, r"'q': the factors do not have the rank.*\(3, inputs\)"),
    "one factor": ({"q.lora_A.weight": A}, {}, "'q': other tensors than such an adapter has"),
    "a magnitude too much": (
        FACTORS | {"q.lora_magnitude_vector": np.ones(6)},
        {},
        "'q': other tensors",
    ),
    "a short magnitude": (
        FACTORS | {"q.lora_magnitude_vector": np.ones(5)},
        {"use_dora": True},
        "'q': a magnitude for each output",
    ),
    "another shape": (
        {"q.lora_A.weight": np.ones((2, 5)), "q.lora_B.weight": B},
        {},
        "'q': the product of the factors does not have the shape of the base",
    ),
    "no such module": (
        {"k.lora_A.weight": A, "k.lora_B.weight": B},
        {},
        r"no parameter for the module 'k' \(there are .*'q.weight'",
    ),
    "something else": (
        FACTORS | {"q.bias": np.ones(6)},
        {},
        "'base_model.model.q.bias' is nothing",
    ),
    "nothing": ({}, {}, "not one adapter in it"),
}


@pytest.mark.parametrize(("arrays", "config", "message"), BAD.values(), ids=BAD)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    tmp_path: Path, arrays: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    refuse(write(tmp_path, arrays, **config), message)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    arrays = FACTORS | {"k.lora_A.weight": A, "k.lora_B.weight": B, "odd": A}
    with pytest.raises(lp.RecordError) as caught:
        lp.load_adapter(model(), write(tmp_path, arrays, r=3))
    assert len(caught.value.problems) == 3
    assert "nothing was changed" in str(caught.value)


BROKEN: dict[str, Callable[[Path], object]] = {
    "no JSON": lambda folder: (folder / "adapter_config.json").write_text("{"),
    "no object": lambda folder: (folder / "adapter_config.json").write_text("[]"),
    "no number": lambda folder: (folder / "adapter_config.json").write_text('{"r": "many"}'),
    "no rank": lambda folder: (folder / "adapter_config.json").write_text('{"r": 0}'),
    "no pattern": lambda folder: (folder / "adapter_config.json").write_text(
        '{"rank_pattern": {"(": 1}}'
    ),
    "no tensors": lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"\0" * 40),
}


@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN)
def test_broken_files_are_told_as_such(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    damage(write(tmp_path, FACTORS))
    with pytest.raises(lp.RecordError):
        lp.load_adapter(model(), tmp_path)


def test_factors_know_their_paths(tmp_path: Path) -> None:
    loaded = lp.load_adapter(model(), write(tmp_path, FACTORS))
    assert loaded.q.weight.reparameterization("lora").a.path == "q.weight.lora.a"


def test_what_is_not_there_is_told_by_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        lp.load_adapter(model(), tmp_path / "nowhere")
    (write(tmp_path, FACTORS) / "adapter_model.safetensors").unlink()
    with pytest.raises(OSError, match="adapter_model"):
        lp.load_adapter(model(), tmp_path)


def test_only_adapters_of_low_rank_are_written(tmp_path: Path) -> None:
    with pytest.raises(lp.ModuleError, match="no parameter has an adapter 'lora'"):
        lp.save_adapter(model(), tmp_path)
    normed = Bag(w=lp.Param((2, 2), never).with_reparameterization(lp.WeightNorm(), "lora"))
    with pytest.raises(lp.ModuleError, match="only LoRA and DoRA adapters"):
        lp.save_adapter(normed, tmp_path)
    assert not list(tmp_path.iterdir())
    mixed = lp.apply_lora(lp.apply_lora(model(), target="q.weight"), target="out*", dora=True)
    with pytest.raises(lp.RecordError, match="one config cannot tell"):
        lp.save_adapter(mixed, tmp_path)
