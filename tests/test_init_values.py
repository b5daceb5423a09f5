"""The values of native initialisers, bit by bit, against an oracle in NumPy (``rng_oracle``).

Elsewhere values depend on the machine or on the precision, and rounding reaches the bounds: each
test names where.
"""

from __future__ import annotations

import hashlib
import math
from functools import partial
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import lazyparam as lp
from lazyparam.init import Key, fill
from tests import rng_oracle as oracle
from tests.rng_oracle import FLOATS, INF, Words, bits, drawn, keys, numpy_dtype, shapes

F = np.float32
QUICK = settings(max_examples=100, deadline=None)

# ---- goldens -------------------------------------------------------------------------------------

GOLDEN = Key(42, "layers", 3, "attn", "q_proj", "weight")


def test_the_oracle_is_philox() -> None:
    """pytorch/pytorch#91944: the known answers of Random123, from Salmon et al. 2011."""
    for counter, key, answer in (
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([2**32 - 1] * 4, [2**32 - 1] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ):
        found = oracle.philox([np.array([word], np.uint64) for word in counter], key)
        assert " ".join(f"{int(word[0]):08x}" for word in found) == answer


def test_the_identity_is_the_golden_one() -> None:
    found = [f"{word:08x}" for word in oracle.identity(GOLDEN.seed, GOLDEN.path)]
    assert found == ["cee059ed", "c5b8be6b", "45866005", "359312b8"]


@pytest.mark.parametrize(
    ("index", "word"),
    [
        *((0, 0x3F9063F9), (1, 0xBE906BD8), (16, 0xBEA63B4E), (64, 0x3FB2E5F8)),
        *((2**20, 0xBE45F1A5), (2**40 + 5, 0xBB66FEFD)),
    ],
)
def test_golden_elements_have_not_changed(index: int, word: int) -> None:
    box = [slice(index, index + 1)]
    (value,) = fill(lp.init.normal(), GOLDEN, 2**41, box=box).view(np.uint32)
    assert value == word
    assert oracle.normal(Words(GOLDEN, 1, index), 0, 1, np.dtype("float32")).view(np.uint32) == word


@pytest.mark.parametrize(
    ("dtype", "digest"),
    [
        ("float32", "c7176a96d8bcb0bdbb12054a902c05d18175de59e7c583ef0138f006c7356a12"),
        ("bfloat16", "ac26670cabdb84ebc34d9a19ac59018f8c2274bd5de1c888bf634519b1941838"),
    ],
)
def test_a_million_golden_elements_have_not_changed(dtype: str, digest: str) -> None:
    """pytorch/pytorch#176584, #143086, #158398, ml-explore/mlx#3568, rust-random/rand#894: values
    that differ between machines.
    """
    value = fill(lp.init.normal(), GOLDEN, 2**20, dtype)
    assert hashlib.sha256(value.tobytes()).hexdigest() == digest


# ---- against the oracle --------------------------------------------------------------------------

COUNT = 2**62 + 1000
"""Elements of a parameter of which boxes are drawn."""

runs = st.builds(
    Words,
    keys,
    st.integers(1, 300),
    st.one_of(st.integers(0, 200), st.integers(0, 2**62), st.sampled_from([2**32 - 9, 2**36 - 9])),
)
floats = st.floats(-100, 100, width=32)
stds = st.one_of(st.floats(1e-4, 100), st.sampled_from([1.0, 0.02]))
dtypes = st.sampled_from(FLOATS)


def part(init: lp.init.Init, words: Words, dtype: str) -> np.ndarray:
    """The elements with these words."""
    box = slice(words.first, words.first + words.count)
    return fill(init, words.key, COUNT, dtype, box)


@given(words=runs, mean=floats, std=stds, dtype=dtypes)
@QUICK
def test_a_normal_draw_is_what_the_oracle_says(
    words: Words, mean: float, std: float, dtype: str
) -> None:
    expected = oracle.normal(words, mean, std, numpy_dtype(dtype))
    assert bits(part(lp.init.normal(mean, std), words, dtype)) == bits(expected)


@given(words=runs, low=floats, width=st.floats(0.01, 100), dtype=dtypes)
@QUICK
def test_a_uniform_draw_is_what_the_oracle_says(
    words: Words, low: float, width: float, dtype: str
) -> None:
    high = low + 2 * abs(low) + width
    expected = oracle.uniform(words, low, high, numpy_dtype(dtype))
    assert bits(part(lp.init.uniform(low, high), words, dtype)) == bits(expected)


@st.composite
def cuts(draw: st.DrawFn) -> tuple[float, float]:
    """Bounds in standard deviations: around the mean, beyond all draws, in a tail, one-sided."""
    far = draw(st.sampled_from([2.0, 7.0, 12.0, 35.0]))
    low = draw(st.floats(-far, far))
    high = low + draw(st.floats(0.05, 2 * far))
    low, high = draw(st.sampled_from([(low, high), (low, INF), (-INF, low), (-2.0, 2.0)]))
    return (low, high) if draw(st.booleans()) else (-high, -low)


@given(words=runs, mean=floats, std=stds, cut=cuts(), dtype=dtypes)
@settings(max_examples=200, deadline=None)
def test_a_truncated_draw_is_what_the_oracle_says(
    words: Words, mean: float, std: float, cut: tuple[float, float], dtype: str
) -> None:
    low, high = (mean + std * bound for bound in cut)
    first, last = oracle.inner(low, high, numpy_dtype(dtype))
    assume(low < high and first <= last)
    expected = oracle.truncated(words, mean, std, low, high, numpy_dtype(dtype))
    found = part(lp.init.trunc_normal(mean, std, low, high), words, dtype)
    assert bits(found) == bits(expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "cut",
    [
        *((-2, 2), (-1, 3), (-0.5, 0.25), (2, 4), (3, INF), (8, 12), (-INF, -5), (-100, 100)),
        *((-6.6, 7), (-6, 9), (0, INF), (0, 1e-3), (35, INF), (-INF, 0.3)),
    ],
)
def test_a_long_truncated_draw_is_what_the_oracle_says(
    cut: tuple[float, float], dtype: str
) -> None:
    """Both sides of every seam: where the halves meet, where the tail begins, where it is far."""
    words = Words(Key(5, "w"), 2**16)
    expected = oracle.truncated(words, 0.0, 1.0, *cut, numpy_dtype(dtype))
    assert bits(part(lp.init.trunc_normal(0, 1, *cut), words, dtype)) == bits(expected)


def test_the_functions_of_the_oracle_are_what_they_say() -> None:
    """Against the C library and Python's own quantile: it shares no coefficient with them."""
    close = partial(np.testing.assert_allclose, atol=0)
    a = np.linspace(0.01, 40, 1001)
    logs = np.array([math.log(x) for x in a])
    close(oracle.log64(a, 0), logs, rtol=3e-16, atol=3e-16)
    close(oracle.log64(a, -63), logs - 63 * math.log(2), rtol=3e-16)
    close(oracle.log32(a.astype(F), 0), [math.log(x) for x in a.astype(F)], rtol=3e-7, atol=2e-7)
    word = np.linspace(-(2.0**63), 2.0**63 - 2**11, 1001).astype(np.int64)
    angles = word * (math.pi / 2 * 2.0**-64)
    for found, expected in zip(oracle.sin_cos64(word), (np.sin, np.cos), strict=True):
        close(found, expected(angles), rtol=5e-16)
    half = (word >> 32).astype(np.int32)
    angles = half.astype(np.float64) * (math.pi / 2 * 2.0**-32)
    for found, expected in zip(oracle.sin_cos32(half), (np.sin, np.cos), strict=True):
        close(found, expected(angles), rtol=3e-7)
    for x in (0.0, -1e-9, -0.4, -3.0, -300.0, -740.0):
        assert oracle.exp(x) == pytest.approx(math.exp(x), rel=3e-16, abs=5e-324)
    for z in (-9.0, -1.5, -0.3, 0.0, 0.7, 1.4999, 1.5, 3.0, 8.0, 36.0):
        expected = math.erfc(z / math.sqrt(2)) / 2
        assert oracle.upper_tail(z) == pytest.approx(expected, rel=2e-14 * max(1, z * z))
    q = np.concatenate([np.geomspace(1e-12, 0.02, 500), np.linspace(0.021, 0.5, 500)])
    exact = np.array([-NormalDist().inv_cdf(x) for x in q])
    close(oracle.quantile64(q, 0), exact, rtol=1e-14, atol=1e-15)
    close(oracle.quantile32(q.astype(F), 0), exact, rtol=1e-6, atol=1e-6)
    close(oracle.quantile64(q[:500] * 2.0**20, -20), exact[:500], rtol=1e-14)


@given(key=keys, shape=shapes, init=drawn, dtype=st.sampled_from(["float16", "bfloat16"]))
@QUICK
def test_narrow_dtypes_are_rounded_from_float32(
    key: Key, shape: tuple[int, ...], init: lp.init.Init, dtype: str
) -> None:
    """numpy/numpy#17478, jax-ml/jax#27002: the same variates, to nearest even; but for bounds,
    which stay excluded.
    """
    wide, narrow = fill(init, key, shape), fill(init, key, shape, dtype)
    rounded = wide.astype(numpy_dtype(dtype))
    if init.name == "uniform":
        bound = np.asarray(0.1, F)
        rounded, narrow = rounded[rounded < bound], narrow[rounded < bound]
    assert bits(narrow) == bits(rounded)


@given(key=keys, mean=floats, std=st.floats(0.01, 100))
@QUICK
def test_float64_draws_are_the_same_variates(key: Key, mean: float, std: float) -> None:
    """jax-ml/jax#27002: another precision is another draw."""
    wide = fill(lp.init.normal(mean, std), key, 300, "float64")
    narrow = fill(lp.init.normal(mean, std), key, 300)
    # The cosine of near a right angle is as exact as its angle in float32: 5e-5 at the most.
    assert np.abs(wide - narrow).max() <= 5e-5 * std + 1e-6 * abs(mean)
    assert (wide.astype(F) != wide).mean() > 0.9, "and there is more to them"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-0.1, 0.1), (3.0, 3.5), (-7.0, -1e-30)])
def test_the_upper_bound_of_a_uniform_draw_never_occurs(
    dtype: str, bounds: tuple[float, float]
) -> None:
    """pytorch/pytorch#96947, #197079, #2740, tinygrad/tinygrad#3654, JuliaMath/BFloat16s.jl#71:
    rounding reaches the bound, 1 in 256 for bfloat16.
    """
    low, high = bounds
    value = fill(lp.init.uniform(low, high), Key(1), 2**17, dtype).astype("float64")
    assert value.max() < high
    # The bounds themselves are rounded to the dtype.
    assert value.min() >= numpy_dtype(dtype).type(low).astype("float64")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "bounds", [(-2.0, 2.0), (-0.1, 0.3), (3.0, 3.1), (8.0, 12.0), (-math.inf, -3.0), (-100, 100)]
)
def test_a_truncated_draw_stays_within_its_bounds(dtype: str, bounds: tuple[float, float]) -> None:
    """pytorch/pytorch#145498, #175046, #155588, #174164, pytorch/torchtitan#2269: values far beyond
    the bounds.
    """
    low, high = bounds
    value = fill(lp.init.trunc_normal(low=low, high=high), Key(1), 2**15, dtype).astype("float64")
    assert value.min() >= low
    assert value.max() <= high
    assert np.isfinite(value).all()


def test_bfloat16_draws_have_thousands_of_values_and_tails() -> None:
    """numpy/numpy#17478: a bit is wasted; of JAX's values there are 128, none beyond 2.9 standard
    deviations.
    """
    value = fill(lp.init.normal(), Key(5), 2**20, "bfloat16")
    assert len(np.unique(value.view(np.uint16))) > 3000
    assert np.abs(value.astype(F)).max() > 4.5
    uniform = fill(lp.init.uniform(), Key(5), 2**20)
    assert len(np.unique(uniform)) > 0.96 * 2**20
    assert (uniform * 2**24 == np.floor(uniform * 2**24)).all()
