"""The rules of quantisation in NumPy, and arrays to try them on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lazyparam.quant import Scheme

LIMITS = {"q8s": 127, "q4s": 7}

# fmt: off
TABLE = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
], np.float32)
# fmt: on
"""The values of NF4."""


def rounded_up(scale: np.ndarray, dtype: Any) -> np.ndarray:
    """The next numbers of `dtype` that are not below."""
    near = scale.astype(dtype)
    above = np.nextafter(near, np.array(np.inf, dtype))
    return np.where(near.astype(np.float32) < scale, above, near)


def tiled(array: np.ndarray, block: tuple[int, ...] | None) -> tuple[np.ndarray, tuple[int, ...]]:
    """`array` with two axes for each: blocks, and places within; and the axes of places."""
    block = array.shape if block is None else (1,) * (array.ndim - len(block)) + block
    split = [part for n, tile in zip(array.shape, block, strict=True) for part in (n // tile, tile)]
    return array.reshape(split), tuple(range(1, 2 * array.ndim, 2))


def integers(array: np.ndarray, scheme: Scheme, scale_dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Burn's rule: integers in the shape of `array`, and scales."""
    limit = np.float32(LIMITS[scheme.name])
    x, places = tiled(array.astype(np.float32), scheme.block)
    absmax = abs(x).max(axis=places, keepdims=True)
    scale = rounded_up(np.maximum(absmax / limit, np.finfo(np.float32).tiny), scale_dtype)
    ratio = x / scale.astype(np.float32)
    # Half away from zero; float64 has room for the sum.
    away = np.trunc(ratio.astype(np.float64) + np.copysign(0.5, ratio))
    codes = np.clip(away, -limit, limit).astype(np.int8).reshape(array.shape)
    grid = () if scheme.block is None else scale.shape[::2]
    return codes, scale.reshape(grid)


def packed(codes: np.ndarray) -> np.ndarray:
    """Two codes in a byte, the first one in the low half; each row by itself."""
    codes = codes if codes.ndim else codes.reshape(1)
    even = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, codes.shape[-1] % 2)]).astype(np.uint8)
    return (even[..., ::2] & 15) | (even[..., 1::2] << 4)


def nf4(array: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """bitsandbytes' rule on the CPU: bytes and scales."""
    x = array.astype(np.float32).reshape(-1)
    count, floor = x.size, np.float32(1e-38)
    absmax = np.maximum.reduceat(abs(x), range(0, count, block)) if count else x
    divisor = np.maximum(absmax, floor)
    each = np.repeat(np.arange(len(absmax)), block)[:count]
    scaled = x * (np.float32(1) / divisor)[each]
    if rest := count % block:
        scaled[-rest:] = x[-rest:] / divisor[-1]
        absmax[-1] = divisor[-1]
    codes = np.searchsorted((TABLE[1:] + TABLE[:-1]) / 2, np.append(scaled, [0] * (count % 2)))
    return (codes[::2] << 4 | codes[1::2]).astype(np.uint8), absmax


def meant(codes: np.ndarray, scales: np.ndarray, scheme: Scheme) -> np.ndarray:
    """What integers stand for, in float32."""
    x, _ = tiled(codes.astype(np.float32), scheme.block)
    beside = [part for blocks in scales.shape for part in (blocks, 1)] or (1,) * x.ndim
    return (x * scales.astype(np.float32).reshape(beside)).reshape(codes.shape)


def numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    """Finite floats of many magnitudes, ties, zeros and numbers near both ends."""
    chance = np.random.default_rng(seed)
    count = math.prod(shape)
    x = chance.standard_normal(count) * 10.0 ** chance.integers(-3, 4, count)
    odd = chance.random(count)
    x = np.where(odd < 0.1, 0.0, x)
    x = np.where((odd > 0.8) & (odd < 0.9), np.round(x * 2) / 2, x)
    x = np.where(odd > 0.98, 1e-42, x)
    return x.reshape(shape).astype(dtype)
