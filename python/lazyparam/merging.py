"""Merging: adapters folded into what is stored, for good or until it is undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

from . import _tree
from ._core import Param
from .devices import backend_holding
from .errors import ModuleError
from .reparam import AdaptedParam, Reparameterization, materialize

__all__ = ["MergedParam", "merge", "merge_errors", "unmerge"]

M = TypeVar("M")


class MergedParam(AdaptedParam):
    """A parameter with its adapters folded in that remembers what it was before.

    It reads, trains and is saved as the plain parameter that merging gives; :func:`unmerge` gives
    back the adapted one. That costs the memory of both.

    Args:
        merged: the plain parameter.
        original: the adapted one.
    """

    def __init__(self, merged: Any, original: AdaptedParam) -> None:
        super().__init__(merged, {})
        self._original = original

    @property
    def original(self) -> AdaptedParam:
        """What was merged, as it was then; on the device of this one and in its context."""
        original, device = self._original, self.device
        if original.device != device:
            original = original.to_device(device)
        if original.device.is_autodiff != device.is_autodiff:
            original = original.train() if device.is_autodiff else original.valid()
        return original

    def with_reparameterization(
        self, reparameterization: Reparameterization, name: str | None = None
    ) -> AdaptedParam:
        """Refused: undoing the merge would lose it.

        Raises:
            ModuleError: always.
        """
        raise ModuleError(
            "this parameter has adapters merged into it that are to be taken out again",
            path=self.path,
            remedy="unmerge() it first, or merge it for good: materialize().",
        )

    def with_active(self, *names: str) -> Self:
        """Itself: what was merged is merged.

        Raises:
            ModuleError: if there are `names`: nothing is attached.
        """
        self._insist(names)
        return self

    def materialize(self) -> Param[Any]:
        """The plain parameter: merged for good."""
        return self._base.materialize()  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"MergedParam({self._base!r}, {', '.join(self._original.reparameterizations)})"

    def _over(self, base: Any) -> Self:
        return type(self)(base, self._original)

    def _replaced(self, parts: Sequence[tuple[str, object, object]]) -> Self:
        return self._over(parts[0][2])


def merge(module: M, *, undoable: bool = False) -> M:
    """`module` with the active adapters folded into what its parameters store.

    Low precision is computed in float32 and rounded once (:func:`merge_errors` says what that
    costs). A lazy parameter stays lazy. This module stays as it is.

    Args:
        module: a Module, or whatever leads to parameters.
        undoable: keep the adapted parameters, for :func:`unmerge` to give back.

    Raises:
        ModuleError: if nothing is attached to any parameter.
    """
    if not any(_is_adapted(param) for _, param in _tree.places(module)):
        raise ModuleError("there is nothing to merge: no parameter has an adapter")
    merged = materialize(module)
    if not undoable:
        return merged
    plain = dict(_tree.places(merged))

    def keep(path: str, param: Any) -> Any:
        return MergedParam(plain[path], param) if _is_adapted(param) else param

    return _tree.substitute(module, keep, once=False)


def unmerge(module: M) -> M:
    """`module` as it was before ``merge(module, undoable=True)``: the very same base and adapters.

    What was done to the merged values in between is gone; a module that was moved, or entered
    training, stays there.

    Raises:
        ModuleError: if no parameter was merged so.
    """
    originals: dict[int, Any] = {}

    def undo(_: str, param: Any) -> Any:
        if not isinstance(param, MergedParam):
            return param
        return originals.setdefault(id(param._original), param.original)

    if not any(isinstance(param, MergedParam) for _, param in _tree.places(module)):
        raise ModuleError(
            "there is nothing to unmerge",
            expected="a module that merge(..., undoable=True) gave",
        )
    return _tree.substitute(module, undo)


def merge_errors(module: object) -> Mapping[str, float]:
    """What rounding costs when `module` is merged, by path.

    It is the greatest absolute difference between the merged value and the effective one, which is
    computed in float32 or wider: 0 unless that is rounded. Brings the parameters into being.
    """
    return {path: _error_of(param) for path, param in _tree.places(module) if _is_adapted(param)}


def _error_of(param: AdaptedParam) -> float:
    fold, base = param._fold(), param.valid()._base.val()
    backend = backend_holding(base)
    exact = backend.to_host(fold.exact(base)).astype("float64")
    merged = backend.to_host(fold(base)).astype("float64")
    return float(abs(exact - merged).max(initial=0.0))


def _is_adapted(param: object) -> bool:
    return isinstance(param, AdaptedParam) and not isinstance(param, MergedParam)
