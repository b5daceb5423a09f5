"""QLoRA on torch: only factors get gradients, and the example that fine-tunes a real model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lazyparam as lp
from lazyparam import quant
from tests.helpers import Bag, never

torch = pytest.importorskip("torch")

from examples import qlora  # noqa: E402

X = torch.arange(3 * 64, dtype=torch.float32).reshape(3, 64) / 200


def net(init: Any = None, dtype: str = "float32", **options: Any) -> Any:
    w = lp.Param((4, 64), init or lp.init.normal(), dtype, device="torch:cpu")
    b = lp.Param(4, init or lp.init.normal(), dtype, device="torch:cpu")
    # Before as well: what is quantised is drawn as it was declared.
    return lp.apply_qlora(Bag(w=w, b=b).seed(1), r=2, target="w", **options).seed(1)


def trained(model: Any) -> Any:
    """The model after one step, away from where factors are zero."""
    model = model.train()
    with torch.no_grad():
        for leaf in model.leaves():
            leaf += 0.1 * torch.arange(leaf.numel()).reshape(leaf.shape).sin().to(leaf.dtype)
    return model


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dora", [False, True])
@pytest.mark.parametrize("factored", [True, False])
def test_only_the_factors_get_gradients(bits: Any, dora: bool, factored: bool) -> None:
    """B10, B44: integers and scales are no leaves, and never tracked."""
    model = net(bits=bits, dora=dora).train()
    factors = {"w.lora.a", "w.lora.b"} | ({"w.lora.magnitude"} if dora else set())
    assert len(model.leaves()) == len(factors)
    given = lp.linear(X, model.w, model.b) if factored else X @ model.w.val().T + model.b.val()
    given.square().sum().backward()
    found = {path for path, param in model.named_parameters() if param.grad() is not None}
    assert found == factors
    base = model.w.base()
    assert not any(array.requires_grad for array in (base.values, base.scales, base.dequantize()))


def test_valid_and_train_keep_what_is_packed_and_what_is_trained() -> None:
    """B10."""
    model = trained(net())
    inference = model.valid()
    assert inference.w.base().values.dtype == torch.uint8
    assert inference.w.reparameterization("lora") is not None
    assert not inference.w.val().requires_grad
    again = inference.train()
    assert again.w.kind == "quantised"
    assert (again.w.requires_grad, again.b.requires_grad) == (False, False)
    lora = again.w.reparameterization("lora")
    assert all(factor.val().requires_grad and factor.is_active for factor in (lora.a, lora.b))
    assert again.w.val().requires_grad


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("bits", [4, 8])
def test_what_is_merged_is_what_was_read(dtype: str, bits: Any) -> None:
    """B10: exactly, in every dtype; untracked; twice is once."""
    model = trained(net(dtype=dtype, bits=bits))
    expected = model.valid().w.val()
    merged = lp.merge(model)
    assert type(merged.w) is lp.Param
    assert merged.w.dtype == dtype
    assert not merged.w.base().requires_grad
    assert not merged.train().w.base().requires_grad
    assert torch.equal(merged.w.val(), expected)
    assert torch.equal(merged.materialize().w.val(), expected)
    dense = Bag(
        w=lp.Param((4, 64), never, dtype, device="torch:cpu"),
        b=lp.Param(4, never, dtype, device="torch:cpu"),
    )
    assert torch.equal(dense.load_record(merged.record()).w.val(), expected)


def test_a_record_keeps_packed_weights_and_adapters_exactly() -> None:
    """B10."""
    model = trained(net()).valid()
    record = model.record()
    for each in (record, lp.ModuleRecord.from_bytes(record.to_bytes())):
        loaded = net(never).load_record(each)
        assert loaded.w.base().values.dtype == torch.uint8
        assert torch.equal(loaded.w.val(), model.w.val())


@pytest.mark.parametrize("bits", [4, 8])
def test_moving_between_libraries_changes_no_bit(bits: Any) -> None:
    """B26."""
    here = trained(net(bits=bits)).valid()
    there = here.to_device("numpy:cpu")
    assert isinstance(there.w.base(), quant.QuantArray)
    for name, array in there.w.base().arrays.items():
        assert array.tobytes() == here.w.base().arrays[name].numpy().tobytes()
    floats = there.w.base().dequantize()
    assert floats.tobytes() == here.w.base().dequantize().numpy().tobytes()
    back = there.to_device("torch:cpu")
    assert torch.equal(back.w.val(), here.w.val())


def test_gradients_are_those_over_a_dense_base() -> None:
    """The base is what its integers stand for, and a constant."""
    model = trained(net())
    lora = model.w.reparameterization("lora")
    lp.linear(X, model.w).square().sum().backward()
    a, b = (factor.val().detach().clone().requires_grad_() for factor in (lora.a, lora.b))
    (X @ (model.w.base().dequantize() + lora.scale * a @ b).T).square().sum().backward()
    torch.testing.assert_close(lora.a.grad(), a.grad)
    torch.testing.assert_close(lora.b.grad(), b.grad)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As the script has it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.thread_unsafe(reason="sets how many threads torch has")
@pytest.mark.usefixtures("one_thread")
def test_the_example_lowers_the_loss_and_merges_exactly() -> None:
    model = qlora.build("torch:cpu", 8, 4)
    assert not any(param.is_initialized for param in model.parameters())
    assert len([weight for weight in qlora.weights(model) if weight.kind == "quantised"]) == 36
    sentences, topics = zip(*qlora.PAIRS[:4], strict=True)
    ids, mask = qlora.batch([*sentences, *topics], torch.device("cpu"))
    losses = qlora.train(model, ids, mask, 2)
    assert losses[-1] < losses[0]
    merged = lp.merge(model.valid())
    assert qlora.largest_difference(model.valid(), merged) == 0


@pytest.mark.thread_unsafe(reason="sets how many threads torch has")
@pytest.mark.usefixtures("one_thread")
def test_the_example_runs_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    qlora.main(["--steps", "3"])
    out = capsys.readouterr().out
    assert "0 of 212 parameters in being" in out
    losses = [float(text) for text in out.partition("loss: ")[2].splitlines()[0].split()]
    assert losses[-1] < losses[0] / 2
    assert "effective weights: 0 apart" in out


@pytest.mark.parametrize("scheme", [quant.nf4(), quant.q8s()], ids=str)
def test_the_floats_of_what_is_quantised_move_to_any_library(scheme: quant.Scheme) -> None:
    """They are made where they end up, from integers that may be elsewhere."""
    here = lp.quantize_weights([lp.Param((2, 64), lp.init.normal())], scheme)[0]
    expected = here.value
    for moved in (
        here.dense().to_device("torch:cpu"),
        here.materialize().fork("torch:cpu"),
        here.to_device("torch:cpu").dense().to_device("cpu").to_device("torch:cpu"),
    ):
        assert not moved.is_initialized
        assert isinstance(moved.val(), torch.Tensor)
        assert moved.val().numpy().tobytes() == expected.tobytes()
    back = here.to_device("torch:cpu").dense().to_device("cpu")
    assert back.val().tobytes() == expected.tobytes()


def test_a_merge_that_is_moved_before_it_is_made_is_made_on_one_device() -> None:
    """What is folded in moves with the base, and is not mixed with it from elsewhere."""
    seen: list[tuple[type, type]] = []

    class Watched(lp.Reparameterization):
        NAME = "watched"

        def __init__(self) -> None:
            self.factor = lp.Param((2, 2), lp.init.ones())

        def apply(self, base: Any) -> Any:
            seen.append((type(base), type(self.factor.value)))
            return base + self.factor.value

    # Nobody else has the base, so it is made where it is needed.
    merged = lp.Param((2, 2), lp.init.ones()).with_reparameterization(Watched()).materialize()
    moved = merged.to_device("torch:cpu")
    del merged
    assert moved.val().tolist() == [[2, 2], [2, 2]]
    assert seen == [(torch.Tensor, torch.Tensor)]
