"""Magnitudes apart from directions: weight norm, and the magnitude that DoRA needs too.

A magnitude follows from its base: it is the norm of each of the base's rows. So it is a *dependent*
parameter, as lazy as the base: made when it is first needed, once, of whatever the base is by then.
"""

from __future__ import annotations

from typing import Any, Self, cast

from . import _core
from ._core import Param, State
from .devices import backend_holding
from .errors import ModuleError, PickleError
from .reparam import Reparameterization
from .standins import StandIn

__all__ = ["NormOf", "WeightNorm", "in_wider", "magnitude_of", "with_magnitude"]


def in_wider(x: Any, other: Any) -> Any:
    """`x` in the dtype of the array `other` if that holds all its numbers, else as it is."""
    backend = backend_holding(x)
    _, mine = backend.meta(x)
    _, wanted = backend_holding(other).meta(other)
    return x if mine == wanted or not _core.widens(mine, wanted) else backend.as_dtype_of(x, other)


def squared_norms(value: Any, axis: int) -> Any:
    """The squared norm of what lies at each place of `axis`; the other axes stay, with extent 1."""
    others = tuple(at for at in range(value.ndim) if at != axis)
    return (value * value).sum(axis=others, keepdims=True)


def with_magnitude(value: Any, magnitude: Any, axis: int, through_norm: bool = True) -> Any:
    """`value` with other norms along `axis`, in the wider dtype; where it is zero it stays zero.

    Gradients pass the norm of `value` unless told otherwise.
    """
    value = in_wider(value, magnitude)
    squares = squared_norms(value, axis)
    norms = (squares + (squares == 0)) ** 0.5
    if not through_norm:
        norms = backend_holding(norms).detach(norms)
    # Exactly one where the magnitude is the norm, so what is attached anew changes no bit.
    return value * (magnitude / norms)


class NormOf:
    """The initialiser of a magnitude: the norms of a base, which it brings into being.

    Args:
        base: the parameter.
        axis: the axis whose places have a norm each.
    """

    def __init__(self, base: Any, axis: int) -> None:
        self.base = base
        self.axis = axis

    def __call__(self, plan: _core.Plan) -> Any:
        base = self.base.valid()
        if base.device != plan.device:
            base = base.to_device(plan.device)
        value = base.val()
        backend = backend_holding(value)
        if backend.meta(value)[1] != plan.dtype:
            value = backend.cast(value, plan.dtype)
        return squared_norms(value, self.axis) ** 0.5


def magnitude_of(base: Any, axis: int, magnitude: Any = None, dtype: str | None = None) -> Any:
    """The magnitude for `base`: the one there is, unless that is still to follow from a base.

    Args:
        base: the parameter that the magnitude is for.
        axis: the axis whose places have a norm each.
        magnitude: the one that there is.
        dtype: of a new one; that of the base, and at least float32, if not given.
    """
    if magnitude is None:
        _insist_on_matrix(base, axis)
        shape = tuple(extent if at == axis else 1 for at, extent in enumerate(base.shape))
        widest = base.dtype if base.dtype == "float64" else "float32"
        return Param(shape, NormOf(base, axis), dtype or widest, base.device)
    source = _source_of(magnitude)
    if source is None or base.is_tied_to(source):
        return magnitude
    again = Param(
        magnitude.shape,
        NormOf(base, axis),
        magnitude.dtype,
        magnitude.device,
        magnitude.requires_grad,
        magnitude.id,
    )
    if magnitude.path is not None:
        again._found_at(magnitude.path)
    return again


def _insist_on_matrix(base: Any, axis: int) -> None:
    if base.kind not in ("float", "quantised") or base.ndim < 2 or not 0 <= axis < base.ndim:
        raise ModuleError(
            "this has no rows to take norms of",
            path=base.path,
            expected=f"floats with two axes or more, among them {axis}",
            found=f"{base.dtype} of shape {base.shape}",
        )


def _source_of(magnitude: Any) -> Any:
    """The base that `magnitude` will be the norm of, or None if it will not, or is there.

    Moving it changes nothing of that; loading it does, and so does a function of the user's.
    """
    if not isinstance(magnitude, Param) or magnitude.is_initialized:
        return None
    if NormOf.__name__ not in magnitude.state:
        return None
    # Its recipe, as a pickle would have it.
    _, (origin, *_) = cast(Any, magnitude.__reduce__())
    try:
        while isinstance(origin, State):
            _, (_, origin, ready, _, derived) = cast(Any, origin.__reduce__())
            if ready or any(steps for _, steps in derived):
                return None
    except PickleError:
        return None
    return origin.base if isinstance(origin, NormOf) else None


class WeightNorm(Reparameterization):
    """Magnitude and direction apart (Salimans and Kingma 2016): ``magnitude · base / ‖base‖``.

    Both are trained: gradients reach the base and the magnitude. Attached, it changes nothing: the
    magnitude begins as the norm of the base. It is made when it is first read, and until then it
    follows the base: seeding or loading that is as if the norm had been attached afterwards.

    Args:
        axis: the axis whose places have a norm each: 0 for the rows of a matrix.
        magnitude: one that there is already.

    >>> import lazyparam as lp
    >>> p = lp.Param((2, 2), lp.init.constant(3)).with_reparameterization(lp.WeightNorm())
    >>> p.value.tolist(), p.reparameterization("weight_norm").magnitude.shape
    ([[3.0, 3.0], [3.0, 3.0]], (2, 1))
    """

    NAME = "weight_norm"

    def __init__(self, axis: int = 0, magnitude: Param[Any] | None = None) -> None:
        self.magnitude: Any = magnitude
        self.axis = axis

    def fitted(self, base: Param[Any] | StandIn) -> Self:
        """As :meth:`Reparameterization.fitted`; gives the magnitude that `base` calls for."""
        magnitude = magnitude_of(base, self.axis, self.magnitude)
        if magnitude is self.magnitude:
            return self
        return self._replaced([("magnitude", self.magnitude, magnitude)])  # type: ignore[return-value]

    def apply(self, base: Any) -> Any:
        """The direction of the stored value, with the magnitude."""
        value = with_magnitude(base, self.magnitude.value, self.axis)
        return backend_holding(value).as_dtype_of(value, base)
