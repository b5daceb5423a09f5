"""Host arrays: NumPy over buffers of the core, and dtypes by name.

ml_dtypes (bfloat16, the fp8, fp6 and fp4 types) is imported when one of its types is needed.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from .errors import BackendMissing, InitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._core import Buffer
    from .backends import Backend

_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name)
    for name in (
        *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}

_NAMES: dict[np.dtype[Any], str] = {held: name for name, held in _DTYPES.items()}


def name_of(held: np.dtype[Any]) -> str:
    """The name of a NumPy dtype. The common ones are looked up: NumPy takes 1.5 us to tell."""
    return _NAMES.get(held) or held.name


def dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype called `name`.

    Raises:
        BackendMissing: if it is one of ml_dtypes' and that is not installed.
    """
    try:
        return _DTYPES[name]
    except KeyError:
        pass
    try:
        import ml_dtypes
    except ImportError as error:
        raise BackendMissing(
            f"dtype {name} needs ml_dtypes, which is not installed",
            remedy="pip install ml_dtypes",
        ) from error
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return _DTYPES.setdefault(name, found)


def dtype_name(kind: object) -> str | None:
    """The name of the dtype that NumPy takes a type such as ``float`` for.

    Texts such as ``"f8"`` are not asked about: it is NumPy's float64, and elsewhere an fp8.
    """
    return np.dtype(kind).name if isinstance(kind, type) else None


def array(buffer: Buffer, shape: Sequence[int], name: str) -> np.ndarray[Any, Any]:
    """A read-only array over `buffer`, without a copy."""
    return np.ndarray(shape, dtype(name), buffer)  # type: ignore[arg-type] # any buffer will do


def numbers(data: Any, name: str | None) -> np.ndarray[Any, Any]:
    """`data` as an array: of dtype `name`, or what NumPy makes of it (floats as float32)."""
    if name is not None:
        return np.asarray(data, dtype(name))
    array = np.asarray(data)
    is_array = hasattr(data, "dtype")
    return array if is_array or array.dtype != np.float64 else array.astype(np.float32)


def cast(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """`array` with another dtype of the same kind, in memory of its own.

    Raises:
        InitError: between kinds, and if an int does not fit.
    """
    refuse_other_kind(name_of(array.dtype), name)
    refuse_misfits(array, name)
    wanted = dtype(name)
    if array.dtype.itemsize == wanted.itemsize == 1 and wanted.kind not in "biu":
        # ml_dtypes casts not every fp8 to every other; all go through float32 exactly.
        array = array.astype(np.float32)
    made = array.astype(wanted)
    if wanted.kind == "V":
        _warn_of_overflow(array, made)
    return made


def _warn_of_overflow(array: np.ndarray[Any, Any], made: np.ndarray[Any, Any]) -> None:
    """As NumPy does for its own dtypes: those of ml_dtypes become infinite, or NaN, in silence."""
    lost = ~np.isfinite(made.astype(np.float32))
    if lost.any() and np.isfinite(array[lost].astype(np.float64)).any():
        warnings.warn(f"overflow in a cast to {made.dtype.name}", RuntimeWarning, stacklevel=2)


def refuse_other_kind(name: str, wanted: str) -> None:
    """Raise InitError unless both dtypes hold the same kind of numbers."""
    kind = _core.dtype_kind(wanted)
    if _core.dtype_kind(name) != kind:
        raise InitError(
            "one kind of numbers is not cast to another",
            expected=f"{kind}s, to be cast to {wanted}",
            found=name,
        )


def refuse_misfits(array: np.ndarray[Any, Any], name: str) -> None:
    """Raise InitError if an int of `array` does not fit the dtype: NumPy wraps without a word."""
    if array.dtype.kind not in "iu" or not array.size:
        return
    limits = np.iinfo(name)
    if np.can_cast(array.dtype, limits.dtype):
        return
    for number in (int(array.min()), int(array.max())):
        if not limits.min <= number <= limits.max:
            raise InitError(f"{number} does not fit {name}")


def contiguous_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements of `array` in C order as a flat array of bytes, copied only if need be."""
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    flat = np.ascontiguousarray(native).reshape(-1).view(np.uint8)
    flat.flags.writeable = False
    return flat


def export(
    array: np.ndarray[Any, Any], dtype: Any = None, copy: bool | None = None
) -> np.ndarray[Any, Any]:
    """`array` as ``__array__`` promises it."""
    if copy:
        return np.array(array, dtype=dtype, copy=True)
    if copy is None:
        return np.asarray(array, dtype=dtype)
    if dtype is not None and np.dtype(dtype) != array.dtype:
        raise ValueError("a copy is needed to change the dtype, and copy=False forbids it")
    return array


def dlpack(
    backend: Backend, array: Any, stream: Any, max_version: Any, dl_device: Any, copy: bool | None
) -> Any:
    """What ``__dlpack__`` promises of `array`: detached, and copied where nobody may write to it.

    Arguments that are not given are left out: libraries differ in which they know.
    """
    lend = array if backend.is_mutable or copy is False else backend.copy(array)
    asked = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
    given = {name: value for name, value in asked.items() if value is not None}
    if lend is not array:
        given.pop("copy", None)
    return backend.detach(lend).__dlpack__(**given)
