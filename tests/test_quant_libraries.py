"""Quantised arrays of other libraries: their operators give NumPy's elements, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from lazyparam.quant import QuantArray, Scheme, nf4, q4s, q8s, quantize
from tests import quant_rules as rules

SCHEMES = [q8s(), q8s(8), q8s((2, 4), "bfloat16"), q4s(), q4s(8, "float16"), nf4(), nf4(32)]
SHAPES = [(6, 16), (4, 2, 64, 32), (0, 16), (2, 16)]
ODD = [(), (7,), (5, 13)]
DTYPES = ["float32", "float16", "bfloat16"]


def to_torch(array: np.ndarray) -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def to_jax(array: np.ndarray) -> Any:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    return jax.numpy.asarray(array)


def to_numpy(array: Any) -> np.ndarray:
    if type(array).__module__ == "torch":
        import torch

        if array.dtype == torch.bfloat16:
            return array.view(torch.int16).numpy()
        return array.numpy()
    return np.asarray(array)


LIBRARIES = pytest.mark.parametrize("move", [to_torch, to_jax], ids=["torch", "jax"])
Move = Callable[[np.ndarray], Any]


def packed(shape: tuple[int, ...], scheme: Scheme) -> QuantArray:
    """Without subnormal numbers, which some libraries take for zero."""
    array = rules.numbers(shape, np.float32)
    return quantize(np.where(abs(array) < 1e-30, 0, array).astype(np.float32), scheme)


@LIBRARIES
@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_scheme_and_dtype_gives_the_same_bits(move: Move, scheme: Scheme, dtype: str) -> None:
    odd = ODD if scheme.block is None or scheme.name == "nf4" else []
    for shape in SHAPES + odd:
        host = packed(shape, scheme)
        moved = host.map(move)
        found = moved.dequantize(dtype)
        assert type(found) is type(moved.values) or isinstance(found, type(moved.values))
        assert tuple(found.shape) == shape
        assert str(found.dtype).removeprefix("torch.") == dtype
        assert to_numpy(found).tobytes() == host.dequantize(dtype).tobytes()


@LIBRARIES
def test_the_dtype_that_was_quantised_is_the_default(move: Move) -> None:
    made = quantize(np.ones((2, 8), np.float16), q8s()).map(move)
    assert str(made.dequantize().dtype).removeprefix("torch.") == "float16"
    assert repr(made) == "QuantArray((2, 8), float16 as q8s(), 20 bytes)"


@LIBRARIES
def test_arrays_of_a_library_are_checked_too(move: Move) -> None:
    made = quantize(np.ones((2, 8), np.float32), q8s()).map(move)
    with pytest.raises(lp.QuantizeError, match="the values do not fit"):
        QuantArray(made.values, made.scales, made.scheme, (8, 2))


def test_torch_gives_doubles() -> None:
    host = packed((6, 16), nf4())
    found = host.map(to_torch).dequantize("float64")
    assert found.numpy().tobytes() == host.dequantize("float64").tobytes()


def test_jax_says_when_it_would_narrow_doubles() -> None:
    made = packed((6, 16), q8s()).map(to_jax)
    with (
        pytest.warns(UserWarning, match="float64"),
        pytest.raises(lp.QuantizeError, match="does not have this dtype") as info,
    ):
        made.dequantize("float64")
    assert "jax_enable_x64" in str(info.value)


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_jax_dequantises_in_a_trace(scheme: Scheme) -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    host = packed((4, 2, 64, 32), scheme)
    inside = jax.jit(
        lambda values, scales: QuantArray(values, scales, scheme, host.shape).dequantize()
    )
    found = inside(*map(to_jax, host.arrays.values()))
    assert np.asarray(found).tobytes() == host.dequantize().tobytes()


def test_nothing_torch_dequantises_is_tracked_and_it_works_under_inference_mode() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    made = packed((6, 16), nf4()).map(to_torch)
    found = made.dequantize()
    assert not found.requires_grad
    factor = torch.ones(6, requires_grad=True)
    (factor @ found).sum().backward()
    assert factor.grad is not None
    with torch.inference_mode():
        assert torch.equal(made.dequantize(), found)
