"""``QuantizedParam``: a parameter that keeps integers and scales, and reads as floats.

What is stored are two parameters, ``values`` and ``scales``, made together when either is first
needed. Nobody trains them. (Burn's quantised tensors as parameters.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np

from . import _tree
from ._core import Lazy, Param, Plan
from .devices import backend_holding, backend_of
from .errors import LazyParamError, QuantizeError
from .quant import QuantArray, Scheme, quantize
from .reparam import AdaptedParam, Reparameterization, attach
from .selection import GroupLike, choose
from .standins import StandIn

__all__ = ["QuantizedParam", "Quantizer", "quantize_weights", "substitute_quantized"]

M = TypeVar("M")

Calibration: TypeAlias = Callable[[Any, Scheme], Any]
"""From floats and a scheme to the range of each block; see :func:`lazyparam.quant.calibrate`."""


class QuantizedParam(StandIn):
    """Reads as a parameter does; what it keeps is quantised.

    Made by :class:`Quantizer` and :func:`quantize_weights`. ``base()`` is the :class:`QuantArray`,
    ``val()`` what it stands for, made anew by each read: keeping it would undo the saving.

    Attributes:
        values: the integers, a parameter with the identity of the one that was quantised.
        scales: one for each block.
        scheme: how.
    """

    def __init__(self, values: Any, scales: Any, scheme: Scheme, handle: Param[Any]) -> None:
        super().__init__(values)
        self.values = values
        self.scales = scales
        self.scheme = scheme
        # Without a value: shape, dtype, wish and mappers of what was quantised.
        self._handle = handle

    # ---- as a branch of the tree --------------------------------------------------------------

    def _children(self) -> Iterator[tuple[str, object]]:
        yield "values", self.values
        yield "scales", self.scales
        # JAX tells functions apart by what is read here.
        yield ".stands_for", f"{self.dtype} of {self.shape} as {self.scheme}"

    def _replaced(self, parts: Sequence[tuple[str, object, object]]) -> Self:
        (_, _, values), (_, _, scales), _ = parts
        return type(self)(values, scales, self.scheme, self._handle)

    # ---- what is free to ask --------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the floats, in elements."""
        return self._handle.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._handle.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._handle.size

    @property
    def dtype(self) -> str:
        """Name of the float dtype that it stands for."""
        return self._handle.dtype

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of the floats in files, before they were quantised."""
        return self._handle.stored_shape

    @property
    def kind(self) -> str:
        """``"quantised"``."""
        return QuantArray.kind

    @property
    def nbytes(self) -> int:
        """Bytes of values and scales together."""
        return int(self.values.nbytes + self.scales.nbytes)

    @property
    def is_initialized(self) -> bool:
        """Whether values and scales are in being."""
        return bool(self.values.is_initialized and self.scales.is_initialized)

    @property
    def requires_grad(self) -> bool:
        """False: integers do not train."""
        return False

    @property
    def is_active(self) -> bool:
        """False: integers do not train."""
        return False

    @property
    def path(self) -> str | None:
        """The dotted path by which a module last reached it, or None."""
        path: str | None = self.values.path
        return None if path is None else path.removesuffix("values").removesuffix(".")

    # ---- reading --------------------------------------------------------------------------------

    def base(self, timeout: float | None = None) -> QuantArray:
        """What is stored: values and scales as arrays, and what they stand for."""
        values, scales = self.values.val(timeout), self.scales.val(timeout)
        return QuantArray(values, scales, self.scheme, self.shape, self.dtype)

    def val(self, timeout: float | None = None) -> Any:
        """The floats: computed in float32, rounded once, the same on every device."""
        return self.base(timeout).dequantize()

    def into_value(self) -> QuantArray:
        """As :meth:`base`."""
        return self.base()

    def grad(self) -> None:
        """None: integers do not train."""
        return

    # ---- verbs ----------------------------------------------------------------------------------

    def dense(self) -> Param[Any]:
        """The plain parameter with the floats: frozen, lazy, its mappers those from before."""
        made: Param[Any] = Param(
            self.shape,
            _Dequantized(self.clone()),
            self.dtype,
            self.device,
            requires_grad=False,
            id=self.id,
        )
        handle = self._handle.set_requires_grad(False)
        return handle._retied(handle, made)

    def materialize(self) -> Param[Any]:
        """As :meth:`dense`."""
        return self.dense()

    @property
    def _tie(self) -> int:
        return int(self.values._tie)

    def _retied(self, was: QuantizedParam, now: Param[Any]) -> Param[Any]:
        """What the tied `was` became, with the mappers of this one."""
        handle = self._handle.set_requires_grad(False)
        return handle._retied(handle, now)

    def with_reparameterization(
        self, reparameterization: Reparameterization, name: str | None = None
    ) -> AdaptedParam:
        """As ``Param.with_reparameterization``; it sees the floats."""
        return attach(self, reparameterization, name)  # type: ignore[arg-type]

    def set_requires_grad(self, requires_grad: bool) -> Self:
        """The same: integers do not train, whatever is wished."""
        return self

    def map(self, f: Callable[[Any], Any]) -> QuantizedParam:
        """The parameter with ``f`` of the floats, quantised again. Lazy stays lazy."""
        return _quantized(self.dense().map(f), self.scheme)

    def init_mapper(self, f: Callable[[Any], Any]) -> QuantizedParam:
        """As :meth:`map`."""
        return self.map(f)

    def load_mapper(self, f: Callable[[Any], Any], stored_shape: Any = None) -> QuantizedParam:
        """As ``Param.load_mapper``, for the floats."""
        return self._over(self._handle.load_mapper(f, stored_shape))

    def save_mapper(self, f: Callable[[Any], Any], stored_shape: Any = None) -> QuantizedParam:
        """As ``Param.save_mapper``, for the floats."""
        return self._over(self._handle.save_mapper(f, stored_shape))

    def transform_for_load(
        self, tensor: Any, id: int | None = None, dtype: Any = None
    ) -> QuantizedParam:
        """As ``Param.transform_for_load``: floats come, and are quantised."""
        return _quantized(self.dense().transform_for_load(tensor, id, dtype), self.scheme)

    def transform_for_save(self) -> Param[Any]:
        """As ``Param.transform_for_save``: the floats. Files of a module keep values and scales."""
        return self.dense().transform_for_save()

    def consume(self) -> Any:
        """Refused: a value of the caller's would be floats.

        Raises:
            LazyParamError: always.
        """
        raise LazyParamError(
            "consume() is for what is stored as it is read",
            path=self.path,
            remedy="Call dense() first, or change the floats by map(f).",
        )

    def __repr__(self) -> str:
        path = f"{self.path}: " if self.path else ""
        extents = ", ".join(map(str, self.shape))
        return (
            f"QuantizedParam({path}{self.dtype}[{extents}] as {self.scheme}, {self.device}, "
            f"{self.values.state})"
        )

    def _over(self, handle: Param[Any]) -> QuantizedParam:
        return QuantizedParam(self.values, self.scales, self.scheme, handle)


class _Packed:
    """What values and scales are made of, once for both: the source, read and quantised."""

    def __init__(self, source: Param[Any], scheme: Scheme, calibration: Calibration | None) -> None:
        self.source = source
        self.scheme = scheme
        self.calibration = calibration
        self.packed = Lazy(self._pack)

    def _pack(self) -> QuantArray:
        try:
            floats = self.source.base()
            ranges = None if self.calibration is None else self.calibration(floats, self.scheme)
            return quantize(floats, self.scheme, absmax=ranges)
        except QuantizeError as error:
            if error.path is None:
                error.path = self.source.path
            raise

    def __reduce__(self) -> Any:
        return (_Packed, (self.source, self.scheme, self.calibration))


class _Part:
    """The initialiser of values or scales."""

    def __init__(self, packed: _Packed, name: str) -> None:
        self.packed = packed
        self.name = name

    def __call__(self, plan: Plan) -> Any:
        host = np.asarray(self.packed.packed.value.arrays[self.name])
        return backend_of(plan.device).from_host(host, plan.device, False)

    def __repr__(self) -> str:
        return f"{self.packed.scheme} of {self.packed.source!r}"


class _Dequantized:
    """The initialiser of a plain parameter with the floats of a quantised one."""

    def __init__(self, source: QuantizedParam) -> None:
        self.source = source

    def __call__(self, plan: Plan) -> Any:
        value = self.source.val()
        if backend_holding(value).device_of(value) == plan.device:
            return value
        # The integers may be of another library than the one where the floats are needed.
        return Param.initialized(value, device=plan.device).base()

    def __repr__(self) -> str:
        return f"floats of {self.source.scheme}"


def _quantized(
    param: Param[Any], scheme: Scheme, calibration: Calibration | None = None
) -> QuantizedParam:
    """`param` quantised: lazily if it is lazy.

    Raises:
        QuantizeError: if `scheme` cannot do that.
    """
    try:
        values, scales = scheme.layout(param.shape, param.dtype)
    except QuantizeError as error:
        error.path = param.path
        raise
    packed = _Packed(param.clone(), scheme, calibration)

    def part(name: str, shape: Sequence[int], dtype: str, id: int | None) -> Param[Any]:
        init = _Part(packed, name)
        made: Param[Any] = Param(shape, init, dtype, param.device, requires_grad=False, id=id)
        if param.path is not None:
            made._found_at(_tree.join(param.path, name))
        return made

    made = QuantizedParam(
        part("values", values, scheme.values_dtype, param.id),
        part("scales", scales, scheme.scale_dtype, None),
        scheme,
        param._emptied(),
    )
    if param.is_initialized:
        made.base()
    return made


class Quantizer:
    """Which parameters of a module are quantised, and how (Burn's ``Quantizer``).

    Args:
        scheme: such as ``lp.quant.nf4()``.
        group: of the float parameters, which; a text is a glob. None is all of them, biases and
            norms among them.
        calibration: takes the floats and the scheme, and gives what counts as the largest magnitude
            of each block; floats beyond are clipped. None is ``lazyparam.quant.calibrate``, the
            largest there is (Burn's ``Calibration::MinMax``).
    """

    def __init__(
        self,
        scheme: Scheme,
        group: GroupLike | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        if not isinstance(scheme, Scheme):
            raise QuantizeError(
                "this is no scheme",
                expected="one of lazyparam.quant: q8s(...), q4s(...), nf4(...)",
                found=repr(scheme),
            )
        if calibration is not None and not callable(calibration):
            raise QuantizeError(
                "a calibration is a function of floats and scheme",
                found=repr(calibration),
                remedy="lazyparam.quant.calibrate is the usual one, and the default.",
            )
        self.scheme = scheme
        self.group = group
        self.calibration = calibration

    def __call__(self, module: M) -> M:
        """The module with these parameters quantised; lazy ones stay lazy.

        Tied parameters are quantised once and stay tied; what is quantised already stays as it is.

        Raises:
            GroupError: if `group` selects nothing.
            QuantizeError: if the scheme does not fit a parameter.
        """
        is_wanted = choose(module, self.group, flags=False)
        return substitute_quantized(
            module, lambda param: self.scheme if is_wanted(param) else None, self.calibration
        )

    def __repr__(self) -> str:
        group = "" if self.group is None else f", {self.group!r}"
        calibration = "" if self.calibration is None else f", calibration={self.calibration!r}"
        return f"Quantizer({self.scheme}{group}{calibration})"


def substitute_quantized(
    module: M,
    scheme_of: Callable[[Param[Any]], Scheme | None],
    calibration: Calibration | None = None,
) -> M:
    """`module` with its float parameters quantised as `scheme_of` says; None leaves one as it is.

    Raises:
        QuantizeError: if a scheme does not fit its parameter.
    """
    made: dict[int, QuantizedParam] = {}

    def change(path: str, param: Any) -> Any:
        if isinstance(param, AdaptedParam):
            return param._over(change(path, param._base))
        if not isinstance(param, Param) or param.kind != "float":
            return param
        scheme = scheme_of(param)
        if scheme is None:
            return param
        first = made.get(param._tie)
        if first is not None:
            return first.clone()._over(param._emptied())  # its own mappers
        return made.setdefault(param._tie, _quantized(param, scheme, calibration))

    return _tree.substitute(module, change)


def quantize_weights(module: M, scheme: Scheme, group: GroupLike | None = None) -> M:
    """The module with its float parameters quantised, or those of a group: see :class:`Quantizer`.

    >>> import lazyparam as lp
    >>> p = {"w": lp.Param((2, 64), lp.init.normal()), "b": lp.Param(2, lp.init.zeros())}
    >>> q = lp.quantize_weights(p, lp.quant.nf4(), "w")
    >>> q["w"].nbytes, q["w"].is_initialized, q["b"] is p["b"]
    (72, False, True)
    """
    return Quantizer(scheme, group)(module)
