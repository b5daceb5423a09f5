"""Freezing by groups on torch: who gets a gradient, and which leaves an optimiser gets."""

from __future__ import annotations

from typing import Any

import pytest

import lazyparam as lp
from lazyparam import ParamGroup
from tests.helpers import Bag, Linear, Tied, never

torch = pytest.importorskip("torch")


def net(init: Any = None) -> Bag:
    """Two layers on torch, lazy, in training."""
    init = init or lp.init.normal()
    model = Bag(first=Linear(3, 4, init), second=Linear(4, 2, init), drop=lp.Flag())
    return model.seed(1).to_device("torch:cpu").train()


def loss_of(model: Bag) -> Any:
    hidden = torch.tanh(model.first(torch.ones(5, 3)))
    return model.second(hidden * 0.5 if model.drop else hidden).square().mean()


def with_gradients(model: Bag) -> list[str]:
    """Paths of the parameters that a loss gives a gradient."""
    gradients = lp.gradients(loss_of(model), model)
    return [path for path, param in model.named_parameters() if param in gradients]


SECOND = ["second.weight", "second.bias"]
FIRST = ["first.weight", "first.bias"]


def test_only_what_no_group_has_frozen_gets_gradients() -> None:
    model = net()
    assert with_gradients(model) == [*FIRST, *SECOND]
    for frozen in (model.freeze("first.*"), model.no_grad("first.*")):
        assert with_gradients(frozen) == SECOND
        assert not frozen.first.weight.val().requires_grad
        assert with_gradients(frozen.valid().train()) == SECOND
        assert with_gradients(frozen.unfreeze("first.weight")) == ["first.weight", *SECOND]
    assert model.no_grad("first.*").drop
    assert not model.freeze("*rop").drop


def test_a_frozen_base_stays_frozen_when_a_freeze_is_undone() -> None:
    """T19 of Burn."""
    model = net().freeze("first.*")
    before = model.training_state()
    again = model.freeze().with_training_state(before)
    assert with_gradients(again) == SECOND
    assert with_gradients(model.freeze().unfreeze()) == [*FIRST, *SECOND]


def test_full_cycle_with_a_group() -> None:
    """B21: what the group names, and what it does not."""
    model = net()

    def told(model: Bag) -> tuple[tuple[bool, bool], ...]:
        both = (model.first.weight, model.second.weight)
        return tuple((param.val().requires_grad, param.is_active) for param in both)

    assert told(model) == ((True, True), (True, True))
    assert told(model.valid()) == ((False, True), (False, True))
    off = model.valid().train().no_grad("first.*")
    assert told(off) == ((False, False), (True, True))
    assert told(off.valid()) == ((False, False), (False, True))
    assert told(off.valid().train()) == told(off)


def test_a_lazy_parameter_that_a_group_has_frozen_is_read_untracked() -> None:
    """B14."""
    model = net().no_grad("first.*")
    assert not model.first.weight.is_initialized
    assert not model.first.weight.val().requires_grad
    assert model.first.weight.val().grad_fn is None


def test_nothing_initialises_by_freezing() -> None:
    model = net(never)
    for after in (
        *(model.freeze("first.*"), model.unfreeze(ParamGroup.of(model.first)), model.no_grad("*")),
        model.with_training_state(model.training_state()),
    ):
        assert not any(param.is_initialized for param in after.parameters())
    assert model.freeze().leaves("first.*") == []


def test_the_groups_of_an_optimiser_never_overlap() -> None:
    """Weight decay for matrices only, say; torch refuses a leaf in two groups."""
    model = net()
    decayed = ParamGroup.where(lambda path, param: param.ndim > 1)
    optimizer = torch.optim.AdamW(
        [
            {"params": model.leaves(decayed), "weight_decay": 0.1},
            {"params": model.leaves(~decayed), "weight_decay": 0.0},
        ],
        lr=0.1,
    )
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 2]
    before = [leaf.detach().clone() for leaf in model.leaves()]
    loss_of(model).backward()
    optimizer.step()
    after = model.leaves()
    assert not any(torch.equal(old, new) for old, new in zip(before, after, strict=True))

    tied = Tied(lp.init.normal()).seed(1).to_device("torch:cpu").train()
    for group in (ParamGroup.glob("head"), ParamGroup.glob("embed")):
        assert len(tied.leaves(group)) == 1
        assert len(tied.leaves(~group)) == 4


def test_tied_halves_are_frozen_together_and_never_move() -> None:
    """B52: were only the named half frozen, the other half would train its value."""
    model = Tied(lp.init.normal()).seed(1).to_device("torch:cpu").train().freeze("head")
    before = model.head.val().clone()
    hidden = model.middle[1](model.middle[0](model.embed.val()))
    (hidden @ model.head.val().T).square().mean().backward()
    torch.optim.SGD(model.leaves(), lr=1.0).step()
    assert torch.equal(model.head.val(), before)
    assert model.embed.val() is model.head.val()


def test_a_step_on_what_is_frozen_in_part_is_seen_by_the_module_before() -> None:
    """Values are shared: freezing is no copy, and to undo it is to go on with the old module."""
    model = net()
    part = model.freeze("first.*")
    before = model.second.weight.val().detach().clone()
    loss_of(part).backward()
    torch.optim.SGD(part.leaves(), lr=1.0).step()
    assert not torch.equal(model.second.weight.val(), before)
    assert torch.equal(model.second.weight.val(), part.second.weight.val())
    assert with_gradients(model) == [*FIRST, *SECOND]
