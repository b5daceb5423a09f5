"""LoRA and DoRA: low-rank adapters, and attaching them to a module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Self, TypeAlias, TypeVar

from . import _core, _tree, init
from ._core import Param
from .buffers import Buffer
from .devices import backend_holding
from .errors import DeclarationError, ModuleError
from .norms import in_wider, magnitude_of, with_magnitude
from .reparam import AdaptedParam, Reparameterization
from .standins import StandIn
from .targets import Target, selected

__all__ = ["DoraAdapter", "Layout", "LoraAdapter", "apply_lora", "insist_on_layout"]

M = TypeVar("M")

Layout: TypeAlias = Literal["OI", "IO"]
"""Whether outputs are the rows of a matrix, as in torch, or its columns."""


class LoraAdapter(Reparameterization):
    """Adds a matrix of low rank (Hu et al. 2021): ``base + scale · a @ b``.

    Computed in the wider dtype of base and factors, and rounded to the base's. A base with other
    than two axes gets the product in its own shape.

    Args:
        a: the factor on the left, of shape (rows, rank).
        b: the factor on the right, of shape (rank, columns).
        scale: usually alpha / rank.
        layout: which axis of the base is which; files need to know.

    Raises:
        ModuleError: if the factors do not go together; or, when it is attached, if their product
            has not as many elements as the base.
    """

    NAME = "lora"

    def __init__(self, a: Any, b: Any, scale: float = 1.0, layout: Layout = "OI") -> None:
        _insist_on_factors(a, b)
        insist_on_layout(layout)
        self.a, self.b = a, b
        self.scale = float(scale)
        self.layout = layout

    @property
    def rank(self) -> int:
        """Columns of `a`, rows of `b`."""
        return int(self.a.shape[1])

    def fitted(self, base: Any) -> Self:
        """As :meth:`Reparameterization.fitted`; insists on the shapes."""
        factors = (self.a, self.b)
        if all(isinstance(factor, Param) for factor in factors):
            _insist_on_fit(base, self.a, self.b)
        return self

    def apply(self, base: Any) -> Any:
        """The stored value and the product."""
        value = self._sum(base)
        return backend_holding(value).as_dtype_of(value, base)

    def product(self, x: Any, layout: str) -> Any:
        """Two thin products, in the wider dtype of inputs and factors."""
        a, b = (in_wider(factor.value, x) for factor in (self.a, self.b))
        first, second = (b.T, a.T) if layout == "OI" else (a, b)
        x = in_wider(x, first)
        if x.dtype != first.dtype or first.dtype != second.dtype:
            return None  # neither is the wider one: the effective value knows what to do
        return (x @ first) * self.scale @ second

    def _sum(self, base: Any) -> Any:
        """Base and product in the wider dtype."""
        # The scale goes into the thin factor, not over the whole product.
        a, b = (in_wider(factor.value, base) for factor in (self.a, self.b))
        delta = (a * self.scale) @ b
        if delta.shape != base.shape:
            delta = delta.reshape(base.shape)
        return in_wider(base, delta) + delta


class DoraAdapter(LoraAdapter):
    """LoRA on the direction of a weight, whose magnitude is trained apart (Liu et al. 2024).

    The effective value is ``magnitude · v / ‖v‖`` with ``v = base + scale · a @ b``; the norms are
    those of each output's weights, and gradients do not pass them (section 4.3 of the paper). The
    magnitude begins as the norm of the base; see :class:`WeightNorm`.

    Args:
        a: as for LoRA.
        b: as for LoRA.
        scale: as for LoRA.
        layout: which axis of the base has the outputs.
        magnitude: one that there is already.
    """

    NAME = "dora"

    def __init__(
        self,
        a: Any,
        b: Any,
        scale: float = 1.0,
        layout: Layout = "OI",
        magnitude: Param[Any] | None = None,
    ) -> None:
        super().__init__(a, b, scale, layout)
        self.magnitude: Any = magnitude

    def fitted(self, base: Any) -> Self:
        """As :meth:`Reparameterization.fitted`; gives the magnitude that `base` calls for."""
        super().fitted(base)
        magnitude = magnitude_of(base, self._axis, self.magnitude)
        if magnitude is self.magnitude:
            return self
        return self._replaced([("magnitude", self.magnitude, magnitude)])  # type: ignore[return-value]

    def apply(self, base: Any) -> Any:
        """The direction of the sum, with the magnitude."""
        magnitude = self.magnitude.value
        value = with_magnitude(self._sum(base), magnitude, self._axis, through_norm=False)
        return backend_holding(value).as_dtype_of(value, base)

    # The norms are those of the whole sum.
    product = Reparameterization.product

    @property
    def _axis(self) -> int:
        return self.layout.index("O")


def _insist_on_factors(a: Any, b: Any) -> None:
    shapes = tuple(tuple(getattr(factor, "shape", ())) for factor in (a, b))
    if any(len(shape) != 2 for shape in shapes) or shapes[0][1] != shapes[1][0]:
        raise ModuleError(
            "these are no two factors",
            expected="parameters of shapes (rows, rank) and (rank, columns)",
            found=f"{shapes[0]} and {shapes[1]}",
        )


def _insist_on_fit(base: Any, a: Param[Any], b: Param[Any]) -> None:
    product = (a.shape[0], b.shape[1])
    fits = base.shape == product if base.ndim == 2 else base.size == math.prod(product)
    if not fits:
        raise ModuleError(
            "the product of the factors does not have the shape of the base",
            path=base.path,
            expected=f"{base.shape}, or as many elements if that is no matrix",
            found=f"{a.shape} @ {b.shape} = {product}",
        )


def insist_on_layout(layout: object) -> None:
    """Raise DeclarationError unless `layout` is one of a matrix."""
    if layout not in ("OI", "IO"):
        raise DeclarationError(
            "there is no such layout of a matrix",
            expected='"OI" (rows are outputs) or "IO"',
            found=repr(layout),
        )


# ---- attaching -----------------------------------------------------------------------------------


def apply_lora(
    module: M,
    r: int = 8,
    alpha: float = 16.0,
    target: Target = "*",
    *,
    dtype: str | None = None,
    init_std: float | None = None,
    rslora: bool = False,
    dora: bool = False,
    name: str = "lora",
    layout: Layout = "OI",
    tied: Literal["refuse", "share", "untie"] = "refuse",
) -> M:
    """`module` with its floats frozen, and LoRA adapters on the matrices that `target` means.

    Nothing comes into being. As long as nobody trains it the output stays what it was: the factor
    by the outputs begins as zeros. The other is drawn from N(0, 1/r²), natively, so
    ``Module.seed`` decides it. What other adapters there are stay as they are.

    Args:
        module: a Module, or whatever leads to parameters.
        r: the rank.
        alpha: the scale, times the rank (times its root with `rslora`).
        target: paths, globs, a function of path and parameter, or a group. Of what it means,
            matrices of floats get adapters, quantised ones too.
        dtype: of the factors; the base's if not given (of a quantised one, that of its floats), or
            float32 if that is narrower than 16 bits.
        init_std: standard deviation of the drawn factor, instead of 1/r.
        rslora: scale by alpha/√r (Kalajdzievski 2023).
        dora: attach DoRA adapters.
        name: what the adapters are called.
        layout: ``"OI"`` if the rows of the matrices are outputs, as in torch, or ``"IO"``.
        tied: what to do with a target that is tied to another parameter: refuse it, ``"share"`` one
            adapter between all places, or ``"untie"``: adapt the places that are meant only.

    Raises:
        DeclarationError: if a number makes no sense.
        ModuleError: if the target means nothing that can be adapted, or something tied.

    >>> import lazyparam as lp
    >>> model = {"q": lp.Param((8, 8), lp.init.normal()), "bias": lp.Param(8, lp.init.zeros())}
    >>> adapted = lp.apply_lora(model, r=2, target="q")
    >>> [path for path, param in lp.Module.named_parameters(adapted) if param.requires_grad]
    ['q.lora.a', 'q.lora.b']
    """
    make = _Making(r, alpha, dtype, init_std, rslora, dora, layout)
    module = _frozen(module)
    places = _tree.places(module)
    meant = dict(_adaptable(target, places))
    owners = _owners(places, meant, tied)
    if dora and len(owners) > len(set(owners.values())):
        raise ModuleError(
            "DoRA adapters are not shared between tied parameters",
            remedy='Use tied="untie", or adapt with LoRA.',
        )
    nodes: dict[int | str, Reparameterization] = {}

    def change(path: str, param: Any) -> Any:
        if path not in owners:
            return param
        owner = owners[path]
        if owner not in nodes:
            nodes[owner] = make.adapter(param)
        return param.with_reparameterization(nodes[owner], name)

    adapted = _tree.substitute(module, change, once=False)
    _tree.name_params(adapted)
    return adapted


class _Making:
    """What all adapters of one call have in common."""

    def __init__(
        self,
        r: int,
        alpha: float,
        dtype: str | None,
        init_std: float | None,
        rslora: bool,
        dora: bool,
        layout: Layout,
    ) -> None:
        _insist_on_numbers(r, alpha)
        if dtype is not None and _core.dtype_kind(dtype) != "float":
            raise DeclarationError("factors are floats", found=f"dtype={dtype!r}")
        insist_on_layout(layout)
        self._rank = r
        self._scale = alpha / (math.sqrt(r) if rslora else r)
        self._dtype = dtype
        self._drawn = init.normal(std=1 / r if init_std is None else init_std)
        self._class = DoraAdapter if dora else LoraAdapter
        self._layout: Layout = layout

    def adapter(self, base: Any) -> LoraAdapter:
        """A new adapter for `base`, where that is or will be."""
        dtype = self._dtype or factor_dtype(base)
        rows, columns = base.shape
        inits = (init.zeros(), self._drawn)
        first, second = inits if self._layout == "OI" else reversed(inits)
        a = Param((rows, self._rank), first, dtype, base.device)
        b = Param((self._rank, columns), second, dtype, base.device)
        return self._class(a, b, self._scale, self._layout)


def _insist_on_numbers(r: object, alpha: object) -> None:
    if not isinstance(r, int) or isinstance(r, bool) or r < 1:
        raise DeclarationError("a rank is an int from 1 on", found=f"r={r!r}")
    if not isinstance(alpha, int | float) or not math.isfinite(alpha) or alpha <= 0:
        raise DeclarationError("alpha is a finite number above 0", found=f"alpha={alpha!r}")


def factor_dtype(base: Any) -> str:
    """The dtype of factors for `base`, unless somebody chooses."""
    is_wide = base.kind in ("float", "quantised") and _core.dtype_size(base.dtype) > 1
    return str(base.dtype) if is_wide else "float32"


def _frozen(module: M) -> M:
    """`module` with its floats frozen, but for the parameters of what is attached."""
    attached = {
        id(leaf.param)
        for _, param in _tree.places(module)
        if isinstance(param, AdaptedParam)
        for node in param.reparameterizations.values()
        for leaf in _tree.walk(node)
    }

    def freeze(_: str, param: Param[Any]) -> Param[Any]:
        if id(param) in attached or param.kind not in ("float", "complex"):
            return param
        return param.set_requires_grad(False)

    return _tree.rebuild(module, freeze) if _tree.is_container(module) else freeze("", module)  # type: ignore


def _adaptable(target: Target, places: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The places that get an adapter."""
    meant = selected(target, places)
    matrices = [(path, param) for path, param in meant if _is_matrix(param)]
    named = {target} if isinstance(target, str) else set()
    if isinstance(target, list | tuple | set | frozenset):
        named.update(target)
    others = [(path, param) for path, param in meant if not _is_matrix(param)]
    wrong = [(path, param) for path, param in others if path in named]
    if wrong or not matrices:
        raise ModuleError(
            "the target means nothing that can be adapted"
            if not wrong
            else "this parameter cannot be adapted",
            path=wrong[0][0] if wrong else None,
            expected="a matrix of floats",
            found=", ".join(
                f"{path!r} ({param.dtype} of shape {param.shape})"
                for path, param in (wrong or others)[:5]
            )
            or "nothing",
        )
    return matrices


def _is_matrix(param: Param[Any] | StandIn) -> bool:
    if isinstance(param, Buffer):
        return False
    return param.kind in ("float", "quantised") and param.ndim == 2


def _owners(
    places: Sequence[tuple[str, Any]], meant: dict[str, Any], tied: str
) -> dict[str, int | str]:
    """Path -> whose adapter it gets: its own, or that of all places that are tied to it."""
    if tied not in ("refuse", "share", "untie"):
        raise DeclarationError(
            "there is no such way with tied parameters",
            expected='"refuse", "share" or "untie"',
            found=repr(tied),
        )
    if tied == "untie":
        return {path: path for path in meant}
    groups: dict[int, list[str]] = {}
    for path, param in places:
        groups.setdefault(_tie_of(param), []).append(path)
    owners: dict[str, int | str] = {}
    for path, param in meant.items():
        together = groups[_tie_of(param)]
        if len(together) > 1 and tied == "refuse":
            raise ModuleError(
                "this parameter is tied, so an adapter would change another place or untie it",
                path=path,
                found=f"one parameter at {', '.join(map(repr, together))}",
                remedy='Choose: tied="share" adapts all of them as one, tied="untie" only this '
                "one; or leave it out of the target.",
            )
        owners.update(dict.fromkeys(together, _tie_of(param)))
    return owners


def _tie_of(param: Any) -> int:
    while isinstance(param, StandIn):
        param = param._base
    return int(param._tie)
