"""The values of native initialisers, bit by bit, against an oracle in NumPy.

Elsewhere values depend on shards, on threads, on the machine or on the precision, and rounding
reaches the bounds: each test names where. For targets that are strided, see the tests in Rust.
"""

from __future__ import annotations

import hashlib
import math
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyparam as lp
from lazyparam.init import Key, fill

F = np.float32
BF16 = np.dtype(ml_dtypes.bfloat16)
QUICK = settings(max_examples=40, deadline=None)

# ---- the oracle: NumPy and hashlib, from the rules and not from the code -------------------------


def identity(seed: int, path: tuple[str | int, ...], stream: int = 0) -> list[int]:
    message = struct.pack("<QQII", seed % 2**64, seed >> 64, stream, len(path))
    for part in path:
        if isinstance(part, str):
            text = part.encode()
            message += b"s" + struct.pack("<Q", len(text)) + text
        else:
            message += b"i" + struct.pack("<q", part)
    digest = hashlib.blake2b(message, digest_size=16, person=b"lazyparam-rng-1").digest()
    return list(struct.unpack("<4I", digest))


def philox(counter: list[np.ndarray], key: list[int]) -> list[np.ndarray]:
    c0, c1, c2, c3 = (word.astype(np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        low = np.uint64(0xFFFFFFFF)
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            p1 & low,
            (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            p0 & low,
        )
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [word.astype(np.uint32) for word in (c0, c1, c2, c3)]


def words(key: Key, count: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The four words of the block of each element, and which of them is the element's."""
    k0, k1, c2, c3 = identity(key.seed, key.path)
    index = np.arange(first, first + count, dtype=np.uint64)
    group, place = index // np.uint64(64), index % np.uint64(64)
    block = np.uint64(16) * group + place % np.uint64(16)
    high = block >> np.uint64(32)
    counter = [
        block & np.uint64(0xFFFFFFFF),
        high,
        np.full_like(block, c2),
        np.full_like(block, c3),
    ]
    return np.stack(philox(counter, [k0, k1])), (place // np.uint64(16)).astype(int)


def oracle_uniform(key: Key, count: int, low: float, high: float, first: int = 0) -> np.ndarray:
    all_words, which = words(key, count, first)
    u = (all_words[which, np.arange(count)] >> 8).astype(F) * F(2.0**-24)
    x = u * F(high - low) + F(low)
    return np.minimum(x, np.nextafter(F(high), F(-np.inf)))


def horner(x: np.ndarray, *coefficients: str) -> np.ndarray:
    total = np.full_like(x, F(float.fromhex(coefficients[0])))
    for coefficient in coefficients[1:]:
        total = total * x + F(float.fromhex(coefficient))
    return total


LOG = (
    *("0x1.6d45bap-4", "-0x1.25e45p-3", "0x1.30ae3cp-3", "-0x1.5343a4p-3"),
    *("0x1.98e42ep-3", "-0x1.000494p-2", "0x1.5556b6p-2"),
)
SINE = ("-0x1.994eb2p-13", "0x1.11076p-7", "-0x1.555546p-3")
COSINE = ("0x1.9a0258p-16", "-0x1.6c0c8cp-10", "0x1.55554ap-5", "-0x1p-1", "0x1p0")


def box_muller(w0: np.ndarray, w1: np.ndarray, std: float) -> tuple[np.ndarray, np.ndarray]:
    s = (w0 | np.uint32(1)).view(np.int32).astype(F)
    sign, magnitude = s.view(np.uint32) & np.uint32(1 << 31), np.abs(s).view(np.int32)
    e = (magnitude - np.int32(0x3F3504F3)) >> np.int32(23)
    g = (magnitude - (e << np.int32(23))).view(F) - F(1)
    z = g * g
    tail = g + (z * F(-0.5) + (horner(g, *LOG) * g) * z)
    ln = (e - np.int32(31)).astype(F) * F(float.fromhex("0x1.62e43p-1")) + tail
    r = np.sqrt(np.maximum(F(-2) * ln, F(0)))
    r = (r.view(np.uint32) | sign).view(F) * F(std)
    t = w1.view(np.int32).astype(F) * F(float.fromhex("0x1.921fb6p-32"))
    y = t * t
    sine, cosine = (horner(y, *SINE) * y) * t + t, horner(y, *COSINE)
    odd = (w1 & np.uint32(1)).astype(bool)
    return r * np.where(odd, sine, cosine), r * np.where(odd, cosine, sine)


def oracle_normal(key: Key, count: int, mean: float, std: float, first: int = 0) -> np.ndarray:
    all_words, which = words(key, count, first)
    at, even = np.arange(count), which & ~1
    x, y = box_muller(all_words[even, at], all_words[even | 1, at], std)
    return np.where(which & 1, y, x) + F(mean)


# ---- strategies ----------------------------------------------------------------------------------

parts = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(max_size=8))
keys = st.builds(
    lambda seed, path: Key(seed, *path), st.integers(0, 2**128 - 1), st.lists(parts, max_size=4)
)
shapes = st.lists(st.integers(0, 23), min_size=1, max_size=3).map(tuple)
floats = st.floats(-100, 100, width=32)
dtypes = st.sampled_from(["float32", "float16", "bfloat16"])
drawn = st.sampled_from(
    [
        lp.init.normal(),
        lp.init.normal(-3, 0.02),
        lp.init.uniform(-0.1, 0.1),
        lp.init.trunc_normal(),
        lp.init.constant(0.25),
        lp.init.zeros(),
    ]
)
matrices = st.sampled_from([lp.init.eye(), lp.init.sparse(0.4), lp.init.orthogonal()])


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@st.composite
def boxes(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[slice, ...]:
    box = []
    for extent in shape:
        first = draw(st.integers(0, extent))
        box.append(slice(first, draw(st.integers(first, extent))))
    return tuple(box)


# ---- goldens -------------------------------------------------------------------------------------

GOLDEN = Key(42, "layers", 3, "attn", "q_proj", "weight")


def test_the_oracle_is_philox() -> None:
    """pytorch/pytorch#91944: the known answers of Random123, from Salmon et al. 2011."""
    for counter, key, answer in (
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([2**32 - 1] * 4, [2**32 - 1] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ):
        found = philox([np.array([word], np.uint64) for word in counter], key)
        assert " ".join(f"{int(word[0]):08x}" for word in found) == answer


def test_the_identity_is_the_golden_one() -> None:
    found = [f"{word:08x}" for word in identity(GOLDEN.seed, GOLDEN.path)]
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
    assert oracle_normal(GOLDEN, 1, 0, 1, index).view(np.uint32) == word


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


@given(key=keys, count=st.integers(1, 700), mean=floats, std=st.floats(1e-4, 100), dtype=dtypes)
@QUICK
def test_a_normal_draw_is_what_the_oracle_says(
    key: Key, count: int, mean: float, std: float, dtype: str
) -> None:
    value = fill(lp.init.normal(mean, std), key, count, dtype)
    assert bits(value) == bits(oracle_normal(key, count, mean, std).astype(numpy_dtype(dtype)))


@given(key=keys, count=st.integers(1, 700), low=floats, width=st.floats(0.01, 100), dtype=dtypes)
@QUICK
def test_a_uniform_draw_is_what_the_oracle_says(
    key: Key, count: int, low: float, width: float, dtype: str
) -> None:
    high = float(F(low + 2 * abs(low) + width))
    value = fill(lp.init.uniform(low, high), key, count, dtype)
    expected = oracle_uniform(key, count, low, high).astype(numpy_dtype(dtype))
    inside = expected < F(high)
    assert bits(value[inside]) == bits(expected[inside])
    assert (value.astype(F) < F(high)).all(), "the bound itself never occurs"


@given(key=keys, first=st.integers(0, 2**62), count=st.integers(1, 200))
@QUICK
def test_elements_far_away_are_what_the_oracle_says(key: Key, first: int, count: int) -> None:
    box = [slice(first, first + count)]
    shape = 2**62 + 200
    normal = fill(lp.init.normal(), key, shape, "float32", box)
    assert bits(normal) == bits(oracle_normal(key, count, 0, 1, first))


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
    assert np.abs(wide - narrow).max() <= 3e-5 * std + 1e-6 * abs(mean)
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


# ---- boxes ---------------------------------------------------------------------------------------


@given(
    data=st.data(), key=keys, shape=shapes, init=drawn, dtype=st.one_of(dtypes, st.just("float64"))
)
@QUICK
def test_a_box_is_that_slice_of_the_whole(
    data: st.DataObject, key: Key, shape: tuple[int, ...], init: lp.init.Init, dtype: str
) -> None:
    """pytorch/pytorch#168058, #127164, #140301, allenai/OLMo-core#307, #319,
    Lightning-AI/litgpt#269, mlfoundations/open_lm#139, jax-ml/jax#40232, #21232, #17982: a shard is
    not what the same slice is on one device.
    """
    box = data.draw(boxes(shape))
    whole = fill(init, key, shape, dtype)
    part = fill(init, key, shape, dtype, box)
    assert part.shape == whole[box].shape
    assert bits(part) == bits(whole[box])


@given(data=st.data(), key=keys, rows=st.integers(0, 40), cols=st.integers(0, 40), init=matrices)
@QUICK
def test_a_box_of_a_matrix_is_that_slice_of_the_whole(
    data: st.DataObject, key: Key, rows: int, cols: int, init: lp.init.Init
) -> None:
    box = data.draw(boxes((rows, cols)))
    whole = fill(init, key, (rows, cols))
    assert bits(fill(init, key, (rows, cols), box=box)) == bits(whole[box])


@pytest.mark.parametrize("rows", [31, 62, 124])
@pytest.mark.parametrize("mesh", [(1, 2), (2, 1), (3, 1), (2, 2), (3, 5), (7, 4)])
def test_the_shards_of_any_mesh_make_up_the_whole(rows: int, mesh: tuple[int, int]) -> None:
    """pytorch/pytorch#168058, #127164, #140301, allenai/OLMo-core#307, #319,
    Lightning-AI/litgpt#269, mlfoundations/open_lm#139, NVIDIA-NeMo/Megatron-Bridge#5843,
    jax-ml/jax#40232, #21232, #17982: uneven rows and meshes; fans come from the whole shape.
    """
    shape = (rows, 45)
    init = lp.init.xavier_normal()
    cuts = [np.linspace(0, n, m + 1).astype(int) for n, m in zip(shape, mesh, strict=True)]
    shards = [
        [
            fill(init, Key(3, "w"), shape, box=np.s_[a:b, c:d])
            for c, d in zip(cuts[1], cuts[1][1:], strict=False)
        ]
        for a, b in zip(cuts[0], cuts[0][1:], strict=False)
    ]
    assert bits(np.block(shards)) == bits(fill(init, Key(3, "w"), shape))


@given(
    data=st.data(),
    key=keys,
    shape=st.lists(st.integers(1, 7), min_size=2, max_size=4).map(tuple),
    init=drawn,
)
@QUICK
def test_a_stack_is_made_of_its_slices(
    data: st.DataObject, key: Key, shape: tuple[int, ...], init: lp.init.Init
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    whole = fill(init, key, shape, batch_axes=[axis])
    inner = list(shape)
    del inner[axis]
    single = [fill(init, Key(key.seed, *key.path, at), inner) for at in range(shape[axis])]
    assert bits(whole) == bits(np.stack(single, axis if axis >= 0 else axis + len(shape)))
    box = data.draw(boxes(shape))
    assert bits(fill(init, key, shape, box=box, batch_axes=[axis])) == bits(whole[box])


def test_two_batch_axes_are_two_parts_of_the_path() -> None:
    whole = fill(lp.init.normal(), Key(1, "w"), (2, 5, 3), batch_axes=(2, 0))
    for i in range(2):
        for j in range(3):
            one = fill(lp.init.normal(), Key(1, "w", i, j), 5)
            assert bits(whole[i, :, j]) == bits(one)


# ---- threads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "init",
    [
        *(lp.init.normal(), lp.init.uniform(), lp.init.trunc_normal()),
        *(lp.init.orthogonal(), lp.init.sparse(0.1)),
    ],
    ids=lambda init: init.name,
)
def test_any_number_of_threads_gives_the_same_bits(init: lp.init.Init) -> None:
    """LaurentMazare/tch-rs#263, pytorch/pytorch#3794, #4777, #53983: large enough for several
    chunks.
    """
    one = fill(init, Key(9, "w"), (301, 467), threads=1)
    for threads in range(2, 17):
        assert bits(fill(init, Key(9, "w"), (301, 467), threads=threads)) == bits(one)
    assert bits(fill(init, Key(9, "w"), (301, 467))) == bits(one)


# ---- boxes and shapes that make no sense ---------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "box"),
    [
        (3, np.s_[0:2, 0:2]),
        ((3, 4), np.s_[0:2]),
        ((3, 4), np.s_[0:2, 1]),
        ((3, 4), np.s_[0:2, ...]),
        ((3, 4), np.s_[::2, :]),
        ((3, 4), np.s_[::-1, :]),
        ((), np.s_[0:1]),
    ],
    ids=repr,
)
def test_a_box_has_one_slice_for_each_axis(shape: Any, box: Any) -> None:
    with pytest.raises(lp.DeclarationError, match="one slice for each axis"):
        fill(lp.init.normal(), Key(1), shape, box=box)


@pytest.mark.parametrize("box", [np.s_[2:], np.s_[:-1], np.s_[1:100], np.s_[7:3], np.s_[-4:-2]])
def test_slices_mean_what_they_mean_in_numpy(box: slice) -> None:
    whole = fill(lp.init.normal(), Key(1), 5)
    assert bits(fill(lp.init.normal(), Key(1), 5, box=box)) == bits(whole[box])


@pytest.mark.parametrize("shape", [-1, (2, -1), 2**63, (2**40, 2**40)], ids=repr)
def test_a_shape_that_makes_no_sense_cannot_be_filled(shape: Any) -> None:
    with pytest.raises(lp.DeclarationError):
        fill(lp.init.normal(), Key(1), shape)


def test_a_shape_that_is_too_large_for_this_machine_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="no memory"):
        fill(lp.init.normal(), Key(1), 2**60)


def test_what_is_filled_is_read_only() -> None:
    value = fill(lp.init.normal(), Key(1), (2, 3))
    assert not value.flags.writeable
    assert value.flags.c_contiguous
    assert fill(lp.init.normal(), Key(1), ()).shape == ()
