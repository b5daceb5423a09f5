"""Initialisers and mappers that give something else than was declared or raise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Boom, Counting, never


class Layer(lp.Module):
    """One parameter: ``layer.weight``."""

    def __init__(self, param: lp.Param[Any]) -> None:
        self.layer = {"weight": param}


class Awkward:
    """An object whose repr fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


# (shape, what comes back, words of the error)
WRONG: dict[str, tuple[tuple[int, ...], Any, str]] = {
    "nothing": ((2,), None, "expected a NumPy array; found None"),
    "a list": ((2,), [1.0, 2.0], "expected a NumPy array; found list of 2"),
    "a float": ((), 1.0, "expected a NumPy array; found float 1.0"),
    "a text": ((2,), "x" * 1000, "expected a NumPy array; found str 'x"),
    "an object whose repr fails": ((2,), Awkward(), "expected a NumPy array; found Awkward"),
    "another shape": ((2,), np.zeros(3, "f4"), r"expected \(2,\); found \(3,\)"),
    "a shape that would broadcast": ((2,), np.zeros((1, 2), "f4"), r"found \(1, 2\)"),
    "a scalar": ((2,), np.float32(1), r"expected \(2,\); found \(\)"),
    "a vector of one": ((), np.zeros(1, "f4"), r"expected \(\); found \(1,\)"),
    "another dtype": ((2,), np.zeros(2), "expected float32; found float64"),
    "ints": ((2,), np.zeros(2, int), "expected float32; found int64"),
    "objects": ((2,), np.array([None, 1.0]), "expected float32; found object"),
    "texts": ((2,), np.array(["a", "b"]), "expected float32; found str"),
    "a structure": ((2,), np.zeros(2, [("a", "f4")]), "expected float32; found void"),
    "a masked array": ((2,), np.ma.masked_array([1, 2], [0, 1], "f4"), "masked array"),
    "a class": ((2,), np.ndarray, "expected a NumPy array"),
}


@pytest.mark.parametrize("through", ["initialiser", "mapper"])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_as_declared_is_an_error_that_says_what_came_back(
    name: str, through: str
) -> None:
    """B47: and the param stays lazy."""
    shape, gives, match = WRONG[name]
    if through == "initialiser":
        param = lp.Param(shape, lambda plan: gives)
    else:
        param = lp.Param(shape, lp.init.ones()).init_mapper(lambda x: gives)
    model = Layer(param)
    for attempt in (param.val, model.initialize):
        with pytest.raises(lp.InitError, match=match) as caught:
            attempt()
        assert len(str(caught.value)) < 300
        assert caught.value.path == "layer.weight"
    assert not param.is_initialized
    assert (param.shape, param.dtype) == (shape, "float32")


def unit(dtype: str = "f4") -> np.ndarray:
    return np.arange(2).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "gives"),
    [
        ((2,), unit(">f4")),
        ((), np.float32(3)),
        ((2,), np.arange(4, dtype="f4")[::2]),
        ((2,), np.broadcast_to(np.float32(1), 2)),
        ((2, 1), np.arange(2, dtype="f4").reshape(2, 1).view(np.matrix)),
        ((0,), np.zeros(0, "f4")),
    ],
    ids=["big-endian", "a scalar for no dimensions", "strided", "broadcast", "a matrix", "empty"],
)
def test_what_is_as_declared_is_taken_whatever_its_layout(
    shape: tuple[int, ...], gives: np.ndarray
) -> None:
    value = lp.Param(shape, lambda plan: gives).value
    assert np.array_equal(value, gives)
    assert (type(value), value.dtype.isnative, value.flags.writeable) == (np.ndarray, True, False)


class Custom(BaseException):
    """Neither an Exception nor anything Python knows."""


@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, MemoryError, Custom, Boom]
)
def test_whatever_an_initialiser_raises_keeps_its_type_and_the_next_read_tries_again(
    kind: type[BaseException],
) -> None:
    """B47: a note names the path, the recipe stays in place."""
    raised = kind("mine")
    runs = 0

    def init(plan: lp.Plan) -> np.ndarray:
        nonlocal runs
        runs += 1
        if runs <= 2:
            raise raised
        return unit()

    param = Layer(lp.Param(2, init)).layer["weight"]
    for _ in range(2):
        with pytest.raises(kind) as caught:
            param.val()
        assert caught.value is raised
        assert not param.is_initialized
        assert "lazy" in repr(param)
    assert raised.__notes__ == ["while initialising layer.weight"]
    assert param.value.tolist() == [0, 1]
    assert runs == 3


@pytest.mark.parametrize("mapper", [None, 3, "transpose", [np.transpose]], ids=repr)
@pytest.mark.parametrize("verb", ["map", "init_mapper", "load_mapper", "save_mapper"])
def test_a_mapper_that_cannot_be_called_is_refused_at_once(verb: str, mapper: Any) -> None:
    with pytest.raises(lp.DeclarationError, match="function from array to array") as caught:
        getattr(lp.Param(2, never), verb)(mapper)
    assert caught.value.found == type(mapper).__name__


def test_an_error_in_a_mapper_keeps_its_type_and_names_the_path() -> None:
    model = lp.Module()
    model.t = lp.Param(2, lp.init.ones()).init_mapper(lambda x: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        model.initialize()
    assert caught.value.__notes__ == ["while initialising t"]


# ---- waiting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [-1, -0.001, math.nan, -math.inf])
def test_a_timeout_that_makes_no_sense_is_refused_before_anything_runs(timeout: float) -> None:
    with pytest.raises(ValueError, match="a timeout is a number of seconds from 0 on; found"):
        lp.Param(2, never).val(timeout=timeout)


@pytest.mark.parametrize("timeout", [0, 0.0, 1e300, math.inf])
def test_a_timeout_limits_the_wait_for_others_and_not_the_work_itself(timeout: float) -> None:
    assert lp.Param(2, Counting(seconds=0.01)).val(timeout=timeout).shape == (2,)


def test_an_exception_that_takes_no_note_comes_out_all_the_same() -> None:
    """B47: its type is kept first of all."""

    class Stubborn(Exception):
        def add_note(self, note: str) -> None:
            raise TypeError("no notes")

    def init(plan: lp.Plan) -> np.ndarray:
        raise Stubborn("mine")

    with pytest.raises(Stubborn, match="mine"):
        lp.Param(2, init).val()
