"""JAX: ``jax:cpu:i``, ``jax:cuda:i``, ``jax:tpu:i``; arrays are immutable and handed out as such.

It records no gradients in arrays: it transforms functions. See ``lazyparam.pytrees``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding

from .. import _host
from .._core import Device
from ..errors import AutodiffUnsupported, DeviceError, DeviceUnavailable, InitError
from . import Backend

ALIGNMENT = 64
"""Bytes. JAX takes memory on the host over without a copy if it begins at a multiple of this."""


class JaxBackend(Backend):
    """Arrays are ``jax.Array`` on one device, committed to it."""

    name = "jax"
    array_type = "a jax.Array"
    packages = frozenset({"jax", "jaxlib"})

    def owns(self, x: object) -> bool:
        # What stands for an array in a trace is owned too, so that `check` can say what it is.
        return isinstance(x, jax.Array | jax.ShapeDtypeStruct)

    def meta(self, x: Any) -> tuple[tuple[int, ...], str]:
        held = x.dtype
        return tuple(x.shape), _host.name_of(held) if isinstance(held, np.dtype) else str(held)

    def device_of(self, x: Any) -> Device:
        devices = x.devices()
        if len(devices) != 1:
            raise InitError(
                "an array on several devices is not a parameter's value",
                expected="an array on one device",
                found=f"{len(devices)} devices: {x.sharding}",
                remedy="jax.device_put(x, device) brings it to one. If a mesh is set, "
                "initialize() the module before that.",
            )
        (place,) = devices
        return _device_at(place)

    def parse(self, spec: object) -> str | None:
        return str(_device_at(spec)) if isinstance(spec, jax.Device) else None

    def check(self, x: Any) -> None:
        if isinstance(x, Tracer):
            raise InitError(
                "a tracer is not a parameter's value: it is gone when the trace ends",
                expected=self.array_type,
                found=f"{type(x).__name__} of {x.dtype}{list(x.shape)}",
                remedy="Do not use arguments of a function that JAX traces in an initialiser; "
                "in a trace, change values as a tree (jax.tree.map), not as parameters.",
            )
        if isinstance(x, jax.ShapeDtypeStruct):
            raise InitError(
                "a jax.ShapeDtypeStruct has no elements",
                expected=self.array_type,
                remedy="Declare Param(shape, init, dtype): it knows them before it exists.",
            )
        if x.is_deleted():
            raise InitError(
                "this array has been deleted, or donated to a function",
                expected=f"{self.array_type} in being",
                remedy="Use what the function returned, or do not donate (donate_argnums).",
            )
        if not isinstance(x.dtype, np.dtype):
            raise InitError(
                "a key of random numbers is not a parameter's value",
                expected="numbers or bools",
                found=str(x.dtype),
                remedy="jax.random.key_data(key) gives its numbers.",
            )

    def native_device(self, device: Device) -> Any:
        return _place_of(device)

    def native_dtype(self, name: str) -> Any:
        return _host.dtype(name)

    def probe(self, device: Device) -> None:
        _place_of(device)

    def scope(self, device: Device) -> AbstractContextManager[Any]:
        return _making(_place_of(device))

    def publish(self, x: Any, device: Device, sole: bool, ours: bool) -> Any:
        with jax.ensure_compile_time_eval():
            if x.weak_type:
                # It would yield to other dtypes, and make functions be traced again.
                x = x.astype(x.dtype)
            if not self.is_public(x):
                _insist_on(x.dtype)
                x = jax.device_put(x, _place_of(device))
            if not ours and device.kind == "cpu":
                # It may lie over memory of NumPy or torch, which somebody goes on writing to
                # (jax-ml/jax#37830); JAX does not tell.
                x = jax.numpy.array(x, copy=True)
            return x.block_until_ready()

    def is_public(self, x: Any) -> bool:
        return x.committed and not x.weak_type and isinstance(x.sharding, SingleDeviceSharding)

    def from_host(self, array: Any, device: Device, sole: bool) -> Any:
        array = np.asarray(array)
        _insist_on(array.dtype)
        kept = sole and array.flags.c_contiguous and array.dtype.isnative
        return _put(array if kept else _aligned_copy(array), _place_of(device))

    def to_host(self, x: Any) -> Any:
        return np.asarray(x)

    def to_device(self, x: Any, device: Device) -> Any:
        _insist_on(x.dtype)
        return _put(x, _place_of(device))

    def cast(self, x: Any, dtype: str) -> Any:
        # On the host: XLA compiles a program for each shape, wraps ints, and its rounding to
        # narrow dtypes is its own.
        (place,) = x.devices()
        return self.from_host(_host.cast(np.asarray(x), dtype), _device_at(place), sole=True)

    def detach(self, x: Any) -> Any:
        return jax.lax.stop_gradient(x) if isinstance(x, Tracer) else x

    def grad(self, x: Any) -> Any:
        raise AutodiffUnsupported(
            "JAX has no gradients in arrays: it transforms functions",
            remedy="trainable, frozen = module.partition(), and jax.grad of a function of the "
            "first; it gives gradients as a module.",
        )

    def copy(self, x: Any) -> Any:
        (place,) = x.devices()
        _insist_on(x.dtype)
        if place.platform == "cpu":
            return _put(_aligned_copy(np.asarray(x)), place)
        return _copied_there(x)


@cache
def _place_at(kind: str, index: int) -> jax.Device:
    """JAX's own device."""
    try:
        places = jax.local_devices(backend=kind)
    except RuntimeError as error:
        raise DeviceUnavailable(
            f"JAX has no {kind} here",
            expected=f"jax:{kind}:{index}",
            found=str(error).partition("\n")[0],
        ) from error
    try:
        return places[index]
    except IndexError as error:
        raise DeviceUnavailable(
            "JAX has no such device",
            expected=f"jax:{kind}:0 to jax:{kind}:{len(places) - 1}",
            found=f"jax:{kind}:{index}",
        ) from error


def _place_of(device: Device) -> jax.Device:
    return _place_at(device.kind, device.index or 0)


@cache
def _device_at(place: jax.Device) -> Device:
    """What we call JAX's `place`: devices count from 0 within a process, whatever JAX's ids."""
    places = jax.local_devices(backend=place.platform)
    if place not in places:
        raise DeviceUnavailable(
            "this device belongs to another process",
            expected=f"one of {places}",
            found=repr(place),
        )
    is_rocm = "rocm" in place.client.platform_version.lower()
    kind = {"gpu": "rocm" if is_rocm else "cuda"}.get(place.platform, place.platform)
    return Device(f"jax:{kind}:{places.index(place)}")


@contextmanager
def _making(place: jax.Device) -> Iterator[None]:
    """Outside of every trace, on `place`, with what the caller has set for itself undone.

    `ensure_compile_time_eval` leaves the traces of jit, grad, vmap and all others.
    """
    with (
        jax.ensure_compile_time_eval(),
        jax.default_device(place),
        _without_mesh(),
        _without_guards(),
        _in_full_precision(),
    ):
        yield


# Each of these looks before it acts: contexts of JAX cost microseconds, and most are not set.

_CONFIG: Any = jax.config
"""What is set on this thread, or else for the process."""


def _without_guards() -> AbstractContextManager[Any]:
    """The context in which values go from the host to devices, whatever the caller forbids."""
    ways = ("host_to_device", "device_to_host", "device_to_device")
    if all(getattr(_CONFIG, f"jax_transfer_guard_{way}") is None for way in ways):
        return nullcontext()
    allowed: AbstractContextManager[Any] = jax.transfer_guard("allow")
    return allowed


def _in_full_precision() -> AbstractContextManager[Any]:
    """The context in which an initialiser's products are not rounded as the caller's may be."""
    if _CONFIG.jax_default_matmul_precision is None:
        return nullcontext()
    highest: AbstractContextManager[Any] = jax.default_matmul_precision("highest")
    return highest


def _without_mesh() -> AbstractContextManager[Any]:
    """The context in which arrays are on one device though the caller has set a mesh.

    JAX offers none within a trace. There, or if it is too old, arrays that an initialiser makes
    are on all devices of the mesh, and `device_of` refuses them.
    """
    try:
        if jax.sharding.get_abstract_mesh().empty:
            return nullcontext()
        none: AbstractContextManager[Any] = jax.set_mesh(None)  # taken, if not announced
        return none
    except (AttributeError, ValueError):
        return nullcontext()


def _put(array: Any, place: jax.Device) -> Any:
    """`array` on `place`, arrived. A concrete array even in a trace."""
    with jax.ensure_compile_time_eval():
        return jax.device_put(array, place).block_until_ready()


def _copied_there(x: Any) -> Any:
    """A copy on the device of `x`. JAX compiles a program for each shape, in tens of ms."""
    with jax.ensure_compile_time_eval():
        return jax.numpy.array(x, copy=True).block_until_ready()


def _aligned_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy in C order and native bytes where JAX can take it over.

    Given an array of somebody else's JAX might take over that, whatever its `may_alias` is, and
    change with it (jax-ml/jax#37830).
    """
    held = array.dtype.newbyteorder("=")
    memory = np.empty(array.size * held.itemsize + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy: np.ndarray[Any, Any] = np.ndarray(array.shape, held, memory, start)
    copy[...] = array
    return copy


@cache
def _has(held: np.dtype[Any]) -> bool:
    """Whether JAX has elements of this NumPy dtype, if only with 64 bits allowed."""
    try:
        with jax.ensure_compile_time_eval():
            jax.device_put(np.empty(0, held))
    except Exception:
        # What it raises depends on who refuses: a TypeError, or an error of the runtime.
        return False
    return True


def _insist_on(held: np.dtype[Any]) -> None:
    """Refuse a dtype that JAX lacks or would narrow."""
    held = held.newbyteorder("=")
    name = _host.name_of(held)
    if not _has(held):
        raise DeviceError(
            f"JAX has no dtype {name}",
            remedy="Cast before the move, or keep the parameter on another library's device.",
        )
    narrowed = jax.dtypes.canonicalize_dtype(held)
    if narrowed != held:
        raise DeviceError(
            f"JAX would narrow {name} to {narrowed.name}: its 64-bit dtypes are off",
            expected=name,
            found=narrowed.name,
            remedy='jax.config.update("jax_enable_x64", True) at the start of the program, '
            f"or declare {narrowed.name}.",
        )


BACKEND = JaxBackend()
