"""Loading: what wins, what is never run, and what is never silent."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import lazyparam as lp
from tests.checkpoint_files import table
from tests.helpers import Boom, Box, Counting, Linear, Tied, never

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


MOVES: dict[str, Callable[[lp.Param[Any]], lp.Param[Any]]] = {
    "moved": lambda p: p.to_device("cpu"),
    "moved away and back": lambda p: p.to_device("torch:cpu").to_device("cpu"),
    "forked": lambda p: p.fork("cpu"),
    "mapped": lambda p: p.init_mapper(never),
    "cloned": lambda p: p.clone(independent=True),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_lazy_param_that_is_changed_and_then_loaded_never_runs_its_initialiser(
    move: str, stored: Callable[..., Path]
) -> None:
    """B24: a lazy param moved, then loaded."""
    moved = MOVES[move](lp.Param((2, 3), never))
    assert not moved.is_initialized
    loaded = Box(moved).load_file(stored(t=ROWS)).t
    assert np.array_equal(loaded.value, ROWS)
    assert not moved.is_initialized


def test_a_module_forked_after_its_load_reads_the_file_and_nothing_else(
    stored: Callable[..., Path],
) -> None:
    """B24: the other way round: loaded, then moved."""
    loaded = Box(lp.Param((2, 3), never)).load_file(stored(t=ROWS))
    moved = loaded.fork("cpu")
    assert np.array_equal(moved.t.value, ROWS)
    assert np.array_equal(loaded.t.value, ROWS)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_record_gives_the_value_and_the_target_decides_all_else(
    requires_grad: bool, stored: Callable[..., Path]
) -> None:
    """B37: a record loads into a lazy target; device, intent and (without ids) identity stay."""
    param = lp.Param((2, 3), never, requires_grad=requires_grad, id=7)
    loaded = Box(param).load_file(stored(t=ROWS)).t
    assert not loaded.is_initialized
    assert (loaded.id, loaded.requires_grad, loaded.device) == (7, requires_grad, param.device)
    assert np.array_equal(loaded.value, ROWS)
    assert (loaded.id, loaded.requires_grad) == (7, requires_grad)


def test_an_id_that_comes_with_a_record_wins() -> None:
    """B37: the id comes from the record where it has one."""
    loaded = lp.Param((2, 3), never, id=7).transform_for_load(ROWS, id=11)
    assert loaded.id == 11
    assert np.array_equal(loaded.value, ROWS)


def test_a_device_named_for_a_load_wins_over_that_of_the_parameters(
    stored: Callable[..., Path],
) -> None:
    """B37: ``device=`` moves the targets, missing ones included, before they are loaded."""
    model = Linear(3, 2)
    loaded = model.load_file(stored(weight=ROWS), strict=False, device="torch:cpu")
    assert [str(device) for device in loaded.devices()] == ["torch:cpu"]
    assert [str(device) for device in model.devices()] == ["numpy:cpu"]
    assert np.array_equal(loaded.to_device("cpu").weight.value, ROWS)


# ---- shapes in files ----------------------------------------------------------------------------


def transposing(shape: tuple[int, int], ready: bool) -> lp.Param[Any]:
    """A parameter stored as `shape` and live as its transpose."""
    initial = lp.init.zeros() if ready else never
    param = (
        lp.Param(shape, initial)
        .init_mapper(np.transpose, shape=shape[::-1])
        .load_mapper(np.transpose)
        .save_mapper(np.transpose)
    )
    if ready:
        param.val()
    return param


@pytest.mark.parametrize("ready", [False, True], ids=["lazy", "ready"])
@pytest.mark.parametrize("shape", [(3, 2), (3, 3), (1, 4), (0, 2)])
def test_a_param_whose_stored_shape_differs_loads_again_and_again_and_saves_what_was_loaded(
    shape: tuple[int, int], ready: bool, tmp_path: Path
) -> None:
    """B41: loads are checked against the stored shape, lazy or ready, square or not."""
    first = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    second = -first - 1
    path, other, out = (tmp_path / name for name in ("a", "b", "c"))
    path.write_bytes(table({"t": first}))
    other.write_bytes(table({"t": second}))
    model = Box(transposing(shape, ready))
    assert (model.t.stored_shape, model.t.shape) == (shape, shape[::-1])
    once = model.load_file(path)
    assert (once.t.stored_shape, once.t.shape) == (shape, shape[::-1])
    # Loaded over while still lazy, and loaded over once read.
    assert np.array_equal(once.load_file(other).t.value, second.T)
    assert np.array_equal(once.t.value, first.T)
    twice = once.load_file(other)
    assert np.array_equal(twice.t.value, second.T)
    twice.save_file(out)
    assert np.array_equal(safetensors.numpy.load_file(out)["t"], second)
    assert np.array_equal(model.load_file(out).t.value, second.T)


@pytest.mark.parametrize("ready", [False, True], ids=["lazy", "ready"])
def test_a_tensor_of_the_live_shape_is_refused_where_another_is_stored(
    ready: bool, stored: Callable[..., Path]
) -> None:
    """B41: (2, 3) is stored, so a (3, 2) of the same size does not slip in."""
    model = Box(transposing((2, 3), ready))
    with pytest.raises(lp.ShapeMismatch, match=r"expected shape \(2, 3\), found \(3, 2\)"):
        model.load_file(stored(t=ROWS.T))


def test_a_load_mapper_that_gives_another_shape_is_an_error_that_names_the_param(
    stored: Callable[..., Path],
) -> None:
    """B41: what comes out of the mappers has to have the live shape."""
    wrong = Box(lp.Param((2, 3), never).load_mapper(np.transpose)).load_file(stored(t=ROWS)).t
    with pytest.raises(lp.InitError, match=r"expected \(2, 3\); found \(3, 2\)") as caught:
        _ = wrong.value
    assert caught.value.path == "t"


# ---- intent, ties, failures ----------------------------------------------------------------------


TRIPS: dict[str, Callable[[lp.Module, Path], lp.Module]] = {
    "load": lambda model, path: model.load_file(path),
    "load_state_dict": lambda model, path: model.load_state_dict(model.state_dict()),
    "pickle": lambda model, path: pickle.loads(pickle.dumps(model)),
    "deepcopy": lambda model, path: copy.deepcopy(model),
    "move": lambda model, path: model.to_device("cpu"),
    "move away and back": lambda model, path: model.to_device("torch:cpu").to_device("cpu"),
    "fork": lambda model, path: model.fork("cpu"),
    "valid and train": lambda model, path: model.valid().train(),
}


# There is no other device to move a ready value to here.
TRIPS_BY_STATE = [(trip, False) for trip in TRIPS] + [
    (trip, True) for trip in TRIPS if trip != "move away and back"
]


@pytest.mark.parametrize(("trip", "ready"), TRIPS_BY_STATE)
def test_the_wish_to_train_survives(trip: str, ready: bool, tmp_path: Path) -> None:
    """B43: through a record round trip, a pickle, a deepcopy and a move."""
    model = Linear(3, 2, lp.init.ones())
    model.bias = model.bias.set_requires_grad(False)
    path = tmp_path / "model.safetensors"
    copy.deepcopy(model).save_file(path)
    if ready:
        model.initialize()
    came_back = TRIPS[trip](model, path)
    assert (came_back.weight.requires_grad, came_back.bias.requires_grad) == (True, False)
    if trip != "move away and back":
        assert came_back.weight.value.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert (came_back.weight.requires_grad, came_back.bias.requires_grad) == (True, False)


EMBED = np.arange(12, dtype=np.float32).reshape(4, 3)
MIDDLE = {
    f"middle.{at}.{name}": np.full(shape, at, np.float32)
    for at in range(2)
    for name, shape in (("weight", (3, 3)), ("bias", (3,)))
}


@pytest.mark.parametrize("keys", [("embed",), ("head",), ("embed", "head"), ("head", "embed")])
def test_tied_params_are_tied_again_whichever_of_their_keys_a_file_has(
    keys: tuple[str, ...], tmp_path: Path
) -> None:
    """B52: re-tied on load."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(table({**dict.fromkeys(keys, EMBED), **MIDDLE}))
    model = Tied()
    plan = model.plan_load(path)
    assert plan.tied == {"head": "embed"}
    loaded = plan.commit()
    assert loaded.head.is_tied_to(loaded.embed)
    assert loaded.head.value is loaded.embed.value
    assert np.array_equal(loaded.embed.value, EMBED)
    assert not loaded.embed.is_tied_to(model.embed)


def test_tied_params_are_saved_once_under_their_first_path(tmp_path: Path) -> None:
    """B52: saved once, counted once, and loaded into a model that ties nothing only on request."""
    init = Counting()
    model = Tied(init)
    path = tmp_path / "model.safetensors"
    model.save_file(path)
    assert init.runs == 5
    assert sorted(Tied().plan_load(path)._source.entries()) == ["embed", *sorted(MIDDLE)]
    untied = Tied()
    untied.head = lp.Param((4, 3), never)
    with pytest.raises(lp.MissingParams, match="missing 'head'"):
        untied.load_file(path)
    assert np.array_equal(Tied().load_file(path).head.value, model.embed.value)


@pytest.mark.parametrize("first", ["embed", "head"])
def test_a_tensor_for_a_tied_param_has_to_fit_even_if_another_one_is_taken(
    first: str, tmp_path: Path
) -> None:
    """B52: a file in which the two are not one and the same is not for this model."""
    arrays = {"embed": EMBED, "head": EMBED}
    arrays[first] = EMBED.T
    path = tmp_path / "model.safetensors"
    path.write_bytes(table({**arrays, **MIDDLE}))
    with pytest.raises(lp.ShapeMismatch, match=rf"found \(3, 4\) in '{first}'"):
        Tied().load_file(path)


def test_a_failed_load_leaves_the_model_as_it_was_and_lists_every_problem(
    stored: Callable[..., Path],
) -> None:
    """B53: one error, with path, expected, found and the nearest name."""
    model = Linear(3, 2, lp.init.ones())
    before = model.weight.value
    path = stored(wieght=ROWS, bias=np.zeros(5, np.float32))
    with pytest.raises(lp.RecordError) as caught:
        model.load_file(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: the stored tensors do not fit the module; nothing was changed")
    assert "missing 'weight' (nearest: 'wieght')" in text
    assert "unexpected 'wieght' (nearest: 'weight')" in text
    assert "mismatched 'bias': expected shape (2,), found (5,) in 'bias'" in text
    assert len(caught.value.problems) == 3
    assert model.weight.value is before
    assert not model.bias.is_initialized


@pytest.mark.parametrize("strict", [True, False])
def test_a_load_that_matches_nothing_is_an_error_even_when_not_strict(
    strict: bool, stored: Callable[..., Path]
) -> None:
    """B53: otherwise a misspelled prefix would go unnoticed."""
    path = stored(encoder__weight=ROWS, encoder__bias=np.zeros(2, np.float32))
    with pytest.raises(lp.RecordError, match="not one tensor") as caught:
        Linear(3, 2).load_file(path, strict=strict)
    assert "missing 'bias' (nearest: 'encoder.bias')" in str(caught.value)
    assert "unexpected 'encoder.weight' (nearest: 'weight')" in str(caught.value)


def test_skipping_every_tensor_for_its_shape_is_a_load_that_matches_nothing(
    stored: Callable[..., Path],
) -> None:
    """B53: to skip what does not fit is no leave to skip all of it."""
    path = stored(weight=ROWS.T, bias=np.zeros(9, np.float32))
    with pytest.raises(lp.RecordError, match="not one tensor") as caught:
        Linear(3, 2).load_file(path, strict=False, skip_mismatched=True)
    assert "expected shape (2, 3), found (3, 2)" in str(caught.value)


def test_a_missing_key_leaves_its_param_lazy_with_its_own_initialiser(
    stored: Callable[..., Path],
) -> None:
    """B54: never uninitialised memory."""
    init = Counting(failures=1)
    model = Linear(3, 2, init)
    loaded = model.load_file(stored(weight=ROWS), strict=False)
    assert not loaded.bias.is_initialized
    assert "lazy" in loaded.bias.state
    assert init.runs == 0
    with pytest.raises(Boom):
        _ = loaded.bias.value
    value = loaded.bias.value
    assert init.runs == 2
    # It is the same parameter: what comes into being here comes into being there.
    assert model.bias.value is value
    assert np.array_equal(loaded.weight.value, ROWS)
    assert init.runs == 2


def test_a_missing_key_without_an_initialiser_is_an_error_when_it_is_read(
    stored: Callable[..., Path],
) -> None:
    """B54: a param that is only ever to be loaded says so."""
    model = Linear(3, 2, None)
    loaded = model.load_file(stored(weight=ROWS), strict=False)
    with pytest.raises(lp.InitError, match="bias: this parameter has no initialiser"):
        _ = loaded.bias.value


def test_a_value_that_is_loaded_cures_a_param_whose_initialiser_fails(
    stored: Callable[..., Path],
) -> None:
    """B47: loading needs no initialiser."""
    model = Box(lp.Param((2, 3), Counting(failures=99)))
    with pytest.raises(Boom):
        _ = model.t.value
    assert np.array_equal(model.load_file(stored(t=ROWS)).t.value, ROWS)
