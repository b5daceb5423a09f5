"""NF4 against the real bitsandbytes on the CPU: bytes, scales, and what they stand for."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from lazyparam.quant import nf4, quantize
from tests import quant_rules as rules

torch = pytest.importorskip("torch", reason="torch is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    functional: Any = pytest.importorskip(
        "bitsandbytes.functional", reason="bitsandbytes is not installed"
    )

BLOCKS = [32, 64, 128, 256, 512, 1024, 2048, 4096]


def assert_equal_to_bitsandbytes(array: np.ndarray, block: int) -> None:
    tensor = torch.from_numpy(array)
    values, state = functional.quantize_4bit(tensor, blocksize=block, quant_type="nf4")
    made = quantize(array, nf4(block))
    assert made.values.tobytes() == values.numpy().tobytes()
    assert made.scales.tobytes() == state.absmax.numpy().tobytes()


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_normal_numbers_of_any_length(block: int, dtype: Any) -> None:
    chance = np.random.default_rng(block)
    for count in [1, 2, 31, 64, 65, 127, 4095, 4096, 4097, 100_003]:
        array = chance.standard_normal(count).astype(dtype)
        assert_equal_to_bitsandbytes(array, block)


@pytest.mark.parametrize("seed", range(20))
def test_numbers_of_every_magnitude_and_shape(seed: int) -> None:
    chance = np.random.default_rng(seed)
    shape = tuple(chance.integers(1, 60, chance.integers(1, 4)).tolist())
    assert_equal_to_bitsandbytes(rules.numbers(shape, np.float32, seed), int(chance.choice(BLOCKS)))


def test_all_bits_that_are_finite_numbers() -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, 1 << 20, np.uint32).view(np.float32)
    assert_equal_to_bitsandbytes(bits[np.isfinite(bits)], 64)


def test_every_half() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    for block in (32, 64):
        assert_equal_to_bitsandbytes(halves, block)
        assert_equal_to_bitsandbytes(np.random.default_rng(block).permutation(halves), block)


def test_brain_floats() -> None:
    array = torch.randn(1001, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    values, state = functional.quantize_4bit(array, blocksize=64, quant_type="nf4")
    import ml_dtypes

    made = quantize(array.view(torch.int16).numpy().view(ml_dtypes.bfloat16), nf4())
    assert made.values.tobytes() == values.numpy().tobytes()
    assert made.scales.tobytes() == state.absmax.numpy().tobytes()


def test_ties_zeros_and_tiny_numbers() -> None:
    midpoints = (rules.TABLE[1:] + rules.TABLE[:-1]) / 2
    ties = np.concatenate([rules.TABLE, midpoints, [0]]).astype(np.float32)
    around = np.concatenate(
        [np.nextafter(ties, np.float32(-2)), ties, np.nextafter(ties, np.float32(2))]
    )
    for scale in np.float32([1, 3, 0.1, 1e-30, 1e-38, 1e-41, 1e30]):
        for count in (32, 64, 77, 96):
            with np.errstate(all="ignore"):
                assert_equal_to_bitsandbytes((around * scale)[:count].copy(), 32)
    for count in (1, 32, 33, 64, 96):
        assert_equal_to_bitsandbytes(np.zeros(count, np.float32), 32)


@pytest.mark.parametrize("block", [32, 64, 256, 1024])
def test_what_bytes_stand_for(block: int) -> None:
    """Rows as long as a block: with shorter ones bitsandbytes 0.50 takes scales of other blocks."""
    array = np.random.default_rng(block).standard_normal((16, 1024)).astype(np.float32)
    values, state = functional.quantize_4bit(
        torch.from_numpy(array), blocksize=block, quant_type="nf4"
    )
    theirs = functional.dequantize_4bit(values, state)
    assert np.array_equal(quantize(array, nf4(block)).dequantize(), theirs.numpy())
