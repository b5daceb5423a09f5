"""Quantisation: floats as integers of eight or four bits, with a scale for each block of them.

A :class:`Scheme` says how, :func:`quantize` makes a :class:`QuantArray` of an array: two plain
arrays, `values` and `scales`, and what they stand for. They may be moved to any library, where
`dequantize` uses the library's own operators; the elements are the same everywhere.

>>> import numpy as np
>>> from lazyparam import quant
>>> weight = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
>>> packed = quant.quantize(weight, quant.q8s(block=32))
>>> packed
QuantArray((2, 32), float32 as q8s(block=32), 72 bytes)
>>> bool(abs(packed.dequantize() - weight).max() < 1 / 127 / 2)
True

Which bits come out is decided by rules (``docs/quantisation.md``), whatever the threads.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, ClassVar

import numpy as np

from . import _core, _host
from .devices import backend_holding
from .errors import QuantizeError

__all__ = ["QuantArray", "Scheme", "calibrate", "nf4", "q4s", "q8s", "quantize"]


@dataclass(frozen=True, slots=True, repr=False)
class Scheme:
    """How floats are quantised: a small immutable value that compares, hashes, prints and pickles.

    Made by :func:`q8s`, :func:`q4s` and :func:`nf4`.

    Attributes:
        name: ``"q8s"``, ``"q4s"`` or ``"nf4"``.
        block: extents of a block along the last dimensions; None is one block for everything.
        scale_dtype: what scales are stored in.

    Raises:
        QuantizeError: if there is no such scheme.
    """

    name: str
    block: tuple[int, ...] | None = None
    scale_dtype: str = "float32"

    def __post_init__(self) -> None:
        block: Any = self.block
        if block is not None:
            extents = block if isinstance(block, Sequence) else (block,)
            object.__setattr__(self, "block", _extents(extents, "an extent of a block"))
        object.__setattr__(self, "scale_dtype", _core.dtype_name(self.scale_dtype))
        # A tensor of one block: what makes sense at all makes sense for that.
        self.layout(self.block or (), "float32")

    @property
    def _parts(self) -> tuple[str, tuple[int, ...] | None, str]:
        return self.name, self.block, self.scale_dtype

    def layout(self, shape: Sequence[int], dtype: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of values and scales for an array of `shape` and `dtype`.

        Raises:
            QuantizeError: if it cannot be quantised like this.
        """
        return _core.quant_layout(self._parts, shape, dtype)

    def nbytes(self, shape: Sequence[int], dtype: Any = "float32") -> int:
        """Bytes of values and scales together for an array of `shape` and `dtype`."""
        values, scales = self.layout(shape, dtype)
        return math.prod(values) + math.prod(scales) * _core.dtype_size(self.scale_dtype)

    @property
    def values_dtype(self) -> str:
        """What values are stored in: int8, or uint8 where two codes share a byte."""
        return "int8" if self.name == "q8s" else "uint8"

    def __repr__(self) -> str:
        block = self.block[0] if self.block and len(self.block) == 1 else self.block
        given = [f"block={block}"] if block is not None else []
        if self.scale_dtype != "float32":
            given.append(f"scale_dtype={self.scale_dtype!r}")
        return f"{self.name}({', '.join(given)})"


def q8s(block: int | Sequence[int] | None = None, scale_dtype: Any = "float32") -> Scheme:
    """Integers from -127 to 127, times a scale: Burn's ``Q8S``.

    Args:
        block: extents of a block along the last dimensions, which divide those of the array; an int
            is one along the last. None is one scale for the whole array.
        scale_dtype: float32, float16 or bfloat16; the scale is rounded up to it.

    Raises:
        QuantizeError: if the block or the dtype make no sense.
    """
    return Scheme("q8s", block, scale_dtype)  # type: ignore[arg-type] # made a tuple there


def q4s(block: int | Sequence[int] | None = None, scale_dtype: Any = "float32") -> Scheme:
    """Integers from -7 to 7, times a scale, two in a byte: Burn's ``Q4S``. See :func:`q8s`."""
    return Scheme("q4s", block, scale_dtype)  # type: ignore[arg-type] # made a tuple there


def nf4(block: int = 64) -> Scheme:
    """Quantiles of a normal distribution, two in a byte, as bitsandbytes has them (QLoRA).

    Args:
        block: 32, 64 … 4096 elements in C order share a scale; the last block may be short.

    Raises:
        QuantizeError: if there are no such blocks.
    """
    return Scheme("nf4", (block,))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class QuantArray:
    """A quantised array: two plain arrays of one library, and what they stand for.

    Immutable, but for the elements of arrays that can be written. Equal to itself only.

    Attributes:
        values: codes, as :meth:`Scheme.layout` has them: int8, or uint8 with two in each.
        scales: one for each block.
        scheme: how it was quantised.
        shape: extents of the array it stands for.
        dtype: name of the float dtype of the array it stands for.

    Raises:
        QuantizeError: if shapes or dtypes do not belong together.
    """

    kind: ClassVar[str] = "quantised"

    values: Any
    scales: Any
    scheme: Scheme
    shape: tuple[int, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _extents(self.shape, "an extent of the array"))
        object.__setattr__(self, "dtype", _core.dtype_name(self.dtype))
        shapes = self.scheme.layout(self.shape, self.dtype)
        dtypes = self.scheme.values_dtype, self.scheme.scale_dtype
        for name, shape, dtype in zip(("values", "scales"), shapes, dtypes, strict=True):
            array = getattr(self, name)
            found = tuple(array.shape), _core.dtype_name(array.dtype)
            if found != (shape, dtype):
                raise QuantizeError(
                    f"the {name} do not fit {self.scheme} of shape {self.shape}",
                    expected=f"{dtype} of shape {shape}",
                    found=f"{found[1]} of shape {found[0]}",
                )

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return self.scheme.nbytes(self.shape, self.dtype)

    @property
    def arrays(self) -> dict[str, Any]:
        """The two arrays by name: what there is to store."""
        return {"values": self.values, "scales": self.scales}

    def map(self, f: Callable[[Any], Any]) -> QuantArray:
        """The same with `f` of both arrays: another place or library, never other numbers."""
        return QuantArray(f(self.values), f(self.scales), self.scheme, self.shape, self.dtype)

    def dequantize(self, dtype: Any = None) -> Any:
        """The array it stands for, with the library of `values`: computed in float32, rounded once.

        Args:
            dtype: a float dtype; None is that of the array that was quantised.

        Returns:
            An array of `shape`, beside `values`; read-only if it is NumPy's.

        Raises:
            QuantizeError: if that is no float dtype, or the library does not have it.
        """
        name = self.dtype if dtype is None else _core.dtype_name(dtype)
        if isinstance(self.values, np.ndarray) and isinstance(self.scales, np.ndarray):
            return _core.dequantize(
                self.scheme._parts,
                self.shape,
                name,
                _host.contiguous_bytes(self.values),
                _host.contiguous_bytes(self.scales),
                None,
            )
        self.scheme.layout(self.shape, name)  # refuses dtypes
        return _by_operators(self, name)

    def __repr__(self) -> str:
        return f"QuantArray({self.shape}, {self.dtype} as {self.scheme}, {self.nbytes} bytes)"


def quantize(
    array: Any, scheme: Scheme, *, absmax: Any = None, threads: int | None = None
) -> QuantArray:
    """`array` quantised by `scheme`, on the host.

    Args:
        array: floats of any library; they are brought to the host. float64 elements are rounded to
            float32 first.
        scheme: how.
        absmax: what counts as the largest magnitude of each block, in the shape that
            :func:`calibrate` gives; elements beyond are clipped. None is what it gives.
        threads: how many threads may work; None is one for each processor. The bits are the same.

    Returns:
        Two NumPy arrays, read-only, and what they stand for.

    Raises:
        QuantizeError: if an element is not finite (the first one is told), if the array or the
            range do not fit the scheme, or if a scale does not fit its dtype.
    """
    host, dtype = _on_host(array)
    given = None if absmax is None else _ranges(absmax, scheme.layout(host.shape, dtype)[1])
    elements = _host.contiguous_bytes(host)
    made = _core.quantize(scheme._parts, host.shape, dtype, elements, given, threads)
    return QuantArray(*made, scheme, host.shape, dtype)


def calibrate(
    array: Any, scheme: Scheme, *, threads: int | None = None
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The range of each block: its largest magnitude, in the shape of the scales.

    Raises:
        QuantizeError: as :func:`quantize`.
    """
    host, dtype = _on_host(array)
    elements = _host.contiguous_bytes(host)
    return _core.quant_absmax(scheme._parts, host.shape, dtype, elements, threads)


def _extents(extents: Sequence[Any], what: str) -> tuple[int, ...]:
    found = tuple(map(index, extents))
    if any(extent < 0 for extent in found):
        raise QuantizeError(f"{what} is negative", found=str(found))
    return found


def _on_host(array: Any) -> tuple[np.ndarray[Any, Any], str]:
    """The elements as a NumPy array, and the name of their dtype."""
    backend = backend_holding(array)
    backend.check(array)
    host = np.asarray(backend.to_host(array))
    return host, _core.dtype_name(_host.name_of(host.dtype))


def _ranges(absmax: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    ranges = np.asarray(absmax, np.float32)
    if ranges.shape != shape:
        raise QuantizeError(
            "there is one range for each block",
            expected=f"an array of shape {shape}",
            found=f"shape {ranges.shape}",
            remedy="calibrate(array, scheme) gives one of that shape.",
        )
    return _host.contiguous_bytes(ranges)


# ---- with the operators of whatever library the arrays are of ------------------------------------


def _by_operators(array: QuantArray, dtype: str) -> Any:
    """Reshape, cast, take and multiply: no library lacks these, and all give the same bits."""
    scales = cast(array.scales, "float32")
    if array.scheme.name == "nf4":
        scaled = _flat_blocks(_unpacked(array.values, _NF4_PAIRS).reshape(-1), scales, array)
    elif array.scheme.name == "q4s":
        # Rows begin with a byte of their own, and may end with half a one.
        row = array.shape[-1] if array.shape else 1
        scaled = _tiled(_unpacked(array.values, _Q4S_PAIRS)[..., :row], scales, array)
    else:
        scaled = _tiled(cast(array.values, "float32"), scales, array)
    return cast(scaled, dtype)


def _tiled(codes: Any, scales: Any, array: QuantArray) -> Any:
    """Codes times the scales of their blocks: each dimension is split into blocks and places."""
    if array.scheme.block is None:
        return (codes * scales).reshape(array.shape)
    grid = tuple(scales.shape)
    split = [
        part
        for n, blocks in zip(array.shape, grid, strict=True)
        for part in (blocks, n // (blocks or 1))
    ]
    beside = [part for blocks in grid for part in (blocks, 1)]
    return (codes.reshape(split) * scales.reshape(beside)).reshape(array.shape)


def _flat_blocks(codes: Any, scales: Any, array: QuantArray) -> Any:
    """Codes times the scales of their blocks, which are in a row; the last one may be short."""
    count = math.prod(array.shape)
    size = math.prod(array.scheme.block or ())
    whole = count // size
    scaled = (
        codes[: whole * size].reshape(whole, size) * scales[:whole].reshape(whole, 1)
    ).reshape(-1)
    if whole * size < count:
        rest = codes[whole * size : count] * scales[whole:]
        scaled = _namespace(codes).concatenate((scaled, rest))
    return scaled.reshape(array.shape)


_NF4_PAIRS = np.array(
    [(high, low) for high in _core.nf4_table() for low in _core.nf4_table()], np.float32
)
"""The two numbers that each byte stands for."""

_Q4S_PAIRS = np.array(
    [((low ^ 8) - 8, (high ^ 8) - 8) for high in range(16) for low in range(16)], np.float32
)


def _unpacked(values: Any, pairs: np.ndarray[Any, Any]) -> Any:
    """Two numbers for each byte, side by side."""
    table, which = _beside(pairs, values), cast(values, "int32").reshape(-1)
    # torch takes rows many times faster so than by an index in brackets.
    taken = table.index_select(0, which) if hasattr(table, "index_select") else table[which]
    return taken.reshape((*values.shape[:-1], 2 * values.shape[-1]))


def _namespace(x: Any) -> Any:
    """The functions for arrays like `x`. Of those with a standard, torch alone does not tell."""
    tell = getattr(x, "__array_namespace__", None)
    return sys.modules[type(x).__module__.partition(".")[0]] if tell is None else tell()


def _beside(table: np.ndarray[Any, Any], x: Any) -> Any:
    """`table` as an array of the library of `x`, on its device."""
    if hasattr(x, "new_tensor"):
        return x.new_tensor(table, dtype=_namespace(x).float32)
    return _namespace(x).asarray(table)


def cast(x: Any, dtype: str) -> Any:
    """`x` in another dtype, by an operator of its library: in traces too."""
    held = getattr(_namespace(x), dtype, None)
    if held is None:  # NumPy and CuPy have bfloat16 from elsewhere
        held = _host.dtype(dtype)
    cast = x.astype(held) if hasattr(x, "astype") else x.to(held)
    if (found := _core.dtype_name(cast.dtype)) != dtype:
        raise QuantizeError(
            "the library of the values does not have this dtype",
            expected=dtype,
            found=found,
            remedy='jax.config.update("jax_enable_x64", True) makes JAX keep 64 bits.',
        )
    return cast
