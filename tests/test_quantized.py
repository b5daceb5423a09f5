"""Quantised parameters: integers are stored, floats are read, and a lazy one stays lazy."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from lazyparam import quant
from tests.helpers import Bag, Counting, Tied, never, race
from tests.test_reparam import factors

SCHEMES = [quant.q8s(), quant.q8s(block=32), quant.q4s(block=16), quant.nf4()]


def quantized(init: Any = None, scheme: quant.Scheme | None = None) -> Any:
    param = lp.Param((4, 64), init or lp.init.normal())
    return lp.quantize_weights({"w": param}, scheme or quant.q8s(block=32))["w"]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_it_reads_as_the_floats_that_its_integers_mean(scheme: quant.Scheme) -> None:
    plain = lp.Param((4, 64), lp.init.normal())
    q = lp.Quantizer(scheme)({"w": plain})["w"]
    expected = quant.quantize(plain.value, scheme)
    assert np.array_equal(q.value, expected.dequantize())
    assert np.array_equal(np.asarray(q), expected.dequantize())
    assert np.array_equal(q.base().values, expected.values)
    assert np.array_equal(q.base().scales, expected.scales)
    assert (q.id, q.shape, q.dtype, q.kind) == (plain.id, (4, 64), "float32", "quantised")
    assert q.nbytes == expected.nbytes < plain.nbytes


def test_quantising_brings_nothing_into_being() -> None:
    """B35: and asking does not either."""
    model = lp.quantize_weights(
        Bag(w=lp.Param((4, 64), never), n=lp.Param(3, never, "int32")), quant.nf4()
    )
    assert isinstance(model.w, lp.QuantizedParam)
    assert isinstance(model.n, lp.Param), "ints are no floats"
    assert not model.w.is_initialized
    repr(model)
    str(lp.summary(model))
    assert model.devices() == [lp.device("cpu")]
    assert [path for path, _ in model.named_parameters()] == ["w.values", "w.scales", "n"]
    assert not any(param.is_initialized for param in model.parameters())


def test_a_ready_parameter_is_quantised_at_once_and_lets_go_of_its_floats() -> None:
    plain = lp.Param((4, 64), lp.init.normal())
    plain.val()
    q = lp.quantize_weights([plain], quant.q8s())[0]
    assert q.is_initialized
    assert q.values.state == "ready" == q.scales.state


@pytest.mark.thread_unsafe(reason="threads of its own behind a barrier")
def test_values_and_scales_are_made_together_and_once(eager_switching: None) -> None:
    """B02, for both parts."""
    for _ in range(20):
        init = Counting(seconds=0.006)
        q = quantized(init)
        found = race(
            [lambda q=q: q.values.value, lambda q=q: q.scales.value, lambda q=q: q.value] * 2
        )
        assert init.runs == 1
        assert all(isinstance(each, np.ndarray) for each in found), found
        assert np.array_equal(
            found[2], quant.QuantArray(found[0], found[1], q.scheme, q.shape).dequantize()
        )


VERBS: dict[str, Callable[[Any], Any]] = {
    "to_device": lambda q: q.to_device("cpu"),
    "fork": lambda q: q.fork("cpu"),
    "clone": lambda q: q.clone(),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda q: pickle.loads(pickle.dumps(q)),
    "valid": lambda q: q.valid(),
    "train": lambda q: q.train(),
    "set_requires_grad": lambda q: q.set_requires_grad(True),
    "no_grad": lambda q: q.no_grad(),
}


@pytest.mark.parametrize("ready", [False, True], ids=["lazy", "ready"])
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_keeps_it_quantised_and_untrained(verb: str, ready: bool) -> None:
    """B10: `valid` and `train` keep the packed dtype, and the base stays frozen."""
    q = quantized()
    if ready:
        q.val()
    changed = VERBS[verb](q)
    assert changed.base().values.dtype == np.int8
    assert (changed.requires_grad, changed.is_active) == (False, False)
    assert changed.id == q.id
    assert np.array_equal(changed.value, q.value)


def test_a_mapped_one_is_quantised_again() -> None:
    q = quantized()
    twice = q.map(lambda a: a * 2)
    assert not twice.is_initialized
    assert np.array_equal(twice.value, quant.quantize(q.value * 2, q.scheme).dequantize())


def test_a_load_brings_floats_and_quantises_them() -> None:
    """B24: and the initialiser never runs."""
    q = quantized(never)
    floats = np.random.default_rng(1).normal(size=(4, 64)).astype("f4")
    loaded = q.transform_for_load(floats)
    assert np.array_equal(loaded.value, quant.quantize(floats, q.scheme).dequantize())


def test_files_keep_the_integers(tmp_path: Any) -> None:
    """B10: exactly."""
    model = lp.quantize_weights(Bag(w=lp.Param((4, 64), lp.init.normal())), quant.nf4())
    model.save_file(tmp_path / "m.safetensors")
    lazy = lp.quantize_weights(Bag(w=lp.Param((4, 64), never)), quant.nf4())
    loaded = lazy.load_file(tmp_path / "m.safetensors")
    assert loaded.w.base().values.dtype == np.uint8
    assert np.array_equal(loaded.w.value, model.w.value)
    # What was saved without quantising is loaded before it.
    dense = Bag(w=lp.Param((4, 64), lp.init.normal()))
    dense.save_file(tmp_path / "d.safetensors")
    plain = Bag(w=lp.Param((4, 64), never)).load_file(tmp_path / "d.safetensors")
    again = lp.quantize_weights(plain, quant.nf4())
    assert not again.w.is_initialized
    assert np.array_equal(again.w.value, quant.quantize(dense.w.value, quant.nf4()).dequantize())


def test_the_dense_one_is_lazy_frozen_and_has_the_mappers_of_before() -> None:
    base = lp.Param((2, 3), lp.init.normal())
    base = base.load_mapper(np.transpose, (3, 2)).save_mapper(np.transpose, (3, 2))
    q = lp.quantize_weights([base], quant.q8s())[0]
    dense = q.dense()
    assert not dense.is_initialized
    assert (dense.id, dense.requires_grad, dense.stored_shape) == (base.id, False, (3, 2))
    assert np.array_equal(dense.value, q.value)
    assert np.array_equal(dense.transform_for_save().val(), q.value.T)
    assert np.array_equal(q.materialize().value, q.value)


def test_ties_stay_and_are_quantised_once() -> None:
    """B52."""
    model = lp.quantize_weights(Tied(lp.init.normal()), quant.q8s())
    assert model.head.is_tied_to(model.embed)
    assert model.head.values.value is model.embed.values.value
    paths = [path for path, _ in model.named_parameters()]
    assert "head.values" not in paths
    assert "embed.values" in paths


def test_a_group_says_which_are_quantised() -> None:
    model = Bag(q=lp.Param((2, 64), never), k=lp.Param((2, 64), never), b=lp.Param(2, never))
    found = lp.quantize_weights(model, quant.nf4(), "[qk]")
    assert [type(each).__name__ for each in (found.q, found.k, found.b)] == [
        *("QuantizedParam", "QuantizedParam", "Param"),
    ]
    with pytest.raises(lp.GroupError):
        lp.quantize_weights(model, quant.nf4(), "x.*")
    assert isinstance(lp.quantize_weights(found, quant.q8s()).q, lp.QuantizedParam)


def test_adapters_over_it_train_nothing_of_it_and_merge_exactly() -> None:
    """B10: the effective value of before, exactly; twice is once."""
    q = quantized()
    p = q.with_reparameterization(factors(4, 64))
    assert isinstance(p.base(), quant.QuantArray)
    assert isinstance(p.valid().train().base(), quant.QuantArray)
    effective = p.valid().val()
    assert np.array_equal(effective, q.value + 2)
    merged = p.materialize()
    assert isinstance(merged, lp.Param)
    assert (merged.dtype, merged.requires_grad) == ("float32", False)
    assert np.array_equal(merged.val(), effective)
    assert np.array_equal(merged.materialize().val(), effective)


def test_what_is_attached_stays_when_the_base_is_quantised() -> None:
    adapted = lp.Param((4, 64), lp.init.ones()).with_reparameterization(factors(4, 64))
    model = lp.quantize_weights(Bag(w=adapted), quant.q8s(), "w")
    assert isinstance(model.w.base(), quant.QuantArray)
    assert isinstance(model.w.reparameterization("lora").a, lp.Param)
    assert model.w.value == pytest.approx(3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused_by_name_when_it_is_read(bad: float) -> None:
    def init(plan: lp.Plan) -> np.ndarray:
        made = np.zeros(plan.shape, plan.dtype)
        made[1, 2] = bad
        return made

    model = lp.quantize_weights(Bag(w=lp.Param((4, 64), init)), quant.q8s())
    for _ in range(2):
        with pytest.raises(lp.QuantizeError) as caught:
            model.w.val()
        assert "w" in str(caught.value)
    assert not model.w.is_initialized


def test_a_scheme_that_does_not_fit_is_refused_at_once_and_by_name() -> None:
    model = Bag(layer=[lp.Param((3, 5), never)])
    model.clone()
    with pytest.raises(lp.QuantizeError):
        lp.quantize_weights(model, quant.q8s(block=32))
    with pytest.raises(lp.QuantizeError, match="this is no scheme"):
        lp.Quantizer("nf4")  # type: ignore[arg-type]


def test_it_cannot_be_consumed() -> None:
    with pytest.raises(lp.LazyParamError, match="consume"):
        quantized().consume()


def half_of_the_largest(floats: np.ndarray, scheme: quant.Scheme) -> np.ndarray:
    return quant.calibrate(floats, scheme) / 2


def test_a_calibration_says_what_is_clipped() -> None:
    """Burn's `Calibration`: there it is the largest magnitude, and here by default."""
    plain = lp.Param((4, 64), lp.init.normal())
    scheme = quant.q8s(block=32)
    quantizer = lp.Quantizer(scheme, calibration=half_of_the_largest)
    q = quantizer([plain])[0]
    assert not q.is_initialized
    again = pickle.loads(pickle.dumps(q))
    ranges = half_of_the_largest(plain.value, scheme)
    expected = quant.quantize(plain.value, scheme, absmax=ranges).dequantize()
    assert np.array_equal(q.value, expected)
    assert np.array_equal(again.value, expected)
    assert np.abs(q.value).max() <= ranges.max() * (1 + 1e-6)
    assert "half_of_the_largest" in repr(quantizer)
    usual = lp.Quantizer(scheme, calibration=quant.calibrate)([plain])[0]
    assert np.array_equal(usual.value, lp.quantize_weights([plain], scheme)[0].value)
    with pytest.raises(lp.QuantizeError, match="a calibration is a function"):
        lp.Quantizer(scheme, calibration="minmax")  # type: ignore[arg-type]
