"""Flags: bools with identity that training switches, beside parameters with values."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Bag, Linear, never


class Dropout(lp.Module):
    """A layer without parameters: all it has to go by is its flag."""

    def __init__(self, rate: float = 0.5) -> None:
        self.rate = rate
        self.training = lp.Flag(True)

    def __call__(self, x: Any) -> Any:
        return x * self.rate if self.training else x


def net(init: Any = never) -> Bag:
    return Bag(layer=Linear(3, 2, init), drops=[Dropout(), Dropout()])


def flags(model: object) -> dict[str, bool]:
    return {path: flag.is_enabled for path, flag in lp.summary(model).flags}


# ---- one flag ------------------------------------------------------------------------------------


def test_a_flag_is_a_bool_with_an_identity() -> None:
    """B04."""
    flag = lp.Flag(True)
    assert flag
    assert flag.is_enabled
    assert flag.is_active
    assert not lp.Flag(False)
    assert lp.Flag().is_enabled
    assert lp.Flag(id=7).id == 7
    assert 0 <= flag.id < 2**64
    assert flag.id != lp.Flag(True).id
    assert flag.kind == "flag"


def test_only_tensors_have_grad_device_shape_and_loading() -> None:
    """B04: both are parameter values, and a flag does not pretend to be a tensor."""
    param, flag = set(dir(lp.Param)), set(dir(lp.Flag))
    both = {"id", "kind", "is_active", "state", "valid", "train", "clone"}
    assert both <= param & flag
    tensors = {
        *("grad", "device", "shape", "dtype", "nbytes", "val", "value", "to_device", "fork"),
        *("requires_grad", "set_requires_grad", "no_grad", "is_initialized"),
        *("transform_for_load", "load_mapper", "transform_for_save"),
    }
    assert tensors <= param
    assert not tensors & flag


def test_verbs_give_new_flags_with_the_same_identity() -> None:
    """B46 for a flag alone."""
    flag = lp.Flag(True)
    valid = flag.valid()
    assert flag
    assert not valid
    assert valid.is_active
    assert valid.valid() is valid
    assert valid.train() == flag
    off = flag.with_value(False)
    assert not off
    assert not off.is_active
    assert not off.valid().train()
    assert off.with_value(True) == flag
    assert {each.id for each in (flag, valid, off, valid.train(), flag.clone())} == {flag.id}


def test_a_flag_configured_in_validation_waits_for_training() -> None:
    """As the wish of a parameter does."""
    valid = lp.Flag(False).valid().with_value(True)
    assert valid.is_active
    assert not valid
    assert valid.train()


def test_flags_compare_by_identity_and_state() -> None:
    flag = lp.Flag(True)
    assert flag == lp.Flag(True, id=flag.id)
    assert hash(flag) == hash(lp.Flag(True, id=flag.id))
    assert flag != lp.Flag(True)
    assert flag != flag.valid()
    assert flag != flag.with_value(False)
    assert flag != True  # noqa: E712
    assert len({flag, flag.valid(), flag.valid().train()}) == 2


def test_a_flag_says_why_it_is_off() -> None:
    """burn#5524: a flag that validation switched off looked like one that nobody wants."""
    assert repr(lp.Flag(True)) == "Flag(on)"
    assert repr(lp.Flag(False)) == "Flag(off)"
    assert repr(lp.Flag(True).valid()) == "Flag(off until train())"
    assert repr(lp.Flag(False).valid()) == "Flag(off)"


def test_flags_pickle_and_copy() -> None:
    for flag in (lp.Flag(True), lp.Flag(False), lp.Flag(True).valid(), lp.Flag(False).valid()):
        assert pickle.loads(pickle.dumps(flag)) == flag
        assert copy.copy(flag) == flag
        assert copy.deepcopy(flag) == flag
    assert not pickle.loads(pickle.dumps(lp.Flag(True).valid()))


@pytest.mark.parametrize("wrong", [1, 0, None, "yes", np.True_])
def test_a_flag_takes_bools_only(wrong: Any) -> None:
    with pytest.raises(lp.DeclarationError, match="a flag is on or off; expected True or False"):
        lp.Flag(wrong)
    with pytest.raises(lp.DeclarationError, match="a flag is on or off"):
        lp.Flag().with_value(wrong)


@pytest.mark.parametrize("wrong", [-1, 2**64, "7", True, 1.0])
def test_an_identity_is_an_unsigned_64_bit_number(wrong: Any) -> None:
    with pytest.raises(lp.DeclarationError, match="unsigned 64-bit"):
        lp.Flag(id=wrong)


def test_a_flag_cannot_be_changed() -> None:
    flag = lp.Flag(True)
    for name in ("is_enabled", "is_active", "id", "kind", "other"):
        with pytest.raises(AttributeError):
            setattr(flag, name, False)


# ---- in modules ----------------------------------------------------------------------------------


def test_validation_switches_flags_off_and_training_on_again() -> None:
    """B46; also for layers without parameters (burn#5493)."""
    model = net()
    assert flags(model) == {"drops.0.training": True, "drops.1.training": True}
    valid = model.valid()
    assert not any(flags(valid).values())
    assert all(flags(valid.train()).values())
    assert all(flags(model).values())
    assert model.drops[0](8.0) == 4.0
    assert valid.drops[0](8.0) == 8.0


def test_a_disabled_flag_stays_disabled() -> None:
    """B46."""
    model = net()
    model.drops[0].training = model.drops[0].training.with_value(False)
    expected = {"drops.0.training": False, "drops.1.training": True}
    assert flags(model.valid().train()) == expected
    assert flags(model.train()) == expected
    assert flags(model.clone().to_device("cpu").train()) == expected


def test_freezing_disables_flags_and_no_grad_leaves_them() -> None:
    """B46; burn#5537."""
    model = net()
    assert all(flags(model.no_grad()).values())
    assert all(flags(model.set_requires_grad(False)).values())
    frozen = model.freeze()
    assert not any(flags(frozen).values())
    assert not any(flags(frozen.valid().train()).values())
    assert not any(flags(frozen.set_requires_grad(True)).values())
    assert all(flags(frozen.unfreeze()).values())
    assert not any(flags(frozen.valid().unfreeze()).values())
    assert all(flags(frozen.valid().unfreeze().train()).values())


def test_only_training_undoes_validation() -> None:
    """burn#5524: moves and forks are no return from validation."""
    valid = net().valid()
    for still in (valid.to_device("cpu"), valid.fork("cpu"), valid.clone(), valid.seed(1)):
        assert not any(flags(still).values())
        assert all(flags(still.train()).values())


def test_every_verb_keeps_flags_and_their_identity(tmp_path: Path) -> None:
    """B46: identity kept."""
    model = net(lp.init.ones())
    ids = [flag.id for _, flag in lp.summary(model).flags]
    path = tmp_path / "net.safetensors"
    model.save_file(path)
    state = model.state_dict()
    for after in (
        *(model.to_device("cpu"), model.fork("cpu"), model.clone(), model.clone(independent=True)),
        *(model.valid(), model.train(), model.freeze(), model.unfreeze(), model.no_grad()),
        *(model.seed(1), model.materialize(), model.map(lp.ModuleMapper())),
        *(model.load_file(path), model.load_state_dict(state)),
        *(copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model)),
    ):
        assert [flag.id for _, flag in lp.summary(after).flags] == ids


def test_flags_are_in_no_file_and_count_as_no_parameter(tmp_path: Path) -> None:
    """B04."""
    model = net(lp.init.ones())
    paths = ["layer.weight", "layer.bias"]
    assert list(model.state_dict()) == paths
    assert [path for path, _ in model.named_parameters()] == paths
    assert model.num_params() == 8
    assert len(model.devices()) == 1
    model.save_file(tmp_path / "net.safetensors")
    plan = model.plan_load(tmp_path / "net.safetensors")
    assert [match.path for match in plan.loaded] == paths
    assert not plan.missing
    assert not plan.unexpected


def test_loading_leaves_flags_as_they_are() -> None:
    model = net()
    model.drops[1].training = model.drops[1].training.with_value(False)
    arrays = {path: np.zeros(param.shape, param.dtype) for path, param in model.named_parameters()}
    assert flags(model.load_state_dict(arrays)) == flags(model)
    assert not any(flags(model.valid().load_state_dict(arrays)).values())


def test_visitors_and_mappers_hear_of_flags_apart_from_tensors() -> None:
    """B04: tensors and flags are told apart."""
    seen: list[tuple[str, str]] = []

    class Look(lp.ModuleVisitor):
        def visit(self, path: str, param: lp.Param) -> None:
            seen.append(("tensor", path))

        def visit_flag(self, path: str, flag: lp.Flag) -> None:
            seen.append(("flag", path))

    net().visit(Look())
    net().visit(lp.ModuleVisitor())
    assert seen == [
        ("tensor", "layer.weight"),
        ("tensor", "layer.bias"),
        ("flag", "drops.0.training"),
        ("flag", "drops.1.training"),
    ]

    class SecondOff(lp.ModuleMapper):
        def map_flag(self, path: str, flag: lp.Flag) -> lp.Flag:
            return flag.with_value(False) if path.startswith("drops.1") else flag

    assert flags(net().map(SecondOff())) == {"drops.0.training": True, "drops.1.training": False}


def test_a_mapper_of_flags_gives_flags() -> None:
    class Wrong(lp.ModuleMapper):
        def map_flag(self, path: str, flag: lp.Flag) -> Any:
            return bool(flag)

    with pytest.raises(
        lp.ModuleError, match=r"drops\.0\.training: .*returns a flag; expected Flag; found bool"
    ):
        net().map(Wrong())


def test_the_same_flag_in_two_places_stays_one() -> None:
    """B52 for flags."""
    shared = lp.Flag(True)
    model = Bag(first=Dropout(), second=Dropout(), t=lp.Param(3, never))
    model.first.training = model.second.training = shared
    for after in (
        *(model.valid(), model.freeze(), model.valid().train(), model.to_device("cpu")),
        *(copy.deepcopy(model), pickle.loads(pickle.dumps(Bag(a=[shared], b=[shared]))).clone()),
    ):
        one, other = [flag for _, flag in lp.summary(after).flags]
        assert one is other
    asked = []

    class Count(lp.ModuleMapper):
        def map_flag(self, path: str, flag: lp.Flag) -> lp.Flag:
            asked.append(path)
            return flag.with_value(False)

    assert not any(flags(model.map(Count())).values())
    assert asked == ["first.training"]


def test_flags_show_in_texts() -> None:
    model = net()
    model.drops[1].training = lp.Flag(False)
    text = repr(model.valid())
    assert "training: Flag(off until train())," in text
    assert "training: Flag(off)," in text
    table = str(lp.summary(model)).splitlines()
    assert [line.split() for line in table[4:6]] == [
        ["drops.0.training", "flag", "yes", "on"],
        ["drops.1.training", "flag", "no", "off"],
    ]
    assert lp.summary(model).num_params == 8
    assert "0: Dropout(" in repr(Bag(drops={"0": Dropout()}))
    assert "flags: list(" in repr(Bag(flags=[lp.Flag()]))


def test_flags_where_no_verb_would_find_them_are_refused() -> None:
    class Shared(lp.Module):
        training = lp.Flag(True)

    with pytest.raises(lp.ModuleError, match="training: this flag belongs to the class Shared"):
        Shared()
    with pytest.raises(lp.ModuleError, match="parameters in a set"):
        Bag(flags={lp.Flag()}).valid()


def test_a_flag_and_a_parameter_cannot_have_one_path() -> None:
    model = Bag(table={1: lp.Flag(), "1": lp.Param(3, never)})
    with pytest.raises(lp.ModuleError, match=r"table\.1: two parameters have this path"):
        model.valid()


def test_flags_work_in_every_container() -> None:
    model = Bag(a=[lp.Flag()], b=(lp.Flag(),), c={"x": lp.Flag()}, d=Bag(e=lp.Flag()))
    assert set(flags(model)) == {"a.0", "b.0", "c.x", "d.e"}
    assert not any(flags(model.valid()).values())
    assert all(flags(model).values())
