"""The distributions of native draws, over keys that are next to each other.

Sixteen keys of a million numbers each, and 96 of four million under ``--proof`` (403 million). The
keys are fixed, so the outcome is one and the same on every machine.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import NormalDist

import numpy as np
import pytest

from lazyparam import init
from lazyparam.init import Key, fill

LAGS = (1, 8, 16, 32, 48, 64)
"""Neighbours, and those that the layout of blocks and groups suggests."""

# ---- from a statistic to the probability of one that is further out ------------------------------


def two_sided(z: float) -> float:
    """Of a standard normal statistic."""
    return math.erfc(abs(z) / math.sqrt(2))


def of_chi2(counts: np.ndarray, expected: np.ndarray | float) -> float:
    """Of Pearson's statistic, by Wilson and Hilferty: for many cells."""
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    freedom = counts.size - 1
    spread = 2 / (9 * freedom)
    return math.erfc(((chi2 / freedom) ** (1 / 3) - 1 + spread) / math.sqrt(2 * spread)) / 2


def of_kolmogorov(distance: float, count: int) -> float:
    """Of the largest distance from a distribution function."""
    x = distance * (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count))
    terms = ((-1) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, 2 * sum(terms))) if x > 0.2 else 1.0


CELLS = 1 << 16
EDGES = np.array([NormalDist().inv_cdf(k / CELLS) for k in range(1, CELLS)])
"""Quantiles: equally many normal numbers are expected between any two."""


def test_the_probabilities_are_those_of_tables() -> None:
    assert two_sided(1.959964) == pytest.approx(0.05, rel=1e-5)
    assert of_kolmogorov(1.3581 / 1000, 10**6) == pytest.approx(0.05, rel=2e-3)
    cells = np.full(256, 1000.0)
    # The upper 1 % point of 255 degrees of freedom is 310.457.
    cells[::2] += math.sqrt(310.457 * 1000 / 256)
    cells[1::2] -= math.sqrt(310.457 * 1000 / 256)
    assert of_chi2(cells, 1000.0) == pytest.approx(0.01, rel=0.02)


# ---- the statistics ------------------------------------------------------------------------------


def of_one(sample: np.ndarray) -> Iterator[tuple[str, float]]:
    """Names and probabilities of all statistics of one normal sample."""
    n = sample.size
    root = math.sqrt(n)
    square = sample * sample
    # The moments of a normal number, and their variances.
    for power, values, moment, variance in (
        *((1, sample, 0, 1), (2, square, 1, 2), (3, square * sample, 0, 15)),
        *((4, square * square, 3, 96), (6, square * square * square, 15, 10170)),
    ):
        z = (float(values.mean()) - moment) * root / math.sqrt(variance)
        yield f"moment {power}", two_sided(z)
    ordered = np.sort(sample)
    below = np.searchsorted(ordered, EDGES) / n
    distance = float(np.abs(below - np.arange(1, CELLS) / CELLS).max())
    yield "Kolmogorov-Smirnov", of_kolmogorov(distance, n)
    cells = np.diff(below[CELLS // 1024 - 1 :: CELLS // 1024], prepend=0, append=1) * n
    yield "1024 cells", of_chi2(cells, n / 1024)
    spread = (square - 1) / math.sqrt(2)
    for lag in LAGS:
        yield f"lag {lag}", two_sided(float(sample[lag:] @ sample[:-lag]) / math.sqrt(n - lag))
        z = float(spread[lag:] @ spread[:-lag]) / math.sqrt(n - lag)
        yield f"lag {lag} of squares", two_sided(z)
    # The halves of a pair are sixteen elements apart.
    x, y = (half.ravel() for half in sample.reshape(-1, 2, 16).swapaxes(0, 1))
    radius = np.exp((x * x + y * y) / -2)
    angle = np.arctan2(y, x) / (2 * math.pi) + 0.5
    for name, uniform in (("radius", radius), ("angle", angle)):
        counts, _ = np.histogram(uniform, 256, (0, 1))
        yield f"{name} of pairs", of_chi2(counts, x.size / 256)
    counts, _, _ = np.histogram2d(radius, angle, 32, ((0, 1), (0, 1)))
    yield "radius and angle", of_chi2(counts.ravel(), x.size / 1024)


def of_uniform(key: Key, count: int) -> Iterator[tuple[str, float]]:
    """The same for a uniform sample."""
    sample = fill(init.uniform(), key, count).astype(np.float64)
    counts, _ = np.histogram(sample, 4096, (0, 1))
    yield "uniform in 4096 cells", of_chi2(counts, count / 4096)
    distance = np.abs(np.cumsum(counts) / count - np.arange(1, 4097) / 4096).max()
    yield "uniform Kolmogorov-Smirnov", of_kolmogorov(float(distance), count)
    # The last bits of 24: a generator whose low bits are poor has them here.
    low = np.bincount((sample * 2**24).astype(np.int64) & 255, minlength=256)
    yield "uniform, lowest byte", of_chi2(low, count / 256)


@pytest.mark.timeout(600)
def test_keys_next_to_each_other_draw_independent_normal_and_uniform_numbers(
    proof: Callable[[int, int], int],
) -> None:
    """pytorch/pytorch#91944, pytorch/torchtitan#3106, pytorch/pytorch#196562: not normal, or not
    independent.

    Half of the keys have adjacent seeds, half have one seed and adjacent places.
    """
    keys, count = proof(16, 96), proof(1 << 20, 1 << 22)
    found: dict[str, list[float]] = defaultdict(list)
    beyond = dict.fromkeys((3.0, 4.0, 4.5, 5.0), 0)
    before = None
    for at in range(keys):
        key = Key(at // 2, "w") if at % 2 else Key(7, "layers", at // 2, "w")
        # Odd ones go by the seed, even ones by the place: neighbours of both kinds come along.
        sample = fill(init.normal(), key, count).astype(np.float64)
        for name, p in (*of_one(sample), *of_uniform(key, count)):
            found[name].append(p)
        for limit in beyond:
            beyond[limit] += int((np.abs(sample) > limit).sum())
        if before is not None:
            for name, one in zip(("other kind", "neighbour"), before, strict=False):
                p = two_sided(float(sample @ one) / math.sqrt(count))
                found[f"correlation, {name}"].append(p)
                squares = float((sample**2 - 1) @ (one**2 - 1)) / 2
                found[f"correlation of squares, {name}"].append(
                    two_sided(squares / math.sqrt(count))
                )
        before = (sample, *(before or ()))[:2]
    flat = {(name, at): p for name, ps in found.items() for at, p in enumerate(ps)}
    smallest = min(flat, key=lambda one: flat[one])
    agreement = {name: uniformity(ps) for name, ps in found.items()}
    worst = min(agreement, key=lambda name: agreement[name])
    print(
        f"{keys} keys, {keys * count:,} normal numbers, {len(found)} statistics, {len(flat)} "
        f"probabilities, the smallest {flat[smallest]:.2g} ({smallest[0]}), that of their "
        f"distributions from {agreement[worst]:.2g} ({worst}) to {max(agreement.values()):.2g}"
    )
    for limit, seen in beyond.items():
        expected = two_sided(limit) * keys * count
        print(f"beyond {limit} standard deviations: {seen}, expected {expected:.1f}")
        assert abs(seen - expected) < 4.5 * math.sqrt(expected) + 1
    # As improbable as 4.5 standard deviations: for 3000 probabilities, once in 50 sets of keys.
    assert flat[smallest] > two_sided(4.5), smallest
    assert agreement[worst] > 1e-3, worst


def uniformity(probabilities: list[float]) -> float:
    """The probability of these probabilities, which are uniform if all is well."""
    ordered = np.sort(probabilities)
    n = ordered.size
    steps = np.arange(n + 1) / n
    distance = max(float((steps[1:] - ordered).max()), float((ordered - steps[:-1]).max()))
    return of_kolmogorov(distance, n)


def test_words_that_repeat_or_lean_would_be_noticed() -> None:
    """The statistics themselves: samples with one fault each, as small as a test should find."""
    good = fill(init.normal(), Key(1), 1 << 20).astype(np.float64)
    assert min(p for _, p in of_one(good)) > 1e-4
    shifted, wide = good + 0.006, good * 1.004
    coarse = np.round(good * 16) / 16
    echo = good.copy()
    echo[64:] = 0.994 * good[64:] + math.sqrt(1 - 0.994**2) * good[:-64]
    cut = np.clip(good, -3.5, 3.5)
    for fault in (shifted, wide, coarse, echo, cut):
        assert min(p for _, p in of_one(fault)) < 1e-6
