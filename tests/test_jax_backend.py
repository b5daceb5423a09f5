"""The bridge to JAX: every dtype in every layout, and what is no parameter's value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lazyparam as lp

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402

from lazyparam.backends._jax import BACKEND, _aligned_copy, _copied_there, _has  # noqa: E402
from tests.helpers import never  # noqa: E402

try:
    enable_x64 = jax.enable_x64
except AttributeError:  # before 0.8
    from jax.experimental import enable_x64

CPU = lp.device("jax:cpu")
PLACE = jax.devices("cpu")[0]

NARROW = [
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32"),
    *("float16", "float32", "complex64"),
    *("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "float8_e4m3fnuz"),
    *("float8_e5m2fnuz", "float4_e2m1fn", "int4", "uint4"),
]
WIDE = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


def dtype_called(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def some(name: str) -> np.ndarray:
    """A matrix of 24 numbers that every dtype holds."""
    return (np.arange(24) % 7 + 1).reshape(4, 6).astype(np.float32).astype(dtype_called(name))


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "plain": lambda a: a,
    "Fortran": np.asfortranarray,
    "strided": lambda a: a[::2, 1::3],
    "negative": lambda a: a[::-1, ::-1],
    "read-only": read_only,
    "broadcast": lambda a: np.broadcast_to(a[0], (3, 6)),
    "0-d": lambda a: a[0, 0].reshape(()) if isinstance(a[0, 0], np.ndarray) else np.array(a[0, 0]),
    "empty": lambda a: a[:0],
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "aligned": _aligned_copy,
}


def same_bits(one: object, other: np.ndarray) -> bool:
    one, other = np.asarray(one), np.array(other, order="C", dtype=other.dtype.newbyteorder("="))
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NARROW)
def test_every_dtype_in_every_layout_arrives_bit_for_bit(name: str, layout: str) -> None:
    """jax-ml/jax#40789, numpy/numpy#20742: read-only; #19352, cupy/cupy#7307: bool stays bool."""
    array = LAYOUTS[layout](some(name))
    if not _has(dtype_called(name)):  # an older JAX
        with pytest.raises(lp.DeviceError, match=f"no dtype {name}"):
            BACKEND.from_host(array, CPU, sole=False)
        return
    there = BACKEND.from_host(array, CPU, sole=False)
    assert isinstance(there, jax.Array)
    assert same_bits(there, array)
    assert BACKEND.meta(there) == (array.shape, dtype_called(name).name)
    assert BACKEND.device_of(there) == CPU
    assert same_bits(BACKEND.to_host(there), array)


@pytest.mark.parametrize("prepare", [lambda a: a, _aligned_copy], ids=["as it comes", "aligned"])
def test_what_is_given_is_copied_however_well_it_lies(prepare) -> None:
    """jax-ml/jax#37830: a write to the source reaches no array of JAX, even one it could share."""
    source = prepare(np.ones(1 << 16, np.float32))
    there = BACKEND.from_host(source, CPU, sole=False)
    param = lp.Param.from_data(source, "jax:cpu")
    source[:] = 7
    assert float(there.max()) == 1
    assert float(param.value.max()) == 1


def test_what_nobody_else_has_is_taken_over_where_it_lies() -> None:
    source = _aligned_copy(np.ones(1 << 16, np.float32))
    there = BACKEND.from_host(source, CPU, sole=True)
    assert there.unsafe_buffer_pointer() == source.ctypes.data


def test_memory_of_ours_begins_where_jax_takes_it_over() -> None:
    """A drawn value is not copied on its way to JAX's CPU."""
    value = lp.Param(1 << 16, lp.init.normal(), device="jax:cpu").value
    assert value.unsafe_buffer_pointer() % 64 == 0
    assert BACKEND.publish(value, CPU, sole=False, ours=True) is value


def test_an_array_over_somebody_elses_memory_is_copied() -> None:
    """jax-ml/jax#37830, #19123: JAX takes aligned memory as it lies, and does not tell."""
    source = _aligned_copy(np.ones(1 << 16, np.float32))
    lent = jax.device_put(source)
    assert lent.unsafe_buffer_pointer() == source.ctypes.data
    given, made = lp.Param.from_tensor(lent), lp.Param(1 << 16, lambda plan: lent, device="jax:cpu")
    made.val()
    source[:] = 9
    assert float(given.value.max()) == float(made.value.max()) == 1


def test_values_leave_as_read_only_arrays_of_numpy_that_share_memory() -> None:
    value = lp.Param((2, 3), lp.init.normal(), device="jax:cpu").value
    host = BACKEND.to_host(value)
    assert host.ctypes.data == value.unsafe_buffer_pointer()
    assert not host.flags.writeable


@pytest.mark.parametrize("name", WIDE)
def test_64_bits_are_refused_where_jax_would_narrow_them(name: str) -> None:
    """JAX makes an int64 of 2**40 a 0, without a word."""
    with pytest.raises(lp.DeviceError, match=f"narrow {name} to {WIDE[name]}.*jax_enable_x64"):
        BACKEND.from_host(np.array([2**40], dtype=name), CPU, sole=False)
    p = lp.Param(3, lp.init.ones(), dtype=name, device="jax:cpu")
    with pytest.raises(lp.DeviceError, match="jax_enable_x64"):
        p.val()
    assert not p.is_initialized
    assert p.to_device("cpu").val().dtype == name
    moved = lp.Param.from_tensor(np.array([2**40], dtype=name))
    with pytest.raises(lp.DeviceError, match="jax_enable_x64"):
        moved.to_device("jax:cpu")


@pytest.mark.parametrize("name", WIDE)
def test_64_bits_are_kept_where_jax_is_told_to(name: str) -> None:
    wide = np.array([[2**40, 3], [1, 2]], dtype=name)
    with enable_x64(True):
        p = lp.Param.from_tensor(wide).to_device("jax:cpu")
        drawn = lp.Param((2, 2), lp.init.ones(), dtype=name, device="jax:cpu").val()
    assert p.dtype == name == drawn.dtype
    assert same_bits(p.value, wide)
    # What is there stays as it is when 64 bits are off again, or is refused by name.
    assert same_bits(p.clone().value, wide)
    assert same_bits(p.to_device("cpu").value, wide)
    with pytest.raises(lp.DeviceError, match="jax_enable_x64"):
        p.clone(independent=True)


@pytest.mark.parametrize("name", ["float6_e2m3fn", "float6_e3m2fn"])
def test_a_dtype_that_jax_lacks_is_refused_by_name(name: str) -> None:
    with pytest.raises(lp.DeviceError, match=f"JAX has no dtype {name}"):
        lp.Param(3, lp.init.ones(), dtype=name, device="jax:cpu").val()
    with pytest.raises(lp.DeviceError, match="JAX has no dtype object"):
        BACKEND.from_host(np.array([None]), CPU, sole=False)


@pytest.mark.parametrize(
    ("start", "target"),
    [
        *(("float32", "bfloat16"), ("float32", "float16"), ("float32", "float8_e4m3fn")),
        *(
            ("bfloat16", "float32"),
            ("int32", "int8"),
            ("uint8", "int32"),
            ("complex64", "complex64"),
        ),
    ],
)
def test_casts_round_as_numpy_does(start: str, target: str) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal(1000) * 40
    numbers[:3] = [1e-40, -1e-7, 0]  # XLA may take what is denormal for zero
    array = (
        numbers.astype(dtype_called(start)) if start != "uint8" else np.arange(100, dtype="uint8")
    )
    there = BACKEND.from_host(np.clip(array, -100, 100) if start == "int32" else array, CPU, False)
    assert same_bits(BACKEND.cast(there, target), np.asarray(there).astype(dtype_called(target)))


def test_casts_between_kinds_and_of_ints_that_do_not_fit_are_refused() -> None:
    ints = BACKEND.from_host(np.array([1, 300], np.int32), CPU, False)
    with pytest.raises(lp.InitError, match="300 does not fit int8"):
        BACKEND.cast(ints, "int8")
    with pytest.raises(lp.InitError, match="one kind of numbers"):
        BACKEND.cast(ints, "float32")
    with pytest.raises(lp.DeviceError, match="jax_enable_x64"):
        BACKEND.cast(ints, "int64")


@pytest.mark.parametrize("copied", [BACKEND.copy, _copied_there], ids=["here", "there"])
def test_a_copy_has_memory_of_its_own(copied: Callable) -> None:
    value = BACKEND.from_host(np.ones(1000, np.float32), CPU, False)
    copy = copied(value)
    assert copy.committed
    assert copy.unsafe_buffer_pointer() != value.unsafe_buffer_pointer()
    assert same_bits(copy, np.asarray(value))


def test_devices_are_named_from_texts_and_from_jax_and_either_way_are_equal() -> None:
    """scikit-learn/scikit-learn#29107: text or object is the same device."""
    assert lp.device(PLACE) == lp.device("jax:cpu") == lp.device("jax:cpu:0") == lp.device("jax")
    assert str(lp.device(PLACE)) == "jax:cpu:0"
    assert lp.device("jax:gpu:1") == lp.device("jax:cuda:1")
    assert lp.device("jax:cpu") != lp.device("cpu")
    assert lp.Param(3, lp.init.ones(), device=PLACE).device == lp.device("jax:cpu")


@pytest.mark.parametrize("kind", ["cuda", "tpu", "npu"])
def test_a_device_that_is_not_there_says_so_at_first_use_and_says_it_again(kind: str) -> None:
    """cupy/cupy#9091, ludwig-ai/ludwig#3788: twice the same error, JAX's as its cause."""
    if kind in {d.platform.replace("gpu", "cuda") for d in jax.devices()}:
        pytest.skip("it is there")
    p = lp.Param(3, lp.init.ones(), device=f"jax:{kind}:1")
    assert p.nbytes == 12
    for _ in range(2):
        with pytest.raises(lp.DeviceUnavailable, match=f"no {kind} here.*jax:{kind}:1") as caught:
            p.val()
        assert isinstance(caught.value.__cause__, RuntimeError)
    assert not p.is_initialized
    assert p.to_device("jax:cpu").value.tolist() == [1, 1, 1]


def test_an_index_out_of_range_is_refused_at_first_use() -> None:
    with pytest.raises(lp.DeviceUnavailable, match=r"no such device.*jax:cpu:0 to.*jax:cpu:999"):
        lp.Param(3, lp.init.ones(), device="jax:cpu:999").val()


def refused(value: object, match: str) -> None:
    """As what an initialiser gives, and as what is given as a value."""
    with pytest.raises(lp.InitError, match=match):
        lp.Param(3, lambda plan: value, device="jax:cpu").val()
    with pytest.raises(lp.InitError, match=match):
        lp.Param.initialized(value)


def test_a_tracer_is_refused_and_the_trace_goes_on() -> None:
    """jax-ml/jax#4312, #3086: it would be an UnexpectedTracerError later."""

    @jax.jit
    def f(x):
        refused(x, "tracer.*gone when the trace ends.*float32")
        return x + 1

    assert f(jnp.ones(3)).tolist() == [2, 2, 2]


def test_a_shape_without_elements_is_refused() -> None:
    refused(jax.ShapeDtypeStruct((3,), jnp.float32), "has no elements")


def test_a_deleted_array_is_refused() -> None:
    gone = jnp.ones(3)
    gone.delete()
    refused(gone, "has been deleted, or donated")


def test_a_donated_array_is_refused() -> None:
    gone = jnp.ones(3)
    jax.jit(lambda x: x + 1, donate_argnums=0)(gone)
    refused(gone, "has been deleted, or donated")


def test_a_key_of_random_numbers_is_refused() -> None:
    refused(jax.random.key(0), "jax.random.key_data")


@pytest.mark.parametrize("value", [np.ones(3, np.float32), [1.0, 2.0, 3.0], None, 3.0])
def test_an_initialiser_gives_arrays_of_its_devices_library(value: object) -> None:
    with pytest.raises(lp.InitError, match=r"expected a jax\.Array"):
        lp.Param(3, lambda plan: value, device="jax:cpu").val()


def test_arithmetic_with_numpy_in_an_initialiser_is_as_jax_has_it() -> None:
    p = lp.Param(3, lambda plan: np.ones(3, np.float32) + jnp.ones(3), device="jax:cpu")
    assert p.value.tolist() == [2, 2, 2]


def test_a_value_of_another_dtype_or_shape_than_declared_is_refused() -> None:
    for value, match in ((jnp.ones(4), "another shape"), (jnp.ones(3, jnp.int32), "another dtype")):
        with pytest.raises(lp.InitError, match=match):
            lp.Param(3, lambda plan, value=value: value, device="jax:cpu").val()


def test_a_value_is_committed_to_its_device() -> None:
    made = []
    p = lp.Param(3, lambda plan: made.append(jnp.ones(3)) or made[0], device="jax:cpu")
    assert not made
    value = p.value
    assert value.committed
    assert not made[0].committed


def test_a_weakly_typed_value_becomes_one_of_its_dtype() -> None:
    """It would yield to other dtypes in arithmetic, and have functions traced once more."""
    assert jnp.full(3, 2.0).weak_type
    value = lp.Param(3, lambda plan: jnp.full(3, 2.0), device="jax:cpu").value
    assert not value.weak_type
    assert (value * jnp.ones(3, jnp.bfloat16)).dtype == jnp.float32
    assert value.tolist() == [2, 2, 2]


def test_arrays_of_jax_have_no_gradients_and_the_error_says_where_they_are() -> None:
    p = lp.Param.from_tensor(jnp.ones(3))
    with pytest.raises(lp.AutodiffUnsupported, match=r"jax\.grad"):
        p.grad()


def test_what_leaves_by_dlpack_is_a_copy() -> None:
    """jax-ml/jax#19123: who writes to what he imported changes no parameter."""
    p = lp.Param.from_tensor(jnp.ones(3))
    out = np.from_dlpack(p)
    if out.flags.writeable:
        out[:] = 99
    assert p.value.tolist() == [1, 1, 1]
    assert np.asarray(p).tolist() == [1, 1, 1]


def test_moves_between_libraries_copy_and_keep_the_dtype() -> None:
    p = lp.Param((2, 3), lp.init.normal(), dtype="bfloat16", device="cpu")
    there = p.to_device("jax:cpu")
    assert not there.is_initialized
    back = there.to_device("cpu")
    assert same_bits(there.value, p.value)
    assert same_bits(back.value, p.value)
    assert back.device == lp.device("cpu")


def test_nothing_of_jax_is_touched_before_a_value_is_needed() -> None:
    """rapidsai/dask-cuda#32: declaring and moving open no device."""
    p = lp.Param(3, never, device="jax:tpu:3").to_device("jax:cuda:1").fork("jax:tpu:0")
    assert (p.device.kind, p.is_initialized) == ("tpu", False)
