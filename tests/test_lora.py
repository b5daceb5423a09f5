"""LoRA, DoRA and weight norm on NumPy: attached, applied, merged and swapped, all of it lazily."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Bag, Counting, Linear, Tied, never, race


def model(init: Any = never) -> Bag:
    """Two layers and an int, none of which may come into being unless told how."""
    return Bag(
        q=Linear(4, 6, init),
        out=Linear(6, 2, init),
        steps=lp.Param(3, lp.init.zeros(), "int32"),
    )


def paths(module: lp.Module) -> list[str]:
    return [path for path, _ in module.named_parameters()]


def trainable(module: lp.Module) -> list[str]:
    return [path for path, param in module.named_parameters() if param.is_active]


def trained(module: lp.Module, name: str = "lora", seed: int = 0) -> Any:
    """The module with random factors, as after training."""
    chance = np.random.default_rng(seed)

    class Train(lp.ModuleMapper):
        def map_float(self, path: str, param: lp.Param) -> lp.Param:
            if f".{name}." not in path:
                return param
            value = chance.standard_normal(param.shape).astype("f4")
            return param.transform_for_load(value, dtype=param.dtype)

    return module.map(Train())


# ---- attaching -----------------------------------------------------------------------------------


def test_attaching_brings_nothing_into_being_and_freezes_all_but_the_factors() -> None:
    """B44, B35."""
    adapted = lp.apply_lora(model(), r=2, target="q.weight")
    assert paths(adapted) == [
        *("q.weight", "q.weight.lora.a", "q.weight.lora.b", "q.bias", "out.weight", "out.bias"),
        "steps",
    ]
    assert trainable(adapted) == ["q.weight.lora.a", "q.weight.lora.b"]
    assert adapted.num_params() == model().num_params() + 2 * (6 + 4)
    assert not any(param.is_initialized for param in adapted.parameters())
    lora = adapted.q.weight.reparameterization(lp.LoraAdapter)
    assert len({adapted.q.weight.id, lora.a.id, lora.b.id}) == 3
    assert (lora.a.shape, lora.b.shape, lora.scale, lora.rank) == ((6, 2), (2, 4), 8.0, 2)
    assert lora.a.requires_grad
    assert "lora" in repr(adapted)


def test_the_source_is_left_alone() -> None:
    before = model()
    lp.apply_lora(before)
    assert all(param.requires_grad for param in before.parameters())
    assert isinstance(before.q.weight, lp.Param)


@pytest.mark.parametrize("layout", ["OI", "IO"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_an_adapter_that_nobody_trained_changes_no_bit(dtype: str, layout: Any) -> None:
    """B44."""
    p = lp.Param((6, 4), lp.init.normal(), dtype)
    q = lp.apply_lora({"w": p}, layout=layout)["w"]
    assert q.val().tobytes() == p.val().tobytes()
    lora = q.reparameterization("lora")
    by_outputs, by_inputs = (lora.a, lora.b) if layout == "OI" else (lora.b, lora.a)
    assert not by_outputs.val().any()
    assert by_inputs.val().all()
    assert lora.a.dtype == lora.b.dtype == dtype == q.dtype


def test_the_drawn_factor_has_the_deviation_that_was_asked_for() -> None:
    wide = {"w": lp.Param((4, 5000), never)}
    for options, std in (({}, 1 / 8), ({"init_std": 0.5}, 0.5)):
        drawn = lp.apply_lora(wide, r=8, **options)["w"].reparameterization("lora").b.val()  # type: ignore[arg-type]
        assert drawn.std() == pytest.approx(std, rel=0.02)


def test_a_seed_decides_the_factors_by_their_paths() -> None:
    """B56."""
    one, other = (lp.apply_lora(model(lp.init.normal())).seed(7) for _ in range(2))
    assert np.array_equal(
        one.q.weight.reparameterization("lora").b.val(),
        other.q.weight.reparameterization("lora").b.val(),
    )
    assert np.array_equal(one.q.weight.base(), model(lp.init.normal()).seed(7).q.weight.val())


def test_rslora_scales_by_the_root_of_the_rank() -> None:
    lora = lp.apply_lora({"w": lp.Param((9, 9), never)}, r=4, alpha=16, rslora=True)["w"]
    assert lora.reparameterization("lora").scale == 8.0


def test_factors_are_where_the_base_is_and_have_the_dtype_that_was_asked_for() -> None:
    """huggingface/peft#1090, #2421: there it depends on what was loaded or set before."""
    narrow = {"w": lp.Param((4, 4), never, "float8_e4m3fn", device="torch:cpu")}
    lora = lp.apply_lora(narrow)["w"].reparameterization("lora")
    assert (lora.a.dtype, str(lora.a.device)) == ("float32", "torch:cpu")
    low = {"w": lp.Param((4, 4), never, "bfloat16")}
    lora = lp.apply_lora(low, dtype="float32")["w"].reparameterization("lora")
    assert (lora.a.dtype, lora.b.dtype) == ("float32", "float32")
    with pytest.raises(lp.DeclarationError, match="factors are floats"):
        lp.apply_lora(low, dtype="int8")


TARGETS: dict[str, Any] = {
    "a path": "out.weight",
    "a glob": "out*",
    "a list": ["out.weight"],
    "a function": lambda path, param: path == "out.weight" and param.ndim == 2,
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_target_says_what_is_adapted(target: Any) -> None:
    assert trainable(lp.apply_lora(model(), target=target)) == [
        *("out.weight.lora.a", "out.weight.lora.b"),
    ]


def test_a_group_is_a_target() -> None:
    class Group:
        def matches(self, path: str, param: Any) -> bool:
            return path.startswith("q.")

    for group in (Group(), lp.ParamGroup.glob("q.*"), ~lp.ParamGroup.glob("out.*")):
        assert trainable(lp.apply_lora(model(), target=group)) == [
            *("q.weight.lora.a", "q.weight.lora.b"),
        ]
    with pytest.raises(lp.ModuleError, match="means nothing that can be adapted"):
        lp.apply_lora(model(), target=lp.ParamGroup.none())
    tied = lp.apply_lora(twins(), target=lp.ParamGroup.from_paths("three"), tied="untie")
    assert trainable(tied) == ["three.lora.a", "three.lora.b"]


@pytest.mark.parametrize("dora", [False, True])
def test_a_quantised_base_stays_packed_under_its_adapter(dora: bool) -> None:
    """huggingface/peft#2321, artidoro/qlora#28: it is merged into what was dequantised."""
    p = lp.Param((8, 64), lp.init.normal(), "bfloat16")
    packed = lp.quantize_weights(Bag(w=p), lp.quant.nf4())
    adapted = lp.apply_lora(packed, r=2, target="w", dora=dora)
    assert not any(param.is_initialized for param in adapted.parameters())
    assert adapted.w.reparameterization("lora").a.dtype == "bfloat16"
    assert adapted.w.val().tobytes() == packed.w.val().tobytes()
    assert adapted.w.base().scheme == lp.quant.nf4()
    after = trained(adapted)
    x = np.random.default_rng(0).standard_normal((3, 64)).astype("f4")
    expected = x @ after.w.val().astype("f4").T
    assert np.allclose(lp.linear(x, after.w), expected, atol=0.5, rtol=0.02)
    merged = lp.merge(after)
    assert isinstance(merged.w, lp.Param)
    assert merged.w.dtype == "bfloat16"
    assert np.allclose(merged.w.val().astype("f4"), after.w.val().astype("f4"), rtol=0.02, atol=0.1)
    (error,) = lp.merge_errors(after).values()
    assert 0 < error < 0.3
    assert lp.unmerge(lp.merge(after, undoable=True)).w is after.w


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no rank": ({"r": 0}, "a rank is an int from 1 on; found r=0"),
    "half a rank": ({"r": 1.5}, "a rank is an int"),
    "a true rank": ({"r": True}, "a rank is an int"),
    "no alpha": ({"alpha": 0}, "alpha is a finite number above 0"),
    "alpha beyond": ({"alpha": float("nan")}, "alpha is a finite number"),
    "no layout": ({"layout": "NCHW"}, "no such layout of a matrix"),
    "no way": ({"tied": "whatever"}, "no such way with tied parameters"),
    "a misspelt path": ({"target": "q.wieght"}, "no parameter is called 'q.wieght'.*'q.weight'"),
    "one that means nothing": ({"target": ["q.*", "k.*"]}, "no parameter is called 'k"),
    "an int": ({"target": "steps"}, "steps: this parameter cannot be adapted.*int32 of shape"),
    "a bias": ({"target": ["q.weight", "q.bias"]}, "q.bias: this parameter cannot be adapted"),
    "no matrix": ({"target": "*.bias"}, "means nothing that can be adapted.*'q.bias'"),
    "never": ({"target": lambda path, param: False}, "means nothing.*found nothing"),
    "nothing": ({"target": []}, "means nothing"),
    "no target": ({"target": 3}, "this selects no parameters"),
    "a list of numbers": ({"target": [3]}, "this selects no parameters"),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((lp.DeclarationError, lp.ModuleError), match=message):
        lp.apply_lora(model(), **options)


def test_a_second_adapter_goes_by_another_name_and_flips_nothing() -> None:
    """T20 of Burn; huggingface/peft#3487, #1374: adding one freezes or unfreezes the other."""
    one = lp.apply_lora(model(), target="q.weight")
    with pytest.raises(lp.ModuleError, match="by the name 'lora' already"):
        lp.apply_lora(one, target="q.weight")
    frozen = one.freeze()
    for before in (one, frozen):
        both = lp.apply_lora(before, target="q.weight", name="more")
        was = [param.requires_grad for _, param in before.named_parameters() if "lora" in _]
        assert [p.requires_grad for path, p in both.named_parameters() if ".lora." in path] == was
        assert {"q.weight.more.a", "q.weight.more.b"} <= set(trainable(both))


# ---- ties ----------------------------------------------------------------------------------------


def test_a_tied_target_is_refused() -> None:
    """huggingface/transformers#45127 among others: one that was adapted changed its twin."""
    for tied in (Tied(), Bag(one=(p := lp.Param((4, 3), never)), two=p)):
        with pytest.raises(lp.ModuleError, match=r"this parameter is tied.*tied=\"share\""):
            lp.apply_lora(tied)
    only = lp.apply_lora(Tied(), target="middle.*")
    assert len(trainable(only)) == 4


def twins() -> Bag:
    p = lp.Param((4, 3), lp.init.normal())
    return Bag(one=p, two=p, three=p.clone())


def test_a_shared_adapter_keeps_the_tie_also_when_merged() -> None:
    shared = trained(lp.apply_lora(twins(), target="one", tied="share"))
    assert trainable(shared) == ["one.lora.a", "one.lora.b"]
    assert shared.num_params() == 12 + 8 * 7
    assert not np.array_equal(shared.one.val(), shared.one.base())
    assert np.array_equal(shared.one.val(), shared.two.val())
    assert np.array_equal(shared.one.val(), shared.three.val())
    merged = lp.merge(shared)
    assert merged.one.is_tied_to(merged.two)
    assert merged.one.is_tied_to(merged.three)
    assert len(list(merged.parameters())) == 1


def test_an_untied_adapter_leaves_the_twins_alone() -> None:
    untied = trained(lp.apply_lora(twins(), target="one", tied="untie"))
    assert trainable(untied) == ["one.lora.a", "one.lora.b"]
    assert isinstance(untied.two, lp.Param)
    assert np.array_equal(untied.two.val(), untied.one.base())
    merged = lp.merge(untied)
    assert not merged.one.is_tied_to(merged.two)
    assert merged.two.is_tied_to(merged.three)
    assert np.array_equal(merged.one.val(), untied.one.val())


def test_a_layer_in_two_places_has_one_adapter() -> None:
    layer = Linear(3, 3)
    both = lp.apply_lora(Bag(one=layer, two=layer), target="*.weight", tied="refuse")
    assert both.one is both.two
    assert trainable(both) == ["one.weight.lora.a", "one.weight.lora.b"]


def test_dora_is_not_shared() -> None:
    with pytest.raises(lp.ModuleError, match="DoRA adapters are not shared"):
        lp.apply_lora(twins(), tied="share", dora=True)


# ---- the adapter itself --------------------------------------------------------------------------


def test_a_base_with_more_axes_gets_the_product_in_its_shape() -> None:
    """As in Burn, and as PEFT adapts convolutions."""
    base = np.zeros((4, 3, 2, 2), "f4")
    a, b = np.ones((4, 2), "f4"), np.arange(24, dtype="f4").reshape(2, 12)
    lora = lp.LoraAdapter(lp.Param.from_tensor(a), lp.Param.from_tensor(b), 0.5)
    p = lp.Param.from_tensor(base).with_reparameterization(lora)
    assert np.array_equal(p.val(), (a @ b * 0.5).reshape(4, 3, 2, 2))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((4, 2), (3, 4)), "these are no two factors"),
        (((4,), (1, 4)), "these are no two factors"),
        (((4, 2), (2, 5)), "w: .*product of the factors does not have the shape of the base"),
    ],
)
def test_factors_have_to_fit(shapes: Any, message: str) -> None:
    w = Bag(w=lp.Param((4, 4), never)).w
    with pytest.raises(lp.ModuleError, match=message):
        w.with_reparameterization(lp.LoraAdapter(*(lp.Param(shape, never) for shape in shapes)))


def test_it_is_computed_in_the_wider_dtype_and_rounded_to_the_base_s() -> None:
    low = lp.Param((8, 8), lp.init.normal(), "float16")
    p = trained(lp.apply_lora(Bag(w=low), dtype="float32")).w
    lora = p.reparameterization("lora")
    exact = low.val().astype("f4") + (lora.a.val() * lora.scale) @ lora.b.val()
    assert np.array_equal(p.val(), exact.astype("f2"))
    wide = lp.Param((8, 8), lp.init.normal(), "float64")
    q = trained(lp.apply_lora(Bag(w=wide), dtype="float16")).w
    assert q.val().dtype == "f8"


# ---- magnitudes ----------------------------------------------------------------------------------


def with_norm(init: Any, **options: Any) -> lp.AdaptedParam:
    return lp.Param((4, 3), init, **options).with_reparameterization(lp.WeightNorm())


KINDS: dict[str, Callable[..., Any]] = {
    "weight norm": with_norm,
    "dora": lambda init, **options: (
        lp.apply_lora(Bag(w=lp.Param((4, 3), init, **options)), dora=True).w
    ),
}


def magnitude(p: Any) -> Any:
    (node,) = p.reparameterizations.values()
    return node.magnitude


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_magnitude_begins_as_the_norm_and_changes_no_bit(kind: Any, dtype: str) -> None:
    """B45; pytorch/pytorch#132721, meta-pytorch/torchtune#2139, growingnet/gromo#255."""
    p = kind(lp.init.normal(), dtype=dtype)
    assert p.val().tobytes() == p.base().tobytes()
    norms = np.linalg.norm(p.base().astype("f8"), axis=1, keepdims=True)
    assert np.allclose(magnitude(p).val(), norms, rtol=1e-6)
    assert magnitude(p).dtype == ("float64" if dtype == "float64" else "float32")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_magnitude_forces_its_base_once_when_it_is_needed(kind: Any) -> None:
    kind(never).to_device("cpu").fork("cpu").valid().train().clone()
    init = Counting()
    p = kind(init)
    assert init.runs == 0
    magnitude(p).val()
    assert init.runs == 1
    p.val()
    p.valid().val()
    magnitude(p.clone()).val()
    assert init.runs == 1


@pytest.mark.thread_unsafe(reason="threads of its own behind a barrier")
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_threads_share_one_magnitude_and_one_base(kind: Any, eager_switching: None) -> None:
    def read_by_six() -> None:
        init = Counting(seconds=0.001)
        p = kind(init)
        reads = [lambda: p.val().tobytes(), lambda: magnitude(p) and p.base().tobytes()]
        assert len(set(race(reads * 3))) == 1
        assert init.runs == 1

    for _ in range(20):
        read_by_six()


FOLLOWING: dict[str, Callable[[Any], Any]] = {
    "seed": lambda m: m.seed(11),
    "load": lambda m: m.load_state_dict({"w": np.arange(12.0, dtype="f4").reshape(4, 3)}, False),
    "move": lambda m: m.to_device("cpu"),
    "fork": lambda m: m.fork("cpu"),
    "fork and load": lambda m: m.fork("cpu").load_state_dict({"w": np.ones((4, 3), "f4")}, False),
    "clone": lambda m: m.clone(independent=True),
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "map": lambda m: Bag(w=m.w.map(lambda x: x * 3)),
    "valid": lambda m: m.valid(),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("verb", FOLLOWING)
def test_a_magnitude_follows_its_base_until_it_is_made(kind: Any, verb: str) -> None:
    """As if it had been attached after the verb: never the norm of what was not loaded."""
    p = kind(lp.init.normal() if verb in ("seed", "pickle") else Counting())
    ids = [param.id for param in Bag(w=p).parameters()]
    after = FOLLOWING[verb](Bag(w=p))
    assert not magnitude(after.w).is_initialized
    assert after.w.val().tobytes() == after.w.base().tobytes()
    assert [param.id for param in after.parameters()] == ids


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_magnitude_that_was_loaded_or_mapped_is_its_own(kind: Any) -> None:
    p = kind(lp.init.normal())
    name = next(iter(p.reparameterizations))
    stored = np.full((4, 1), 2.0, "f4")
    loaded = Bag(w=p).load_state_dict({f"w.{name}.magnitude": stored}, False)
    again = loaded.load_state_dict({"w": np.ones((4, 3), "f4")}, False).seed(3)
    assert np.array_equal(magnitude(again.w).val(), stored)

    class Double(lp.ModuleMapper):
        def map_float(self, path: str, param: lp.Param) -> lp.Param:
            return param.map(lambda x: x * 2) if path.endswith("magnitude") else param

    doubled = Bag(w=p).map(Double())
    assert np.allclose(doubled.w.val(), p.base() * 2)


def test_a_row_of_zeros_stays_one() -> None:
    p = with_norm(lp.init.eye())
    assert np.array_equal(p.val(), np.eye(4, 3))
    assert magnitude(p).val().tolist() == [[1], [1], [1], [0]]


def test_norms_are_those_of_the_outputs_whatever_the_layout() -> None:
    for layout, shape in (("OI", (4, 1)), ("IO", (1, 3))):
        p = lp.apply_lora(Bag(w=lp.Param((4, 3), never)), dora=True, layout=layout).w  # type: ignore[arg-type]
        assert magnitude(p).shape == shape


def test_a_vector_has_no_rows() -> None:
    for wrong in (lp.Param(3, never), lp.Param((3, 3), lp.init.zeros(), "int32")):
        with pytest.raises(lp.ModuleError, match="no rows to take norms of"):
            wrong.with_reparameterization(lp.WeightNorm())
    with pytest.raises(lp.ModuleError, match="no rows to take norms of"):
        lp.Param((3, 3), never).with_reparameterization(lp.WeightNorm(axis=2))


def test_weight_norm_with_another_magnitude_scales_rows() -> None:
    twice = lp.Param.from_tensor(np.full((2, 1), 10.0, "f4"))
    p = lp.Param.from_data([[3.0, 4.0], [0.0, 2.0]])
    q = p.with_reparameterization(lp.WeightNorm(magnitude=twice))
    assert np.allclose(q.val(), [[6, 8], [0, 10]])


# ---- applied to inputs ---------------------------------------------------------------------------


class Counts(lp.LoraAdapter):
    """Says how often the dense product was made."""

    runs = 0

    def apply(self, base: Any) -> Any:
        Counts.runs += 1
        return super().apply(base)


X = np.random.default_rng(5).standard_normal((5, 7, 3)).astype("f4")


@pytest.mark.parametrize("layout", ["OI", "IO"])
def test_linear_applies_adapters_without_their_dense_product(layout: Any) -> None:
    shape = (4, 3) if layout == "OI" else (3, 4)
    p: Any = lp.Param(shape, lp.init.normal())
    bias = lp.Param(4, lp.init.normal())
    for name in ("one", "two"):
        p = lp.apply_lora(Bag(w=p), r=2, name=name).w
    p = trained(trained(Bag(w=p), "one"), "two", 1).w
    for adapters in (None, "one", ("one", "two"), ()):
        weight = p.val(adapters=adapters)
        weight = weight.T if layout == "OI" else weight
        given = lp.linear(X, p, bias, layout=layout, adapters=adapters)
        assert np.allclose(given, X @ weight + bias.val(), atol=1e-5)
        assert given.dtype == "f4"
    with lp.active_adapters("two"):
        weight = p.val(adapters="two")
        weight = weight.T if layout == "OI" else weight
        assert np.allclose(lp.linear(X, p, layout=layout), X @ weight, atol=1e-5)


def test_linear_makes_no_dense_weight_where_it_need_not() -> None:
    a, b = lp.Param((4, 1), lp.init.ones()), lp.Param((1, 3), lp.init.ones())
    p = lp.Param((4, 3), lp.init.ones()).with_reparameterization(Counts(a, b))
    Counts.runs = 0
    assert np.allclose(lp.linear(X, p), X @ np.full((3, 4), 2.0, "f4"), atol=1e-5)
    assert Counts.runs == 0
    assert np.allclose(lp.linear(X, p.init_mapper(lambda w: w * 2)), X @ np.full((3, 4), 4.0))
    assert Counts.runs == 1


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_linear_of_what_is_no_sum_uses_the_effective_weight(kind: Any) -> None:
    p = kind(lp.init.normal())
    assert np.array_equal(lp.linear(X, p), X @ p.val().T)


def test_linear_takes_plain_parameters_arrays_and_wider_factors() -> None:
    p = lp.Param((4, 3), lp.init.normal())
    assert np.array_equal(lp.linear(X, p), X @ p.val().T)
    assert np.array_equal(lp.linear(X, p.val(), np.ones(4, "f4")), X @ p.val().T + 1)
    half = trained(
        lp.apply_lora(Bag(w=lp.Param((4, 3), lp.init.normal(), "float16")), dtype="float32")
    ).w
    given = lp.linear(X.astype("f2"), half)
    assert given.dtype == "f2"
    assert np.allclose(given, X @ half.val().astype("f4").T, atol=0.2, rtol=0.02)
    with pytest.raises(lp.DeclarationError, match="no such layout"):
        lp.linear(X, p, layout="HW")  # type: ignore[arg-type]


# ---- merging -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dora", [False, True])
def test_a_merged_module_is_plain_and_equal(dora: bool) -> None:
    adapted = trained(lp.apply_lora(model(lp.init.normal()), target="q.weight", dora=dora))
    merged = lp.merge(adapted)
    assert paths(merged) == paths(model())
    assert not merged.q.weight.is_initialized
    assert np.array_equal(merged.q.weight.val(), adapted.q.weight.val())
    assert merged.q.weight.id == adapted.q.weight.id
    assert set(lp.merge_errors(adapted).values()) == {0.0}
    with pytest.raises(lp.ModuleError, match="nothing to merge"):
        lp.merge(model())


def test_merging_low_precision_rounds_once_and_says_what_that_costs() -> None:
    """unslothai/unsloth#3091, meta-pytorch/torchtune#1101, OpenBMB/MiniCPM-V#502."""
    adapted = trained(lp.apply_lora(Bag(w=lp.Param((16, 16), lp.init.normal(), "bfloat16"))))
    lora = adapted.w.reparameterization("lora")
    a, b = (factor.val().astype("f4") for factor in (lora.a, lora.b))
    exact = adapted.w.base().astype("f4") + (a * lora.scale) @ b
    merged = lp.merge(adapted).w.val()
    assert np.array_equal(merged, exact.astype(merged.dtype))
    (error,) = lp.merge_errors(adapted).values()
    assert error == abs(merged.astype("f4") - exact).max() > 0


def test_unmerging_gives_back_the_very_same_parameters() -> None:
    """peft adds and subtracts: 50 times in bfloat16 move the base by 0.025."""
    adapted = trained(lp.apply_lora(Bag(w=lp.Param((8, 8), lp.init.normal(), "bfloat16"))))
    before = adapted.w.base().tobytes()
    merged = adapted
    for _ in range(50):
        merged = lp.merge(merged, undoable=True)
        assert isinstance(merged.w, lp.MergedParam)
        merged = lp.unmerge(merged)
    assert merged.w is adapted.w
    assert merged.w.base().tobytes() == before
    with pytest.raises(lp.ModuleError, match="nothing to unmerge"):
        lp.unmerge(adapted)
    with pytest.raises(lp.ModuleError, match="nothing to unmerge"):
        lp.unmerge(lp.merge(adapted))


def test_what_is_merged_until_undone_reads_as_the_plain_parameter() -> None:
    adapted = trained(lp.apply_lora(model(lp.init.normal()), target="q.weight"))
    merged, plain = lp.merge(adapted, undoable=True), lp.merge(adapted)
    assert paths(merged) == paths(plain)
    assert np.array_equal(merged.q.weight.val(), plain.q.weight.val())
    assert sorted(merged.state_dict()) == sorted(plain.state_dict())
    again = pickle.loads(pickle.dumps(merged))
    assert np.array_equal(lp.unmerge(again).q.weight.val(), adapted.q.weight.val())
    assert isinstance(merged.materialize().q.weight, lp.Param)
    assert isinstance(lp.activate(merged).q.weight, lp.MergedParam)
    with pytest.raises(lp.ModuleError, match=r"unmerge\(\) it first"):
        lp.apply_lora(merged, target="q.weight")
    assert "MergedParam" in repr(merged.q.weight)


def test_ties_outlast_an_undoable_merge() -> None:
    shared = trained(lp.apply_lora(twins(), target="one", tied="share"))
    merged = lp.merge(shared, undoable=True)
    assert merged.one.is_tied_to(merged.three)
    assert len(list(merged.parameters())) == 1


# ---- hot swap ------------------------------------------------------------------------------------


def test_adapters_are_switched_and_dropped_without_touching_the_base() -> None:
    """huggingface/peft#208, #2437, #463."""
    init = Counting()
    adapted: Any = Bag(w=lp.Param((4, 3), init), other=lp.Param((2, 2), never))
    for name in ("one", "two"):
        adapted = lp.apply_lora(adapted, target="w", name=name)
    adapted = trained(trained(adapted, "one", 1), "two", 2)
    base = adapted.w.base()
    for name in ("one", "two"):
        swapped = lp.activate(adapted, name)
        assert np.array_equal(swapped.w.val(), adapted.w.val(adapters=name))
    dropped = lp.without_adapters(adapted, "one")
    assert paths(dropped) == ["w", "w.two.a", "w.two.b", "other"]
    assert dropped.w.base() is base
    plain = lp.without_adapters(adapted)
    assert isinstance(plain.w, lp.Param)
    assert plain.w.val() is base
    assert not plain.w.requires_grad, "what was frozen stays so"
    assert init.runs == 1
    with pytest.raises(lp.ModuleError, match="no parameter has an adapter 'three'"):
        lp.without_adapters(adapted, "three")


VERBS: dict[str, Callable[[Any], Any]] = {
    "to_device": lambda m: m.to_device("cpu"),
    "fork": lambda m: m.fork("cpu"),
    "clone": lambda m: m.clone(),
    "valid": lambda m: m.valid(),
    "map": lambda m: m.map(lp.ModuleMapper()),
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "load": lambda m: m.load_state_dict(m.state_dict()),
    "initialize": lambda m: m.initialize(progress=False),
}


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_keeps_the_adapter_its_scale_and_its_value(verb: str, dora: bool) -> None:
    """B26, B51, B52."""
    before = trained(lp.apply_lora(model(lp.init.normal()), alpha=3, target="q.weight", dora=dora))
    after = VERBS[verb](before)
    assert np.array_equal(after.q.weight.val(), before.q.weight.val())
    assert after.q.weight.reparameterization("lora").scale == 3 / 8
    assert trainable(after) == trainable(before)
    assert [p.id for p in after.parameters()] == [p.id for p in before.parameters()]


def test_a_lazy_base_with_lora_is_mapped_by_its_effective_value() -> None:
    """B27."""
    ones = lp.init.ones()
    lora = lp.LoraAdapter(lp.Param((3, 1), ones), lp.Param((1, 3), ones), 2.0)
    p = lp.Param((3, 3), ones).with_reparameterization(lora)
    clone = p.clone()
    mapped = p.init_mapper(lambda value: value * 2)
    assert (clone.value == 3).all()
    del clone
    assert not mapped.is_initialized
    assert (mapped.value == 6).all()
