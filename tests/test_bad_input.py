"""Declarations that make no sense: refused at once, with what was found and what was expected."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import never

# ---- shapes -------------------------------------------------------------------------------------

BAD_SHAPES: list[tuple[Any, str]] = [
    (-1, "negative"),
    ((2, -1), "negative"),
    (-(2**70), "negative"),
    (1.0, "not a shape"),
    ((2, 1.5), "ints"),
    ((2, "3"), "ints"),
    ((2, None), "ints"),
    ((2, (3,)), "ints"),
    (True, "ints"),
    ((2, False), "ints"),
    (np.array([2.0]), "ints"),
    (np.array([[2]]), "ints"),
    ("23", "not a shape"),
    ("", "not a shape"),
    (None, "not a shape"),
    (object(), "not a shape"),
    (2**64, "larger than any"),
    (2**62, "larger than any"),
    ((2**40, 2**40), "larger than any"),
    ((2**40, 0, 2**40), "larger than any"),
    ((1,) * 65, "at most 64 dimensions"),
]


@pytest.mark.parametrize(("shape", "word"), BAD_SHAPES, ids=lambda value: repr(value)[:30])
def test_a_shape_that_makes_no_sense_is_refused_at_declaration(shape: Any, word: str) -> None:
    with pytest.raises(lp.DeclarationError, match=word) as caught:
        lp.Param(shape, never)
    assert caught.value.found is not None
    if shape == -1:
        assert str(caught.value) == (
            "an extent is negative; expected an int or a sequence of ints, none of them negative;"
            " found -1"
        )


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.init_mapper(never, shape=(2, -1)),
        lambda p: p.map(never, shape="ab"),
        lambda p: p.map(never, shape=(2**40, 2**40)),
        lambda p: p.load_mapper(never, stored_shape=-1),
        lambda p: p.save_mapper(never, stored_shape=(1.5,)),
        lambda p: p.map(never, dtype="float33"),
    ],
)
def test_a_change_of_shape_or_dtype_that_makes_no_sense_is_refused_at_once(
    change: Callable[[lp.Param[Any]], object],
) -> None:
    with pytest.raises(lp.DeclarationError):
        change(lp.Param(2, never))


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((), ()),
        (0, (0,)),
        (np.int64(3), (3,)),
        ([2, np.uint8(3)], (2, 3)),
        (np.array([2, 3]), (2, 3)),
        (range(1, 4), (1, 2, 3)),
        pytest.param(
            iter([4]),
            (4,),
            marks=pytest.mark.thread_unsafe(reason="one iterator, used up by who comes first"),
        ),
        ((1,) * 64, (1,) * 64),
        ((2**40, 0), (2**40, 0)),
    ],
    ids=repr,
)
def test_whatever_gives_ints_is_a_shape(shape: Any, wanted: tuple[int, ...]) -> None:
    assert lp.Param(shape, never).shape == wanted


def test_a_shape_that_is_too_large_for_this_machine_is_a_memory_error_when_it_is_needed() -> None:
    param = lp.Param((1 << 40, 1 << 18), lp.init.ones(), dtype="uint8")
    with pytest.raises(MemoryError, match="no memory for another"):
        param.val()
    assert not param.is_initialized


# ---- dtypes, devices, ids, intent ---------------------------------------------------------------


UNKNOWN_DTYPES: list[Any] = [
    *("floaty", "f8", "double", "", "float128", "datetime64[s]", "O", b"f4", 3, object),
    *(np.dtype("O"), np.dtype([("a", "f4")]), np.dtype("S3")),
]


@pytest.mark.parametrize("dtype", UNKNOWN_DTYPES, ids=repr)
def test_an_unknown_dtype_is_refused_and_the_known_ones_are_listed(dtype: Any) -> None:
    with pytest.raises(lp.DeclarationError, match="not a dtype that lazyparam knows") as caught:
        lp.Param(2, never, dtype=dtype)
    assert "bfloat16" in str(caught.value.expected)
    assert caught.value.found == repr(dtype)


NO_DEVICES: list[Any] = [
    *("", "gpu 0", "CPU", "cuda:-1", "cuda:01", "cuda:1.5", "cuda:99999", "torch:cuda:1:2"),
    *("cpu:1", "nowhere", ":cpu", "cpu:", " cpu", b"cpu", 0, object),
]


@pytest.mark.parametrize("device", NO_DEVICES, ids=repr)
def test_a_text_that_names_no_device_is_refused_at_declaration(device: Any) -> None:
    for attempt in (lp.device, lambda spec: lp.Param(2, never, device=spec)):
        with pytest.raises(lp.DeviceParseError) as caught:
            attempt(device)
        assert '"torch:cpu"' in str(caught.value), "an example helps"


@pytest.mark.parametrize("device", ["mine:cpu", "tpu:chip:3"])
def test_a_device_without_a_backend_fails_at_first_use_and_not_before(device: str) -> None:
    param = lp.Param(2, lp.init.zeros(), device=device)
    repr(param)
    assert param.clone().init_mapper(never).nbytes == 8
    for _ in range(2):
        with pytest.raises(lp.BackendMissing) as caught:
            param.val()
        assert isinstance(caught.value, ImportError)
        assert caught.value.found == str(lp.device(device))
        assert caught.value.remedy is not None
    assert not param.is_initialized
    moved = lp.Param(2, lp.init.ones()).to_device(device)
    with pytest.raises(lp.BackendMissing):
        moved.val()


def test_a_device_that_numpy_has_not_is_unavailable_at_first_use() -> None:
    param = lp.Param(2, lp.init.zeros(), device="numpy:gpu")
    with pytest.raises(lp.DeviceUnavailable, match="NumPy has one device"):
        param.val()


@pytest.mark.parametrize("id", [-1, 2**64, 1.5, "7", b"7"], ids=repr)
def test_an_id_that_is_no_unsigned_64_bit_number_is_refused(id: Any) -> None:
    array = np.zeros(2, np.float32)
    for attempt in (
        lambda: lp.Param(2, never, id=id),
        lambda: lp.Param.initialized(array, id=id),
        lambda: lp.Param(2, never).transform_for_load(array, id=id),
    ):
        with pytest.raises(lp.DeclarationError, match="unsigned 64-bit") as caught:
            attempt()
        assert caught.value.found == repr(id)


@pytest.mark.parametrize("id", [0, 2**64 - 1])
def test_every_unsigned_64_bit_number_is_an_id(id: int) -> None:
    assert lp.Param(2, never, id=id).clone().id == id


# ---- native initialisers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "init", [3, "zeros", np.zeros(2), [never], lp.init], ids=lambda v: str(v)[:9]
)
def test_something_that_is_no_initialiser_is_refused(init: Any) -> None:
    with pytest.raises(lp.DeclarationError, match="not an initialiser") as caught:
        lp.Param(2, init)
    assert caught.value.found == type(init).__name__


@pytest.mark.parametrize("value", ["1", None, [1], np.zeros(2), 10**60], ids=lambda v: str(v)[:9])
def test_a_constant_that_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(lp.DeclarationError, match="number"):
        lp.init.constant(value)


MISFITS = [
    ("int32", 1.5),
    ("int32", math.nan),
    ("int32", math.inf),
    ("int32", 2**31),
    ("int8", -129),
    ("uint8", 256),
    ("uint64", -1),
    ("uint64", 2**64),
    ("int64", 2**63),
    ("bool", 2),
    ("bool", 0.5),
    ("float16", 70_000),
    ("float32", 1e39),
    ("float32", 1j),
    ("complex64", 1e39),
    ("bfloat16", 1e39),
    ("float8_e4m3fn", 465),  # up to 464 rounds to 448, the largest,
    ("float6_e2m3fn", 8),
    ("int32", 1j),
]


@pytest.mark.parametrize(("dtype", "value"), MISFITS)
def test_a_constant_that_does_not_fit_the_dtype_is_refused_at_declaration(
    dtype: str, value: complex
) -> None:
    with pytest.raises(lp.DeclarationError, match=f"does not fit {dtype}"):
        lp.Param(2, lp.init.constant(value), dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "value", "held"),
    [
        ("float32", 0.1, np.float32(0.1)),
        ("float32", math.inf, math.inf),
        ("float32", 2 + 0j, 2),
        ("int8", True, 1),
        ("int8", -3.0, -3),
        ("bool", 1, True),
        ("uint64", 2**64 - 1, 2**64 - 1),
        ("complex64", 1j, 1j),
        ("float32", np.float64(0.5), 0.5),
    ],
)
def test_a_constant_that_the_dtype_can_hold_is_held(dtype: str, value: Any, held: Any) -> None:
    assert lp.Param(2, lp.init.constant(value), dtype=dtype).value.tolist() == [held, held]


@pytest.mark.parametrize("shape", [(), (3,), (2, 2, 2)])
def test_an_identity_matrix_has_two_dimensions(shape: tuple[int, ...]) -> None:
    with pytest.raises(lp.DeclarationError, match="two dimensions") as caught:
        lp.Param(shape, lp.init.eye())
    assert caught.value.found == str(shape)


@pytest.mark.parametrize("init", [lp.init.zeros(), lp.init.eye()], ids=repr)
def test_a_dtype_without_a_zero_has_no_zeros(init: lp.init.Init) -> None:
    with pytest.raises(lp.DeclarationError, match="no zero"):
        lp.Param((2, 2), init, dtype="float8_e8m0fnu")


@pytest.mark.parametrize("shape", [{2, 3}, {2: 3}, b"ab", bytearray(b"ab"), frozenset([1])])
def test_what_has_no_order_is_no_shape(shape: Any) -> None:
    with pytest.raises(lp.DeclarationError, match="this is not a shape"):
        lp.Param(shape, never)


@pytest.mark.parametrize("name", ["zeros", "ones", "eye", "constant"])
def test_an_initialiser_that_was_not_called_is_refused_at_declaration(name: str) -> None:
    with pytest.raises(lp.DeclarationError, match=rf"Call it: init={name}\(...\)"):
        lp.Param((2, 2), getattr(lp.init, name))


def test_the_types_of_python_are_dtypes_as_numpy_takes_them() -> None:
    kinds = {float: "float64", int: np.dtype(int).name, bool: "bool", complex: "complex128"}
    for kind, name in kinds.items():
        assert lp.Param(1, never, dtype=kind).dtype == name


@pytest.mark.parametrize("state", [None, 3, [1]])
def test_a_state_dict_is_a_mapping(state: Any) -> None:
    with pytest.raises(lp.RecordError, match="a state dict is a mapping"):
        lp.Module().load_state_dict(state)
    with pytest.raises(lp.RecordError, match="there is no path for the tensor 1"):
        lp.Module().load_state_dict({1: np.ones(1)})
