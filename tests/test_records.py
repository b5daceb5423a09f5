"""Records: snapshots of what a module stores, with identities and ties, and loading them."""

from __future__ import annotations

import copy
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyparam as lp
from lazyparam.identities import KEY
from tests.checkpoint_files import PACKED, TAGS, bits_of, table
from tests.helpers import Bag, Boom, Counting, Linear, Tied, never, race, values


def mixed(init: Any = never) -> Bag:
    """Floats, ints and bools."""
    return Bag(
        weight=lp.Param((2, 3), init),
        steps=lp.Param(2, init, dtype="int64"),
        mask=lp.Param(3, init, dtype="bool"),
    )


def ids(module: lp.Module) -> list[int]:
    return [param.id for _, param in module.named_parameters(False)]


def states(module: lp.Module) -> list[tuple[Any, ...]]:
    """All that a module says of its parameters."""
    return [
        (path, p.id, p.dtype, p.shape, p.requires_grad, p.state, str(p.device))
        for path, p in module.named_parameters(False)
    ]


# ---- what a record is ----------------------------------------------------------------------------


def test_a_record_has_what_a_module_stores_by_path_and_brings_nothing_into_being() -> None:
    model = mixed()
    record = model.record()
    assert list(record) == ["weight", "steps", "mask"]
    assert len(record) == 3
    assert record.nbytes == 24 + 16 + 3
    assert [(p.dtype, p.shape) for p in record.values()] == [
        ("float32", (2, 3)),
        ("int64", (2,)),
        ("bool", (3,)),
    ]
    assert list(record.ids.values()) == ids(model)
    assert [record[path].id for path in record] == ids(model)
    assert repr(record) == "ModuleRecord(3 parameters, 43 B)"
    assert not any(p.is_initialized for p in record.values())


def test_a_lazy_parameter_comes_into_being_once_for_its_module_and_its_record() -> None:
    counting = Counting()
    model = Bag(w=lp.Param((2, 2), counting))
    record = model.record()
    loaded = Bag(w=lp.Param((2, 2), never)).load_record(record)
    assert counting.runs == 0
    assert not loaded.w.is_initialized
    results = race([lambda m=m: m.w.value.tobytes() for m in [model, loaded] * 4])
    assert counting.runs == 1
    assert {*results} == {record["w"].value.tobytes()}


def test_what_is_in_a_record_cannot_be_written_to() -> None:
    record = Bag(w=lp.Param.from_tensor(np.ones(3))).record()
    with pytest.raises(ValueError, match="read-only"):
        record["w"].value[0] = 2
    for mapping in (record.ids, record.ties, record.metadata):
        with pytest.raises(TypeError):
            mapping["w"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        record["w"] = record["w"]  # type: ignore[index]


def test_the_wish_and_the_mappers_of_a_parameter_are_no_part_of_a_record() -> None:
    model = Bag(w=lp.Param(2, lp.init.ones()).load_mapper(lambda x: x + 1))
    kept = model.record()["w"]
    assert not kept.requires_grad
    assert pickle.loads(pickle.dumps(kept)).value.tolist() == [1, 1]  # no lambda is in the way
    assert Bag(w=lp.Param(2, never)).load_record(model.record()).w.value.tolist() == [1, 1]


def test_what_is_kept_is_the_stored_form() -> None:
    """Upstream #5208: records went around the save mappers."""
    model = Bag(w=lp.Param((2, 3), lp.init.ones()).save_mapper(np.transpose, (3, 2)))
    record = model.record()
    assert record["w"].shape == (3, 2)
    assert record["w"].value.tolist() == [[1, 1]] * 3


def test_what_is_neither_parameter_nor_buffer_is_not_recorded() -> None:
    """B42"""

    class Hidden:
        def __init__(self) -> None:
            self.param = lp.Param(2, never)

    model = Bag(
        w=lp.Param(2, never),
        array=np.ones(3),
        skipped=Hidden(),
        running=lp.Buffer(2, never),
        scratch=lp.Buffer(2, never, persistent=False),
    )
    assert list(model.record()) == ["w", "running"]


def test_an_empty_module_has_an_empty_record_that_loads() -> None:
    record = Bag().record()
    assert len(record) == 0
    again = lp.ModuleRecord.from_bytes(record.to_bytes())
    assert isinstance(Bag().load_record(again), Bag)


def test_a_module_with_something_else_in_the_place_of_a_parameter_is_not_recorded() -> None:
    jax = pytest.importorskip("jax")
    model = Bag(w=lp.Param(2, lp.init.ones(), device="jax:cpu"))
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), model)
    with pytest.raises(lp.RecordError, match="cannot be stored"):
        shapes.record()


# ---- groups --------------------------------------------------------------------------------------


def test_a_group_record_holds_only_its_parameters_and_looks_at_no_others() -> None:
    """B38: the others are not even read."""

    def refuse(x: Any) -> Any:
        raise AssertionError("a save mapper ran")

    model = Bag(
        a=Linear(2, 3, lp.init.ones()),
        b=lp.Param((2, 2), lp.init.ones()).save_mapper(refuse),
        c=lp.Param(2, never),
    )
    record = model.record(lp.ParamGroup.from_paths("a.weight", "a.bias"))
    assert list(record) == ["a.weight", "a.bias"]
    assert not model.c.is_initialized
    assert len(lp.ModuleRecord.from_bytes(record.to_bytes())) == 2


def test_part_of_a_record_can_be_selected() -> None:
    record = Bag(a=Linear(2, 3), tied=Tied()).record()
    part = record.select(lp.ParamGroup.from_paths("a.bias", "tied.head"))
    assert list(part) == ["a.bias", "tied.embed"]
    assert dict(part.ties) == {"tied.head": "tied.embed"}
    assert part.ids == {path: record.ids[path] for path in part}
    assert list(record.select(lp.ParamGroup.all())) == list(record)


@pytest.mark.parametrize("take", [Bag.record, lambda model, g: model.record().select(g)])
def test_a_group_that_selects_nothing_or_is_none_is_an_error(take: Any) -> None:
    model = Bag(a=Linear(2, 3))
    with pytest.raises(lp.GroupError, match="nearest"):
        take(model, lp.ParamGroup.from_paths("a.wieght"))
    with pytest.raises(lp.GroupError, match="selects nothing"):
        take(model, "b.*")
    with pytest.raises(lp.GroupError, match="no group"):
        take(model, 5)
    assert list(take(model, "*.bias")) == ["a.bias"]
    assert len(model.record("b.*", allow_missing=True)) == 0
    assert len(model.record().select("b.*", allow_missing=True)) == 0


# ---- loading: who decides what -------------------------------------------------------------------


@pytest.mark.parametrize("device", ["numpy:cpu", "torch:cpu", "jax:cpu"])
def test_device_and_wish_are_the_targets_and_the_identity_is_the_records(device: str) -> None:
    """B37; upstream #1160, #488 and #5130."""
    if not device.startswith("numpy"):
        pytest.importorskip(device.partition(":")[0])
    normal = lp.init.normal()
    model = Bag(w=lp.Param((2, 2), normal), frozen=lp.Param(2, normal)).to_device(device)
    target = Bag(w=lp.Param((2, 2), never, requires_grad=False), frozen=lp.Param(2, never))
    loaded = target.load_record(model.record())
    assert not loaded.w.is_initialized
    assert not model.w.is_initialized
    assert ids(loaded) == ids(model)
    assert str(loaded.w.device) == "numpy:cpu"
    assert not loaded.w.requires_grad
    assert loaded.frozen.requires_grad
    assert np.array_equal(loaded.w.value, np.asarray(model.w))
    there = target.to_device(device).load_record(loaded.record())
    assert there.w.device == lp.device(device)
    assert np.array_equal(np.asarray(there.w), loaded.w.value)


def test_a_lazy_record_stays_lazy_through_a_move_a_cast_and_a_load_mapper() -> None:
    def refuse(plan: lp.Plan) -> np.ndarray:
        raise Boom

    record = Bag(w=lp.Param((2, 3), refuse)).record()
    target = Bag(w=lp.Param((3, 2), never, "float16").load_mapper(np.transpose, (2, 3)))
    loaded = target.load_record(record, dtype="cast")
    assert not loaded.w.is_initialized
    with pytest.raises(Boom):
        loaded.w.val()
    ready = target.load_record(Bag(w=lp.Param.from_tensor(CUBE)).record(), dtype="cast").w
    assert ready.dtype == "float16"
    assert np.array_equal(ready.value, CUBE.T.astype(np.float16))


CUBE = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("is_lazy", [True, False])
def test_a_shape_that_differs_in_store_loads_twice_in_a_row(is_lazy: bool) -> None:
    """B41: checked against the stored shape, lazy or ready."""

    def column(init: Any) -> Bag:
        p = lp.Param((2, 3), init).load_mapper(np.transpose, (3, 2)).save_mapper(np.transpose)
        return Bag(w=p)

    model = column(lambda plan: CUBE)
    record = lp.ModuleRecord.from_bytes(model.record().to_bytes())
    assert record["w"].shape == (3, 2)
    target = column(never)
    for _ in range(2):
        target = target.load_record(record)
        if not is_lazy:
            target.w.val()
        assert target.w.shape == (2, 3)
        assert target.w.stored_shape == (3, 2)
    assert np.array_equal(target.w.value, CUBE)
    assert np.array_equal(target.record()["w"].value, CUBE.T)


def test_the_wish_survives_a_round_trip() -> None:
    """B43: it is the target's, so it survives in the module that a record came from."""
    model = Bag(a=lp.Param(2, lp.init.ones()), b=lp.Param(2, lp.init.ones(), requires_grad=False))
    for record in (model.record(), pickle.loads(pickle.dumps(model.record()))):
        loaded = model.load_record(record)
        assert [p.requires_grad for p in loaded.parameters()] == [True, False]
        for other in (copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
            assert [p.requires_grad for p in other.parameters()] == [True, False]
            assert ids(other) == ids(model)


def test_validation_and_training_have_no_part_in_a_record() -> None:
    """T18: valid, then save, then load kept the wrong layout upstream."""

    def column(init: Any) -> Bag:
        p = lp.Param((2, 3), init).load_mapper(np.transpose, (3, 2)).save_mapper(np.transpose)
        return Bag(w=p)

    loaded = column(never).load_record(column(lambda plan: CUBE).valid().record())
    assert np.array_equal(loaded.w.value, CUBE)
    assert loaded.w.requires_grad


# ---- loading: what fits --------------------------------------------------------------------------


def by_file(target: lp.Module, source: lp.Module, folder: Path, **rules: Any) -> lp.Module:
    source.save_file(folder / "m.safetensors")
    return target.load_file(folder / "m.safetensors", **rules)


def by_state_dict(target: lp.Module, source: lp.Module, _: Path, **rules: Any) -> lp.Module:
    return target.load_state_dict(source.state_dict(), **rules)


def by_record(target: lp.Module, source: lp.Module, _: Path, **rules: Any) -> lp.Module:
    return target.load_record(source.record(), **rules)


DOORS = [by_file, by_state_dict, by_record]


@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_the_same_with_the_same_words(door: Any, tmp_path: Path) -> None:
    """B53, T24: one list of all problems, with path, expected, found and the nearest name."""
    ones = lp.init.ones()
    source = Bag(wieght=lp.Param(2, ones), a=lp.Param(3, ones), n=lp.Param(2, ones, "int32"))
    target = Bag(weight=lp.Param(2, never), a=lp.Param(4, never), n=lp.Param(2, never))
    before = states(target)
    with pytest.raises(lp.RecordError) as caught:
        door(target, source, tmp_path)
    assert states(target) == before
    assert set(caught.value.problems) >= {
        "mismatched 'a': expected shape (4,), found (3,) in 'a'",
        "mismatched 'n': expected floats (float32), found int32 in 'n'",
        "missing 'weight' (nearest: 'wieght')",
        "unexpected 'wieght' (nearest: 'weight')",
    }
    assert type(caught.value) is lp.RecordError


@pytest.mark.parametrize("door", DOORS)
def test_every_door_allows_the_same(door: Any, tmp_path: Path) -> None:
    """B39, B54: what is missing keeps its own initialiser, what does not fit its value."""
    ones = lp.init.ones()
    source = Bag(a=lp.Param(2, ones), extra=lp.Param(2, ones), b=lp.Param(3, ones))
    target = Bag(
        a=lp.Param(2, never), lazy=lp.Param(2, lp.init.constant(7)), b=lp.Param(4, lp.init.zeros())
    )
    with pytest.raises(lp.RecordError):
        door(target, source, tmp_path, strict=False)
    loaded = door(target, source, tmp_path, strict=False, skip_mismatched=True)
    assert not loaded.lazy.is_initialized
    assert loaded.a.value.tolist() == [1, 1]
    assert loaded.lazy.value.tolist() == [7, 7]
    assert loaded.b.value.tolist() == [0] * 4
    for rules, kind in (
        ({"allow_missing": True}, lp.UnexpectedKeys),
        ({"allow_unexpected": True}, lp.MissingParams),
    ):
        with pytest.raises(kind):
            door(target, source, tmp_path, skip_mismatched=True, **rules)


@pytest.mark.parametrize("door", DOORS)
def test_what_matches_nothing_is_an_error_however_it_was_asked_for(
    door: Any, tmp_path: Path
) -> None:
    """B53"""
    with pytest.raises(lp.RecordError, match="not one tensor fits"):
        door(
            Bag(b=lp.Param(2, never)),
            Bag(a=lp.Param(2, lp.init.ones())),
            tmp_path,
            strict=False,
            skip_mismatched=True,
        )


@pytest.mark.parametrize("door", DOORS)
def test_dtypes_are_kept_or_cast_as_asked_and_kinds_never_change(door: Any, tmp_path: Path) -> None:
    """B40; upstream #5163: parameters took the dtype of the checkpoint in silence."""
    source = Bag(w=lp.Param(2, lp.init.ones(), "float64"), n=lp.Param(2, lp.init.ones(), "int16"))
    target = Bag(w=lp.Param(2, never), n=lp.Param(2, never, "int64"))
    with pytest.raises(lp.ShapeMismatch, match=r"expected float32, found float64.*rounds"):
        door(target, source, tmp_path)
    dtypes = {"cast": ("float32", "int64"), "file": ("float64", "int16")}
    dtypes |= {"float16": ("float16", "int64"), "int32": None}  # type: ignore[dict-item]
    for dtype, expected in dtypes.items():
        if expected is None:
            with pytest.raises(lp.ShapeMismatch):
                door(target, source, tmp_path, dtype=dtype)
            continue
        loaded = door(target, source, tmp_path, dtype=dtype)
        assert (loaded.w.dtype, loaded.n.dtype) == expected
        assert loaded.w.value.tolist() == [1, 1]
    for other in ("int64", "bool"):
        wrong = Bag(w=lp.Param(2, never, other), n=lp.Param(2, never, "int64"))
        with pytest.raises(lp.ShapeMismatch, match="found float64"):
            door(wrong, source, tmp_path, dtype="cast")


def test_a_plan_tells_what_loading_a_record_would_do() -> None:
    model = Bag(w=lp.Param(2, never, "float64"), tied=Tied())
    plan = Bag(w=lp.Param(2, never), tied=Tied()).plan_record(model.record(), dtype="cast")
    assert str(plan).startswith(
        "load plan for the record: 6 loaded (160 B), 0 missing, 0 unexpected, 0 mismatched, 1 cast,"
        " 1 tied"
    )
    assert plan.commit().tied.embed.id == model.tied.embed.id
    assert not model.w.is_initialized


def test_names_can_be_changed_ties_among_them() -> None:
    record = Bag(old=Tied()).record()
    target = Bag(new=Tied())
    loaded = target.load_record(record, rename=lambda name: name.replace("old", "new"))
    assert loaded.new.head.is_tied_to(loaded.new.embed)
    assert loaded.new.embed.id == record.ids["old.embed"]


@pytest.mark.parametrize("wrong", [{}, "file.safetensors", None])
def test_what_is_no_record_is_refused(wrong: Any) -> None:
    with pytest.raises(lp.RecordError, match="no record"):
        Bag(w=lp.Param(2, never)).load_record(wrong)


# ---- ties and identities -------------------------------------------------------------------------


def test_tied_parameters_are_recorded_once_and_tied_again_when_loaded() -> None:
    """B52; safetensors#98, #202 and #304."""
    model = Tied(lp.init.normal())
    record = model.record()
    assert len(record) == 5
    assert dict(record.ties) == {"head": "embed"}
    for each in (record, lp.ModuleRecord.from_bytes(record.to_bytes())):
        plan = Tied().plan_record(each)
        assert plan.warnings == ()
        loaded = plan.commit()
        assert loaded.head.is_tied_to(loaded.embed)
        assert ids(loaded) == ids(model)
        assert loaded.num_params() == model.num_params()
        assert values(loaded) == values(model)


def test_a_tie_of_the_record_fills_parameters_that_are_not_tied_in_the_module() -> None:
    """The module says what is tied; one identity never goes to two parameters."""
    record = lp.ModuleRecord.from_bytes(Tied(lp.init.normal()).record().to_bytes())
    target = Tied()
    target.head = lp.Param((4, 3), never)
    own = target.head.id
    plan = target.plan_record(record)
    assert plan.warnings == (
        "'head' gets a copy of 'embed': they are one parameter there, and not here",
    )
    loaded = plan.commit()
    assert not loaded.head.is_tied_to(loaded.embed)
    assert (loaded.embed.id, loaded.head.id) == (record.ids["embed"], own)
    assert loaded.head.value.tobytes() == loaded.embed.value.tobytes()


def test_the_identity_goes_to_the_parameter_at_the_path_that_the_record_has() -> None:
    record = Bag(embed=(p := lp.Param(2, lp.init.ones())), head=p).record()
    target = Bag(head=lp.Param(2, never), embed=lp.Param(2, never))
    loaded = target.load_record(record)
    assert ids(loaded) == [target.head.id, p.id]


def test_a_tied_parameter_that_nobody_wants_is_unexpected_once() -> None:
    record = Bag(a=lp.Param(2, never), embed=(p := lp.Param(2, never)), head=p).record()
    plan = Bag(a=lp.Param(2, never)).plan_record(record)
    assert plan.unexpected == ("embed",)
    assert len(plan.problems) == 1


def test_a_module_that_has_only_the_second_of_two_tied_paths_gets_the_tensor() -> None:
    record = Bag(embed=(p := lp.Param(2, lp.init.ones())), head=p).record()
    loaded = Bag(head=lp.Param(2, never)).load_record(record)
    assert loaded.head.id == p.id
    assert loaded.head.value.tolist() == [1, 1]


def test_parameters_that_are_tied_in_the_module_alone_get_one_of_two_tensors() -> None:
    record = Bag(embed=lp.Param(2, lp.init.ones()), head=lp.Param(2, lp.init.zeros())).record()
    target = Bag(embed=(p := lp.Param(2, never)), head=p.clone())
    plan = target.plan_record(record)
    assert "'head' is not read" in plan.warnings[0]
    loaded = plan.commit()
    assert loaded.head.is_tied_to(loaded.embed)
    assert loaded.head.value.tolist() == [1, 1]
    assert ids(loaded) == [record.ids["embed"]] * 2


def test_an_identity_that_another_parameter_of_the_module_has_is_not_given_twice() -> None:
    model = Bag(a=lp.Param(2, lp.init.ones()), b=lp.Param(2, lp.init.zeros()))
    plan = model.plan_record(
        model.record(lp.ParamGroup.from_paths("a")), rename={"a": "b"}, strict=False
    )
    assert "'b' keeps its identity: the one that comes belongs to 'a'" in plan.warnings
    loaded = plan.commit()
    assert ids(loaded) == ids(model)
    assert loaded.b.value.tolist() == [1, 1]


def test_identities_may_change_places() -> None:
    model = Bag(a=lp.Param(2, lp.init.ones()), b=lp.Param(2, lp.init.zeros()))
    loaded = model.load_record(model.record(), rename={"a": "b", "b": "a"})
    assert ids(loaded) == ids(model)[::-1]


# ---- bytes and files -----------------------------------------------------------------------------


def test_what_is_written_says_who_is_who_and_is_an_ordinary_file(tmp_path: Path) -> None:
    model = Tied(lp.init.normal())
    path = tmp_path / "record.safetensors"
    model.record().save(path, metadata={"format": "np"})
    assert path.read_bytes() == model.record().to_bytes({"format": "np"})
    with safetensors.safe_open(path, "numpy") as file:
        told = json.loads(file.metadata()[KEY])
        assert file.metadata()["format"] == "np"
        assert set(file.keys()) == set(model.record())
        assert file.get_tensor("embed").tobytes() == model.embed.value.tobytes()
    assert told == {"version": 1, "ids": dict(model.record().ids), "ties": {"head": "embed"}}
    record = lp.ModuleRecord.load(path)
    assert dict(record.metadata) == {"format": "np"}
    assert not any(p.is_initialized for p in record.values())
    assert (record.ids, record.ties) == (model.record().ids, model.record().ties)
    for loaded in (Tied().load_record(record), Tied().load_file(path)):
        assert ids(loaded) == ids(model)
        assert loaded.head.is_tied_to(loaded.embed)
        assert values(loaded) == values(model)
    assert dict(Tied().plan_load(path).metadata) == {"format": "np"}


def test_files_without_identities_keep_those_of_the_module(tmp_path: Path) -> None:
    """B37"""
    path = tmp_path / "model.safetensors"
    model = Linear(2, 3, lp.init.ones())
    safetensors.numpy.save_file(model.state_dict(), path)
    record = lp.ModuleRecord.load(path)
    assert dict(record.ids) == {}
    target = Linear(2, 3)
    assert ids(target.load_record(record)) == ids(target)
    assert ids(target.load_record(lp.ModuleRecord.from_bytes(path.read_bytes()))) == ids(target)
    assert ids(target.load_file(path)) == ids(target)


def test_save_file_writes_no_identities_so_one_model_is_one_file(tmp_path: Path) -> None:
    for name in "ab":
        Linear(2, 3, lp.init.ones()).save_file(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_record_may_take_the_place_of_the_file_it_was_loaded_from(tmp_path: Path) -> None:
    """safetensors#762: zeros on disk and in memory."""
    path = tmp_path / "record.safetensors"
    model = Linear(20, 30, lp.init.normal())
    model.record().save(path)
    for mode in ("view", "copy"):
        record = lp.ModuleRecord.load(path, mode=mode)  # type: ignore[arg-type]
        loaded = Linear(20, 30).load_record(record)
        record.save(path)
        assert values(loaded) == values(model)
        assert values(Linear(20, 30).load_file(path)) == values(model)


def test_what_cannot_be_made_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "record.safetensors"
    path.write_bytes(b"old")
    record = Bag(w=lp.Param(2, Counting(failures=1))).record()
    with pytest.raises(Boom) as caught:
        record.save(path)
    assert caught.value.__notes__ == ["while initialising w"]
    assert path.read_bytes() == b"old"
    record.save(path)
    assert lp.ModuleRecord.load(path).ids == record.ids


def test_bytes_are_copied_out_of_whatever_memory_they_are_in() -> None:
    model = mixed(lp.init.ones())
    data = bytearray(model.record().to_bytes())
    records = [lp.ModuleRecord.from_bytes(kind(data)) for kind in (bytearray, memoryview, bytes)]
    records.append(lp.ModuleRecord.from_bytes(np.frombuffer(data, np.uint8)))
    records.append(lp.ModuleRecord.from_bytes(data))
    data[:] = bytes(len(data))
    for record in records:
        assert values(mixed().load_record(record)) == values(model)
        assert record.ids == model.record().ids
        assert all(p.value.flags.aligned for p in record.values())


@pytest.mark.parametrize("cut", [0, 5, 100, -1])
def test_bytes_that_are_cut_short_or_go_on_are_refused(cut: int) -> None:
    data = mixed(lp.init.ones()).record().to_bytes()
    with pytest.raises(lp.FormatError, match="these bytes"):
        lp.ModuleRecord.from_bytes(data[:cut])
    with pytest.raises(lp.FormatError, match="follow the last tensor"):
        lp.ModuleRecord.from_bytes(data + b"\0")


def test_other_formats_are_told_apart_in_memory_too() -> None:
    with pytest.raises(lp.FormatError, match=r"(?i)zip"):
        lp.ModuleRecord.from_bytes(b"PK\x03\x04" + bytes(100))


@pytest.mark.parametrize("name", [*TAGS, *PACKED])
def test_every_dtype_goes_through_bytes_and_files_bit_for_bit(name: str, tmp_path: Path) -> None:
    array = bits_of(name, 24).reshape(2, 3, 4)
    record = Bag(w=lp.Param.from_tensor(array)).record()
    record.save(tmp_path / "m")
    for each in (
        lp.ModuleRecord.from_bytes(record.to_bytes()),
        lp.ModuleRecord.load(tmp_path / "m"),
    ):
        loaded = Bag(w=lp.Param((2, 3, 4), never, dtype=name)).load_record(each)
        assert loaded.w.dtype == name
        assert loaded.w.value.tobytes() == array.tobytes()


LEAVES = st.tuples(
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from([*TAGS, *PACKED]),
    st.booleans(),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abé.", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(TREES, st.integers(0, 2**32))
def test_any_module_comes_back_whole(tree: Any, seed: int) -> None:
    """Values, dtypes, shapes, identities and ties; B37 and B52."""
    pool: list[lp.Param[Any]] = []

    def grow(node: Any) -> Any:
        if isinstance(node, list):
            return [grow(each) for each in node]
        if isinstance(node, dict):
            return {name: grow(each) for name, each in node.items()}
        shape, dtype, is_tied = node
        if is_tied and pool:
            return pool[seed % len(pool)].clone()
        packed = dtype in PACKED
        shape = (*shape, 8) if packed else shape
        array = bits_of(dtype, int(np.prod(shape)), seed + len(pool)).reshape(shape)
        pool.append(lp.Param.from_tensor(array))
        return pool[-1]

    model = Bag(tree=grow(tree))
    try:
        record = model.record()
    except lp.ModuleError:  # two parameters with one path
        return
    target = model.map(Emptied())
    assert not any(p.is_initialized for p in target.parameters())
    for each in (
        record,
        pickle.loads(pickle.dumps(record)),
        lp.ModuleRecord.from_bytes(record.to_bytes()),
    ):
        loaded = target.load_record(each)
        assert values(loaded) == values(model)
        assert ids(loaded) == ids(model)
        assert len(list(loaded.parameters())) == len(list(model.parameters())) == len(record)


class Emptied(lp.ModuleMapper):
    """The parameters with other identities and without values."""

    def map(self, path: str, param: lp.Param[Any]) -> lp.Param[Any]:
        return lp.Param(param.shape, never, param.dtype)


# ---- what a file says of identities is checked ---------------------------------------------------


def file_that_says(text: str) -> bytes:
    """A file with the tensors ``a`` and ``b``, and this text where identities are."""
    plain = table({"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)})
    size = struct.unpack("<Q", plain[:8])[0]
    header = json.loads(plain[8 : 8 + size])
    header["__metadata__"] = {KEY: text}
    new = json.dumps(header).encode()
    return struct.pack("<Q", len(new)) + new + plain[8 + size :]


GOOD = {"version": 1, "ids": {"a": 1, "b": 2**64 - 1}, "ties": {"c": "a"}}

BAD = {
    "no JSON": "ids",
    "not an object": "[]",
    "null": "null",
    "deep": "[" * 100_000,
    "no version": json.dumps({"ids": {}, "ties": {}}),
    "a version of another kind": json.dumps(GOOD | {"version": True}),
    "a later version": json.dumps(GOOD | {"version": 2}),
    "something missing": json.dumps({"version": 1, "ids": {}}),
    "something more": json.dumps(GOOD | {"extra": 1}),
    "ids that are a list": json.dumps(GOOD | {"ids": []}),
    "ties that are a list": json.dumps(GOOD | {"ties": ["c"]}),
    "an id for nothing": json.dumps(GOOD | {"ids": {"z": 1}}),
    "an id that is a text": json.dumps(GOOD | {"ids": {"a": "1"}}),
    "an id that is a float": json.dumps(GOOD | {"ids": {"a": 1.0}}),
    "an id that is a bool": json.dumps(GOOD | {"ids": {"a": True}}),
    "a negative id": json.dumps(GOOD | {"ids": {"a": -1}}),
    "an id of 65 bits": json.dumps(GOOD | {"ids": {"a": 2**64}}),
    "an id without end": '{"version":1,"ids":{"a":' + "9" * 5000 + '},"ties":{}}',
    "a name twice": '{"version":1,"ids":{"a":1,"a":2},"ties":{}}',
    "a tie to nothing": json.dumps(GOOD | {"ties": {"c": "z"}}),
    "a tie to a tie": json.dumps(GOOD | {"ties": {"c": "a", "d": "c"}}),
    "a tie to a number": json.dumps(GOOD | {"ties": {"c": 1}}),
    "a tie to a list": json.dumps(GOOD | {"ties": {"c": []}}),
    "a tie of a tensor": json.dumps(GOOD | {"ties": {"b": "a"}}),
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_cannot_be_right_is_refused_at_every_door(text: str, tmp_path: Path) -> None:
    data = file_that_says(text)
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    target = Bag(a=lp.Param(2, never), b=lp.Param(2, never))
    doors: list[Callable[[], object]] = [
        lambda: lp.ModuleRecord.from_bytes(data),
        lambda: lp.ModuleRecord.load(path),
        lambda: target.load_file(path),
    ]
    for door in doors:
        with pytest.raises(lp.FormatError, match=KEY) as caught:
            door()
        assert caught.value.remedy
        assert len(str(caught.value)) < 600


def test_what_can_be_right_is_taken() -> None:
    record = lp.ModuleRecord.from_bytes(file_that_says(json.dumps(GOOD)))
    assert dict(record.ids) == GOOD["ids"]
    assert dict(record.ties) == GOOD["ties"]


def test_the_name_of_that_text_is_refused_for_others(tmp_path: Path) -> None:
    model = Bag(w=lp.Param(2, never))
    metadata = {KEY: "mine"}
    for write in (
        lambda: model.save_file(tmp_path / "m", metadata=metadata),
        lambda: model.record().save(tmp_path / "m", metadata=metadata),
        lambda: model.record().to_bytes(metadata),
    ):
        with pytest.raises(lp.RecordError, match="keep identities"):
            write()
    assert not model.w.is_initialized


# ---- pickling and threads ------------------------------------------------------------------------


def test_a_lazy_record_pickles_as_recipes() -> None:
    record = Bag(w=lp.Param((1000, 1000), lp.init.normal())).record()
    data = pickle.dumps(record)
    assert len(data) < 2000
    again = pickle.loads(data)
    assert not again["w"].is_initialized
    assert again.ids == record.ids
    assert np.array_equal(again["w"].value, record["w"].value)


def test_many_threads_load_one_record_of_a_tied_model() -> None:
    """B57: sixteen loads at once give sixteen right models."""
    counting = Counting(seconds=0.01)
    model = Tied(counting)
    record = model.record()
    loaded: list[Any] = race([lambda: values(Tied().load_record(record))] * 16)
    assert all(each == values(model) for each in loaded)
    assert counting.runs == 5


# ---- adapters ------------------------------------------------------------------------------------


class LowRank(lp.Reparameterization):
    """base + a @ b, in the dtype of the factors."""

    NAME = "lora"

    def __init__(self, init: Any) -> None:
        self.a = lp.Param((2, 1), init)
        self.b = lp.Param((1, 3), init)

    def apply(self, base: Any) -> Any:
        return base + self.a.value @ self.b.value


def adapted(base: Any, init: Any) -> Bag:
    return Bag(w=lp.Param((2, 3), base).with_reparameterization(LowRank(init)))


def test_adapters_are_recorded_and_stay_attached_when_loaded() -> None:
    """B51"""
    model = adapted(lp.init.ones(), lp.init.normal())
    record = model.record()
    assert list(record) == ["w", "w.lora.a", "w.lora.b"]
    for each in (record, lp.ModuleRecord.from_bytes(record.to_bytes())):
        loaded = adapted(never, never).load_record(each)
        assert list(loaded.w.reparameterizations) == ["lora"]
        assert np.array_equal(loaded.w.val(), model.w.val())
        assert np.array_equal(loaded.w.base(), model.w.base())
        assert ids(loaded) == ids(model)
    merged = model.materialize().record()
    assert np.array_equal(Bag(w=lp.Param((2, 3), never)).load_record(merged).w.value, model.w.val())


def test_an_adapter_alone_can_be_recorded_without_its_base() -> None:
    model = adapted(never, lp.init.ones())
    record = model.record(lp.ParamGroup.from_paths("w.lora.a", "w.lora.b"))
    assert not model.w.is_initialized
    loaded = adapted(lp.init.zeros(), never).load_record(record, allow_missing=True)
    assert loaded.w.value.tolist() == [[1] * 3] * 2


def test_an_adapter_for_which_there_is_no_place_is_refused_by_name() -> None:
    record = adapted(never, never).record()
    with pytest.raises(lp.UnexpectedKeys, match=r"w\.lora\.a"):
        Bag(w=lp.Param((2, 3), never)).load_record(record)


class Packed(lp.Reparameterization):
    """Stands for a quantised base: ints, which the adapter turns into what is read."""

    NAME = "lora"

    def __init__(self, init: Any) -> None:
        self.amount = lp.Param(3, init, dtype="int8")

    def apply(self, base: Any) -> Any:
        return base + self.amount.value


def test_a_packed_base_keeps_its_dtype_and_its_effective_value() -> None:
    """B10, the part about records."""

    def model(base: Any, init: Any) -> Bag:
        return Bag(w=lp.Param(3, base, dtype="int8").with_reparameterization(Packed(init)))

    source = model(lambda plan: np.array([1, -2, 3], np.int8), lp.init.ones())
    record = lp.ModuleRecord.from_bytes(source.record().to_bytes())
    assert {p.dtype for p in record.values()} == {"int8"}
    loaded = model(never, never).load_record(record)
    assert loaded.w.dtype == "int8"
    assert loaded.w.value.tolist() == source.w.value.tolist() == [2, -1, 4]


@pytest.mark.parametrize("scheme", [lp.quant.q8s(), lp.quant.q4s(), lp.quant.nf4()], ids=str)
def test_quantised_weights_and_their_adapter_come_back_exactly(scheme: lp.quant.Scheme) -> None:
    """B10: packed dtypes, adapter and effective value; merged, it loads into a dense parameter."""

    def model(base: Any, init: Any) -> Bag:
        plain = Bag(w=lp.Param((64, 3), base), b=lp.Param(3, base))
        packed = lp.quantize_weights(plain, scheme, "w")
        packed.w = packed.w.with_reparameterization(Rows(init))
        return packed

    source = model(lp.init.normal(), lp.init.normal())
    record = source.record()
    assert set(record) == {
        "b",
        "w.values",
        "w.scales",
        "w.lora.a",
    }
    assert not source.w.is_initialized
    for each in (record, lp.ModuleRecord.from_bytes(record.to_bytes())):
        loaded = model(never, never).load_record(each)
        assert loaded.w.base().scheme == scheme
        assert loaded.w.id == source.w.id
        assert list(loaded.w.reparameterizations) == ["lora"]
        assert loaded.w.value.tobytes() == source.w.value.tobytes()
        assert {p.dtype for p in each.values()} == {p.dtype for p in loaded.parameters()}
    merged = source.materialize()
    assert merged.materialize().w.value.tobytes() == merged.w.value.tobytes()
    dense = Bag(w=lp.Param((64, 3), never), b=lp.Param(3, never)).load_record(merged.record())
    assert dense.w.value.tobytes() == source.w.value.tobytes()


class Rows(lp.Reparameterization):
    """Adds a number to each row."""

    NAME = "lora"

    def __init__(self, init: Any) -> None:
        self.a = lp.Param((64, 1), init)

    def apply(self, base: Any) -> Any:
        return base + self.a.value


def test_flags_are_no_part_of_a_record() -> None:
    """B46"""
    model = Bag(w=lp.Param(2, lp.init.ones()), dropout=lp.Flag(True))
    assert list(model.record()) == ["w"]
    assert model.freeze().load_record(model.record()).dropout.id == model.dropout.id
