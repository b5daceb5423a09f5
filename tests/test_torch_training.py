"""Training on torch: leaves for its optimisers, gradients by parameter, and the example."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Bag, Box, Linear, Tied, never, race

torch = pytest.importorskip("torch")

from examples import train_torch  # noqa: E402

TRACKING = lp.device("torch:cpu").autodiff()


def net() -> Bag:
    """Two layers, the first one frozen, and a counter; all lazy, on torch, in training."""
    return (
        Bag(
            first=Linear(3, 4, lp.init.normal()).freeze(),
            second=Linear(4, 2, lp.init.normal()),
            steps=lp.Param(1, lp.init.zeros(), dtype="int64"),
        )
        .seed(1)
        .to_device("torch:cpu")
        .train()
    )


def loss_of(model: Bag) -> Any:
    return model.second(torch.tanh(model.first(torch.ones(5, 3)))).square().mean()


# ---- the example ---------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_lazy_model_trains_as_plain_torch_does(optimizer: str, tmp_path: Path) -> None:
    """Loaded, trained for 200 steps, loss for loss the same to 1e-6, and saved."""
    ours, torchs, trained = train_torch.run(tmp_path, optimizer, "torch:cpu", steps=200)
    assert len(ours) == 201
    np.testing.assert_allclose(ours, torchs, rtol=0, atol=1e-6)
    assert ours[-1] < ours[0] / 5
    path = tmp_path / "trained.safetensors"
    trained.save_file(path)
    again = train_torch.Net().to_device("torch:cpu").load_file(path)
    x, _ = train_torch.examples(torch.device("cpu"))
    assert torch.equal(again(x), trained.valid()(x))
    frozen = train_torch.Net().seed(1).body[0]
    assert np.array_equal(np.asarray(trained.body[0].weight), frozen.weight.value)


def test_the_example_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    train_torch.main(["--steps", "10"])
    out = capsys.readouterr().out
    assert "largest difference: 0.0e+00" in out
    assert "it answers the same: True" in out


# ---- leaves --------------------------------------------------------------------------------------


def test_leaves_are_what_is_to_be_trained_and_bring_only_that_into_being() -> None:
    model = net()
    leaves = model.leaves()
    assert [tuple(leaf.shape) for leaf in leaves] == [(2, 4), (2,)]
    assert all(leaf.is_leaf and leaf.requires_grad for leaf in leaves)
    assert all(a is b for a, b in zip(leaves, model.leaves(), strict=True))
    assert not model.first.weight.is_initialized
    assert not model.steps.is_initialized


def test_tied_parameters_have_one_leaf() -> None:
    """accelerate#3668: also if the first of them is frozen and another is not."""
    model = Tied(lp.init.normal()).seed(1).to_device("torch:cpu").train()
    assert len(model.leaves()) == 5
    model.embed = model.embed.set_requires_grad(False)
    assert len(model.leaves()) == 5
    assert any(leaf is model.head.val() for leaf in model.leaves())


def test_a_step_of_an_optimiser_is_seen_by_every_handle() -> None:
    model = net()
    before = model.second.weight.val().detach().clone()
    optimizer = torch.optim.SGD(model.leaves(), lr=1.0)
    loss_of(model).backward()
    gradient = model.second.weight.grad()
    optimizer.step()
    expected = before - gradient
    for handle in (model, model.clone(), model.valid(), model.valid().train(), model.train()):
        assert torch.equal(handle.second.weight.val().detach(), expected)
    assert model.train().leaves()[0] is model.leaves()[0]
    forked = model.fork("torch:cpu")
    assert forked.leaves()[0] is not model.leaves()[0]


def test_untracked_parameters_are_refused_by_path_and_with_what_to_do() -> None:
    model = net().valid()
    for ask in (model.leaves, model.grads, lambda: lp.gradients(torch.ones(()), model)):
        with pytest.raises(lp.DeviceError, match=r"second\.weight: .*untracked.*module\.train\(\)"):
            ask()
    assert not model.second.weight.is_initialized


def test_a_library_that_records_no_gradients_is_refused_by_path() -> None:
    model = Box(lp.Param(3, never)).train()
    for ask in (model.leaves, model.grads, lambda: lp.gradients(1.0, model)):
        with pytest.raises(lp.errors.AutodiffUnsupported, match="t: arrays on numpy:cpu"):
            ask()
    assert model.freeze().leaves() == []
    assert len(model.freeze().grads()) == 0
    assert len(lp.gradients(1.0, model.freeze())) == 0


def test_a_model_may_be_half_on_another_library_if_that_half_is_frozen() -> None:
    model = Bag(
        table=lp.Param(3, lp.init.ones(), requires_grad=False),
        t=lp.Param(3, lp.init.ones(), device=TRACKING),
    )
    assert len(model.leaves()) == 1


def test_what_torch_offers_for_parameters_works_on_leaves() -> None:
    model = net()
    loss_of(model).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.leaves(), 1e-3)
    assert norm > 1e-3
    total = sum(gradient.square().sum() for gradient in model.grads().values())
    assert total.sqrt() == pytest.approx(1e-3, rel=1e-3)
    optimizer = torch.optim.AdamW(model.leaves())
    optimizer.step()
    again = torch.optim.AdamW(model.leaves())
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    optimizer.zero_grad()
    assert len(model.grads()) == 0


def test_gradients_add_up_over_steps_until_they_are_cleared() -> None:
    model = net()
    loss_of(model).backward()
    once = model.second.bias.grad().clone()
    loss_of(model).backward()
    assert torch.allclose(model.second.bias.grad(), once * 2)


@pytest.mark.usefixtures("eager_switching")
def test_threads_that_train_one_model_share_its_leaves() -> None:
    """B01: first access and backward from eight threads; every gradient arrives."""
    model = net()

    def run() -> list[Any]:
        loss = loss_of(model)
        return [loss, *model.leaves()]

    results = race([run] * 8)
    assert all(result[1] is results[0][1] for result in results)
    race([result[0].backward for result in results])
    expected = lp.gradients(loss_of(model), model)
    assert torch.allclose(model.second.weight.grad(), expected[model.second.weight] * 8)


def test_a_model_in_training_is_copied_and_pickled_without_its_gradients() -> None:
    model = net()
    loss_of(model).backward()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert len(other.grads()) == 0
        assert torch.equal(other.second.weight.val(), model.second.weight.val())
        assert other.leaves()[0] is not model.leaves()[0]


# ---- gradients by parameter ----------------------------------------------------------------------


def test_gradients_are_found_by_parameter_by_id_and_by_what_was_made_of_it() -> None:
    """#8287, #12627: Burn's ``grad(&grads)``."""
    model = net()
    assert len(model.grads()) == 0
    loss_of(model).backward()
    grads = model.grads()
    weight = model.second.weight
    assert sorted(grads) == sorted([weight.id, model.second.bias.id])
    assert torch.equal(grads[weight], weight.grad())
    assert not grads[weight].requires_grad
    for other in (weight.id, weight.clone(), weight.valid(), weight.fork("torch:cpu")):
        assert grads[other] is grads[weight]
        assert other in grads
    assert grads.get(model.first.weight) is None
    assert model.first.weight not in grads
    with pytest.raises(KeyError):
        grads[model.first.weight]
    assert "2 gradients" in repr(grads)
    assert dict(grads).keys() == grads.keys()
    assert pickle.loads(pickle.dumps(grads)).keys() == grads.keys()


def test_gradients_of_a_loss_leave_the_leaves_alone() -> None:
    model = net()
    found = lp.gradients(loss_of(model), model)
    assert len(model.grads()) == 0
    loss_of(model).backward()
    for param in (model.second.weight, model.second.bias):
        assert torch.equal(found[param], param.grad())


def test_a_parameter_that_a_loss_does_not_depend_on_has_no_gradient() -> None:
    model = net()
    found = lp.gradients(model.second.weight.val().sum(), model)
    assert list(found) == [model.second.weight.id]


def test_gradients_of_gradients() -> None:
    p = lp.Param(2, lp.init.constant(3.0), device=TRACKING)
    first = lp.gradients((p.val() ** 3).sum(), Box(p), create_graph=True)
    assert first[p].tolist() == [27, 27]
    second = lp.gradients(first[p].sum(), Box(p))
    assert second[p].tolist() == [18, 18]


def test_a_graph_is_kept_if_asked_for() -> None:
    model = net()
    loss = loss_of(model)
    one = lp.gradients(loss, model, retain_graph=True)
    other = lp.gradients(loss, model)
    assert torch.equal(one[model.second.weight], other[model.second.weight])
    with pytest.raises(RuntimeError, match="second time"):
        lp.gradients(loss, model)


def test_tied_parameters_have_one_gradient() -> None:
    model = Tied(lp.init.normal()).seed(1).to_device("torch:cpu").train()
    loss = model.embed.val().sum() + 2 * model.head.val().sum()
    found = lp.gradients(loss, model)
    assert (found[model.embed] == 3).all()
    assert found[model.head] is found[model.embed]


def test_copies_of_a_layer_share_ids_and_their_gradients_are_not_mixed_up() -> None:
    layer = Linear(2, 2, lp.init.normal())
    model = Bag(layers=[layer, copy.deepcopy(layer)]).to_device("torch:cpu").train()
    loss = model.layers[1](model.layers[0](torch.ones(1, 2))).sum()
    with pytest.raises(lp.ModuleError, match=r"layers\.1\.weight: .*one id.*layers\.0\.weight"):
        lp.gradients(loss, model, retain_graph=True)
    loss.backward()
    assert len(model.leaves()) == 4
    assert model.layers[0].weight.grad() is not None


def test_sparse_gradients_are_handed_out_as_they_are() -> None:
    p = lp.Param((10, 3), lp.init.normal(), device=TRACKING)
    embedded = torch.nn.functional.embedding(torch.tensor([1, 4]), p.val(), sparse=True)
    embedded.sum().backward()
    assert p.grad().layout is torch.sparse_coo
    assert Box(p).grads()[p].to_dense().sum() == 6
    torch.optim.SGD(Box(p).leaves(), lr=0.1).step()


def test_grads_never_change() -> None:
    source = {1: "one"}
    grads = lp.Grads(source)
    source[2] = "two"
    assert list(grads.items()) == [(1, "one")]
    with pytest.raises(TypeError):
        grads[1] = "other"  # type: ignore[index]
