"""Declaring native initialisers: what each draws in each dtype, and what is refused at once.

Elsewhere there are dtypes without an implementation, fans of the wrong axes, matrices that are not
orthogonal, and numbers that are not as distributed as they say: each test names where.
"""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lazyparam as lp
from lazyparam import init
from lazyparam.init import Key, fill

Make = Callable[[], init.Init]

FIXED = [init.zeros(), init.ones(), init.constant(0.5), init.eye(), init.dirac()]
DRAWN = [
    init.uniform(-1, 1),
    init.normal(),
    init.trunc_normal(),
    init.kaiming_uniform(),
    init.kaiming_normal("fan_out", "leaky_relu", 0.2),
    init.xavier_uniform(),
    init.xavier_normal(2.0),
    init.lecun_uniform(),
    init.lecun_normal(),
    init.variance_scaling(2.0, "fan_geo_avg", "normal"),
    init.variance_scaling(2.0, "fan_avg", "uniform"),
    init.variance_scaling(),
    init.orthogonal(),
    init.sparse(0.25),
]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
OTHERS = [
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"),
    *("float8_e5m2fnuz", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "float8_e8m0fnu"),
]
FIRST = Key(1, "w")


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def wide(value: init.Init, shape: Any, dtype: str = "float32", key: Key = FIRST) -> np.ndarray:
    return fill(value, key, shape, dtype).astype("float64")


# ---- every initialiser and every dtype -----------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", FIXED + DRAWN, ids=repr)
def test_every_initialiser_draws_in_every_float_dtype(value: init.Init, dtype: str) -> None:
    """pytorch/pytorch#43344, #123553, foundation-model-stack/foundation-model-stack#155,
    QwenLM/Qwen-VL#243: not implemented, or all zeros, for some dtypes.
    """
    param = lp.Param((40, 24), value, dtype=dtype)
    assert not param.is_initialized
    array = param.value
    assert (array.shape, array.dtype) == ((40, 24), numpy_dtype(dtype))
    assert np.isfinite(array.astype("float64")).all()
    assert not array.flags.writeable
    if value in DRAWN:
        assert len(np.unique(array.astype("float64"))) > 200


@pytest.mark.parametrize("dtype", OTHERS)
@pytest.mark.parametrize("value", DRAWN, ids=repr)
def test_random_numbers_are_refused_in_other_dtypes(value: init.Init, dtype: str) -> None:
    with pytest.raises(lp.DeclarationError, match="not drawn in this dtype") as caught:
        lp.Param((4, 4), value, dtype=dtype)
    assert caught.value.found == dtype
    assert caught.value.remedy is not None


@pytest.mark.parametrize("dtype", OTHERS[:-1])
def test_patterns_are_drawn_in_every_dtype_that_has_a_zero(dtype: str) -> None:
    for shape in ((5, 3), (3, 5), (4, 4), (1, 1), (0, 3), (3, 0)):
        for value in (init.eye(), init.dirac()):
            array = lp.Param(shape, value, dtype=dtype).value
            assert array.dtype == numpy_dtype(dtype)
            np.testing.assert_array_equal(array.astype("complex128"), np.eye(*shape))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 5), (5, 0), (1, 1), (63,), (65,), (3, 1, 7)])
@pytest.mark.parametrize("value", DRAWN[:3], ids=repr)
def test_distributions_without_fans_take_any_shape(
    value: init.Init, shape: tuple[int, ...]
) -> None:
    array = lp.Param(shape, value).value
    assert array.shape == shape
    assert np.isfinite(array).all()


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("value", DRAWN, ids=repr)
def test_there_is_nothing_to_scale_without_elements(
    value: init.Init, shape: tuple[int, int]
) -> None:
    """A fan of 0 does no harm there."""
    assert lp.Param(shape, value).value.shape == shape


# ---- initialisers are values ---------------------------------------------------------------------

VALUES: list[tuple[Make, str]] = [
    (init.zeros, "zeros()"),
    (init.dirac, "dirac(groups=1)"),
    (lambda: init.dirac(layout="HWIO", groups=2), "dirac(layout='HWIO', groups=2)"),
    (init.uniform, "uniform(low=0.0, high=1.0)"),
    (lambda: init.normal(1, np.float32(0.5)), "normal(mean=1.0, std=0.5)"),
    (
        lambda: init.trunc_normal(low=-math.inf),
        "trunc_normal(mean=0.0, std=1.0, low=-inf, high=2.0)",
    ),
    (
        lambda: init.kaiming_normal("fan_out", "tanh", layout="OIHW"),
        f"kaiming_normal(gain={5 / 3}, mode='fan_out', layout='OIHW', groups=1)",
    ),
    (
        lambda: init.kaiming_uniform(nonlinearity="selu", compat="torch"),
        "kaiming_uniform(gain=0.75, mode='fan_in', groups=1, compat='torch')",
    ),
    (lambda: init.xavier_uniform(fan=7), "xavier_uniform(gain=1.0, groups=1, fan=7)"),
    (lambda: init.xavier_normal(2), "xavier_normal(gain=2.0, groups=1)"),
    (lambda: init.lecun_uniform(groups=3), "lecun_uniform(groups=3)"),
    (lambda: init.lecun_normal(layout="EIO"), "lecun_normal(layout='EIO', groups=1)"),
    (
        lambda: init.variance_scaling(2, "fan_avg", "uniform"),
        "variance_scaling(scale=2.0, mode='fan_avg', distribution='uniform', groups=1)",
    ),
    (lambda: init.orthogonal(-1.5), "orthogonal(gain=-1.5)"),
    (lambda: init.sparse(0.5), "sparse(sparsity=0.5, std=0.01)"),
]


@pytest.mark.parametrize(("make", "text"), VALUES, ids=lambda value: str(value)[:24])
def test_initialisers_print_compare_hash_and_pickle(make: Make, text: str) -> None:
    value = make()
    assert repr(value) == text
    for same in (make(), pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
        assert same == value
        assert hash(same) == hash(value)
        assert same.args == value.args
    assert init.Init(value.name, **value.args) == value
    assert value != repr(value)


def test_initialisers_that_differ_in_anything_are_different() -> None:
    values = [make() for make, _ in VALUES]
    assert len(set(values)) == len(values)
    assert init.normal() != init.normal(std=2)
    assert init.normal(0) == init.normal(0.0) == init.normal(-0.0)
    assert init.kaiming_normal() != init.kaiming_uniform()
    assert init.lecun_normal(layout="OI") != init.lecun_normal()
    leaky = init.kaiming_uniform(nonlinearity="leaky_relu", a=0)
    assert leaky == init.kaiming_uniform(nonlinearity="relu")


def test_an_initialiser_does_not_change() -> None:
    value = init.normal()
    with pytest.raises(AttributeError):
        value.name = "zeros"  # type: ignore[misc]
    value.args["std"] = 3
    assert value == init.normal()


# ---- wrong arguments -----------------------------------------------------------------------------

NAN, INF = math.nan, math.inf
WRONG: list[tuple[Make, str]] = [
    *(
        (lambda std=std: init.normal(std=std), "std has to be positive")
        for std in (0, -1, NAN, INF)
    ),
    *((lambda mean=mean: init.normal(mean), "mean has to be a finite") for mean in (NAN, INF)),
    (lambda: init.normal("a"), "mean of normal"),  # type: ignore[arg-type]
    (lambda: init.normal(1j), "mean of normal"),  # type: ignore[arg-type]
    (lambda: init.normal(True), "mean of normal"),
    (lambda: init.normal([1]), "number"),  # type: ignore[arg-type]
    (lambda: init.normal(10**400), "too large"),
    (lambda: init.uniform(1, 1), "nothing between the bounds"),
    (lambda: init.uniform(1, 0), "nothing between the bounds"),
    (lambda: init.uniform(NAN, 1), "low has to be a finite"),
    (lambda: init.uniform(0, NAN), "high has to be a finite"),
    (lambda: init.uniform(0, INF), "high has to be a finite"),
    (lambda: init.trunc_normal(low=2, high=2), "nothing between the bounds"),
    (lambda: init.trunc_normal(low=NAN), "nothing between the bounds"),
    (lambda: init.trunc_normal(high=NAN), "nothing between the bounds"),
    (lambda: init.trunc_normal(std=0), "std has to be positive"),
    (lambda: init.trunc_normal(low=1e6, high=2e6), "too far from the mean"),
    (lambda: init.kaiming_normal("fan"), "mode of kaiming_normal"),  # type: ignore[arg-type]
    (lambda: init.kaiming_normal(nonlinearity="gelu"), "gain of this nonlinearity"),
    (lambda: init.kaiming_normal(nonlinearity="leaky_relu", a=NAN), "gain has to be positive"),
    (lambda: init.kaiming_normal(compat="jax"), "compat of"),  # type: ignore[arg-type]
    (lambda: init.kaiming_normal(fan=0), "fan of 0"),
    (lambda: init.kaiming_normal(fan=-1), "fan of kaiming_normal"),
    (lambda: init.kaiming_normal(fan=1.5), "fan of kaiming_normal"),  # type: ignore[arg-type]
    (lambda: init.kaiming_normal(groups=0), "at least one group"),
    *((lambda gain=gain: init.xavier_normal(gain), "gain has") for gain in (0, -1, NAN, INF)),
    (lambda: init.xavier_uniform(fan=0), "fan of 0"),
    (lambda: init.lecun_normal(fan=0), "fan of 0"),
    (lambda: init.variance_scaling(-1), "scale has to be positive"),
    (lambda: init.variance_scaling(distribution="gauss"), "distribution of"),  # type: ignore[arg-type]
    (lambda: init.orthogonal(NAN), "gain has to be a finite"),
    *((lambda part=part: init.sparse(part), "a fraction") for part in (-0.1, 1.1, NAN)),
    (lambda: init.sparse(0.5, 0), "std has to be positive"),
    (lambda: init.dirac(groups=0), "at least one group"),
    (lambda: init.Init("nope"), "no such initialiser"),
    (lambda: init.Init("normal", scale=1), "no such argument"),
    *(
        (lambda make=make, text=text: make(layout=text), "layout|axis")
        for make in (init.lecun_normal, init.orthogonal, init.dirac)
        for text in ("", "oi", "OO", "OIHH", "O", "IHW", "O I", "O1I", "ÖI")
    ),
]


@pytest.mark.parametrize(("make", "words"), WRONG)
def test_wrong_arguments_fail_when_the_initialiser_is_made(make: Make, words: str) -> None:
    with pytest.raises(lp.DeclarationError, match=words):
        make()


MISFITS: list[tuple[Any, init.Init, str, str]] = [
    ((), init.lecun_normal(), "float32", "fans of this shape are not known"),
    (3, init.kaiming_uniform(), "float32", "Give the fan itself"),
    (3, init.kaiming_uniform(compat="torch"), "float32", "Give the fan itself"),
    ((3, 4, 5), init.xavier_normal(), "float32", "a layout, for more than two dimensions"),
    ((3, 4, 5, 6), init.variance_scaling(), "float32", "layout="),
    ((3, 4, 5), init.lecun_normal(layout="OI"), "float32", "does not fit the shape"),
    ((3, 4), init.lecun_normal(layout="OIHW"), "float32", "does not fit the shape"),
    ((6, 4), init.lecun_normal(groups=4), "float32", "do not divide into the groups"),
    ((3, 4, 5), init.orthogonal(), "float32", "a layout, unless"),
    (3, init.orthogonal(), "float32", "a layout, unless"),
    ((3, 4, 5), init.orthogonal(layout="HOI"), "float32", "O first or last"),
    ((3, 4, 5), init.orthogonal(layout="EOI"), "float32", "batch_axes"),
    ((3, 4, 5), init.dirac(), "float32", "a layout, unless"),
    ((4, 4, 3), init.dirac(layout="OIW", groups=3), "float32", "divide into the groups"),
    ((3, 4, 5), init.sparse(0.1), "float32", "two dimensions"),
    (3, init.normal(0, 1e4), "float16", "overflow"),
    (3, init.normal(6e4, 1e3), "float16", "overflow"),
    (3, init.normal(0, 1e38), "float32", "overflow"),
    (3, init.uniform(0, 1e5), "float16", "overflow"),
    (3, init.uniform(-3e38, 3e38), "float32", "overflow"),
    (3, init.trunc_normal(6e4, 1e5, 5e4, 7e4), "float16", "overflow"),
    ((3, 3), init.orthogonal(1e5), "float16", "overflow"),
    (3, init.normal(0, 1e-60), "float32", "vanishes"),
    (3, init.uniform(0, 1e-60), "float32", "no value between the bounds"),
    (3, init.trunc_normal(1, 1, 1.001, 1.002), "bfloat16", "no value between the bounds"),
]


@pytest.mark.parametrize(("shape", "value", "dtype", "words"), MISFITS)
def test_what_does_not_fit_is_refused_when_the_parameter_is_declared(
    shape: Any, value: init.Init, dtype: str, words: str
) -> None:
    """Nothing of this is left for the time when the value is needed."""
    for attempt in (
        lambda: lp.Param(shape, value, dtype=dtype),
        lambda: fill(value, FIRST, shape, dtype),
    ):
        with pytest.raises(lp.DeclarationError, match=words):
            attempt()


def test_what_just_fits_is_drawn() -> None:
    assert np.isfinite(wide(init.normal(0, 9990), 2**12, "float16")).all()
    assert np.isfinite(wide(init.uniform(-65504, 65504), 2**12, "float16")).all()
    assert np.isfinite(wide(init.normal(0, 1e-40), 9)).all()
    bounded = wide(init.trunc_normal(low=-INF, high=1e5), 2**12, "float16")
    assert np.abs(bounded).max() < 6


# ---- fans ----------------------------------------------------------------------------------------

FANS: list[tuple[str, tuple[int, ...], dict[str, Any], tuple[int, int]]] = [
    ("linear", (20, 30), {}, (30, 20)),
    ("linear, named", (20, 30), {"layout": "OI"}, (30, 20)),
    ("linear of JAX", (30, 20), {"layout": "IO"}, (30, 20)),
    ("linear, torch", (20, 30), {"compat": "torch"}, (30, 20)),
    ("conv", (8, 6, 3, 5), {"layout": "OIHW"}, (90, 120)),
    ("conv, torch", (8, 6, 3, 5), {"compat": "torch"}, (90, 120)),
    ("conv 1-D", (8, 6, 3), {"layout": "OIW"}, (18, 24)),
    ("conv 3-D", (8, 6, 3, 2, 2), {"layout": "OIDHW"}, (72, 96)),
    ("conv of JAX", (3, 5, 6, 8), {"layout": "HWIO"}, (90, 120)),
    ("grouped", (8, 3, 3, 3), {"layout": "OIHW", "groups": 2}, (27, 36)),
    ("grouped, JAX", (3, 3, 3, 8), {"layout": "HWIO", "groups": 2}, (27, 36)),
    ("grouped, torch", (8, 3, 3, 3), {"compat": "torch", "groups": 2}, (27, 72)),
    ("depthwise", (4, 1, 3, 3), {"layout": "OIHW", "groups": 4}, (9, 9)),
    ("depthwise, torch", (4, 1, 3, 3), {"compat": "torch"}, (9, 36)),
    ("transposed", (16, 4, 3, 3), {"layout": "IOHW"}, (144, 36)),
    ("transposed, torch", (16, 4, 3, 3), {"compat": "torch"}, (36, 144)),
    ("transposed, grouped", (16, 2, 3, 3), {"layout": "IOHW", "groups": 4}, (36, 18)),
    ("experts", (8, 64, 128), {"layout": "EIO"}, (64, 128)),
    ("experts, torch", (8, 64, 128), {"compat": "torch"}, (8192, 1024)),
    ("experts, PyTorch's order", (8, 128, 64), {"layout": "EOI"}, (64, 128)),
    ("a bias", (20,), {"fan": 30}, (30, 30)),
    ("a scalar", (), {"fan": 30}, (30, 30)),
]


def scale_of(value: init.Init, shape: tuple[int, ...]) -> float:
    """The scale of a draw, from the ratio to the same draw with scale 1; exact to rounding."""
    reference = {
        "uniform": init.uniform(-1, 1),
        "normal": init.normal(),
    }["uniform" if "uniform" in (*value.args.values(), value.name.split("_")[-1]) else "normal"]
    drawn = fill(value, FIRST, shape, "float64")
    unit = fill(reference, FIRST, shape, "float64")
    ratio: float = float((drawn / unit).flat[0])
    # One draw, scaled; sums and differences leave some rounding.
    np.testing.assert_allclose(drawn, unit * ratio, rtol=1e-9, atol=1e-12)
    return ratio


@pytest.mark.parametrize(("name", "shape", "options", "fans"), FANS, ids=[row[0] for row in FANS])
def test_fans_are_those_of_the_table(
    name: str, shape: tuple[int, ...], options: dict[str, Any], fans: tuple[int, int]
) -> None:
    """pytorch/pytorch#129834, #130122, #19376, tracel-ai/burn#398, tensorflow/tensorflow#31192,
    #23854, #24315, keras-team/keras#11773, Lasagne/Lasagne#49, PaddlePaddle/Paddle#40547: fans of
    transposed, grouped, depthwise and stacked weights.
    """
    inputs, outputs = fans
    average, geometric = (inputs + outputs) / 2, math.sqrt(inputs * outputs)
    near = lambda number: pytest.approx(number, rel=1e-9)  # noqa: E731
    for mode, fan in (
        ("fan_in", inputs),
        ("fan_out", outputs),
        ("fan_avg", average),
        ("fan_geo_avg", geometric),
    ):
        kaiming = init.kaiming_uniform(mode, "linear", **options)
        assert scale_of(kaiming, shape) == near(math.sqrt(3 / fan))
        kaiming = init.kaiming_normal(mode, "tanh", **options)
        assert scale_of(kaiming, shape) == near(5 / 3 / math.sqrt(fan))
        scaled = init.variance_scaling(2.5, mode, "normal", **options)
        assert scale_of(scaled, shape) == near(math.sqrt(2.5 / fan))
        scaled = init.variance_scaling(2.5, mode, "uniform", **options)
        assert scale_of(scaled, shape) == near(math.sqrt(7.5 / fan))
    assert scale_of(init.xavier_uniform(2, **options), shape) == near(2 * math.sqrt(3 / average))
    assert scale_of(init.xavier_normal(2, **options), shape) == near(2 / math.sqrt(average))
    assert scale_of(init.lecun_uniform(**options), shape) == near(math.sqrt(3 / inputs))
    # Cut at two standard deviations, and as wide after that as the variance says.
    std = 1 / math.sqrt(inputs) / 0.87962566103423978
    same = init.trunc_normal(0, std, -2 * std, 2 * std)
    found = fill(init.lecun_normal(**options), FIRST, shape, "float64")
    np.testing.assert_allclose(found, fill(same, FIRST, shape, "float64"), rtol=1e-12)


@pytest.mark.parametrize(
    ("nonlinearity", "slope", "gain"),
    [
        *((name, None, 1.0) for name in ("linear", "conv1d", "conv_transpose3d", "sigmoid")),
        *(("tanh", None, 5 / 3), ("relu", None, math.sqrt(2)), ("selu", None, 0.75)),
        ("leaky_relu", None, math.sqrt(2 / (1 + 0.01**2))),
        ("leaky_relu", 0.2, math.sqrt(2 / 1.04)),
        ("leaky_relu", math.sqrt(5), math.sqrt(1 / 3)),
    ],
)
def test_gains_are_those_of_pytorch(nonlinearity: str, slope: float | None, gain: float) -> None:
    for make in (init.kaiming_normal, init.kaiming_uniform):
        assert make("fan_in", nonlinearity, slope).args["gain"] == pytest.approx(gain, rel=1e-15)


def test_the_default_of_pytorchs_linear_layer() -> None:
    """kaiming_uniform with a = √5 is uniform on ±1 / √fan_in, and so is the bias."""
    weight = init.kaiming_uniform(nonlinearity="leaky_relu", a=math.sqrt(5))
    assert scale_of(weight, (20, 64)) == pytest.approx(1 / 8, rel=1e-9)
    bias = init.kaiming_uniform(nonlinearity="leaky_relu", a=math.sqrt(5), fan=64)
    assert scale_of(bias, (20,)) == pytest.approx(1 / 8, rel=1e-9)


# ---- statistics, with fixed keys and therefore always the same -----------------------------------

COUNT = 2**20


def standard_errors(sample: np.ndarray, power: int, moment: float, variance: float) -> float:
    """How many standard errors a mean of powers is from the moment."""
    return abs(float((sample**power).mean()) - moment) / math.sqrt(variance / sample.size)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_normal_draw_has_normal_moments(dtype: str, seed: int) -> None:
    """pytorch/pytorch#91944: what was drawn was not normal."""
    sample = wide(init.normal(), COUNT, dtype, Key(seed))
    # E z^2p of the powers, and their variances.
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        # Rounding to bfloat16 adds 1e-6 to the variance: far less than a standard error.
        assert standard_errors(sample, power, moment, variance) < 4.5, power
    for lag in (1, 16, 32, 64):
        correlation = float((sample[lag:] * sample[:-lag]).mean())
        assert abs(correlation) < 4.5 / math.sqrt(COUNT)
    assert 4.5 < np.abs(sample).max() < 6.5556


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_uniform_draw_has_uniform_moments(dtype: str) -> None:
    sample = wide(init.uniform(-1, 1), COUNT, dtype)
    for power, moment in ((1, 0.0), (2, 1 / 3), (3, 0.0), (4, 1 / 5)):
        variance = 1 / (2 * power + 1) - moment**2
        assert standard_errors(sample, power, moment, variance) < 4.5, power
    counts = np.histogram(wide(init.uniform(0, 256), COUNT), 256, (0, 256))[0]
    chi2 = float(((counts - COUNT / 256) ** 2).sum() / (COUNT / 256))
    assert abs(chi2 - 255) < 4.5 * math.sqrt(2 * 255)


def pdf(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi) if math.isfinite(x) else 0.0


def tail(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "bounds", [(-2, 2), (-1, 3), (-0.5, 0.25), (2, 4), (3, INF), (8, 12), (-INF, -5), (-100, 100)]
)
def test_a_truncated_draw_is_distributed_as_it_says(
    dtype: str, bounds: tuple[float, float]
) -> None:
    """pytorch/pytorch#145498, #175046, #155588, #174164, pytorch/torchtitan#2269: a
    Kolmogorov–Smirnov test; no mass on the bounds.
    """
    low, high = bounds
    sample = np.sort(wide(init.trunc_normal(low=low, high=high), 2**15, dtype))
    if low == -INF:
        sample, low, high = -sample[::-1], -high, INF
    mass = tail(low) - tail(high)
    expected = np.array([(tail(low) - tail(x)) / mass for x in sample])
    steps = np.arange(sample.size + 1) / sample.size
    distance = max((steps[1:] - expected).max(), (expected - steps[:-1]).max())
    assert distance * math.sqrt(sample.size) < 2.0  # P = 7e-4
    assert (sample == low).sum() + (sample == high).sum() <= 1


def test_a_truncated_draw_is_shifted_and_scaled() -> None:
    unit = wide(init.trunc_normal(), 2**14, "float64")
    moved = wide(init.trunc_normal(3, 0.5, 2, 4), 2**14, "float64")
    np.testing.assert_allclose(moved, unit * 0.5 + 3, rtol=1e-12)


def test_lecun_normal_has_the_variance_that_it_says() -> None:
    sample = wide(init.lecun_normal(), (1024, 256))
    assert sample.std() == pytest.approx(1 / 16, rel=0.005)
    assert np.abs(sample).max() <= 2 / 16 / 0.8796


# ---- matrices ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 9), (9, 1), (64, 64), (129, 129), (200, 77), (77, 200)]
)
@pytest.mark.parametrize(("dtype", "error"), [("float32", 2e-6), ("float64", 2e-6)])
def test_orthogonal_matrices_are_orthogonal(
    shape: tuple[int, int], dtype: str, error: float
) -> None:
    """tensorflow/tensorflow#22226, keras-team/keras#11120: with an error of 1e-2."""
    q = wide(init.orthogonal(), shape, dtype)
    product = q @ q.T if shape[0] <= shape[1] else q.T @ q
    assert np.abs(product - np.eye(min(shape))).max() < error
    scaled = wide(init.orthogonal(-2.5), shape, dtype)
    np.testing.assert_allclose(scaled, q * -2.5, rtol=1e-6)


def test_orthogonal_matrices_are_uniformly_distributed() -> None:
    """tensorflow/tensorflow#9429: Haar, a trace of mean 0 and variance 1, and both signs of det."""
    many = np.stack([wide(init.orthogonal(), (12, 12), key=Key(at)) for at in range(600)])
    traces = np.trace(many, axis1=1, axis2=2)
    assert abs(traces.mean()) < 4.5 / math.sqrt(600)
    assert abs(traces.var() - 1) < 4.5 * math.sqrt(2 / 600)
    positive = (np.linalg.det(many) > 0).mean()
    assert abs(positive - 0.5) < 4.5 * 0.5 / math.sqrt(600)
    assert np.abs(many.mean(0)).max() < 5 / math.sqrt(600 * 12)


def test_orthogonal_convolutions_are_matrices_of_outputs() -> None:
    q = wide(init.orthogonal(layout="OIHW"), (10, 3, 2, 3)).reshape(10, 18)
    assert np.abs(q @ q.T - np.eye(10)).max() < 2e-6
    q = wide(init.orthogonal(layout="HWIO"), (2, 3, 3, 10)).reshape(18, 10)
    assert np.abs(q.T @ q - np.eye(10)).max() < 2e-6
    stack = fill(init.orthogonal(), FIRST, (3, 8, 8), batch_axes=[0]).astype("float64")
    for q in stack:
        assert np.abs(q @ q.T - np.eye(8)).max() < 2e-6


@pytest.mark.parametrize("shape", [(10, 7), (1, 5), (64, 33), (1000, 3), (3, 1000)])
@pytest.mark.parametrize("sparsity", [0, 0.1, 0.5, 0.9, 1])
def test_sparse_matrices_have_just_so_many_zeros_in_each_column(
    shape: tuple[int, int], sparsity: float
) -> None:
    array = wide(init.sparse(sparsity, 2.0), shape)
    zeros = math.ceil(sparsity * shape[0])
    assert (array == 0).sum(0).tolist() == [zeros] * shape[1]


def test_sparse_matrices_choose_rows_evenly_and_draw_normal_values() -> None:
    """pytorch/pytorch#196941, LuxDL/Lux.jl#1185: another key, other places."""
    array = wide(init.sparse(0.75, 2.0), (40, 20_000))
    kept = (array != 0).sum(1)
    assert np.abs(kept - 5000).max() < 4.5 * math.sqrt(20_000 * 0.25 * 0.75)
    values = array[array != 0] / 2
    assert abs(values.mean()) < 4.5 / math.sqrt(values.size)
    assert abs(values.var() - 1) < 4.5 * math.sqrt(2 / values.size)
    other = wide(init.sparse(0.75, 2.0), (40, 20_000), key=Key(2, "w"))
    both = ((array != 0) & (other != 0)).mean()
    assert both == pytest.approx(1 / 16, rel=0.05)


def test_dirac_passes_its_inputs_through() -> None:
    """As PyTorch's dirac_, with groups, in its layout and in JAX's."""
    for groups, shape in ((1, (6, 4, 3, 5)), (2, (6, 4, 3, 4)), (3, (6, 1, 1, 1))):
        expected = np.zeros(shape)
        per_group = shape[0] // groups
        for group in range(groups):
            for at in range(min(per_group, shape[1])):
                expected[group * per_group + at, at, shape[2] // 2, shape[3] // 2] = 1
        found = fill(init.dirac(layout="OIHW", groups=groups), FIRST, shape)
        np.testing.assert_array_equal(found, expected)
        jax = fill(
            init.dirac(layout="HWIO", groups=groups), FIRST, [shape[i] for i in (2, 3, 1, 0)]
        )
        np.testing.assert_array_equal(jax.transpose(3, 2, 0, 1), expected)


def test_a_gain_may_be_given_instead_of_a_nonlinearity_so_what_is_printed_makes_it_again() -> None:
    for made in (init.kaiming_uniform("fan_out"), init.kaiming_normal(nonlinearity="tanh")):
        assert eval(repr(made), vars(init)) == made
    assert init.kaiming_normal(gain=2.0**0.5) == init.kaiming_normal()


@pytest.mark.parametrize("given", [{"rng_name": "x"}, {"batch_axes": [0]}])
def test_what_belongs_to_native_draws_is_refused_for_functions(given: Any) -> None:
    with pytest.raises(lp.DeclarationError, match="for native initialisers; expected one of"):
        lp.Param(3, lambda plan: plan, **given)
