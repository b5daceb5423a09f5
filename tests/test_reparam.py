"""Reparameterisations: attached to parameters, kept by every verb, applied when a value is read."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Bag, Boom, Box, Counting, Linear, never, race


class LowRank(lp.Reparameterization):
    """base + scale · a @ b."""

    NAME = "lora"

    def __init__(self, a: Any, b: Any, scale: float = 1.0) -> None:
        self.a, self.b, self.scale = a, b, scale

    def apply(self, base: Any) -> Any:
        return base + (self.a.value @ self.b.value) * self.scale


class Never(lp.Reparameterization):
    NAME = "never"

    def apply(self, base: Any) -> NoReturn:
        raise AssertionError("a reparameterisation was applied")


class Adds(lp.Reparameterization):
    """Counts how often it is applied."""

    NAME = "adds"

    def __init__(self, amount: float) -> None:
        self.amount = lp.Param((), lp.init.constant(amount))
        self.runs = 0

    def apply(self, base: Any) -> Any:
        self.runs += 1
        return base + self.amount.value


def factors(rows: int = 3, columns: int = 3, init: Any = None) -> LowRank:
    """Adds two to every element: a and b are ones, and the scale is two."""
    ones = init or lp.init.ones()
    return LowRank(lp.Param((rows, 1), ones), lp.Param((1, columns), ones), 2.0)


def adapted(init: Any = None, **options: Any) -> lp.AdaptedParam:
    return lp.Param((3, 3), init or lp.init.ones(), **options).with_reparameterization(factors())


def test_the_value_is_the_effective_one_and_the_base_is_what_is_stored() -> None:
    p = adapted()
    assert (p.value == 3).all()
    assert (p.val() == 3).all()
    assert (np.asarray(p) == 3).all()
    assert (p.base() == 1).all()
    assert (p.into_value() == 1).all()


def test_attaching_initialises_nothing_and_leaves_the_parameter_as_it_is() -> None:
    """B12, B35."""
    ready = lp.Param.from_tensor(np.ones((3, 3), "f4")).with_reparameterization(factors(init=never))
    assert Bag(w=ready).devices() == [lp.device("cpu")]
    lora = ready.reparameterization("lora")
    assert [p.is_initialized for p in (ready, lora.a, lora.b)] == [True, False, False]
    base = lp.Param((3, 3), never)
    p = base.with_reparameterization(factors(init=never))
    assert (p.shape, p.dtype, p.kind, p.nbytes) == ((3, 3), "float32", "float", 36)
    assert p.id == base.id
    assert Bag(w=p).devices() == [lp.device("cpu")]
    assert Bag(w=p).num_params() == 9 + 3 + 3
    for _, param in Bag(w=p).named_parameters():
        assert not param.is_initialized
    repr(p)
    str(lp.summary(Bag(w=p)))
    assert not base.is_initialized


def test_validation_twice_never_applies_it_and_keeps_it_attached() -> None:
    """B08."""
    p = lp.Param((2, 3), lp.init.ones()).with_reparameterization(Never())
    checked = p.valid().valid()
    assert (checked.base() == 1).all()
    assert checked.reparameterization(Never) is not None
    model = Box(p).valid().valid()  # type: ignore[arg-type]
    assert model.t.reparameterization("never") is not None
    with pytest.raises(AssertionError, match="was applied") as caught:
        checked.val()
    assert "while applying never" in caught.value.__notes__


def test_paths_lead_by_way_of_the_name() -> None:
    model = Bag(weight=adapted(), bias=lp.Param(3, lp.init.zeros()))
    assert [path for path, _ in model.named_parameters()] == [
        *("weight", "weight.lora.a", "weight.lora.b", "bias"),
    ]
    assert sorted(model.state_dict()) == ["bias", "weight", "weight.lora.a", "weight.lora.b"]


def test_a_seeded_base_is_the_same_with_something_attached_or_not() -> None:
    """B56: the path of the base is its own."""
    plain = Bag(weight=lp.Param((3, 3), lp.init.normal())).seed(7)
    with_lora = Bag(weight=adapted(lp.init.normal())).seed(7)
    assert np.array_equal(plain.weight.value, with_lora.weight.base())


VERBS: dict[str, Callable[[Any], Any]] = {
    "map": lambda p: p.map(np.copy),
    "set_requires_grad": lambda p: p.set_requires_grad(False),
    "no_grad": lambda p: p.no_grad(),
    "load": lambda p: p.transform_for_load(np.ones((3, 3), np.float32)),
    "to_device": lambda p: p.to_device("cpu"),
    "fork": lambda p: p.fork("cpu"),
    "clone": lambda p: p.clone(),
    "independent clone": lambda p: p.clone(independent=True),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda p: pickle.loads(pickle.dumps(p)),
    "valid": lambda p: p.valid(),
    "train": lambda p: p.train(),
    "load_mapper": lambda p: p.load_mapper(np.copy),
    "save_mapper": lambda p: p.save_mapper(np.copy),
}


@pytest.mark.parametrize("ready", [False, True], ids=["lazy", "ready"])
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_keeps_what_is_attached(verb: str, ready: bool) -> None:
    """B26, B51: of the parameter, lazy or ready."""
    p = adapted()
    if ready:
        p.val()
    changed = VERBS[verb](p)
    assert isinstance(changed.reparameterization("lora"), LowRank)
    assert changed.id == p.id
    assert (changed.value == 3).all()
    assert (p.value == 3).all()


MODULE_VERBS: dict[str, Callable[[lp.Module], Any]] = {
    "to_device": lambda m: m.to_device("cpu"),
    "fork": lambda m: m.fork("cpu"),
    "clone": lambda m: m.clone(),
    "valid": lambda m: m.valid(),
    "train": lambda m: m.train(),
    "freeze": lambda m: m.freeze(),
    "unfreeze": lambda m: m.unfreeze(),
    "map": lambda m: m.map(lp.ModuleMapper()),
    "seed": lambda m: m.seed(3),
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "initialize": lambda m: m.initialize(progress=False),
    "load_state_dict": lambda m: m.load_state_dict(m.state_dict()),
}


@pytest.mark.parametrize("verb", MODULE_VERBS)
def test_every_verb_of_a_module_keeps_what_is_attached(verb: str) -> None:
    """B51: and reaches it."""
    model = MODULE_VERBS[verb](Box(adapted()))  # type: ignore[arg-type]
    assert (model.t.value == 3).all()
    assert len(list(model.parameters())) == 3
    if verb == "freeze":
        assert not any(param.requires_grad for param in model.parameters())


def test_a_file_keeps_base_and_factors_apart_and_brings_both_back(tmp_path: Any) -> None:
    model = Box(adapted())  # type: ignore[arg-type]
    model.save_file(tmp_path / "m.safetensors")
    lazy = Box(lp.Param((3, 3), never).with_reparameterization(factors(init=never)))  # type: ignore[arg-type]
    loaded = lazy.load_file(tmp_path / "m.safetensors")
    assert (loaded.t.value == 3).all()
    assert (loaded.t.base() == 1).all()


def test_a_mapped_initial_value_is_the_effective_one_mapped() -> None:
    """B27: though a clone brings the base into being meanwhile."""
    p = adapted()
    clone = p.clone()
    assert not p.is_initialized
    mapped = p.init_mapper(lambda value: value * 2)
    assert (clone.value == 3).all()
    del clone
    assert not mapped.is_initialized
    assert (mapped.value == 6).all()
    assert isinstance(mapped.reparameterization("lora"), LowRank), "B51"
    assert (mapped.init_mapper(lambda value: value + 1).value == 7).all(), "and it chains"
    assert (p.value == 3).all()


@pytest.mark.parametrize("ready", [False, True], ids=["lazy", "ready"])
def test_merging_folds_it_in_and_leaves_the_source_alone(ready: bool) -> None:
    """B09, as far as it needs no gradients: see the tests of torch for those."""
    base = lp.Param((2, 3), lp.init.ones())
    base = base.load_mapper(np.transpose, (3, 2)).save_mapper(np.transpose, (3, 2))
    p = base.with_reparameterization(factors(2, 3))
    if ready:
        p.val()
    merged = p.materialize()
    assert merged.is_initialized is ready
    assert isinstance(merged, lp.Param)
    assert p.reparameterization("lora") is not None
    assert merged.id == p.id
    assert merged.requires_grad
    assert merged.val().tolist() == [[3, 3, 3]] * 2
    assert merged.transform_for_save().val().tolist() == [[3, 3]] * 3
    loaded = merged.transform_for_load(np.ones((3, 2), np.float32))
    assert loaded.val().shape == (2, 3)
    assert not p.no_grad().materialize().requires_grad
    assert merged.materialize().val().tolist() == [[3, 3, 3]] * 2, "twice is once"


def test_a_module_is_merged_as_a_whole_and_its_ties_stay() -> None:
    base = lp.Param((3, 3), lp.init.ones())
    model = Bag(one=adapted(), two=base, three=base.clone(), rest=[Linear(2, 2, lp.init.zeros())])
    merged = model.materialize()
    assert (merged.one.value == 3).all()
    assert merged.two.is_tied_to(merged.three)
    assert [path for path, _ in merged.named_parameters()] == [
        *("one", "two", "rest.0.weight", "rest.0.bias"),
    ]
    assert not merged.two.is_initialized


def test_a_lazily_merged_param_pickles_as_its_recipe() -> None:
    """B58."""
    merged = adapted(lp.init.normal()).materialize()
    again = pickle.loads(pickle.dumps(merged))
    assert not again.is_initialized
    assert again.val().tobytes() == merged.val().tobytes()


def test_low_precision_is_merged_in_float32_and_rounded_once() -> None:
    """unslothai/unsloth#3091, meta-pytorch/torchtune#1101: merged bfloat16 models that differ."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(8, 2)).astype("f4"), rng.normal(size=(2, 8)).astype("f4")
    base = lp.Param((8, 8), lp.init.normal(), "bfloat16").clone()
    lora = LowRank(lp.Param.from_tensor(a), lp.Param.from_tensor(b))
    merged = base.with_reparameterization(lora).materialize()
    exact = base.val().astype("f4") + a @ b
    assert merged.dtype == "bfloat16"
    assert np.array_equal(merged.val(), exact.astype(merged.val().dtype))


# ---- several, and which of them -----------------------------------------------------------------


def stack() -> lp.AdaptedParam:
    p = lp.Param((), lp.init.constant(1)).with_reparameterization(Adds(10), "ten")
    return p.with_reparameterization(Adds(100), "hundred")


def test_several_apply_in_the_order_in_which_they_were_attached() -> None:
    """tracel-ai/burn#2738 among others: Burn has one at most."""
    p = stack()
    assert float(p.value) == 111
    assert list(p.reparameterizations) == ["ten", "hundred"] == list(p.active)
    twice = p.init_mapper(lambda value: value * 2)
    assert float(twice.value) == 222


def test_a_call_chooses_which_apply() -> None:
    p = stack()
    assert float(p.val(adapters="ten")) == 11
    assert float(p.val(adapters=("hundred", "ten"))) == 111
    assert float(p.val(adapters=())) == 1
    assert float(p.value) == 111, "nothing was changed by that"
    with pytest.raises(lp.ModuleError, match="nothing is attached by the name 'nine'"):
        p.val(adapters="nine")


def test_a_context_chooses_which_apply_and_a_mapped_value_stays_mapped() -> None:
    p = stack().init_mapper(lambda value: value * 2)
    plain = lp.Param((), lp.init.constant(5))
    with lp.active_adapters("ten"):
        assert float(p.value) == 22
        assert float(plain.value) == 5
        with lp.active_adapters():
            assert float(p.value) == 2
        assert float(p.val(adapters="hundred")) == 202, "a call goes first"
        assert float(p.materialize().value) == 22
    assert float(p.value) == 222


@pytest.mark.thread_unsafe(reason="threads of its own behind a barrier")
def test_threads_never_see_each_others_choice(eager_switching: None) -> None:
    """huggingface/peft#176: there the choice is the model's, and so everybody's."""
    p = stack()
    together = threading.Barrier(3)

    def read(*names: str) -> set[float]:
        found = set()
        together.wait(20)
        for _ in range(300):
            with lp.active_adapters(*names):
                found.add(float(p.value))
        return found

    results = race([lambda: read("ten"), lambda: read("hundred"), lambda: read()])
    assert results == [{11.0}, {101.0}, {1.0}]


def test_another_default_is_a_new_module_that_shares_everything() -> None:
    """huggingface/peft#208, #2437: switching neither copies the base nor runs an initialiser."""
    init = Counting()
    base = lp.Param((), init)
    p = base.with_reparameterization(Adds(10), "ten")
    model = Bag(w=p.with_reparameterization(Adds(100), "hundred"), rest=lp.Param(2, never))
    ten, hundred, none = (lp.activate(model, *names) for names in (["ten"], ["hundred"], []))
    before = model.w.base()
    assert float(ten.w.value - before) == pytest.approx(10, abs=1e-4)
    assert float(hundred.w.value - before) == pytest.approx(100, abs=1e-4)
    assert none.w.value is before is ten.w.base()
    assert init.runs == 1
    assert [param.requires_grad for param in ten.parameters()] == [True] * 4
    with pytest.raises(lp.ModuleError, match="no parameter has an adapter 'nine'"):
        lp.activate(model, "nine")


def test_what_is_attached_is_taken_off_by_name_or_all_at_once() -> None:
    """B51: nothing else takes it off but merging."""
    p = stack()
    assert float(p.without_reparameterization("ten").value) == 101
    plain = p.without_reparameterization()
    assert isinstance(plain, lp.Param)
    assert float(plain.value) == 1
    assert float(p.value) == 111
    with pytest.raises(lp.ModuleError, match="nothing is attached by the name 'nine'"):
        p.without_reparameterization("nine")


# ---- keeping effective values -------------------------------------------------------------------


def test_an_effective_value_is_made_once_and_may_be_released() -> None:
    """Burn makes it for every read (its trap 29)."""
    adds = Adds(10)
    p = lp.Param((), lp.init.ones()).with_reparameterization(adds)
    assert p.value is p.value
    assert adds.runs == 1
    assert float(p.val(adapters=())) == 1
    assert adds.runs == 1
    p.release()
    assert float(p.value) == 11
    assert adds.runs == 2
    assert float(p.map(lambda x: x * 2).value) == 12, "another base, another value"


def test_the_kept_value_is_that_of_the_choice() -> None:
    p = stack()
    for _ in range(2):
        assert [float(p.val(adapters=name)) for name in ("ten", "hundred")] == [11, 101]


# ---- what goes wrong ----------------------------------------------------------------------------


def test_one_name_is_attached_once() -> None:
    """T20 of Burn: a second adapter there is neither trained nor applied."""
    with pytest.raises(lp.ModuleError, match="by the name 'lora' already"):
        adapted().with_reparameterization(factors())


@pytest.mark.parametrize("name", ["", "a.b", 3, "a\nb"])
def test_a_name_has_to_fit_into_a_path(name: Any) -> None:
    for p in (lp.Param(2, never), stack()):
        with pytest.raises(lp.ModuleError, match="can be part of a path"):
            p.with_reparameterization(Adds(1), name)


def test_only_a_reparameterisation_can_be_attached() -> None:
    for p in (lp.Param(2, never), stack()):
        with pytest.raises(lp.ModuleError, match="this is no reparameterisation"):
            p.with_reparameterization(lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        lp.Reparameterization()  # type: ignore[abstract]


class Widens(lp.Reparameterization):
    NAME = "widens"

    def apply(self, base: Any) -> Any:
        return np.concatenate([base, base])


class Casts(lp.Reparameterization):
    NAME = "casts"

    def apply(self, base: Any) -> Any:
        return base.astype("f8")


@pytest.mark.parametrize("node", [Widens(), Casts()])
def test_shape_and_dtype_are_to_stay(node: lp.Reparameterization) -> None:
    model = Box(lp.Param(2, lp.init.ones()).with_reparameterization(node))  # type: ignore[arg-type]
    with pytest.raises(lp.InitError, match="keeps shape and dtype") as caught:
        model.t.val()
    assert caught.value.path == f"t.{node.NAME}"


def test_a_failing_one_raises_its_own_error_and_may_be_tried_again() -> None:
    """B47."""

    class Fails(lp.Reparameterization):
        NAME = "fails"
        fails = True

        def apply(self, base: Any) -> Any:
            if self.fails:
                raise Boom
            return base

    node = Fails()
    p = lp.Param(2, lp.init.ones()).with_reparameterization(node)
    with pytest.raises(Boom):
        p.val()
    node.fails = False
    assert p.value.tolist() == [1, 1]


def test_consuming_would_lose_it_and_is_refused() -> None:
    with pytest.raises(lp.ModuleError, match="would lose what is attached"):
        adapted().consume()


# ---- over whole modules -------------------------------------------------------------------------


def test_a_reparameterizer_sees_each_float_parameter_and_its_path_once() -> None:
    """Burn's `Reparameterizer`. B35: nothing comes into being."""
    shared = lp.Param((3, 3), never)
    model = Bag(one=shared, layers=[Linear(2, 3)], again=shared, n=lp.Param(2, never, "int32"))
    seen = []

    def attach(path: str, param: Any) -> Any:
        seen.append(path)
        return param.with_reparameterization(factors(init=never)) if path == "one" else param

    changed = lp.reparameterize(model, attach)
    assert seen == ["one", "layers.0.weight", "layers.0.bias"]
    assert changed.again is changed.one
    assert isinstance(changed.one, lp.AdaptedParam)
    assert changed.layers[0].weight is model.layers[0].weight
    assert isinstance(model.one, lp.Param)
    with pytest.raises(lp.ModuleError, match="gives the parameter") as caught:
        lp.reparameterize(model, lambda path, param: None)
    assert caught.value.path == "one"
