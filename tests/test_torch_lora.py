"""Adapters on torch: what gets gradients, what stays frozen, and dtypes that stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Bag, Counting, never

torch = pytest.importorskip("torch")

X = torch.arange(12, dtype=torch.float32).reshape(4, 3) / 10


def ones(*shape: int) -> lp.Param:
    return lp.Param(shape, lp.init.ones(), device="torch:cpu").train()


def wishes(module: Any) -> dict[str, bool]:
    return {path: param.requires_grad for path, param in module.named_parameters()}


def with_gradient(module: lp.Module) -> set[str]:
    return {path for path, param in module.named_parameters() if param.grad() is not None}


def net(init: Any = None, **options: Any) -> Bag:
    init = init or lp.init.normal()
    options = {"device": "torch:cpu"} | options
    return Bag(w=lp.Param((4, 3), init, **options), b=lp.Param(4, init, **options)).seed(1)


# ---- B09, as a whole -----------------------------------------------------------------------------


def adapted() -> tuple[lp.AdaptedParam, lp.Param, lp.Param]:
    a, b = ones(2, 1), ones(1, 3)
    turned = (3, 2)
    base = ones(2, 3).load_mapper(lambda x: x.T, turned).save_mapper(lambda x: x.T, turned)
    return base.with_reparameterization(lp.LoraAdapter(a, b, 2.0)), a, b


@pytest.mark.parametrize("ready", [False, True], ids=["lazy", "ready"])
def test_a_gradient_reaches_only_what_was_merged(ready: bool) -> None:
    """B09."""
    p, a, b = adapted()
    if ready:
        p.val()
    merged = p.materialize()
    assert isinstance(merged, lp.Param)
    assert p.reparameterization("lora") is not None
    assert merged.id == p.id
    assert merged.base().requires_grad
    assert merged.base().is_leaf
    assert merged.val().tolist() == [[3, 3, 3]] * 2
    assert merged.transform_for_save().base().tolist() == [[3, 3]] * 3
    loaded = merged.transform_for_load(torch.ones(3, 2))
    assert loaded.base().shape == (2, 3)
    merged.val().sum().backward()
    assert merged.grad().tolist() == [[1, 1, 1]] * 2
    assert [param.grad() for param in (p, a, b)] == [None, None, None]


def test_what_is_merged_for_validation_or_frozen_stays_so() -> None:
    """B09."""
    p, _, _ = adapted()
    validating = p.valid().materialize()
    assert not validating.base().requires_grad
    assert validating.train().base().requires_grad
    frozen = p.no_grad().materialize()
    assert not frozen.base().requires_grad
    assert not frozen.valid().train().base().requires_grad


# ---- other rows, where gradients are recorded ----------------------------------------------------


class Never(lp.Reparameterization):
    NAME = "never"

    def apply(self, base: Any) -> Any:
        raise AssertionError("a reparameterisation was applied")


def test_validation_twice_untracks_the_base_and_applies_nothing() -> None:
    """B08."""
    checked = ones(2, 3).with_reparameterization(Never()).valid().valid()
    assert not checked.base().requires_grad
    assert checked.train().base().requires_grad
    assert isinstance(checked.reparameterization("never"), Never)


@pytest.mark.parametrize("ready", [False, True], ids=["lazy", "ready"])
@pytest.mark.parametrize("verb", ["to_device", "fork"])
def test_an_adapter_stays_through_a_move_and_still_gets_gradients(verb: str, ready: bool) -> None:
    """B26."""
    p, _, _ = adapted()
    if ready:
        p.val()
    moved = getattr(p, verb)("torch:cpu")
    moved.val().sum().backward()
    lora = moved.reparameterization(lp.LoraAdapter)
    assert lora.a.grad().tolist() == [[6], [6]]
    assert lora.b.grad().tolist() == [[4, 4, 4]]
    assert moved.grad().tolist() == [[1, 1, 1]] * 2


def test_a_mapped_base_is_the_effective_one_mapped() -> None:
    """B27: and the mapped value is the leaf."""
    p, _, _ = adapted()
    clone = p.clone()
    mapped = p.init_mapper(lambda value: value * 2)
    assert clone.val().tolist() == [[3, 3, 3]] * 2
    del clone
    assert not mapped.is_initialized
    assert mapped.val().tolist() == [[6, 6, 6]] * 2


@pytest.mark.parametrize("device", ["numpy:cpu", "torch:cpu"])
@pytest.mark.parametrize("scheme", [lp.quant.q8s(), lp.quant.nf4()], ids=str)
def test_the_life_of_a_quantised_layer_with_its_adapter(
    scheme: lp.quant.Scheme, device: str
) -> None:
    """B10, as a whole."""

    def declared(init: Any, drawn: Any) -> Bag:
        w = lp.quantize_weights([lp.Param((4, 64), init, device=device)], scheme)[0]
        a, b = (lp.Param(shape, drawn, device=device) for shape in ((4, 2), (2, 64)))
        return Bag(w=w.with_reparameterization(lp.LoraAdapter(a, b, 2.0)))

    normal = lp.init.normal()
    model = declared(normal, normal).seed(3)
    packed = [model.w.base().values.dtype, model.w.base().scales.dtype]
    for other in (model.valid(), model.train(), model.valid().train()):
        assert [other.w.base().values.dtype, other.w.base().scales.dtype] == packed
        assert isinstance(other.w.reparameterization("lora"), lp.LoraAdapter)
        assert [path for path, wish in wishes(other).items() if wish] == ["w.lora.a", "w.lora.b"]
    effective = np.asarray(model.valid().w.val())
    assert not np.array_equal(effective, model.valid().w.val(adapters=()))
    record = lp.ModuleRecord.from_bytes(model.record().to_bytes())
    loaded = declared(never, never).load_record(record)
    assert [loaded.w.base().values.dtype, loaded.w.base().scales.dtype] == packed
    assert isinstance(loaded.w.reparameterization("lora"), lp.LoraAdapter)
    assert np.array_equal(loaded.valid().w.val(), effective)
    merged = model.materialize()
    for once in (merged, merged.materialize()):
        assert isinstance(once.w, lp.Param)
        assert (once.w.dtype, once.w.requires_grad) == ("float32", False)
        assert not getattr(once.w.val(), "requires_grad", False)
        assert np.array_equal(once.w.val(), effective)
    dense = Bag(w=lp.Param((4, 64), never, device=device)).load_record(merged.record())
    assert np.array_equal(dense.valid().w.val(), effective)


# ---- what gets gradients -------------------------------------------------------------------------


@pytest.mark.parametrize("dora", [False, True])
@pytest.mark.parametrize("apply", [lp.linear, lambda x, p: x @ p.val().T], ids=["linear", "dense"])
def test_only_the_factors_get_gradients(apply: Callable[..., Any], dora: bool) -> None:
    """B44."""
    model = lp.apply_lora(net(), r=2, dora=dora).train()
    factors = {"w.lora.a", "w.lora.b"} | ({"w.lora.magnitude"} if dora else set())
    assert {path for path, wish in wishes(model).items() if wish} == factors
    assert len(model.leaves()) == len(factors)
    untouched = X @ model.w.base().T
    given = apply(X, model.w)
    assert torch.equal(given, untouched)
    given.square().sum().backward()
    assert with_gradient(model) == factors
    assert model.w.grad() is None


def test_gradients_of_the_factored_form_are_those_of_the_dense_one() -> None:
    def grads(apply: Callable[..., Any]) -> lp.Grads:
        lora = lp.LoraAdapter(ones(4, 2), ones(2, 3), 0.5)
        model = Bag(w=net().w.with_reparameterization(lora)).train()
        found = lp.gradients(apply(X, model.w).square().sum(), model)
        return [found[param] for param in model.parameters()]  # type: ignore[return-value]

    for one, other in zip(grads(lp.linear), grads(lambda x, p: x @ p.val().T), strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_reach_base_and_magnitude() -> None:
    """B45."""
    init = Counting()
    p = lp.Param((4, 3), lambda plan: torch.tensor(init(plan)), device="torch:cpu")
    model = Bag(w=p.with_reparameterization(lp.WeightNorm())).train()
    assert torch.equal(model.w.val().detach(), model.w.base().detach())
    assert init.runs == 1
    (model.w.val() * torch.arange(12).reshape(4, 3)).sum().backward()
    assert with_gradient(model) == {"w", "w.weight_norm.magnitude"}
    norm = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4, bias=False))
    norm.parametrizations.weight.original1.data = model.w.base().detach().clone()
    magnitude = model.w.reparameterization("weight_norm").magnitude
    norm.parametrizations.weight.original0.data = magnitude.val().detach().clone()
    (norm.weight * torch.arange(12).reshape(4, 3)).sum().backward()
    originals = norm.parametrizations.weight
    torch.testing.assert_close(model.w.grad(), originals.original1.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(magnitude.grad(), originals.original0.grad, rtol=1e-4, atol=1e-4)


def test_a_row_of_zeros_gives_no_gradient_that_is_none() -> None:
    p = lp.Param((2, 2), lp.init.zeros(), device="torch:cpu")
    model = Bag(w=p.with_reparameterization(lp.WeightNorm())).train()
    model.w.val().sum().backward()
    assert all(torch.isfinite(param.grad()).all() for param in model.parameters())


def test_no_gradient_passes_the_norm_of_dora() -> None:
    """Section 4.3 of the paper."""
    p = lp.Param.from_tensor(torch.randn(4, 3))
    a, b = torch.randn(4, 2), torch.randn(2, 3)
    lora = lp.DoraAdapter(lp.Param.from_tensor(a), lp.Param.from_tensor(b), 0.5)
    model = Bag(w=p.set_requires_grad(False).with_reparameterization(lora)).train()
    lora = model.w.reparameterization("dora")
    model.w.val().square().sum().backward()
    a.requires_grad_()
    v = p.val() + 0.5 * a @ b
    (v * (p.val().norm(dim=1) / v.norm(dim=1).detach())[:, None]).square().sum().backward()
    torch.testing.assert_close(lora.a.grad(), a.grad)


def test_training_lora_lowers_the_loss_and_leaves_the_base() -> None:
    model = lp.apply_lora(net(), r=2, init_std=0.5).seed(1).train()
    before = model.w.base().clone()
    optimizer = torch.optim.SGD(model.leaves(), lr=0.05)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = (lp.linear(X, model.w, model.b) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert torch.equal(model.w.base(), before)
    trained = model.valid()
    torch.testing.assert_close(lp.linear(X, lp.merge(trained).w), lp.linear(X, trained.w))


def test_an_effective_value_is_made_anew_after_a_step() -> None:
    model = lp.apply_lora(net(), r=2).train()
    validating = model.valid()
    kept = validating.w.val()
    assert validating.w.val() is kept
    with torch.no_grad():
        for leaf in model.leaves():
            leaf += 1
    assert not torch.equal(validating.w.val(), kept)


# ---- what stays as it is -------------------------------------------------------------------------


def two() -> Any:
    model = lp.apply_lora(net(), r=2, name="one")
    return lp.apply_lora(model, r=2, name="two").train()


SWITCHES: dict[str, Callable[[Any], Any]] = {
    "activate one": lambda m: lp.activate(m, "one"),
    "activate none": lambda m: lp.activate(m),
    "activate one, then both": lambda m: lp.activate(lp.activate(m, "one"), "one", "two"),
    "valid and train": lambda m: m.valid().train(),
    "merge and unmerge": lambda m: lp.unmerge(lp.merge(m, undoable=True)),
    "move": lambda m: m.to_device("torch:cpu"),
    "read": lambda m: (m.w.val(adapters="one"), m)[1],
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_switching_never_flips_what_is_trained(switch: str) -> None:
    """huggingface/peft#3447, #3580, #3487, #2759, #1374."""
    model = two()
    was = wishes(model)
    assert wishes(SWITCHES[switch](model)) == was
    assert wishes(model) == was
    with lp.active_adapters():
        assert wishes(model) == was
        model.w.val()
    assert not was["w"]
    assert was["w.one.a"]
    assert was["w.two.a"]


def test_dropping_one_leaves_the_others_as_they_are() -> None:
    """peft's unload() leaves the base frozen without saying so; here that is the rule."""
    model = two()
    left = wishes(lp.without_adapters(model, "one"))
    assert left == {path: wish for path, wish in wishes(model).items() if ".one." not in path}
    assert wishes(lp.without_adapters(model)) == {"w": False, "b": False}


def test_only_active_adapters_are_trained() -> None:
    model = lp.activate(two(), "one")
    model.w.val().sum().backward()
    assert with_gradient(model) == {"w.one.a", "w.one.b"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("order", ["attach, load", "load, attach"])
def test_the_dtype_of_factors_is_told_by_the_base_whatever_the_order(
    dtype: str, order: str
) -> None:
    """huggingface/peft#1090, #2421, #2891: there it hangs on load order, autocast and the base."""
    model = net(never, dtype=dtype)
    state = {"w": torch.ones(4, 3, dtype=getattr(torch, dtype)), "b": torch.ones(4)}
    verbs = [lp.apply_lora, lambda m: m.load_state_dict(state, False, dtype="cast")]
    for verb in verbs if order == "attach, load" else reversed(verbs):
        model = verb(model)
    with torch.autocast("cpu", torch.bfloat16):
        lora = model.w.reparameterization("lora")
        assert {lora.a.dtype, lora.b.dtype, model.w.dtype} == {dtype}
        assert lora.a.val().dtype == model.w.val().dtype == getattr(torch, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_with_wider_factors_keeps_its_dtype_and_its_gradients(dtype: str) -> None:
    """tracel-ai/burn#5362, #5364, #5365: half-precision bases and float32 factors failed."""
    model = lp.apply_lora(net(dtype=dtype), dtype="float32").train()
    x = X.to(getattr(torch, dtype))
    for given in (lp.linear(x, model.w), x @ model.w.val().T):
        assert given.dtype == x.dtype
        given.sum().backward()
    assert model.w.reparameterization("lora").a.grad().dtype == torch.float32


@pytest.mark.parametrize(
    ("base", "factors"), [("float32", "bfloat16"), ("float16", "bfloat16"), ("bfloat16", "float16")]
)
def test_narrower_factors_and_factors_of_another_kind_apply_too(base: str, factors: str) -> None:
    model = lp.apply_lora(net(dtype=base), dtype=factors).train()
    x = X.to(getattr(torch, base))
    given = lp.linear(x, model.w)
    assert given.dtype == x.dtype
    given.sum().backward()
    assert model.w.reparameterization("lora").a.grad().dtype == getattr(torch, factors)


def test_what_is_merged_until_undone_goes_along_to_devices_and_into_training() -> None:
    model = lp.apply_lora(net(), r=2).to_device("numpy:cpu")
    merged = lp.merge(model, undoable=True)
    moved = merged.to_device("torch:cpu").train()
    back = lp.unmerge(moved)
    assert str(back.w.device) == "torch:cpu"
    assert back.w.reparameterization("lora").a.val().requires_grad
    assert np.array_equal(back.valid().w, model.w.val())


def test_a_bfloat16_merge_on_torch_is_that_of_numpy() -> None:
    model = lp.apply_lora(net(dtype="bfloat16"), init_std=1)
    ready = model.load_state_dict({"w.lora.a": torch.randn(4, 8, dtype=torch.bfloat16)}, False)
    here = lp.merge(ready).w.val()
    there = lp.merge(ready.to_device("numpy:cpu")).w
    difference = here.float().numpy() - np.asarray(there).astype("f4")
    assert abs(difference).max() <= 2**-7 * abs(here.float()).max()
    (error,) = lp.merge_errors(ready).values()
    assert 0 < error < 0.1
