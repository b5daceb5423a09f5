"""Records and buffers on torch, where values can be written to and gradients are recorded."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Bag, Linear, never

torch = pytest.importorskip("torch")


def net(init: Any = None) -> Bag:
    """Two layers and a running mean, lazy, on torch, in training."""
    init = init or lp.init.normal()
    return (
        Bag(
            first=Linear(3, 4, init),
            second=Linear(4, 2, init),
            mean=lp.Buffer(4, lp.init.zeros()),
        )
        .seed(1)
        .to_device("torch:cpu")
        .train()
    )


def step(model: Bag, optimizer: Any) -> float:
    optimizer.zero_grad()
    loss = model.second(torch.tanh(model.first(torch.ones(5, 3)))).square().mean()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def bits(source: Any) -> dict[str, bytes]:
    return {path: np.asarray(param).tobytes() for path, param in source.items()}


def bits_in(model: lp.Module) -> dict[str, bytes]:
    return bits(model.record())


# ---- snapshots -----------------------------------------------------------------------------------


def test_steps_of_an_optimiser_do_not_reach_a_record_of_what_was_there() -> None:
    """trl#2873, pytorch#34765: the best weights went on changing."""
    model = net().initialize()
    before = {path: np.asarray(p).copy() for path, p in model.named_parameters()}
    record = model.record()
    optimizer = torch.optim.SGD(model.leaves(), lr=1.0)
    for _ in range(3):
        step(model, optimizer)
    for path, array in before.items():
        assert np.array_equal(record[path].value, array)
        assert not np.array_equal(np.asarray(dict(model.named_parameters())[path]), array)


def test_steps_of_an_optimiser_do_not_reach_a_record_of_what_was_lazy() -> None:
    """The record repeats the draw for itself: nothing came into being when it was taken."""
    model = net()
    record = model.record()
    assert not any(p.is_initialized for p in model.parameters())
    assert not any(p.is_initialized for p in record.values())
    optimizer = torch.optim.SGD(model.leaves(), lr=1.0)
    step(model, optimizer)
    assert bits(record) == bits_in(net())
    assert bits(record) != bits_in(model)


@pytest.mark.parametrize("mode", ["view", "copy"])
def test_steps_of_an_optimiser_do_not_reach_a_record_of_what_a_file_holds(
    mode: Any, tmp_path: Path
) -> None:
    path = tmp_path / "m.safetensors"
    net().save_file(path)
    model = net(never).load_file(path, mode=mode)
    record = model.record()
    assert not any(p.is_initialized for p in (*model.parameters(), *record.values()))
    optimizer = torch.optim.SGD(model.leaves(), lr=1.0)
    step(model, optimizer)
    assert bits(record) == bits_in(net())


def test_what_a_function_makes_comes_into_being_since_it_cannot_be_repeated() -> None:
    runs: list[int] = []

    def random(plan: lp.Plan) -> Any:
        runs.append(1)
        return torch.randn(plan.shape)

    model = Bag(
        w=lp.Param(3, random, device="torch:cpu"),
        mapped=lp.Param(3, lp.init.ones(), device="torch:cpu").map(lambda x: x + len(runs)),
    )
    record = model.record()
    assert runs == [1]
    before = bits(record)
    assert before["w"] == np.asarray(model.w).tobytes()
    model.w.value.zero_()
    model.mapped.value.zero_()
    assert bits(record) == before
    assert runs == [1]


def test_training_what_was_loaded_from_a_record_does_not_change_it() -> None:
    source = net()
    for record in (source.record(), source.initialize().record()):
        before = bits(net().record())
        models = [net(never).load_record(record) for _ in range(2)]
        step(models[0], torch.optim.SGD(models[0].leaves(), lr=1.0))
        assert bits(record) == before
        assert bits_in(models[1]) == before
        assert bits_in(models[0]) != before


def test_what_is_written_into_bytes_is_written_when_it_was_taken() -> None:
    model = net()
    record = model.record()
    data = record.to_bytes()
    step(model, torch.optim.SGD(model.leaves(), lr=1.0))
    assert record.to_bytes() == data
    assert bits(lp.ModuleRecord.from_bytes(data)) == bits_in(net())


# ---- loading -------------------------------------------------------------------------------------


def test_training_goes_on_in_another_model_as_if_nothing_had_happened() -> None:
    """Upstream #5130: identities were lost, and with them the moments of the optimiser."""
    one = net()
    optimizer = torch.optim.Adam(one.leaves(), lr=0.1)
    for _ in range(3):
        step(one, optimizer)
    other = net(never).load_record(pickle.loads(pickle.dumps(one.record())))
    assert [p.id for p in other.parameters()] == [p.id for p in one.parameters()]
    resumed = torch.optim.Adam(other.leaves(), lr=0.1)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for _ in range(3):
        assert step(one, optimizer) == step(other, resumed)


def test_the_context_and_the_wishes_are_the_targets() -> None:
    """B37, B43; upstream #488."""
    record = net().valid().freeze().record()
    target = net(never)
    target.first = target.first.freeze()
    loaded = target.load_record(record)
    assert [p.requires_grad for p in loaded.parameters()] == [False, False, True, True]
    assert [leaf.requires_grad for leaf in loaded.leaves()] == [True, True]
    assert not loaded.first.weight.val().requires_grad
    plain = net(never).valid().load_record(record)
    assert not plain.second.weight.val().requires_grad
    assert plain.train().second.weight.val().requires_grad


def test_bfloat16_goes_through_a_record_and_is_cast_only_when_asked() -> None:
    """B40; upstream #5163."""
    model = Bag(w=lp.Param(3, lp.init.normal(), "bfloat16", device="torch:cpu"))
    record = lp.ModuleRecord.from_bytes(model.record().to_bytes())
    loaded = Bag(w=lp.Param(3, never, "bfloat16", device="torch:cpu")).load_record(record)
    assert loaded.w.value.dtype == torch.bfloat16
    assert torch.equal(loaded.w.value, model.w.value)
    half = Bag(w=lp.Param(3, never, "float16", device="torch:cpu"))
    with pytest.raises(lp.ShapeMismatch, match="expected float16, found bfloat16"):
        half.load_record(record)
    assert half.load_record(record, dtype="cast").w.value.dtype == torch.float16


def test_a_record_of_a_transposed_weight_loads_twice_in_a_row() -> None:
    """B41; upstream #5208."""

    def column(init: Any) -> Bag:
        p = lp.Param((2, 3), init, device="torch:cpu").load_mapper(lambda x: x.T, (3, 2))
        return Bag(w=p.save_mapper(lambda x: x.T))

    model = column(lp.init.normal())
    loaded = column(never).load_record(model.record()).load_record(model.record())
    assert torch.equal(loaded.w.value, model.w.value)
    model.w.value.zero_()
    assert loaded.w.value.any()


class LowRank(lp.Reparameterization):
    """base + a @ b."""

    NAME = "lora"

    def __init__(self, init: Any) -> None:
        self.a, self.b = lp.Param((2, 1), init), lp.Param((1, 3), init)

    def apply(self, base: Any) -> Any:
        return base + self.a.value @ self.b.value


def test_adapters_survive_a_record_and_go_on_training() -> None:
    """B51"""

    def adapted(base: Any, init: Any) -> Bag:
        w = lp.Param((2, 3), base, requires_grad=False).with_reparameterization(LowRank(init))
        return Bag(w=w).to_device("torch:cpu").train()

    model = adapted(lp.init.normal(), lp.init.normal())
    loaded = adapted(never, never).load_record(model.record())
    assert torch.equal(loaded.w.val(), model.w.val())
    loaded.w.val().sum().backward()
    assert [p.id for p in loaded.parameters()] == [p.id for p in model.parameters()]
    assert loaded.w.reparameterization("lora").a.grad() is not None
    assert loaded.w.grad() is None


def test_tied_parameters_of_torch_are_recorded_once_and_trained_as_one() -> None:
    """B52; pytorch#188346: loading split them, and the optimiser counted them twice."""
    p = lp.Param((3, 3), lp.init.normal(), device="torch:cpu")
    model = Bag(a=p, b=p.clone()).train()
    record = lp.ModuleRecord.from_bytes(model.record().to_bytes())
    q = lp.Param((3, 3), never, device="torch:cpu")
    loaded = Bag(a=q, b=q.clone()).train().load_record(record)
    assert len(record) == len(loaded.leaves()) == 1
    assert loaded.a.value is loaded.b.value


# ---- buffers -------------------------------------------------------------------------------------


def test_a_buffer_is_read_untracked_in_training_and_no_optimiser_gets_it() -> None:
    model = net().unfreeze()
    assert len(model.leaves()) == 4
    assert model.mean.device.is_autodiff
    assert not model.mean.val().requires_grad
    assert model.mean.grad() is None
    (model.first(torch.ones(3)) + model.mean.value).sum().backward()
    assert model.mean.value.grad is None


def test_a_buffer_may_be_written_to_in_place_as_torch_does_and_records_are_apart() -> None:
    model = net()
    record = model.record()
    model.mean.value.mul_(0.9).add_(0.1)
    assert model.mean.value.tolist() == pytest.approx([0.1] * 4)
    assert model.valid().mean.value.tolist() == pytest.approx([0.1] * 4)
    assert record["mean"].value.tolist() == [0] * 4
    loaded = net().load_record(model.record())
    assert loaded.mean.value.tolist() == pytest.approx([0.1] * 4)
    assert not loaded.mean.requires_grad


def test_a_buffer_can_be_made_of_a_tensor_of_torch() -> None:
    source = torch.ones(3, requires_grad=True)
    buffer = lp.Buffer.from_tensor(source)
    assert not buffer.requires_grad
    assert not buffer.value.requires_grad
    with torch.no_grad():
        source.zero_()
    assert buffer.value.tolist() == [1, 1, 1]


# ---- parameters loaded from parameters -----------------------------------------------------------


def test_a_parameter_may_be_loaded_from_another_and_shares_no_memory_with_it() -> None:
    ready = lp.Param(3, lp.init.ones(), device="torch:cpu")
    ready.val()
    loaded = lp.Param(3, never, device="torch:cpu").transform_for_load(ready)
    ready.value.zero_()
    assert loaded.value.tolist() == [1, 1, 1]
    for dtype in (None, "float16"):
        lazy = lp.Param(3, lp.init.ones(), device="torch:cpu")
        loaded = lp.Param(3, never, device="torch:cpu").transform_for_load(lazy, dtype=dtype)
        assert not loaded.is_initialized
        loaded.value.zero_()
        assert lazy.value.tolist() == [1, 1, 1]
    with pytest.raises(lp.ShapeMismatch):
        lp.Param(4, never, device="torch:cpu").transform_for_load(lazy)
