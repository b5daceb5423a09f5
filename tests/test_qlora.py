"""QLoRA on NumPy: quantised bases and adapters over them, attached, stored, moved and merged."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from lazyparam import quant
from tests.helpers import Bag, never, values

SCHEMES = [quant.q8s(), quant.q8s(64), quant.q4s(16), quant.nf4(), quant.nf4(32)]


def plain(init: Any = None, dtype: str = "float32") -> Any:
    init = init or lp.init.normal()
    return Bag(
        q=lp.Param((6, 64), init, dtype),
        odd=lp.Param((6, 5), init, dtype),
        b=lp.Param(6, init, dtype),
        n=lp.Param(2, init if init is never else lp.init.zeros(), "int32"),
    )


def adapted(init: Any = None, **options: Any) -> Any:
    """With factors that are not zero, as after training; only `q` is quantised."""
    model = lp.apply_qlora(plain(init), **({"r": 2, "target": "q", "init_std": 1.0} | options))
    lora = model.q.reparameterization("lora")
    if init is None:
        a = np.random.default_rng(1).standard_normal(lora.a.shape).astype("f4")
        lora = lp.LoraAdapter(lora.a.transform_for_load(a), lora.b, lora.scale)
        model.q = lp.AdaptedParam(model.q._base, {"lora": lora})
        model = model.seed(0)
    return model


def trainable(model: Any) -> list[str]:
    return [path for path, param in lp.Module.named_parameters(model) if param.is_active]


# ---- attaching -----------------------------------------------------------------------------------


def test_it_brings_nothing_into_being_and_trains_the_factors_only() -> None:
    """B44, B35."""
    model = plain(never)
    made = lp.apply_qlora(model, r=2, target="q")
    assert [path for path, _ in made.named_parameters()] == [
        *("q.values", "q.scales", "q.lora.a", "q.lora.b", "odd", "b", "n"),
    ]
    assert trainable(made) == ["q.lora.a", "q.lora.b"]
    assert made.q.nbytes == quant.nf4().nbytes((6, 64))
    repr(made)
    str(lp.summary(made))
    assert not any(param.is_initialized for param in (*made.parameters(), *model.parameters()))
    assert trainable(model) == ["q", "odd", "b"], "the module that was given stays as it is"


def test_eight_bits_come_in_blocks_where_these_fit() -> None:
    made = lp.apply_qlora(plain(never), r=2, target=["q", "odd"], bits=8)
    assert made.q._base.scheme == quant.q8s(64)
    assert made.odd._base.scheme == quant.q8s()
    made = lp.apply_qlora(plain(never), r=2, target=["q", "odd"])
    assert made.q._base.scheme == made.odd._base.scheme == quant.nf4(64)
    made = lp.apply_qlora(plain(never), r=2, target="q", scheme=quant.q4s(16))
    assert made.q._base.scheme == quant.q4s(16)


def test_what_is_quantised_may_be_another_group_than_what_is_adapted() -> None:
    made = lp.apply_qlora(
        plain(never), r=2, target="q", quantize=lp.ParamGroup.from_paths("odd", "b")
    )
    assert isinstance(made.odd, lp.QuantizedParam)
    assert isinstance(made.b, lp.QuantizedParam)
    assert made.q.kind == "float"
    every = lp.apply_qlora(plain(never), r=2, target="q", quantize="*")
    assert [type(each).__name__ for each in (every.odd, every.b, every.n)] == [
        *("QuantizedParam", "QuantizedParam", "Param"),
    ]
    assert every.q.kind == "quantised"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_factors_are_as_wide_as_the_floats_that_integers_stand_for(dtype: str) -> None:
    made = lp.apply_qlora(plain(never, dtype), r=2, target="q")
    assert made.q.reparameterization("lora").a.dtype == made.q.dtype == dtype
    chosen = lp.apply_qlora(plain(never, dtype), r=2, target="q", dtype="float32")
    assert chosen.q.reparameterization("lora").b.dtype == "float32"
    # What is quantised already is a target too, and stays as it is.
    before = lp.quantize_weights(plain(never, dtype), quant.q8s(), "q")
    for again in (
        lp.apply_qlora(before, r=2, target="q"),
        lp.apply_lora(before, r=2, target=lambda path, param: param.kind == "quantised"),
    ):
        assert again.q.reparameterization("lora").a.dtype == dtype
        assert again.q._base.scheme == quant.q8s()


def test_a_second_adapter_goes_over_the_same_base() -> None:
    first = adapted()
    both = lp.apply_qlora(first, r=1, target=["q", "odd"], name="other")
    assert both.q._base.scheme == quant.nf4()
    assert both.odd.kind == "quantised"
    assert list(both.q.reparameterizations) == ["lora", "other"]
    assert np.array_equal(both.q.val(), first.q.val())


def test_only_the_newly_adapted_are_quantised() -> None:
    first = lp.apply_lora(plain(never), r=2, target="q")
    second = lp.apply_qlora(first, r=2, target="odd")
    assert (second.q.kind, second.odd.kind) == ("float", "quantised")


def test_buffers_are_neither_quantised_nor_adapted() -> None:
    """They are no parameters; merging leaves them, too."""
    model = Bag(w=lp.Param((4, 64), lp.init.normal()), m=lp.Buffer((4, 64), lp.init.ones()))
    for group in (None, "*"):
        made = lp.apply_qlora(model, r=2, quantize=group)
        assert isinstance(made.m, lp.Buffer)
        assert made.w.kind == "quantised"
        assert isinstance(lp.merge(made).m, lp.Buffer)
    with pytest.raises(lp.QuantizeError, match="'m'"):
        lp.apply_qlora(model, r=2, quantize="m")


@pytest.mark.parametrize("tied", ["share", "untie"])
def test_tied_parameters_are_quantised_as_one_and_merged_as_told(tied: Any) -> None:
    """B52."""
    embed = lp.Param((6, 64), lp.init.normal())
    model = Bag(embed=embed, head=embed.clone())
    with pytest.raises(lp.ModuleError, match="tied"):
        lp.apply_qlora(model, r=2, target="head")
    made = lp.apply_qlora(model, r=2, target="head", tied=tied)
    assert made.head.kind == made.embed.kind == "quantised"
    assert made.head.is_tied_to(made.embed)
    assert made.head.base().values is made.embed.base().values
    merged = lp.merge(made)
    assert merged.head.is_tied_to(merged.embed) == (tied == "share")
    assert merged.head.id == embed.id


def test_tied_quantised_parameters_stay_tied_when_they_become_floats_again() -> None:
    """B52: each with the mappers that it had."""
    embed = lp.Param((6, 64), lp.init.normal())
    head = embed.clone().save_mapper(np.transpose)
    packed = lp.quantize_weights(Bag(embed=embed, head=head), quant.nf4())
    dense = packed.materialize()
    assert dense.head.is_tied_to(dense.embed)
    assert not dense.head.is_initialized
    assert dense.head.value is dense.embed.value
    assert dense.head.transform_for_save().shape == (64, 6)
    assert dense.embed.transform_for_save().shape == (6, 64)
    assert not any(param.requires_grad for param in dense.parameters())


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "bits": ({"bits": 3}, lp.DeclarationError, "to 4 bits or to 8"),
    "both": ({"bits": 4, "scheme": quant.nf4()}, lp.DeclarationError, "both"),
    "scheme": ({"scheme": "nf4"}, lp.DeclarationError, "no scheme"),
    "group": ({"quantize": "x.*"}, lp.GroupError, "selects nothing"),
    "ints": ({"quantize": "n"}, lp.QuantizeError, r"'n' \(int32\)"),
    "target": ({"target": "x"}, lp.ModuleError, "'x'"),
    "vector": ({"target": "b"}, lp.ModuleError, "a matrix of floats"),
    "rank": ({"r": 0}, lp.DeclarationError, "rank"),
    "blocks": ({"scheme": quant.q8s(7)}, lp.QuantizeError, "q"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_makes_no_sense_is_refused_and_nothing_is_done(case: str) -> None:
    options, error, message = WRONG[case]
    model = plain(never)
    with pytest.raises(error, match=message):
        lp.apply_qlora(model, **({"r": 2, "target": "q"} | options))
    assert trainable(model) == ["q", "odd", "b"]


def test_the_floats_are_let_go_of_once_they_are_integers() -> None:
    seen: list[weakref.ref[Any]] = []

    def init(plan: lp.Plan) -> np.ndarray:
        made = np.ones(plan.shape, plan.dtype)
        seen.append(weakref.ref(made))
        return made

    model = lp.apply_qlora({"w": lp.Param((4, 64), init)}, r=2)
    assert model["w"].val().tolist() == [[1.0] * 64] * 4
    gc.collect()
    assert [ref() for ref in seen] == [None]


# ---- B10 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_the_whole_life(scheme: quant.Scheme, tmp_path: Path) -> None:
    """B10."""
    model = adapted(scheme=scheme)
    inference = model.valid()
    assert isinstance(inference.q.base(), quant.QuantArray)
    assert inference.q.base().values.dtype == model.q.base().values.dtype == scheme.values_dtype
    assert inference.q.reparameterization("lora") is not None
    restored = inference.train()
    assert not restored.q.requires_grad
    assert trainable(restored) == ["q.lora.a", "q.lora.b"]

    expected = inference.q.val()
    assert not np.array_equal(expected, inference.q.base().dequantize())
    record = inference.record()
    record.save(tmp_path / "record.safetensors")
    for each in (
        record,
        lp.ModuleRecord.from_bytes(record.to_bytes()),
        lp.ModuleRecord.load(tmp_path / "record.safetensors"),
    ):
        loaded = adapted(never, scheme=scheme).load_record(each)
        assert loaded.q.base().values.dtype == scheme.values_dtype
        assert list(loaded.q.reparameterizations) == ["lora"]
        assert loaded.q.id == model.q.id
        assert np.array_equal(loaded.q.val(), expected)

    merged = inference.materialize().materialize()
    assert type(merged.q) is lp.Param
    assert (merged.q.kind, merged.q.requires_grad) == ("float", False)
    assert not merged.train().q.is_active
    assert np.array_equal(merged.q.val(), expected)
    dense = plain(never).load_record(merged.record())
    assert np.array_equal(dense.q.val(), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("dora", [False, True])
def test_what_is_merged_is_what_was_read_in_every_dtype(dtype: str, dora: bool) -> None:
    """B10: both are computed in float32 and rounded once."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    model = lp.apply_qlora(plain(None, dtype), r=2, target="q", dora=dora, dtype="float32").seed(0)
    lora = model.q.reparameterization("lora")
    a = np.random.default_rng(1).standard_normal((6, 2)).astype("f4")
    lora = lora._replaced([("a", lora.a, lora.a.transform_for_load(a))])
    model.q = lp.AdaptedParam(model.q._base, {"lora": lora})
    merged = lp.merge(model)
    assert not merged.q.is_initialized
    assert merged.q.dtype == dtype
    assert merged.q.val().tobytes() == model.q.val().tobytes()
    assert max(lp.merge_errors(model).values()) < 0.05


def test_an_undone_merge_gives_back_the_integers() -> None:
    model = adapted()
    merged = lp.merge(model, undoable=True)
    assert np.array_equal(merged.q.val(), model.q.val())
    assert lp.unmerge(merged).q is model.q


def test_factored_application_goes_over_the_quantised_base() -> None:
    model = adapted()
    x = np.random.default_rng(2).standard_normal((3, 64)).astype("f4")
    given = lp.linear(x, model.q, model.b)
    assert np.allclose(given, x @ model.q.val().T + model.b.val(), atol=1e-4)
    alone = lp.linear(x, model.q, adapters=())
    assert np.array_equal(alone, x @ model.q.base().dequantize().T)


COPIES: dict[str, Callable[[Any], Any]] = {
    "clone": lambda m: m.clone(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "move": lambda m: m.to_device("numpy:cpu"),
    "fork": lambda m: m.fork("numpy:cpu"),
}


@pytest.mark.parametrize("ready", [False, True], ids=["lazy", "ready"])
@pytest.mark.parametrize("how", COPIES)
def test_copies_keep_every_bit(how: str, ready: bool) -> None:
    """B51, B52."""
    model = adapted()
    if ready:
        model.initialize()
    made = COPIES[how](model)
    assert made.q._base.scheme == model.q._base.scheme
    assert values(made) == values(model)
    assert np.array_equal(made.q.val(), model.q.val())
    assert trainable(made) == trainable(model)


def test_files_keep_every_bit(tmp_path: Path) -> None:
    """B51."""
    model = adapted()
    model.save_file(tmp_path / "m.safetensors")
    loaded = adapted(never).load_file(tmp_path / "m.safetensors")
    assert values(loaded) == values(model)
    assert np.array_equal(loaded.q.val(), model.q.val())


def test_adapters_alone_are_saved_and_loaded_over_a_quantised_base(tmp_path: Path) -> None:
    model = adapted()
    bare = lp.without_adapters(model)
    assert isinstance(bare.q, lp.QuantizedParam)
    model = Bag(layer=Bag(weight=model.q))
    lp.save_adapter(model, tmp_path)
    loaded = lp.load_adapter(Bag(layer=Bag(weight=bare.q)), tmp_path)
    assert np.array_equal(loaded.layer.weight.val(), model.layer.weight.val())
