"""Native initialisers: values that say how a parameter is drawn."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

import lazyparam as lp

DTYPES = [
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    *("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
]


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_can_be_drawn(dtype: str) -> None:
    expected = numpy_dtype(dtype)
    for init, one in ((lp.init.zeros(), 0), (lp.init.ones(), 1), (lp.init.constant(1), 1)):
        value = lp.Param((3, 5), init, dtype=dtype).val()
        assert value.dtype == expected
        assert (value.astype("complex128") == one).all()
    eye = lp.Param((3, 5), lp.init.eye(), dtype=dtype).val()
    np.testing.assert_array_equal(eye.astype("complex128"), np.eye(3, 5))


def test_scale_types_have_no_zero_but_ones() -> None:
    value = lp.Param(3, lp.init.ones(), dtype="float8_e8m0fnu").val()
    assert (value.astype("float32") == 1).all()


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (1000, 1000)])
def test_any_shape_can_be_drawn(shape: tuple[int, ...]) -> None:
    value = lp.Param(shape, lp.init.constant(-2.5)).val()
    assert value.shape == shape
    assert (value == -2.5).all()


@pytest.mark.parametrize(
    ("init", "text"),
    [
        (lp.init.zeros(), "zeros()"),
        (lp.init.ones(), "ones()"),
        (lp.init.eye(), "eye()"),
        (lp.init.constant(0.5), "constant(0.5)"),
        (lp.init.constant(True), "constant(True)"),
        (lp.init.constant(-(2**63)), f"constant({-(2**63)})"),
        (lp.init.constant(1 + 2j), "constant((1+2j))"),
    ],
)
def test_initialisers_print_compare_hash_and_pickle(init: lp.init.Init, text: str) -> None:
    assert repr(init) == text
    copied = pickle.loads(pickle.dumps(init))
    assert copied == init
    assert hash(copied) == hash(init)
    assert eval(text, vars(lp.init)) == init
    assert init != lp.init.constant(123)


def test_constants_of_different_kinds_are_different() -> None:
    assert lp.init.constant(1) != lp.init.constant(1.0)
    assert lp.init.constant(float("nan")) == lp.init.constant(float("nan"))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        *((300, "uint8"), (-1, "uint8"), (0.5, "int32"), (1e5, "float16"), (2, bool)),
        *((1e4, "float8_e4m3fn"), (1e6, "float8_e5m2"), (100, "float4_e2m1fn")),
    ],
)
def test_a_constant_that_does_not_fit_is_refused_at_declaration(value, dtype) -> None:
    with pytest.raises(lp.DeclarationError, match="does not fit"):
        lp.Param(3, lp.init.constant(value), dtype=dtype)


def test_a_numpy_scalar_is_a_number() -> None:
    assert lp.init.constant(np.float32(0.5)) == lp.init.constant(0.5)
    assert lp.init.constant(np.int64(2)) == lp.init.constant(2)


@pytest.mark.parametrize("value", ["1", None, [1], object()])
def test_a_constant_has_to_be_a_number(value) -> None:
    with pytest.raises(lp.DeclarationError, match="number"):
        lp.init.constant(value)


def test_an_identity_matrix_has_two_dimensions() -> None:
    with pytest.raises(lp.DeclarationError, match="two dimensions"):
        lp.Param((2, 2, 2), lp.init.eye())


def test_a_function_is_told_the_plan() -> None:
    told = []

    def init(plan: lp.Plan) -> np.ndarray:
        told.append(plan)
        return np.zeros(plan.shape, plan.dtype)

    lp.Param((2, 3), init, dtype="float64").val()
    (plan,) = told
    assert (plan.shape, plan.dtype, str(plan.device)) == ((2, 3), "float64", "numpy:cpu")
    assert plan.requires_grad is False  # wanted, but NumPy records no gradients
    assert repr(plan) == (
        "Plan(shape=(2, 3), dtype='float64', device='numpy:cpu', requires_grad=False)"
    )
    with pytest.raises(AttributeError):
        plan.shape = ()
