"""State dicts: the checkpoint that is a dict of arrays."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lazyparam as lp
from tests.checkpoint_files import CUBE, LAYOUTS
from tests.helpers import Linear, Tied, never


class Box(lp.Module):
    """One parameter: ``t``."""

    def __init__(self, param: lp.Param[Any]) -> None:
        self.t = param


def test_a_state_dict_has_every_path_and_ties_share_one_array() -> None:
    model = Tied(lp.init.ones())
    state = model.state_dict()
    assert list(state) == [path for path, _ in model.named_parameters(remove_duplicate=False)]
    assert state["head"] is state["embed"]
    assert not state["embed"].flags.writeable


def test_a_state_dict_loads_and_the_arrays_are_copied() -> None:
    """B37: the initialiser never runs."""
    model = Linear(3, 2)
    weight, bias = np.ones((2, 3), np.float32), np.arange(2, dtype=np.float32)
    loaded = model.load_state_dict({"weight": weight, "bias": bias})
    weight[:] = bias[:] = 77
    assert loaded.weight.value.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert loaded.bias.value.tolist() == [0, 1]
    assert not model.weight.is_initialized


def test_a_state_dict_is_in_stored_form() -> None:
    """B41: save mappers on the way out, load mappers on the way in."""
    param = lp.Param((2, 3), lp.init.eye()).load_mapper(np.transpose).save_mapper(np.transpose)
    model = Box(param.init_mapper(np.transpose, shape=(3, 2)))
    state = model.state_dict()
    assert state["t"].shape == (2, 3)
    assert np.array_equal(model.load_state_dict(state).t.value, np.eye(3, 2))


# What is wrong with a state dict -> the error and its words.
BAD_STATES: dict[str, tuple[dict[str, Any], type[lp.LazyParamError], str]] = {
    "missing": ({"weight": np.ones((2, 3), "f4")}, lp.MissingParams, "missing 'bias'"),
    "shape": (
        {"weight": np.ones((3, 2), "f4"), "bias": np.ones(2, "f4")},
        lp.ShapeMismatch,
        r"'weight': expected shape \(2, 3\), found \(3, 2\)",
    ),
    "rounding": (
        {"weight": np.ones((2, 3)), "bias": np.ones(2, "f4")},
        lp.ShapeMismatch,
        "expected float32, found float64",
    ),
    "ints": (
        {"weight": np.ones((2, 3), int), "bias": np.ones(2, "f4")},
        lp.ShapeMismatch,
        r"expected floats \(float32\), found int64",
    ),
    "objects": (
        {"weight": np.full((2, 3), None), "bias": np.ones(2, "f4")},
        lp.ShapeMismatch,
        r"expected floats \(float32\), found object",
    ),
    "texts": (
        {"weight": np.full((2, 3), "x"), "bias": np.ones(2, "f4")},
        lp.ShapeMismatch,
        r"expected floats \(float32\), found str",
    ),
    "structured": (
        {"weight": np.zeros((2, 3), [("a", "f4")]), "bias": np.ones(2, "f4")},
        lp.ShapeMismatch,
        r"expected floats \(float32\), found void",
    ),
    "masked": (
        {"weight": np.ma.masked_array(np.ones((2, 3), "f4"), True), "bias": np.ones(2, "f4")},
        lp.RecordError,
        "weight: a masked array is not a parameter's value",
    ),
    "nothing matches": ({"x": np.ones(2, "f4")}, lp.RecordError, "not one tensor"),
    "empty": ({}, lp.RecordError, "not one tensor"),
}


@pytest.mark.parametrize("name", BAD_STATES)
def test_a_state_dict_that_does_not_fit_is_refused_and_nothing_changes(name: str) -> None:
    """B53: as for a file."""
    state, kind, match = BAD_STATES[name]
    model = Linear(3, 2)
    with pytest.raises(kind, match=match):
        model.load_state_dict(state)
    assert not any(param.is_initialized for param in model.parameters())


def test_a_state_dict_may_hold_more_than_arrays_if_it_need_not_be_strict() -> None:
    state = {"weight": np.ones((2, 3), "f4"), "bias": [1.0, 2.0], "_extra_state": {"a": object()}}
    loaded = Linear(3, 2).load_state_dict(state, strict=False, dtype="cast")
    assert loaded.bias.value.tolist() == [1, 2]


def test_a_state_dict_takes_arrays_of_any_layout_and_byte_order() -> None:
    for layout in LAYOUTS.values():
        array = layout(CUBE)
        loaded = Box(lp.Param(array.shape, never)).load_state_dict({"t": array}).t
        assert np.array_equal(loaded.value, array)
        assert type(loaded.value) is np.ndarray


def test_a_state_dict_of_bfloat16_widens_exactly_and_narrows_on_request() -> None:
    narrow = np.array([1.5, -2], ml_dtypes.bfloat16)
    wide = Box(lp.Param(2, never)).load_state_dict({"t": narrow}).t
    assert wide.value.tolist() == [1.5, -2]
    cast = Box(lp.Param(2, never, dtype="bfloat16")).load_state_dict(
        {"t": np.array([1.5, 1 / 3], np.float32)}, dtype="cast"
    )
    assert cast.t.value.tolist() == [1.5, ml_dtypes.bfloat16(1 / 3)]
