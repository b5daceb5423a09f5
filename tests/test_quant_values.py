"""Quantised values against the rules written in NumPy, for every shape, block and dtype."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyparam as lp
from lazyparam import quant
from lazyparam.quant import QuantArray, Scheme, _by_operators, calibrate, nf4, q4s, q8s, quantize
from tests import quant_rules as rules

FLOATS = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float64": np.dtype(np.float64),
}
SCALES = ["float32", "float16", "bfloat16"]
SOME = [q8s(), q8s(8), q8s((2, 4), "bfloat16"), q4s(16, "float16"), q4s(), nf4(), nf4(32)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, Scheme]:
    shape = tuple(draw(st.lists(st.integers(1, 12), max_size=4)))
    divisors = [[n for n in range(1, extent + 1) if extent % n == 0] for extent in shape]
    full = tuple(draw(st.sampled_from(choices)) for choices in divisors)
    block = full[draw(st.integers(0, len(full))) :] or None
    scheme = draw(st.sampled_from([q8s, q4s]))(block, draw(st.sampled_from(SCALES)))
    dtype = FLOATS[draw(st.sampled_from(sorted(FLOATS)))]
    return rules.numbers(shape, dtype, draw(st.integers(0, 2**32))), scheme


@given(cases())
def test_integers_and_scales_are_those_of_burns_rule(case: tuple[np.ndarray, Scheme]) -> None:
    array, scheme = case
    codes, scales = rules.integers(array, scheme, FLOATS[scheme.scale_dtype])
    made = quantize(array, scheme)
    expected = codes if scheme.name == "q8s" else rules.packed(codes)
    assert np.array_equal(made.values, expected)
    assert made.scales.tobytes() == scales.tobytes()
    assert made.scales.shape == scales.shape
    assert np.array_equal(made.dequantize("float32"), rules.meant(codes, scales, scheme))


@given(st.integers(0, 300), st.sampled_from([32, 64, 128]), st.integers(0, 2**32))
def test_normal_floats_are_those_of_bitsandbytes_rule(count: int, block: int, seed: int) -> None:
    for dtype in FLOATS.values():
        array = rules.numbers((count,), dtype, seed)
        values, scales = rules.nf4(array, block)
        made = quantize(array, nf4(block))
        assert np.array_equal(made.values, values)
        assert made.scales.tobytes() == scales.tobytes()


@pytest.mark.parametrize("scheme", SOME, ids=repr)
@pytest.mark.parametrize("dtype", FLOATS)
def test_operators_give_the_bits_that_rust_gives(scheme: Scheme, dtype: str) -> None:
    for shape in [(6, 16), (2, 3, 64, 32), (0, 16), (4, 2, 16)]:
        made = quantize(rules.numbers(shape, np.float32), scheme)
        fast, slow = made.dequantize(dtype), _by_operators(made, dtype)
        assert (fast.dtype, fast.shape) == (FLOATS[dtype], shape)
        assert fast.dtype == slow.dtype
        assert fast.tobytes() == slow.tobytes()


@pytest.mark.parametrize("scheme", [q8s(), q4s(), nf4()], ids=repr)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 13), (3, 1), (3, 0)])
def test_odd_sizes_come_back_in_their_shape(scheme: Scheme, shape: tuple[int, ...]) -> None:
    array = rules.numbers(shape, np.float32)
    made = quantize(array, scheme)
    assert made.dequantize().shape == shape
    assert made.dequantize().tobytes() == _by_operators(made, "float32").tobytes()


def test_the_error_is_that_of_the_notes_on_normal_numbers() -> None:
    """Root mean squares measured on numbers from N(0, 1), as the guide has them."""
    array = np.random.default_rng(0).standard_normal((512, 2048)).astype(np.float32)
    for scheme, bound in [(q8s(), 0.0125), (q8s(64), 0.006), (q8s(32), 0.0055), (nf4(), 0.093)]:
        error = quantize(array, scheme).dequantize() - array
        assert math.sqrt((error**2).mean()) < bound


@pytest.mark.parametrize("scheme", SOME, ids=repr)
def test_threads_change_no_bit(scheme: Scheme) -> None:
    array = rules.numbers((64, 4096), np.float32)
    alone, together = (quantize(array, scheme, threads=threads) for threads in (1, 5))
    assert alone.values.tobytes() == together.values.tobytes()
    assert alone.scales.tobytes() == together.scales.tobytes()


def test_any_order_of_axes_and_bytes_is_quantised_as_what_it_means() -> None:
    plain = rules.numbers((6, 8), np.float32)
    expected = quantize(plain, q8s(4))
    for other in (
        np.asfortranarray(plain),
        plain.astype(">f4"),
        np.repeat(plain, 2, axis=1)[:, ::2],
    ):
        made = quantize(other, q8s(4))
        assert made.values.tobytes() == expected.values.tobytes()
        assert made.dtype == "float32"


def test_a_range_can_be_looked_at_and_given() -> None:
    array = np.array([[1, -2, 0.5, 0], [8, 6, -5, 3]], np.float32)
    found = calibrate(array, q8s(4))
    assert found.tolist() == [[2.0], [8.0]]
    assert (
        quantize(array, q8s(4), absmax=found).values.tolist()
        == quantize(array, q8s(4)).values.tolist()
    )
    clipped = quantize(array, q8s(4), absmax=[[1.27], [12.7]])
    assert clipped.values.tolist() == [[100, -127, 50, 0], [80, 60, -50, 30]]


# ---- schemes and packed arrays as values ---------------------------------------------------------


@pytest.mark.parametrize("scheme", SOME, ids=repr)
def test_a_scheme_compares_hashes_prints_and_pickles(scheme: Scheme) -> None:
    again = pickle.loads(pickle.dumps(scheme))
    assert again == scheme
    assert hash(again) == hash(scheme)
    assert eval(repr(scheme), vars(quant)) == scheme
    assert copy.deepcopy(scheme) == scheme
    with pytest.raises(AttributeError):
        scheme.name = "q8s"  # type: ignore[misc]


def test_schemes_that_differ_anywhere_are_not_equal() -> None:
    assert len({*SOME, q8s(8), q8s((8,)), q8s([8]), q8s(8, np.float16)}) == len(SOME) + 1
    assert repr(q8s((8,), np.float16)) == "q8s(block=8, scale_dtype='float16')"


def test_a_layout_is_known_without_an_array() -> None:
    assert q8s(32).layout((4, 64), "bfloat16") == ((4, 64), (4, 2))
    assert q4s().layout((4, 7), "float32") == ((4, 4), ())
    assert nf4().layout((5, 13), "float32") == ((33,), (2,))
    assert nf4().nbytes((4096, 4096)) == 4096 * 4096 * 9 // 16
    assert q8s(32, "float16").nbytes((4, 64)) == 256 + 16


@pytest.mark.parametrize("scheme", SOME, ids=repr)
def test_a_packed_array_pickles_and_is_equal_to_itself_only(scheme: Scheme) -> None:
    made = quantize(rules.numbers((4, 16), "float16"), scheme)
    again = pickle.loads(pickle.dumps(made))
    assert (again.scheme, again.shape, again.dtype) == (scheme, (4, 16), "float16")
    assert again.dequantize().tobytes() == made.dequantize().tobytes()
    assert made == made
    assert made != again
    assert hash(made) != hash(again)
    with pytest.raises(AttributeError):
        made.shape = (16, 4)  # type: ignore[misc]


def test_a_packed_array_says_what_it_is() -> None:
    made = quantize(np.ones((4, 64), "float16"), q8s(block=32))
    assert repr(made) == "QuantArray((4, 64), float16 as q8s(block=32), 288 bytes)"
    assert made.kind == "quantised"
    assert made.nbytes == 288 == sum(array.nbytes for array in made.arrays.values())
    assert list(made.arrays) == ["values", "scales"]
    assert made.dequantize().dtype == np.float16


def test_results_cannot_be_written() -> None:
    made = quantize(np.ones((4, 64), np.float32), nf4())
    for array in (made.values, made.scales, made.dequantize()):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_map_moves_both_arrays() -> None:
    made = quantize(rules.numbers((4, 16), np.float32), q4s(4))
    moved = made.map(np.copy)
    assert moved.values.flags.writeable
    assert (moved.scheme, moved.shape, moved.dtype) == (made.scheme, made.shape, made.dtype)
    assert moved.dequantize().tobytes() == made.dequantize().tobytes()


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scheme", SOME, ids=repr)
def test_the_first_number_that_is_not_finite_is_told(scheme: Scheme, bad: float) -> None:
    for dtype in FLOATS.values():
        array = np.ones((4, 16), dtype)
        array[2, 5] = array[3, 1] = bad
        with pytest.raises(
            lp.QuantizeError, match=r"not every element is finite.*\(2, 5\)"
        ) as info:
            quantize(array, scheme)
        assert info.value.remedy
        with pytest.raises(lp.QuantizeError, match=r"\(2, 5\)"):
            calibrate(array, scheme)


def test_a_float64_that_float32_has_not_is_told_as_it_is() -> None:
    with pytest.raises(lp.QuantizeError, match=r"found 1e300 at \(1,\)"):
        quantize(np.array([1, 1e300]), q8s())


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: q8s(0), "a block has no elements"),
        (lambda: q8s(()), "a block has no elements"),
        (lambda: q8s(-4), "an extent of a block is negative"),
        (lambda: q8s(scale_dtype="float64"), "scales are not stored in this dtype"),
        (lambda: nf4(48), "NF4 does not have blocks of this size"),
        (lambda: Scheme("q5s"), "there is no such scheme"),
        (lambda: quantize(np.ones((2, 65), "f4"), q8s(32)), "the blocks do not divide the tensor"),
        (lambda: quantize(np.ones(4, "f4"), q8s((2, 2))), "the blocks do not divide the tensor"),
        (lambda: quantize(np.arange(4), q8s()), "only floats are quantised"),
        (lambda: quantize(np.full(4, 1e9, "f4"), q8s(None, "float16")), "does not fit its dtype"),
        (lambda: quantize(np.ones(4, "f4"), q8s(2), absmax=[1]), "one range for each block"),
        (lambda: quantize(np.ones(4, "f4"), q8s(), absmax=-1), "a largest magnitude is none"),
        (lambda: quantize(np.ones(4, "f4"), q8s()).dequantize("int8"), "only floats are quantised"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(make: Any, says: str) -> None:
    with pytest.raises(lp.QuantizeError, match=says) as info:
        make()
    again = pickle.loads(pickle.dumps(info.value))
    assert str(again) == str(info.value)
    assert isinstance(again, ValueError)


def test_only_arrays_are_quantised() -> None:
    with pytest.raises(lp.InitError, match="not an array of a library"):
        quantize([1.0, 2.0], q8s())
    with pytest.raises(lp.InitError, match="masked"):
        quantize(np.ma.masked_array([1.0, 2.0], [True, False]), q8s())


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    made = quantize(np.ones((4, 16), np.float32), q8s(8))
    for values, scales in [
        (made.values[:2], made.scales),
        (made.values.view(np.uint8), made.scales),
        (made.values, made.scales.astype(np.float16)),
        (made.scales, made.values),
    ]:
        with pytest.raises(lp.QuantizeError, match="do not fit q8s"):
            QuantArray(values, scales, made.scheme, made.shape, made.dtype)
