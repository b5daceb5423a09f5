"""``StandIn``: the base of what stands in a module where a parameter could, and reads as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from . import _host, _tree
from ._core import Device, Param
from .devices import backend_holding

if TYPE_CHECKING:
    import numpy as np

__all__ = ["StandIn"]


def _of_base(name: str, doc: str) -> Any:
    """A property that the base answers."""
    return property(lambda self: getattr(self._base, name), doc=doc)


class StandIn(_tree.Compound, ABC):
    """Something around a parameter, its *base*, that reads as a parameter does.

    What is free to ask is asked of the base, which has the path of the whole. Verbs reach the base
    and whatever else is within, and give another of the kind.
    """

    def __init__(self, base: Any) -> None:
        self._base = base

    # ---- what is free to ask --------------------------------------------------------------------

    id = _of_base("id", "Identity.")
    shape = _of_base("shape", "Extents, in elements.")
    stored_shape = _of_base("stored_shape", "The shape in files.")
    ndim = _of_base("ndim", "Number of dimensions.")
    size = _of_base("size", "Number of elements.")
    dtype = _of_base("dtype", "Name of the element type.")
    kind = _of_base("kind", "What the elements are.")
    device = _of_base("device", "Where the value is, or will be.")
    nbytes = _of_base("nbytes", "Bytes that the stored value takes in memory, or will take.")
    is_initialized = _of_base("is_initialized", "Whether the stored value is in being.")
    requires_grad = _of_base("requires_grad", "The wish to train it.")
    is_active = _of_base("is_active", "The wish, for elements that can train.")
    path = _of_base("path", "The dotted path by which a module last reached it, or None.")
    state = _of_base("state", "How the stored value will come into being, or ``ready``.")

    def is_tied_to(self, other: Any) -> bool:
        """Whether this and `other` share their one coming-into-being."""
        return bool(self._base.is_tied_to(other._base if isinstance(other, StandIn) else other))

    # ---- reading --------------------------------------------------------------------------------

    @abstractmethod
    def val(self, timeout: float | None = None) -> Any:
        """The value."""

    @property
    def value(self) -> Any:
        """The value, as an attribute; see ``val``."""
        return self.val()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        value = self.val()
        backend = backend_holding(value)
        return _host.export(backend.to_host(backend.detach(value)), dtype, copy)

    # ---- verbs ----------------------------------------------------------------------------------

    def no_grad(self) -> Any:
        """``set_requires_grad(False)``."""
        return self.set_requires_grad(False)

    @abstractmethod
    def set_requires_grad(self, requires_grad: bool) -> Any:
        """The parameter with another wish to train."""

    def to_device(self, device: str | Device | object) -> Self:
        """The parameter on `device`, with all within it. Lazy stays lazy."""
        return self._each(lambda param: param.to_device(device))

    def fork(self, device: str | Device | object) -> Self:
        """As :meth:`to_device`, and always with states of their own."""
        return self._each(lambda param: param.fork(device))

    def valid(self) -> Self:
        """The parameter for validation: all within it is read untracked."""
        return self._each(lambda param: param.valid())

    def train(self) -> Self:
        """The parameter for training: undoes :meth:`valid`."""
        return self._each(lambda param: param.train())

    def clone(self, independent: bool = False) -> Self:
        """Another handle; see ``Param.clone``."""
        return self._each(lambda param: param.clone(independent=independent))

    def __copy__(self) -> Self:
        return self.clone()

    # ---- as a branch of the tree --------------------------------------------------------------

    @abstractmethod
    def _children(self) -> Iterator[tuple[str, object]]: ...

    @abstractmethod
    def _replaced(self, parts: Sequence[tuple[str, object, object]]) -> Self: ...

    def _each(self, change: Callable[[Param[Any]], Param[Any]]) -> Self:
        return _tree.rebuild(self, lambda _, param: change(param), path=self.path or "")
