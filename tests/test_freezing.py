"""Freezing by groups: what is to be trained is changed, taken down and put back."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from lazyparam import ParamGroup
from tests.helpers import Bag, Linear, Tied, never


def net(init: Any = never) -> Bag:
    return Bag(
        encoder=Bag(up=Linear(3, 4, init), drop=lp.Flag()),
        head=Linear(4, 2, init),
        drop=lp.Flag(),
        steps=lp.Param(1, init, dtype="int64"),
    )


ENCODER = ["encoder.up.weight", "encoder.up.bias"]
HEAD = ["head.weight", "head.bias"]
FLAGS = ["encoder.drop", "drop"]


def trained(model: lp.Module) -> list[str]:
    """The paths of what is wanted to train, and of the flags that are configured on."""
    return sorted(path for path, on in model.training_state().items() if on)


def lazy(model: lp.Module) -> bool:
    return not any(param.is_initialized for param in model.parameters())


EVERYTHING = sorted([*ENCODER, *HEAD, *FLAGS, "steps"])


def without(*paths: str) -> list[str]:
    return sorted(set(EVERYTHING) - set(paths))


# ---- verbs with groups ---------------------------------------------------------------------------


def test_without_a_group_verbs_mean_everything() -> None:
    model = net()
    assert trained(model) == EVERYTHING
    assert trained(model.freeze()) == []
    assert trained(model.no_grad()) == sorted(FLAGS)
    assert trained(model.set_requires_grad(False)) == sorted(FLAGS)
    assert trained(model.freeze().unfreeze()) == EVERYTHING
    assert trained(model.freeze().set_requires_grad(True)) == without(*FLAGS)
    assert lazy(model)


@pytest.mark.parametrize("group", ["encoder.*", ParamGroup.matching(r"encoder\..*")])
def test_a_group_limits_what_is_changed(group: Any) -> None:
    """A text is a shell pattern; the module that was asked stays as it is."""
    model = net()
    assert trained(model.freeze(group)) == without(*ENCODER, "encoder.drop")
    assert trained(model.no_grad(group)) == without(*ENCODER)
    assert trained(model.set_requires_grad(False, group)) == without(*ENCODER)
    assert trained(model.freeze().unfreeze(group)) == sorted([*ENCODER, "encoder.drop"])
    assert trained(model.freeze().set_requires_grad(True, group)) == sorted(ENCODER)
    assert trained(model) == EVERYTHING
    assert lazy(model)


def test_groups_of_every_sort_freeze() -> None:
    model = net()
    for group in (
        ParamGroup.from_paths(*ENCODER, "encoder.drop"),
        ParamGroup.of(model.encoder),
        ParamGroup.from_ids(model.encoder.up.weight, model.encoder.up.bias, model.encoder.drop),
        ParamGroup.where(lambda path, leaf: path.startswith("encoder.")),
        ParamGroup.all() - ParamGroup.glob("head.*", "drop", "steps"),
    ):
        assert trained(model.freeze(group)) == without(*ENCODER, "encoder.drop"), group


def test_a_lazy_parameter_frozen_by_a_group_stays_lazy_and_frozen() -> None:
    """B14."""
    model = net().no_grad("head.weight").valid().train()
    assert trained(model) == without("head.weight")
    assert not model.head.weight.requires_grad
    assert lazy(model)


def test_validation_and_training_keep_what_groups_have_frozen() -> None:
    """B21 for a group; freezing within validation holds afterwards."""
    frozen = net().freeze("encoder.*")
    for after in (
        frozen.valid(),
        frozen.valid().train(),
        net().valid().freeze("encoder.*").train(),
    ):
        assert trained(after) == trained(frozen)
    assert not frozen.train().encoder.drop
    assert frozen.train().drop


def test_tied_parameters_are_frozen_together() -> None:
    """B52. Half a frozen tie would be trained by its other half, in silence."""
    model = Tied()
    for path in ("embed", "head"):
        frozen = model.freeze(path)
        assert not frozen.embed.requires_grad
        assert not frozen.head.requires_grad
        assert frozen.head.is_tied_to(frozen.embed)
        assert frozen.head.is_tied_to(model.embed)
        others = model.freeze(~ParamGroup.from_paths(path))
        assert trained(others) == ["embed", "head"]
    same = Bag(a=model.embed, b=model.embed)
    assert trained(same.freeze("b")) == []
    assert same.freeze("b").a is not same.a
    assert lazy(model)


def test_one_half_of_a_tie_is_frozen_by_hand() -> None:
    """The wish belongs to the handle."""
    model = Tied()
    model.head = model.head.no_grad()
    assert trained(model) == sorted({*model.training_state()} - {"head"})
    assert model.head.is_tied_to(model.embed)


def test_one_flag_in_two_places_is_frozen_by_either_path() -> None:
    flag = lp.Flag()
    model = Bag(a=flag, b=flag, c=lp.Flag())
    assert trained(model.freeze("b")) == ["c"]


# ---- groups that select nothing ------------------------------------------------------------------

VERBS = [
    lambda model, group, **rest: model.freeze(group, **rest),
    lambda model, group, **rest: model.unfreeze(group, **rest),
    lambda model, group, **rest: model.no_grad(group, **rest),
    lambda model, group, **rest: model.set_requires_grad(True, group, **rest),
    lambda model, group, **rest: model.training_state(group, **rest),
    lambda model, group, **rest: model.freeze().leaves(group, **rest),
]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("group", "text"),
    [
        ("encodr.*", r"selects nothing.*'encodr\.\*'.*nearest: encoder\.(up\.bias|drop)"),
        ("up.weight", r"nearest: encoder\.up\.weight"),
        ("encoder", r"a module: ParamGroup\.glob\('encoder\.\*'\)"),
        ("", "selects nothing"),
        (ParamGroup.none(), r"selects nothing.*ParamGroup\.none\(\)"),
        (ParamGroup.matching("weight"), r"has to match a whole path: '\.\*weight\.\*'"),
        (ParamGroup.from_ids(3), r"selects nothing.*from_ids\(3\)"),
        (ParamGroup.all() - ParamGroup.glob("*"), "selects nothing"),
        (
            ParamGroup.from_paths("head.weight", "head.bais"),
            r"does not have; found head\.bais \(nearest: head\.bias\)",
        ),
        (
            ~ParamGroup.from_paths("encoder"),
            r"does not have; found encoder \(a module: .*'encoder\.\*'",
        ),
    ],
)
def test_a_group_that_is_not_meant_for_the_module_is_an_error(
    verb: Any, group: Any, text: str
) -> None:
    """It would be passed over in silence; also paths that are only excluded."""
    model = net()
    with pytest.raises(lp.GroupError, match=text) as caught:
        verb(model, group)
    assert "allow_missing=True" in str(caught.value)
    verb(model, group, allow_missing=True)
    assert lazy(model)


def test_patterns_may_fit_nothing_where_others_fit() -> None:
    assert trained(net().freeze(ParamGroup.glob("head.*", "tail.*"))) == without(*HEAD)
    assert trained(net().freeze(~ParamGroup.glob("tail.*"))) == []


def test_flags_have_no_gradients_to_switch_off() -> None:
    model = net()
    with pytest.raises(lp.GroupError, match="selects nothing that has gradients"):
        model.no_grad("*drop")
    assert trained(model.freeze("*drop")) == without(*FLAGS)
    assert trained(model.no_grad(ParamGroup.from_paths("drop", "head.bias"))) == without(
        "head.bias"
    )


@pytest.mark.parametrize("wrong", [["head.*"], 3, b"head.*", lambda path, leaf: True, []])
def test_what_is_no_group_is_refused(wrong: Any) -> None:
    """An empty list above all: nothing was meant, and everything must not be frozen."""
    for verb in VERBS:
        with pytest.raises(lp.GroupError, match="no group of parameters; expected a ParamGroup"):
            verb(net(), wrong)
    with pytest.raises(lp.GroupError, match="no group of parameters"):
        net().freeze(Bag())


def test_a_long_group_is_cut_short_in_messages() -> None:
    group = ParamGroup.from_ids(*range(1000))
    with pytest.raises(lp.GroupError) as caught:
        net().freeze(group)
    assert len(str(caught.value)) < 500


# ---- taken down and put back ---------------------------------------------------------------------


def test_a_freeze_is_undone_without_waking_what_was_off_before() -> None:
    """T19 of Burn, whose ``unfreeze`` trains bases and starts dropouts that were off on purpose."""
    model = net().no_grad("encoder.up.weight").freeze("drop")
    before = model.training_state()
    frozen = model.freeze()
    assert trained(frozen) == []
    assert trained(frozen.unfreeze()) == EVERYTHING
    restored = frozen.with_training_state(before)
    assert restored.training_state() == before
    assert trained(restored) == without("encoder.up.weight", "drop")
    assert lazy(model)


def test_a_state_is_put_back_on_what_became_of_the_module(tmp_path: Path) -> None:
    """On modules that were trained, loaded, moved or copied meanwhile."""
    model = net(lp.init.ones()).no_grad("head.*")
    before = model.training_state()
    model.save_file(tmp_path / "net.safetensors")
    frozen = model.freeze()
    for after in (
        *(frozen.load_file(tmp_path / "net.safetensors"), frozen.to_device("cpu"), frozen.valid()),
        *(pickle.loads(pickle.dumps(frozen)), frozen.fork("cpu").map(lp.ModuleMapper())),
    ):
        assert after.with_training_state(before).training_state() == before
    assert not frozen.valid().with_training_state(before).drop


def test_a_state_of_a_group_leaves_the_rest_as_it_became() -> None:
    model = net()
    before = model.training_state("encoder.*")
    assert set(before) == {*ENCODER, "encoder.drop"}
    after = model.freeze().with_training_state(before)
    assert trained(after) == sorted(before)


def test_a_state_is_a_plain_dict() -> None:
    model = net().freeze("head.*")
    state = model.training_state()
    assert type(state) is dict
    assert json.loads(json.dumps(state)) == state
    assert state == {
        **dict.fromkeys([*ENCODER, *FLAGS, "steps"], True),
        **dict.fromkeys(HEAD, False),
    }
    assert model.valid().training_state() == state


def test_a_state_tells_the_halves_of_a_tie_apart() -> None:
    model = Tied()
    model.head = model.head.no_grad()
    before = model.training_state()
    for after in (model.freeze(), model.unfreeze()):
        restored = after.with_training_state(before)
        assert restored.training_state() == before
        assert restored.head.is_tied_to(restored.embed)


def test_a_state_may_name_a_shared_handle_by_any_of_its_paths() -> None:
    param, flag = lp.Param(3, never), lp.Flag()
    model = Bag(a=param, b=param, c=flag, d=flag)
    assert trained(model.with_training_state({"b": False, "d": False})) == []
    with pytest.raises(lp.GroupError, match=r"b: .*another path too.*expected True; found False"):
        model.with_training_state({"a": True, "b": False})


def test_a_state_of_another_module_is_refused() -> None:
    model = net()
    with pytest.raises(lp.GroupError, match=r"found head\.wieght \(nearest: head\.weight\)"):
        model.with_training_state({"head.wieght": False})
    loose = model.with_training_state({"head.wieght": False, "drop": False}, allow_missing=True)
    assert trained(loose) == without("drop")
    assert trained(model.with_training_state({})) == EVERYTHING


@pytest.mark.parametrize("wrong", [["drop"], None, "drop", {"drop": 1}, {"drop": None}])
def test_what_is_no_state_is_refused(wrong: Any) -> None:
    with pytest.raises(lp.GroupError, match="training state"):
        net().with_training_state(wrong)


# ---- values --------------------------------------------------------------------------------------


def test_a_load_keeps_what_groups_have_frozen() -> None:
    """B37: the target's wish wins; B43."""
    model = net().freeze("encoder.*")
    arrays = {path: np.ones(p.shape, p.dtype) for path, p in model.named_parameters()}
    loaded = model.load_state_dict(arrays)
    assert loaded.training_state() == model.training_state()
    assert loaded.encoder.up.weight.value.tolist() == np.ones((4, 3)).tolist()


def test_what_is_frozen_shares_its_value_with_what_is_not() -> None:
    model = net(lp.init.ones())
    frozen = model.freeze("encoder.*")
    assert frozen.encoder.up.weight.value is model.encoder.up.weight.value


def test_only_the_rest_counts_as_trainable() -> None:
    model = net().freeze("encoder.*")
    assert model.num_params(trainable=True) == 4 * 2 + 2
    assert lp.summary(model).num_trainable == 4 * 2 + 2
