"""The dtype policy: kept, cast, the file's or named; never in silence, no kind to another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lazyparam as lp
from tests.checkpoint_files import dtype as numpy_dtype
from tests.helpers import Box, never

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


# (declared, stored, rule) -> the dtype of the loaded parameter, or None where it is refused.
POLICY: list[tuple[str, str, str, str | None]] = [
    ("float32", "float32", "keep", "float32"),
    ("float32", "bfloat16", "keep", "float32"),
    ("float32", "float16", "keep", "float32"),
    ("float32", "float64", "keep", None),
    ("float16", "bfloat16", "keep", None),
    ("float16", "float8_e4m3fn", "keep", "float16"),
    ("int64", "int32", "keep", "int64"),
    ("int32", "int64", "keep", None),
    ("int32", "uint32", "keep", None),
    ("int64", "uint32", "keep", "int64"),
    ("complex64", "complex64", "keep", "complex64"),
    ("float32", "float64", "cast", "float32"),
    ("bfloat16", "float32", "cast", "bfloat16"),
    ("int32", "int64", "cast", "int32"),
    ("float32", "float64", "file", "float64"),
    ("float32", "bfloat16", "file", "bfloat16"),
    ("int32", "int64", "file", "int64"),
    ("float32", "float64", "float16", "float16"),
    ("float32", "float32", "bfloat16", "bfloat16"),
    # A dtype by name is for parameters of its kind; the others are kept, and not rounded.
    ("int64", "int32", "float16", "int64"),
    ("int32", "int64", "float16", None),
    ("bool", "bool", "float16", "bool"),
    # One kind never becomes another.
    *(
        (declared, stored, rule, None)
        for declared, stored in [
            ("float32", "int8"),
            ("float32", "bool"),
            ("int8", "bool"),
            ("bool", "uint8"),
            ("int32", "float32"),
            ("float32", "complex64"),
            ("complex64", "float32"),
        ]
        for rule in ("keep", "cast", "file", declared)
    ),
]


@pytest.mark.parametrize(("declared", "stored_as", "rule", "wanted"), POLICY)
def test_a_dtype_is_kept_or_changed_as_the_rule_says_or_the_load_is_refused(
    declared: str, stored_as: str, rule: str, wanted: str | None, stored: Callable[..., Path]
) -> None:
    """B40: never silent; int and bool are never cast to float."""
    numbers = np.array([0, 1, 1, 0]).astype(numpy_dtype(stored_as))
    path = stored(t=numbers)
    model = Box(lp.Param(4, never, dtype=declared))
    plan = model.plan_load(path, dtype=rule)
    if wanted is None:
        assert declared in plan.mismatched["t"]
        assert stored_as in plan.mismatched["t"]
        with pytest.raises(lp.ShapeMismatch, match=stored_as):
            plan.commit()
        return
    assert [(m.path, m.stored_dtype, m.dtype) for m in plan.cast] == (
        [] if wanted == stored_as else [("t", stored_as, wanted)]
    )
    loaded = plan.commit().t
    assert loaded.dtype == wanted
    assert loaded.value.dtype == numpy_dtype(wanted)
    assert np.array_equal(loaded.value.astype(complex), numbers.astype(complex))


def test_casting_rounds_and_the_plan_says_so(stored: Callable[..., Path]) -> None:
    """B40: rounding is asked for, and reported."""
    third = np.array([1 / 3])
    plan = Box(lp.Param(1, never)).plan_load(stored(t=third), dtype="cast")
    assert "cast        t: float64 -> float32" in str(plan)
    assert plan.commit().t.value[0] == np.float32(1 / 3)


@pytest.mark.parametrize(("number", "declared"), [(2**40, "int32"), (-1, "uint64"), (300, "uint8")])
def test_an_int_that_does_not_fit_is_an_error_when_it_is_read_and_is_never_wrapped(
    number: int, declared: str, stored: Callable[..., Path]
) -> None:
    """B40: a cast of ints gives the same ints or an error."""
    path = stored(t=np.array([0, number]))
    loaded = Box(lp.Param(2, never, dtype=declared)).load_file(path, dtype="cast").t
    with pytest.raises(lp.InitError, match=f"{number} does not fit {declared}") as caught:
        _ = loaded.value
    assert caught.value.path == "t"
    assert not loaded.is_initialized


def test_a_load_mapper_does_not_make_a_load_round_in_silence(stored: Callable[..., Path]) -> None:
    """B40: parameters with a load mapper keep to the rule, too."""
    model = Box(lp.Param((3, 2), never).load_mapper(np.transpose, stored_shape=(2, 3)))
    path = stored(t=ROWS.astype(np.float64))
    for rule in ("keep", "file"):
        with pytest.raises(lp.ShapeMismatch, match="float64"):
            model.load_file(path, dtype=rule)
    assert np.array_equal(model.load_file(path, dtype="cast").t.value, ROWS.T)


def test_a_load_mapper_may_turn_ints_into_floats_and_has_to_do_so_itself(
    stored: Callable[..., Path],
) -> None:
    """B40: what is stored packed is unpacked by the mapper; lazyparam casts no kind to another."""
    path = stored(t=np.array([0, 128, 255], np.uint8))
    declared = lp.Param(3, never)
    unpacking = declared.load_mapper(lambda x: (x / 255).astype(np.float32))
    assert Box(unpacking).load_file(path).t.value.tolist() == [0, np.float32(128 / 255), 1]
    forgetful = Box(declared.load_mapper(lambda x: x)).load_file(path).t
    with pytest.raises(lp.InitError, match="expected float32; found uint8"):
        _ = forgetful.value


@pytest.mark.parametrize("rule", ["float", "f8", "int4", "", "complex256"])
def test_a_rule_that_names_no_dtype_is_refused(rule: str, stored: Callable[..., Path]) -> None:
    """B40: a misspelled rule is no rule."""
    with pytest.raises(lp.DeclarationError, match="not a dtype"):
        Box(lp.Param((2, 3), never)).plan_load(stored(t=ROWS), dtype=rule)
