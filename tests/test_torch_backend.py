"""The torch backend by itself: host bridge, memory, casts, refusals, and what it switches off."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from lazyparam import _host

torch = pytest.importorskip("torch")

from lazyparam.backends import _torch as of_torch  # noqa: E402
from lazyparam.backends import _torch_scope as of_scope  # noqa: E402
from lazyparam.backends._numpy import BACKEND as NUMPY  # noqa: E402
from lazyparam.backends._torch import BACKEND  # noqa: E402

CPU = lp.device("torch:cpu")

DTYPES = [
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
]


def array_of(dtype: str, shape: tuple[int, ...] = (3, 4)) -> np.ndarray:
    """Every bit pattern of a small dtype is as good as another; no two rows are alike."""
    held = _host.dtype(dtype)
    bits = np.random.default_rng(7).integers(0, 256, (*shape, held.itemsize), np.uint8)
    if dtype == "bool":
        bits &= 1
    return bits.view(held)[..., 0]


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 1, np.uint8)
    memory[1:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memory[1:].view(array.dtype).reshape(array.shape)


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": lambda a: a.copy(),
    "Fortran": np.asfortranarray,
    "transposed": lambda a: a.T,
    "strided": lambda a: a[:, ::2],
    "strided rows": lambda a: a[::2],
    "reversed": lambda a: a[::-1, ::-1],
    "permuted": lambda a: a.reshape(3, 2, 2).transpose(1, 0, 2),
    "broadcast": lambda a: np.broadcast_to(a[:1], (5, 4)),
    "one reversed": lambda a: a[:1][::-1],
    "empty": lambda a: a[:0],
    "0-d": lambda a: a[1, 2].reshape(()),
    "scalar": lambda a: a[1, 2],
    "read-only": read_only,
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "unaligned": unaligned,
    "subclass": lambda a: a.view(type("Sub", (np.ndarray,), {})),
}


def bits(array: Any) -> bytes:
    """The elements in C order, in the byte order of this machine."""
    array = np.asarray(array)
    return array.astype(array.dtype.newbyteorder("="), copy=False).tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_in_every_layout_crosses_the_bridge_bit_by_bit(dtype: str, layout: str) -> None:
    """#109873, #101781, ml_dtypes#81, #188023, #114673: bf16 and fp8, reversed, bool stays bool."""
    array = LAYOUTS[layout](array_of(dtype))
    tensor = BACKEND.from_host(array, CPU, False)
    assert type(tensor) is torch.Tensor
    assert BACKEND.meta(tensor) == (np.shape(array), dtype)
    back = BACKEND.to_host(tensor)
    assert (back.shape, back.dtype) == (np.shape(array), _host.dtype(dtype))
    assert bits(back) == bits(array)
    assert not tensor.requires_grad
    assert not tensor._is_view()


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_crosses_the_bridge_has_memory_of_its_own(dtype: str) -> None:
    """jax#37830, jax#40789, numpy#20742: the source may be written to, and may be read-only."""
    source = array_of(dtype)
    before = bits(source)
    tensor = BACKEND.from_host(source, CPU, False)
    source.view(np.uint8)[...] ^= 1
    assert bits(BACKEND.to_host(tensor)) == before
    tensor.zero_()
    assert bits(source) != bits(np.zeros_like(source))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_that_nobody_else_has_is_kept(dtype: str, order: Any) -> None:
    array = np.array(array_of(dtype), order=order)
    tensor = BACKEND.from_host(array, CPU, True)
    assert tensor.data_ptr() == array.ctypes.data
    assert tensor.stride() == tuple(stride // array.itemsize for stride in array.strides)
    assert bits(BACKEND.to_host(tensor)) == bits(array)
    memory = weakref.ref(array)
    del array
    assert tensor.numel() == 12
    assert memory is not None


@pytest.mark.parametrize("layout", ["strided", "reversed", "read-only", "big-endian", "unaligned"])
def test_memory_that_torch_cannot_work_on_is_copied_even_if_it_is_ours(layout: str) -> None:
    array = LAYOUTS[layout](array_of("float32"))
    tensor = BACKEND.from_host(array, CPU, True)
    assert tensor.data_ptr() != array.ctypes.data
    assert bits(BACKEND.to_host(tensor)) == bits(array)


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}], object),
        np.array(["text"]),
        np.array([(1, 2.0)], [("a", "i4"), ("b", "f4")]),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.zeros(2, np.longdouble),
        np.zeros(2, _host.dtype("float4_e2m1fn")),
        np.zeros(2, _host.dtype("int4")),
    ],
    ids=lambda array: str(array.dtype)[:12],
)
def test_a_dtype_that_torch_lacks_is_refused_by_name(array: np.ndarray) -> None:
    with pytest.raises(lp.DeviceError, match=r"torch has no dtype .*expected one of bool, uint8"):
        BACKEND.from_host(array, CPU, False)


def test_a_dtype_that_a_kind_of_device_lacks_is_refused_before_anything_moves() -> None:
    mps = lp.device("torch:mps")
    for dtype in ("float64", "complex128"):
        with pytest.raises(lp.DeviceError, match=f"has no dtype {dtype}"):
            BACKEND.from_host(np.zeros(2, dtype), mps, False)
        with pytest.raises(lp.DeviceError, match=f"has no dtype {dtype}"):
            BACKEND.to_device(torch.zeros(2, dtype=getattr(torch, dtype)), mps)


@pytest.mark.filterwarnings("ignore")
def test_a_dtype_that_numpy_lacks_is_refused_by_name() -> None:
    with pytest.raises(lp.DeviceError, match="NumPy has no dtype complex32"):
        BACKEND.to_host(torch.zeros(2, dtype=torch.complex32))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).T,
        torch.arange(6.0)[::2],
        torch.ones(1).expand(3),
        torch.tensor([1 + 2j, 3 - 4j]).conj(),
        torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
        torch.arange(6.0, requires_grad=True) * 2,
        torch.nn.Parameter(torch.ones(2)),
        torch.arange(6, dtype=torch.bfloat16)[1::2],
        torch.zeros(0, 3),
        torch.tensor(2.5),
    ],
    ids=range(10),
)
def test_every_kind_of_tensor_leaves_for_the_host(tensor: Any) -> None:
    host = BACKEND.to_host(tensor)
    assert host.shape == tuple(tensor.shape)
    expected = tensor.detach().resolve_conj().resolve_neg().clone().tolist()
    assert host.astype(np.complex128 if tensor.is_complex() else np.float64).tolist() == expected


# ---- memory ----------------------------------------------------------------------------------


def publish(tensor: Any, sole: bool = True) -> Any:
    return BACKEND.publish(tensor, CPU, sole, False)


SOLE: dict[str, Callable[[], Any]] = {
    "fresh": lambda: torch.ones(2, 3),
    "result": lambda: torch.ones(2, 3) * 1,
    "transposed result": lambda: torch.ones(3, 2).T * 1,
    "grad": lambda: torch.ones(2, 3, requires_grad=True),
    "bfloat16": lambda: torch.ones(2, 3, dtype=torch.bfloat16),
    "0-d": lambda: torch.tensor(1.0),
}

SHARED: dict[str, Callable[[], tuple[Any, Any]]] = {}


def shares(make: Callable[[], tuple[Any, Any]]) -> Callable[[], tuple[Any, Any]]:
    """A tensor of ones, and something through which its memory can be written to."""
    SHARED[make.__name__] = make
    return make


@shares
def its_view() -> tuple[Any, Any]:
    tensor = torch.ones(2, 3)
    return tensor, tensor[:]


@shares
def what_it_is_a_view_of() -> tuple[Any, Any]:
    base = torch.ones(4, 3)
    return base[:2], base


@shares
def one_element_of_several() -> tuple[Any, Any]:
    base = torch.ones(1)
    return base.expand(2, 3), base


@shares
def what_it_was_detached_from() -> tuple[Any, Any]:
    base = torch.ones(2, 3, requires_grad=True)
    return base.detach(), base.data


@shares
def its_storage() -> tuple[Any, Any]:
    tensor = torch.ones(2, 3)
    storage = tensor.untyped_storage()
    return tensor, storage


@shares
def a_numpy_array_that_it_came_from() -> tuple[Any, Any]:
    array = np.ones((2, 3), np.float32)
    return torch.from_numpy(array), array


@shares
def a_numpy_array_that_came_from_it() -> tuple[Any, Any]:
    tensor = torch.ones(2, 3)
    return tensor, tensor.numpy()


@shares
def an_array_by_dlpack() -> tuple[Any, Any]:
    tensor = torch.ones(2, 3)
    return tensor, np.from_dlpack(tensor)


@shares
def a_capsule_of_dlpack() -> tuple[Any, Any]:
    tensor = torch.ones(2, 3)
    return tensor, torch.utils.dlpack.to_dlpack(tensor)


@shares
def a_weak_reference() -> tuple[Any, Any]:
    tensor = torch.ones(2, 3)
    return tensor, weakref.ref(tensor)


@shares
def a_parameter_over_it() -> tuple[Any, Any]:
    tensor = torch.ones(2, 3)
    return tensor, torch.nn.Parameter(tensor).data


@shares
def shared_memory() -> tuple[Any, Any]:
    tensor = torch.ones(2, 3).share_memory_()
    return tensor, None


@pytest.mark.parametrize("name", SOLE)
def test_a_tensor_that_nobody_keeps_is_taken_over_without_a_copy(name: str) -> None:
    made = SOLE[name]()
    address, strides = made.data_ptr(), made.stride()
    value = publish(made)
    assert value.data_ptr() == address
    assert value.stride() == strides
    assert type(value) is torch.Tensor
    assert not value.requires_grad


@pytest.mark.parametrize("name", SHARED)
def test_memory_that_somebody_else_can_write_to_is_copied(name: str) -> None:
    """B55: whoever shares it, and however."""
    made, _other = SHARED[name]()
    value = publish(made)
    made.zero_()
    assert (value == 1).all()
    assert value.is_contiguous()


@pytest.mark.parametrize("name", SOLE)
def test_a_tensor_that_somebody_refers_to_is_copied(name: str) -> None:
    made = SOLE[name]()
    value = publish(made, sole=False)
    made.data.zero_()
    assert (value == 1).all()
    assert value.stride() == made.stride()


def test_a_slice_does_not_keep_the_rest_of_its_memory() -> None:
    value = publish(torch.ones(1000, 3)[:1])
    assert value.untyped_storage().nbytes() == 12


def test_a_tensor_that_a_graph_has_saved_is_copied() -> None:
    made = torch.ones(3, requires_grad=True)
    loss = (made * made).sum()
    value = publish(made)
    value.zero_()
    loss.backward()
    assert made.grad.tolist() == [2, 2, 2]


def test_what_is_published_is_dense_resolved_and_plain() -> None:
    class Labelled(torch.Tensor):
        pass

    for made in (
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([1 + 2j]).conj().imag,
        torch.ones(1).expand(4),
        torch.ones(4).as_strided((2, 2), (1, 1)),
        torch.ones(2, 2).as_subclass(Labelled),
        torch.nn.Parameter(torch.ones(2)),
    ):
        expected = made.detach().tolist()
        value = publish(made)
        assert type(value) is torch.Tensor
        assert value.tolist() == expected
        assert (value.is_conj(), value.is_neg(), value.requires_grad) == (False, False, False)
        assert value.untyped_storage().nbytes() == value.numel() * value.itemsize


def test_a_version_of_torch_that_cannot_count_owners_copies(monkeypatch: Any) -> None:
    monkeypatch.setattr(of_torch, "_UNSHARED", None)
    made = torch.ones(3)
    value = publish(made)
    assert value.data_ptr() != made.data_ptr()
    assert of_torch._owners_of_nobody_elses() is not None
    monkeypatch.setattr(of_torch, "_owners", lambda x: x.no_such_count)
    assert of_torch._owners_of_nobody_elses() is None


def test_a_copy_a_move_and_a_cast_have_memory_of_their_own() -> None:
    value = torch.ones(2, 3).T * 1
    for other in (
        BACKEND.copy(value),
        BACKEND.to_device(value, CPU),
        BACKEND.cast(value, "float32"),
        BACKEND.cast(value, "bfloat16"),
    ):
        other.zero_()
        assert (value == 1).all()
        assert other.stride() == value.stride()


# ---- casts -----------------------------------------------------------------------------------


FLOATS = [d for d in DTYPES if "float" in d]


@pytest.mark.filterwarnings("ignore:overflow in a cast")
@pytest.mark.parametrize("have", FLOATS)
@pytest.mark.parametrize("wanted", FLOATS)
def test_floats_are_rounded_as_numpy_rounds_them(have: str, wanted: str) -> None:
    """B56: a cast gives the same bits on every device, so there is no second rounding."""
    draw = np.random.default_rng(3).standard_normal(2000)
    halfway = [1 + 2**-11 + 2**-40, 65519.999, 448, 464, 465, 480, 57344, 61440, np.inf, -np.inf]
    numbers = np.concatenate([*(draw * scale for scale in (1, 1e-8, 1e-40, 1e5)), halfway])
    with np.errstate(all="ignore"):
        source = numbers.astype(_host.dtype(have))
        expected = NUMPY.cast(source, wanted)
        found = BACKEND.to_host(BACKEND.cast(BACKEND.from_host(source, CPU, False), wanted))
        # What is no number may have any of several patterns.
        numbers = ~np.isnan(expected.astype(np.float64))
        assert (np.isnan(found.astype(np.float64)) == ~numbers).all()
    assert found.dtype == expected.dtype
    assert bits(found[numbers]) == bits(expected[numbers])


@pytest.mark.parametrize("wanted", [d for d in DTYPES if "int" in d])
@pytest.mark.parametrize("have", [d for d in DTYPES if "int" in d])
def test_an_int_that_fits_is_cast_and_one_that_does_not_is_named(have: str, wanted: str) -> None:
    limits = np.iinfo(have)
    for number in (0, 1, 127, limits.min, limits.max):
        tensor = BACKEND.from_host(np.array([1, number], have), CPU, False)
        if np.iinfo(wanted).min <= number <= np.iinfo(wanted).max:
            assert BACKEND.to_host(BACKEND.cast(tensor, wanted)).tolist() == [1, number]
        else:
            with pytest.raises(lp.InitError, match=f"{number} does not fit {wanted}"):
                BACKEND.cast(tensor, wanted)


@pytest.mark.parametrize(
    ("have", "wanted"), [("float32", "int32"), ("bool", "uint8"), ("int8", "float64")]
)
def test_one_kind_is_not_cast_to_another(have: str, wanted: str) -> None:
    with pytest.raises(lp.InitError, match="one kind of numbers is not cast to another"):
        BACKEND.cast(torch.zeros(2, dtype=getattr(torch, have)), wanted)


# ---- refusals --------------------------------------------------------------------------------


def fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(2)


def functional() -> Any:
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

    with FunctionalTensorMode():
        return FunctionalTensor.to_functional(torch.ones(2))


def batched() -> Any:
    kept = []
    torch.vmap(lambda x: kept.append(x) or x)(torch.ones(2, 3))
    return kept[0]


def graded() -> Any:
    kept = []
    torch.func.grad(lambda x: kept.append(x) or x.sum())(torch.ones(2))
    return kept[0]


def made_for_inference() -> Any:
    with torch.inference_mode():
        return torch.ones(2)


def given_back() -> Any:
    tensor = torch.ones(2)
    tensor.untyped_storage().resize_(0)
    return tensor


ODD: dict[str, Callable[[], Any]] = {
    "a FakeTensor, which has no elements,": fake,
    "a FunctionalTensor, which is part of a trace,": functional,
    "inside a transform of torch.func": batched,
    "inside a transform of torch.func ": graded,
    "a tensor on the meta device": lambda: torch.ones(2, device="meta"),
    "an inference tensor": made_for_inference,
    "of the layout sparse_coo": lambda: torch.eye(2).to_sparse(),
    "of the layout mkldnn": lambda: torch.eye(2).to_mkldnn(),
    "a nested tensor": lambda: torch.nested.nested_tensor([torch.ones(1)], layout=torch.jagged),
    "an uninitialised tensor": torch.nn.parameter.UninitializedParameter,
    "whose memory was given back": given_back,
    "a tensor of zeros that have no memory": lambda: torch._efficientzerotensor((2,)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", ODD)
def test_what_has_no_elements_is_refused_with_what_it_is(what: str) -> None:
    with pytest.raises(lp.InitError, match=what) as raised:
        BACKEND.check(ODD[what]())
    assert raised.value.remedy


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_tensor_is_refused() -> None:
    quantised = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)
    with pytest.raises(lp.InitError, match="a quantised tensor is not a parameter's value"):
        BACKEND.check(quantised)


def test_a_plain_tensor_and_a_parameter_pass() -> None:
    for good in (
        torch.ones(2),
        torch.zeros(0),
        torch.nn.Parameter(torch.ones(2)),
        torch.tensor([1j]).conj(),
        torch.ones(2, requires_grad=True) * 2,
    ):
        BACKEND.check(good)


# ---- devices ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (torch.device("cpu"), "torch:cpu:0"),
        (torch.device("cuda"), "torch:cuda:0"),
        (torch.device("cuda:3"), "torch:cuda:3"),
        (torch.device("xpu", 1), "torch:xpu:1"),
        (torch.float32, None),
        ("cuda", None),
    ],
)
def test_a_device_object_is_named_and_never_by_what_is_current(spec: Any, name: Any) -> None:
    assert BACKEND.parse(spec) == name


@pytest.mark.parametrize("spec", ["torch:meta", "torch:nonsense", "torch:xpu:0", "torch:cuda:99"])
def test_a_device_that_is_not_there_is_refused_with_the_cause(spec: str) -> None:
    """jax#14184, ludwig#3788, cupy#9091: the same clear error each time it is asked."""
    for _ in range(2):
        with pytest.raises(lp.DeviceUnavailable, match=f"torch cannot use {spec}") as raised:
            BACKEND.probe(lp.device(spec))
        assert raised.value.__cause__ is not None


def test_a_device_that_is_there_is_asked_once() -> None:
    BACKEND.probe(CPU)
    assert CPU in BACKEND._usable


# ---- the scope -------------------------------------------------------------------------------


def state() -> tuple[Any, ...]:
    """What is switched on in this thread."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        len(torch._C._functorch.get_interpreter_stack() or ()),
        torch._C._get_tracing_state() is not None,
    )


OFF = (False, False, False, False, 0, 0, 0, False)


def with_tracing(work: Callable[[], object]) -> None:
    torch.jit.trace(lambda x: (work(), x + 1)[1], torch.ones(2), check_trace=False)


def with_modes(work: Callable[[], object]) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), torch.device("meta"):
        with torch.autocast("cuda", torch.float16), FakeTensorMode():
            work()


CONTEXTS: dict[str, Callable[[Callable[[], object]], object]] = {
    "nothing": lambda work: work(),
    "no_grad": torch.no_grad()(lambda work: work()),
    "inference_mode": torch.inference_mode()(lambda work: work()),
    "modes": with_modes,
    "vmap of grad": lambda work: torch.vmap(
        torch.func.grad(lambda x: (work(), x.sum())[1]), in_dims=0
    )(torch.ones(2, 3)),
    "jvp": lambda work: torch.func.jvp(
        lambda x: (work(), x * 2)[1], (torch.ones(2),), (torch.ones(2),)
    ),
    "trace": with_tracing,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONTEXTS)
def test_whatever_is_on_is_off_inside_and_on_again_afterwards(name: str) -> None:
    def work() -> None:
        before = state()
        with BACKEND.scope(CPU):
            assert state() == OFF
            made = torch.ones(2) @ torch.eye(2)
            assert (made.dtype, made.device.type) == (torch.float32, "cpu")
            assert not made.is_inference()
            BACKEND.check(made)
            with torch.enable_grad(), BACKEND.scope(CPU):
                assert state() == OFF
        assert state() == before
        with pytest.raises(ZeroDivisionError), BACKEND.scope(CPU):
            raise ZeroDivisionError
        assert state() == before
        seen.append(before)

    seen: list[Any] = []
    CONTEXTS[name](work)
    assert seen
    assert (seen[0] == OFF) is (name == "no_grad")


@pytest.fixture
def _old_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch without any of the private names."""
    monkeypatch.setattr(of_scope, "_private", lambda path: None)
    monkeypatch.setattr(of_scope, "_SWITCHES", of_scope._switches())


@pytest.mark.usefixtures("_old_torch")
def test_where_torch_has_no_way_out_the_value_is_refused() -> None:
    """The names that the scope uses are private: what it cannot switch off is found by check."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with torch.inference_mode(), BACKEND.scope(CPU):
        assert not torch.is_inference_mode_enabled()
    with FakeTensorMode(), BACKEND.scope(CPU), pytest.raises(lp.InitError, match="a FakeTensor"):
        BACKEND.check(torch.ones(2))
    with torch.device("meta"), BACKEND.scope(CPU), pytest.raises(lp.InitError, match="meta"):
        BACKEND.check(torch.ones(2))


def test_capturing_a_graph_is_found_before_memory_is_taken(monkeypatch: Any) -> None:
    """#87794: memory that is taken during a capture belongs to the graph."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(of_scope.Scope, "_current_device", lambda self: torch.no_grad())
    before = state()
    cuda = lp.device("torch:cuda:0")
    with pytest.raises(lp.errors.InitInTransform, match="CUDA graph"):
        with BACKEND.scope(cuda):
            raise AssertionError
    with pytest.raises(lp.errors.InitInTransform, match="CUDA graph"):
        BACKEND.probe(cuda)
    assert state() == before


@pytest.mark.parametrize(
    ("kind", "ours", "expected"),
    [
        ("cuda", True, ["current_stream cuda:1", "stream"]),
        ("cuda", False, ["device cuda:1"]),
        ("mps", True, ["device"]),
        ("mps", False, ["device"]),
    ],
)
def test_the_right_work_is_waited_for_before_a_value_is_published(
    kind: str, ours: bool, expected: list[str], monkeypatch: Any
) -> None:
    """cupy#8068, cuml#8086: ours is on the current stream; a user's may be on any."""
    said: list[str] = []

    class Stream:
        def synchronize(self) -> None:
            said.append("stream")

    class Cuda:
        def synchronize(self, *place: Any) -> None:
            said.append(" ".join(["device", *map(str, place)]))

        def current_stream(self, place: Any) -> Stream:
            said.append(f"current_stream {place}")
            return Stream()

    class Mps:
        synchronize = Cuda.synchronize

    modules = {"cuda": Cuda(), "mps": Mps()}
    monkeypatch.setattr(torch, "get_device_module", lambda kind: modules[kind])
    of_torch._finish_work_on(torch.device(kind, 1), everywhere=not ours)
    assert said == expected
