"""What parameters lend to other libraries: ``__array__``, DLPack; detached, safe to write to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Boom, Counting, never


def test_lending_brings_a_lazy_param_into_being_once() -> None:
    init = Counting()
    p = lp.Param((2, 3), init)
    lent = np.from_dlpack(p)
    assert init.runs == 1
    assert p.is_initialized
    np.testing.assert_array_equal(lent, p.value)
    np.testing.assert_array_equal(np.asarray(p), p.value)
    assert init.runs == 1


def test_who_takes_a_param_by_dlpack_gets_memory_of_his_own() -> None:
    """B55: few libraries heed the mark that memory is read-only (jax-ml/jax#19123)."""
    p = lp.Param((2, 3), lp.init.ones())
    lent = np.from_dlpack(p)
    assert not np.shares_memory(lent, p.value)
    memory: Any = np.array(lent)
    memory[:] = 5
    assert (p.value == 1).all()


def test_with_copy_false_the_value_itself_is_lent_and_stays_read_only() -> None:
    p = lp.Param((2, 3), lp.init.ones())
    lent = np.from_dlpack(p, copy=False)
    assert np.shares_memory(lent, p.value)
    assert not lent.flags.writeable


def test_a_consumer_that_cannot_be_told_of_read_only_memory_gets_a_copy_too() -> None:
    """Without `max_version`, as consumers of before DLPack 1.0 ask."""

    class Old:
        def __init__(self, param: lp.Param[Any]) -> None:
            self.param = param

        def __dlpack__(self, **_: Any) -> Any:
            return self.param.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.param.__dlpack_device__()

    p = lp.Param((2, 3), lp.init.ones())
    assert np.from_dlpack(Old(p)).tolist() == [[1, 1, 1], [1, 1, 1]]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "order"), [((), "C"), ((0, 3), "C"), ((2, 3), "F"), ((4,), "C")], ids=str
)
def test_every_shape_and_order_is_lent(shape: tuple[int, ...], order: Any) -> None:
    data = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape), order=order)
    p = lp.Param.from_tensor(data)
    np.testing.assert_array_equal(np.from_dlpack(p), data)
    assert p.__dlpack_device__() == (1, 0), "the CPU, as DLPack counts"


def test_bools_stay_bools() -> None:
    """pytorch/pytorch#114673, #67081, cupy/cupy#7307."""
    p = lp.Param.from_tensor(np.array([True, False]))
    assert np.from_dlpack(p).dtype == np.bool_


def test_a_dtype_that_dlpack_has_not_is_the_librarys_own_error() -> None:
    p = lp.Param(2, lp.init.ones(), "bfloat16")
    with pytest.raises(BufferError):
        np.from_dlpack(p)


def test_what_cannot_come_into_being_is_not_lent() -> None:
    def fail(plan: lp.Plan) -> np.ndarray:
        raise Boom

    p = lp.Param(2, fail)
    for lend in (np.from_dlpack, np.asarray):
        with pytest.raises(Boom):
            lend(p)
    assert not p.is_initialized


def test_nobody_is_asked_before_a_library_asks() -> None:
    """B35: a param that could be lent is as lazy as any."""
    p = lp.Param(2, never)
    assert hasattr(p, "__dlpack__")
    assert hasattr(p, "__array__")
    assert not p.is_initialized
