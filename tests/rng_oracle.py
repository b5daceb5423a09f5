"""What native initialisers draw, once more: from the rules and not from the code, in NumPy.

``rng-1`` in ``rust/bytes/src/fill/mod.rs`` says from which words an element is drawn and how. The
formulas for float64 are those of the sources that they cite: Sun's fdlibm for logarithm, sine,
cosine and exponential, Wichura's AS 241 for the quantile. NumPy rounds each operation, and fuses
none.
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

import lazyparam as lp
from lazyparam.init import Key

F, D = np.float32, np.float64
INF = math.inf
FLOATS = ["float32", "float64", "float16", "bfloat16"]


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


# ---- strategies ----------------------------------------------------------------------------------

parts = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(max_size=8))
keys = st.builds(
    lambda seed, path: Key(seed, *path), st.integers(0, 2**128 - 1), st.lists(parts, max_size=4)
)
shapes = st.lists(st.integers(0, 23), min_size=1, max_size=3).map(tuple)
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


# ---- words ---------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Words:
    """The words of `count` elements from number `first` on."""

    key: Key
    count: int
    first: int = 0

    def _blocks(self, flip: int) -> tuple[np.ndarray, np.ndarray]:
        """The four words of the block of each element, and which of them is the element's."""
        k0, k1, c2, c3 = identity(self.key.seed, self.key.path)
        index = np.arange(self.first, self.first + self.count, dtype=np.uint64)
        group, place = index // np.uint64(64), index % np.uint64(64)
        block = np.uint64(16) * group + place % np.uint64(16)
        counter = [
            block & np.uint64(0xFFFFFFFF),
            block >> np.uint64(32),
            np.full_like(block, c2),
            np.full_like(block, c3 ^ flip),
        ]
        return np.stack(philox(counter, [k0, k1])), (place // np.uint64(16)).astype(int)

    def narrow(self) -> tuple[np.ndarray, np.ndarray]:
        """As 32 bits."""
        return self._blocks(0)

    def wide(self) -> tuple[np.ndarray, np.ndarray]:
        """As 64 bits: the upper half is the word of 32 bits."""
        high, which = self._blocks(0)
        low, _ = self._blocks(1 << 31)
        return high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64), which

    def own(self, is_wide: bool) -> np.ndarray:
        """The element's own word."""
        words, which = self.wide() if is_wide else self.narrow()
        return words[which, np.arange(self.count)]

    def pair(self, is_wide: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The two words of the element's pair, and whether the element is the second of it."""
        words, which = self.wide() if is_wide else self.narrow()
        at, even = np.arange(self.count), which & ~1
        return words[even, at], words[even | 1, at], (which & 1).astype(bool)


# ---- functions -----------------------------------------------------------------------------------


def horner(x: Any, *coefficients: float | str) -> Any:
    kind = x.dtype.type
    numbers = [float.fromhex(c) if isinstance(c, str) else c for c in coefficients]
    total = np.full_like(x, kind(numbers[0]))
    for number in numbers[1:]:
        total = total * x + kind(number)
    return total


def log32(a: np.ndarray, shift: int) -> np.ndarray:
    """ln(a · 2^shift)."""
    bits = a.view(np.int32)
    e = (bits - np.int32(0x3F3504F3)) >> np.int32(23)
    g = (bits - (e << np.int32(23))).view(F) - F(1)
    z = g * g
    p = horner(
        g,
        *("0x1.6d45bap-4", "-0x1.25e45p-3", "0x1.30ae3cp-3", "-0x1.5343a4p-3"),
        *("0x1.98e42ep-3", "-0x1.000494p-2", "0x1.5556b6p-2"),
    )
    exponent = (e + np.int32(shift)).astype(F)
    return exponent * F(float.fromhex("0x1.62e43p-1")) + (g + (z * F(-0.5) + (p * g) * z))


def log64(a: np.ndarray, shift: int) -> np.ndarray:
    """ln(a · 2^shift), by ``e_log.c`` of fdlibm."""
    bits = a.view(np.int64)
    sqrt_half = np.int64(0x3FE6A09E667F3BCD)
    e = (bits - sqrt_half) >> np.int64(52)
    f = (bits - (e << np.int64(52))).view(D) - 1.0
    k = (e + np.int64(shift)).astype(D)
    s = f / (2.0 + f)
    z = s * s
    r = z * horner(
        z,
        *(1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01),
        *(2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01),
        6.666666666666735130e-01,
    )
    half_square = 0.5 * f * f
    high, low = k * 6.93147180369123816490e-01, k * 1.90821492927058770002e-10
    return high - ((half_square - (s * (half_square + r) + low)) - f)


def sin_cos32(word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of a word as an angle between -π/4 and π/4."""
    t = word.view(np.int32).astype(F) * F(float.fromhex("0x1.921fb6p-32"))
    y = t * t
    sine = horner(y, "-0x1.994eb2p-13", "0x1.11076p-7", "-0x1.555546p-3") * y * t + t
    cosine = horner(y, "0x1.9a0258p-16", "-0x1.6c0c8cp-10", "0x1.55554ap-5", "-0x1p-1", "0x1p0")
    return sine, cosine


def sin_cos64(word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same by ``k_sin.c`` and ``k_cos.c`` of fdlibm."""
    t = word.view(np.int64).astype(D) * (math.pi / 2 * 2.0**-64)
    y = t * t
    sine = horner(
        y,
        *(1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06),
        *(-1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01),
    )
    cosine = horner(
        y,
        *(-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07),
        *(2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02),
    )
    half = 0.5 * y
    w = 1.0 - half
    return t + (y * t) * sine, w + (((1.0 - w) - half) + y * (y * cosine))


def exp(x: float) -> float:
    """By ``e_exp.c`` of fdlibm, which reduces by the nearest multiple of ln 2."""
    if x < -744:
        return 0.0
    k = int(x * 1.4426950408889634 + math.copysign(0.5, x))
    high, low = x - k * 6.93147180369123816490e-01, k * 1.90821492927058770002e-10
    r = high - low
    t = r * r
    p = 0.0
    for number in (
        *(4.13813679705723846039e-08, -1.65339022054652515390e-06, 6.61375632143793436117e-05),
        *(-2.77777777770155933842e-03, 1.66666666666666019037e-01),
    ):
        p = p * t + number
    c = r - t * p
    y = 1.0 - ((low - (r * c) / (2.0 - c)) - high)
    return y * 2.0 ** (int(k / 2)) * 2.0 ** (k - int(k / 2))


def upper_tail(z: float) -> float:
    """P(Z > z): Taylor's series near the mean, Laplace's continued fraction from 1.5 on."""
    if z < 0:
        return 1.0 - upper_tail(-z)
    if z > 39:
        return 0.0
    density = exp(z * z * -0.5) * 0.3989422804014327
    if z >= 1.5:
        fraction = z
        for k in range(160, 0, -1):
            fraction = z + k / fraction
        return density / fraction
    term = total = z
    for k in range(1, 41):
        term *= z * z / (2 * k + 1)
        total += term
    return 0.5 - density * total


# ---- quantiles -----------------------------------------------------------------------------------

CENTRAL_FROM = F(0.0222)


def quantile32(q: np.ndarray, shift: int) -> np.ndarray:
    """|z| of the tail probability q · 2^shift."""
    r = np.sqrt(log32(q, shift) * F(-2))
    top = horner(r, 0.00015755, 0.10048366, 1.580451, 2.57517)
    in_tail = r - top / horner(r, 0.018360145, 0.5014357, 1.8403863, 1.0)
    if shift:
        return in_tail
    p = q - q * q
    top = horner(p, 36539.594, 98763.67, 24918.736, 1070.1937, 6.2302446)
    bottom = horner(p, 42435.55, 45688.12, 7427.658, 233.02548, 1.0)
    return np.where(q < CENTRAL_FROM, in_tail, (F(0.5) - q) * (top / bottom))


CENTRAL = (
    (
        *(2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4),
        *(4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3),
        *(1.3314166789178437745e2, 3.3871328727963666080e0),
    ),
    (
        *(5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4),
        *(2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2),
        *(4.2313330701600911252e1, 1.0),
    ),
)
NEAR = (
    (
        *(7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1),
        *(1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0),
        *(4.63033784615654529590e0, 1.42343711074968357734e0),
    ),
    (
        *(1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2),
        *(1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0),
        *(2.05319162663775882187e0, 1.0),
    ),
)
FAR = (
    (
        *(2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3),
        *(2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0),
        *(5.46378491116411436990e0, 6.65790464350110377720e0),
    ),
    (
        *(2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5),
        *(7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1),
        *(5.99832206555887937690e-1, 1.0),
    ),
)


def quantile64(q: np.ndarray, shift: int) -> np.ndarray:
    """The same by algorithm AS 241."""
    r = np.sqrt(log64(q, shift) * -1.0)
    near = horner(r - 1.6, *NEAR[0]) / horner(r - 1.6, *NEAR[1])
    far = horner(r - 5.0, *FAR[0]) / horner(r - 5.0, *FAR[1])
    in_tail = np.where(r > 5.0, far, near)
    if shift:
        return in_tail
    x = 0.5 - q
    s = 0.180625 - x * x
    return np.where(q < 0.075, in_tail, x * (horner(s, *CENTRAL[0]) / horner(s, *CENTRAL[1])))


# ---- numbers of a dtype --------------------------------------------------------------------------


def neighbour(x: np.ndarray, towards: float) -> np.ndarray:
    return np.nextafter(x, np.asarray(towards, x.dtype))


def inner(low: float, high: float, dtype: np.dtype[Any]) -> tuple[float, float]:
    """The smallest and the largest number of the dtype that are not outside the bounds."""
    with np.errstate(over="ignore"):
        first, last = np.asarray(low).astype(dtype), np.asarray(high).astype(dtype)
    if float(first) < low:
        first = neighbour(first, INF)
    if float(last) > high:
        last = neighbour(last, -INF)
    return float(first), float(last)


# ---- laws ----------------------------------------------------------------------------------------


def uniform(words: Words, low: float, high: float, dtype: np.dtype[Any]) -> np.ndarray:
    if dtype == D:
        u = (words.own(True) >> np.uint64(11)).astype(D) * 2.0**-53
        return np.minimum(u * (high - low) + low, np.nextafter(high, -INF))
    u = (words.own(False) >> 8).astype(F) * F(2.0**-24)
    x = u * F(high - low) + F(low)
    # The largest number of the dtype below the bound, which is itself one of float32.
    _, top = inner(-INF, math.nextafter(float(F(high)), -INF), dtype)
    return np.minimum(x, F(top)).astype(dtype)


def box_muller(words: Words, mean: float, std: float, is_wide: bool) -> np.ndarray:
    w0, w1, is_second = words.pair(is_wide)
    if is_wide:
        s = (w0 | np.uint64(1)).view(np.int64).astype(D)
        ln, (sine, cosine), kind = log64(np.abs(s), -63), sin_cos64(w1), D
        turned = (w1 >> np.uint64(32) & np.uint64(1)).astype(bool)
    else:
        s = (w0 | np.uint32(1)).view(np.int32).astype(F)
        ln, (sine, cosine), kind = log32(np.abs(s), -31), sin_cos32(w1), F
        turned = (w1 & np.uint32(1)).astype(bool)
    r = np.copysign(np.sqrt(np.maximum(kind(-2) * ln, kind(0))), s) * kind(std)
    return r * np.where(turned == is_second, cosine, sine) + kind(mean)


def normal(words: Words, mean: float, std: float, dtype: np.dtype[Any]) -> np.ndarray:
    return box_muller(words, mean, std, dtype == D).astype(dtype)


def truncated(
    words: Words, mean: float, std: float, low: float, high: float, dtype: np.dtype[Any]
) -> np.ndarray:
    is_wide = dtype == D
    kind: Any = D if is_wide else F
    first, last = inner(low, high, dtype)
    a, b = (low - mean) / std, (high - mean) / std
    if a <= -6.5556 and b >= 6.5556:
        x = box_muller(words, mean, std, is_wide)
    else:
        x = inverted(words, mean, std, a, b, is_wide)
    return np.minimum(np.maximum(x, kind(first)), kind(last)).astype(dtype)


def inverted(
    words: Words, mean: float, std: float, a: float, b: float, is_wide: bool
) -> np.ndarray:
    """A normal number between `a` and `b` standard deviations, by inversion.

    Each half is drawn from its own tail. Where all is in one tail, and that is small, its
    probabilities are scaled by a power of two.
    """
    kind: Any = D if is_wide else F
    below, above = upper_tail(-a), upper_tail(b)
    if a >= 0:
        tail, split, below = upper_tail(a), 0.0, 0.0
        mass = tail - above
    elif b <= 0:
        tail, split, above = upper_tail(-b), 2.0, 0.0
        mass = tail - below
    else:
        tail = 0.5
        mass = 1.0 - below - above
        split = min(max((0.5 - below) / mass, 0.0), 1.0)
    # To at least 1/4 and less than 1/2.
    scale = -1 - math.frexp(tail)[1] if tail < CENTRAL_FROM else 0
    below, above, mass = (part * 2.0**scale for part in (below, above, mass))
    if is_wide:
        number = words.own(True) >> np.uint64(12)
        parts = 52
    else:
        number = words.own(False) >> np.uint32(1)
        parts = 31
    other = number.dtype.type(2**parts - 1) - number
    # Signed, as float32 is made from signed numbers.
    signed = np.int64 if is_wide else np.int32
    k, k_other = (
        n.view(signed).astype(kind) * kind(2.0**-parts) + kind(2.0 ** -(parts + 1))
        for n in (number, other)
    )
    is_left = k < kind(split)
    q = np.where(is_left, k, k_other) * kind(mass) + np.where(is_left, kind(below), kind(above))
    z = (quantile64 if is_wide else quantile32)(q, -scale)
    return z * np.where(is_left, kind(-std), kind(std)) + kind(mean)
