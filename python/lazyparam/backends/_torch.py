"""PyTorch: ``torch:cpu``, ``torch:cuda:i``, ``torch:mps`` and whatever else torch knows.

Values are plain tensors that record no gradients and whose memory nobody else can write to; what
trains is a leaf over the same memory, made when it is first read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any
from weakref import getweakrefcount

import numpy as np
import torch

from .. import _host
from .._core import Device
from ..errors import DeviceError, DeviceUnavailable, InitError, InitInTransform
from . import Backend
from ._torch_scope import Scope

_NAMES = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
"""The dtypes whose elements torch, NumPy and ml_dtypes lay out alike. Not among them: torch's
int4 and its like, which have no operations, and float4, which packs two elements in a byte."""

_DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in _NAMES if hasattr(torch, name)
}

_KNOWN = f"one of {', '.join(_DTYPES)}"

_CARRIERS: dict[torch.dtype, torch.dtype] = {
    dtype: torch.uint8 if dtype.itemsize == 1 else torch.int16
    for name, dtype in _DTYPES.items()
    if name == "bfloat16" or name.startswith("float8")
}
"""What the bits of dtypes that ``Tensor.numpy()`` does not know travel as."""

_TOO_WIDE = {"mps": frozenset({"float64", "complex128"})}
"""Kinds of devices, and the dtypes that they do not have."""


class TorchBackend(Backend):
    """Arrays are ``torch.Tensor``; gradients are those of ``torch.autograd``."""

    name = "torch"
    array_type = "a torch.Tensor"
    packages = frozenset({"torch"})
    records_gradients = True
    is_mutable = True

    def __init__(self) -> None:
        # Both are only ever added to, with what is the same whoever adds it.
        self._devices: dict[torch.device, Device] = {}
        self._usable: set[Device] = set()

    # ---- arrays and devices of the library --------------------------------------------------

    def owns(self, x: object) -> bool:
        return isinstance(x, torch.Tensor)

    def meta(self, x: Any) -> tuple[tuple[int, ...], str]:
        return tuple(x.shape), _name_of(x.dtype)

    def device_of(self, x: Any) -> Device:
        device = self._home(x.device)
        return device.autodiff() if x.requires_grad else device

    def _home(self, place: torch.device) -> Device:
        device = self._devices.get(place)
        if device is None:
            device = self._devices[place] = Device(_text_of(place))
        return device

    def parse(self, spec: object) -> str | None:
        return _text_of(spec) if isinstance(spec, torch.device) else None

    def check(self, x: Any) -> None:
        if (found := _oddity_of(x)) is not None:
            what, remedy = found
            raise InitError(
                f"{what} is not a parameter's value",
                expected="a torch.Tensor with elements",
                found=type(x).__name__,
                remedy=remedy,
            )

    def native_device(self, device: Device) -> Any:
        return _place(device)

    def native_dtype(self, name: str) -> torch.dtype:
        try:
            return _DTYPES[name]
        except KeyError:
            raise DeviceError(f"torch has no dtype {name}", expected=_KNOWN) from None

    # ---- making values ----------------------------------------------------------------------

    def probe(self, device: Device) -> None:
        if device in self._usable:
            return
        try:
            place = _place(device)
            if place.type == "meta":
                raise NotImplementedError("tensors on the meta device have no elements")
            # Nothing tells as surely whether a device can be used.
            with Scope(place):
                torch.empty(1, dtype=torch.uint8, device=place)
        except InitInTransform:
            raise
        except (RuntimeError, AssertionError, AttributeError, NotImplementedError) as error:
            raise DeviceUnavailable(
                f"torch cannot use {device}",
                found=f"{type(error).__name__}: {error}".partition("\n")[0],
                remedy="Move the parameter to a device that is there, such as torch:cpu.",
            ) from error
        self._usable.add(device)

    def scope(self, device: Device) -> Scope:
        return Scope(_place(device))

    def publish(self, x: Any, device: Device, sole: bool, ours: bool) -> torch.Tensor:
        is_queued = x.device.type != "cpu"
        if is_queued and not ours:
            # Before it is copied: the copy is made on the current stream.
            _finish_work_on(x.device, everywhere=True)
        value: torch.Tensor = x if ours else _owned(x, sole)
        if is_queued:
            _finish_work_on(value.device, everywhere=False)
        return value

    def from_host(self, array: Any, device: Device, sole: bool) -> torch.Tensor:
        array = np.asarray(array)
        name = _host.name_of(array.dtype)
        dtype = _DTYPES.get(name)
        if dtype is None:
            raise DeviceError(
                f"torch has no dtype {array.dtype}",
                expected=_KNOWN,
                remedy="Cast it first: to_device moves values as they are.",
            )
        _refuse_too_wide(name, device)
        if not (sole and _is_ready_for_torch(array)):
            native = array.dtype.newbyteorder("=")
            array = np.array(array, native, order="K", copy=True, subok=False)
        tensor = _over(array, dtype)
        return tensor if device.kind == "cpu" else tensor.to(_place(device))

    def to_host(self, x: Any) -> np.ndarray[Any, Any]:
        with Scope(x.device):
            here = _plain(x).cpu().resolve_conj().resolve_neg()
            carrier = _CARRIERS.get(here.dtype)
            if carrier is None:
                return _as_numpy(here)
            return _as_numpy(here.view(carrier)).view(_host.dtype(_name_of(here.dtype)))

    def to_device(self, x: Any, device: Device) -> torch.Tensor:
        _refuse_too_wide(_name_of(x.dtype), device)
        moved: torch.Tensor = x.to(_place(device), copy=True)
        return moved

    def cast(self, x: Any, dtype: str) -> torch.Tensor:
        name = _name_of(x.dtype)
        _host.refuse_other_kind(name, dtype)
        wanted = _DTYPES.get(dtype)
        if wanted is None:
            raise DeviceError(f"torch has no dtype {dtype}", expected=_KNOWN)
        if _is_cast_by_numpy(x.dtype, wanted):
            cast = _host.cast(self.to_host(x), dtype)
            return self.from_host(cast, self._home(x.device), True)
        moved: torch.Tensor = x.to(wanted, copy=True)
        return moved

    def copy(self, x: Any) -> torch.Tensor:
        with Scope(x.device):
            return _plain(x).clone()

    def as_dtype_of(self, x: Any, other: Any) -> torch.Tensor:
        alike: torch.Tensor = x.to(other.dtype)
        return alike

    def version(self, x: Any) -> int:
        return int(x._version)

    # ---- gradients ----------------------------------------------------------------------------

    def detach(self, x: Any) -> torch.Tensor:
        with Scope(x.device):
            return _plain(x)

    def leaf(self, x: Any) -> torch.Tensor:
        # Not `.data`: the leaf and the value are one memory, and a graph that has saved one of
        # them is to notice when the other is written to.
        leaf: torch.Tensor = x.detach().requires_grad_(True)
        return leaf

    def grad(self, x: Any) -> torch.Tensor | None:
        with Scope(x.device):
            gradient: torch.Tensor | None = x.grad
            return None if gradient is None else gradient.detach()

    def gradients(
        self, loss: Any, leaves: Sequence[Any], retain_graph: bool, create_graph: bool
    ) -> Sequence[torch.Tensor | None]:
        found: Sequence[torch.Tensor | None] = torch.autograd.grad(
            loss,
            leaves,
            retain_graph=retain_graph or create_graph,
            create_graph=create_graph,
            allow_unused=True,
        )
        return found


# ---- names ------------------------------------------------------------------------------------


def _name_of(dtype: torch.dtype) -> str:
    return _NAMES_OF.get(dtype) or str(dtype).removeprefix("torch.")


_NAMES_OF = {dtype: name for name, dtype in _DTYPES.items()}


def _text_of(place: torch.device) -> str:
    return f"torch:{place.type}:{place.index or 0}"


def _place(device: Device) -> torch.device:
    return (
        torch.device(device.kind)
        if device.index is None
        else torch.device(device.kind, device.index)
    )


def _is_cast_by_numpy(have: torch.dtype, wanted: torch.dtype) -> bool:
    """Whether torch casts otherwise than NumPy does: a value is to be the same on every device.

    Ints that do not fit are to be found, and torch has no order for its wide unsigned ones. Its
    float64 is rounded twice on the way to less than float32. Its fp8 are saturated or truncated,
    depending on its version and theirs.
    """
    if not wanted.is_floating_point:
        return not wanted.is_complex
    bits = wanted.itemsize * 8
    return bool(bits == 8 or (bits < 32 and have == torch.float64))


def _refuse_too_wide(name: str, device: Device) -> None:
    if name in _TOO_WIDE.get(device.kind, ()):
        raise DeviceError(
            f"{device} has no dtype {name}", remedy="Cast it first, to float32 for example."
        )


# ---- what is no value -------------------------------------------------------------------------

# Newer versions of torch have no named axes.
_HAS_NAMES: Callable[[torch.Tensor], bool] = getattr(torch.Tensor, "has_names", lambda _: False)

_HAS_OPERATORS_OF_ITS_OWN = "Hand out a plain tensor: what it stands for, with its elements."


def _oddity_of(x: torch.Tensor) -> tuple[str, str] | None:
    """What `x` is instead of a tensor with elements, and what to do; None if it is one."""
    kind: Any = type(x)
    plain = kind is torch.Tensor
    if not plain and isinstance(x, torch.nn.UninitializedParameter | torch.nn.UninitializedBuffer):
        return "an uninitialised tensor", "Give it a shape and elements first."
    if not plain and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return _subclass(kind), _HAS_OPERATORS_OF_ITS_OWN
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        return (
            "a tensor inside a transform of torch.func (vmap, grad, jvp)",
            "Do not use what the transform is applied to in an initialiser.",
        )
    if x.is_meta:
        return "a tensor on the meta device", "Make it on plan.device."
    if x.is_inference():
        return (
            "an inference tensor",
            "It was made under torch.inference_mode and can never be trained. Call .clone() on it "
            "outside, or make it in the initialiser.",
        )
    if x.is_nested or x.layout is not torch.strided:
        layout = "nested" if x.is_nested else str(x.layout).removeprefix("torch.").lstrip("_")
        return (
            f"a tensor of the layout {layout}",
            "Call .to_dense() or .to_padded_tensor(...) on it.",
        )
    if x.is_quantized:
        return "a quantised tensor", "Call .dequantize() on it, or store .int_repr() and its scale."
    if _HAS_NAMES(x):
        return "a tensor with named axes", "Call .rename(None) on it."
    if x._is_zerotensor():
        return "a tensor of zeros that have no memory", "Call .clone() on it."
    if x.numel() and not x.untyped_storage().nbytes():
        return "a tensor whose memory was given back", "Its storage was resized to nothing."
    return None


def _subclass(kind: type) -> str:
    """What to call a subclass of Tensor that brings operators of its own."""
    known = {
        "FakeTensor": "a FakeTensor, which has no elements,",
        "FunctionalTensor": "a FunctionalTensor, which is part of a trace,",
        "DTensor": "a DTensor, which is spread over several processes,",
        "NestedTensor": "a nested tensor",
    }
    return known.get(kind.__name__, f"a {kind.__name__}, which brings operators of its own,")


# ---- memory -----------------------------------------------------------------------------------


def _plain(x: torch.Tensor) -> torch.Tensor:
    """`x` as a plain tensor that records nothing; the same memory."""
    if type(x) is torch.Tensor:
        return x.detach()
    with torch._C.DisableTorchFunctionSubclass():
        return x.detach().as_subclass(torch.Tensor)


def _owned(x: torch.Tensor, sole: bool) -> torch.Tensor:
    """A plain tensor equal to `x` over memory that nobody else has; `x` is of no use afterwards."""
    if sole and type(x) is torch.Tensor and _is_unshared(x):
        # Not `.detach()`: that is a view, which would keep `x` and what hangs on it.
        return x.data
    value = _plain(x)
    resolved = value.resolve_conj().resolve_neg()
    return value.clone() if resolved is value else resolved


def _owners(x: torch.Tensor) -> tuple[int, int, int]:
    """How many own `x`, its storage, and the object that stands for the storage."""
    storage = x.untyped_storage()
    return (
        x._use_count(),
        torch._C._storage_Use_Count(storage._cdata),
        sys.getrefcount(storage),
    )


def _owners_of_nobody_elses() -> tuple[int, int, int] | None:
    """What :func:`_owners` finds of a tensor that nobody shares, or None if it cannot count.

    Measured: how often an interpreter counts an argument, and whether torch counts the object that
    stands for a storage, depends on their versions.
    """
    try:
        return _owners(torch.empty(1, device="cpu"))
    except (AttributeError, TypeError):
        return None


_UNSHARED = _owners_of_nobody_elses()


def _is_unshared(x: torch.Tensor) -> bool:
    """Whether the memory of `x`, all of it, belongs to nobody but `x`.

    Views share the storage; a graph, or a capsule of DLPack, shares the tensor behind the Python
    object; and storages that came from NumPy, or went to it, cannot be resized.
    """
    if _UNSHARED is None or getweakrefcount(x):
        return False
    storage = x.untyped_storage()
    if not storage.resizable() or storage.nbytes() != x.numel() * x.itemsize:
        return False
    # Of several processes. A storage on a GPU calls itself shared, always.
    if x.device.type == "cpu" and storage.is_shared():
        return False
    del storage
    if x.is_conj() or x.is_neg() or not _is_dense(x):
        return False
    return _owners(x) == _UNSHARED


def _is_dense(x: torch.Tensor) -> bool:
    """Whether the elements of `x` lie side by side, in some order of the axes."""
    if x.is_contiguous():
        return True
    expected = 1
    for stride, extent in sorted(zip(x.stride(), x.shape, strict=True)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _finish_work_on(place: torch.device, everywhere: bool) -> None:
    """Wait for what this thread has queued, so that any other may read its results.

    What we made was queued on the current stream. A function of the user's may have left work
    `everywhere`: on a stream of its own that is the current one no more.
    """
    module: Any = torch.get_device_module(place.type)
    if not hasattr(module, "current_stream"):
        module.synchronize()
    elif everywhere:
        module.synchronize(place)
    else:
        module.current_stream(place).synchronize()


# ---- the host bridge --------------------------------------------------------------------------


def _is_ready_for_torch(array: np.ndarray[Any, Any]) -> bool:
    """Whether torch can work on the memory of `array` as it is."""
    flags = array.flags
    dense = flags.c_contiguous or flags.f_contiguous
    return bool(dense and flags.aligned and flags.writeable and array.dtype.isnative)


def _over(array: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    """A tensor over the memory of a dense array, as bytes: so every dtype passes, and no view."""
    if not array.size:
        return torch.empty(array.shape, dtype=dtype, device="cpu")
    memory = torch.from_numpy(array.ravel(order="K").view(np.uint8)).untyped_storage()
    # An axis of one element may have any stride in NumPy, even a negative one.
    strides = [
        stride // array.itemsize if extent != 1 else 1
        for extent, stride in zip(array.shape, array.strides, strict=True)
    ]
    return torch.empty(0, dtype=dtype, device="cpu").set_(memory, 0, array.shape, strides)


def _as_numpy(x: torch.Tensor) -> np.ndarray[Any, Any]:
    """`x` as an array over the same memory."""
    if _name_of(x.dtype) not in _DTYPES:
        raise DeviceError(f"NumPy has no dtype {_name_of(x.dtype)}", found=str(x.dtype))
    array: np.ndarray[Any, Any] = x.numpy()
    return array


BACKEND = TorchBackend()
