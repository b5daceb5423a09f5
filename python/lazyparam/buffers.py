"""``Buffer``: an array of a module that is no parameter: it moves with it, and is never trained.

Running statistics, tables of frequencies, masks. What a buffer holds is declared like a parameter,
so it is lazy, shared, seeded and moved like one; but it always says how it comes into being.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from . import _tree
from ._core import Device, Init, Param, Plan
from .errors import DeclarationError, ModuleError
from .standins import StandIn

__all__ = ["Buffer", "named", "parameters", "stored"]


class Buffer(StandIn):
    """An array that belongs to a module and is not trained, whatever is frozen or unfrozen.

    It reads as a parameter does, has an identity, and every verb of a module reaches it. It is not
    among ``Module.parameters()``, but among ``Module.named_buffers()``. Immutable: verbs return
    new ones.

    Args:
        shape: extents.
        init: how it comes into being. There is no buffer without: one that no file has would be
            left with whatever was in memory.
        dtype: of its elements; ``float32`` if not given.
        device: where it will be.
        persistent: whether it is saved, loaded and recorded. One that is not is made by `init` in
            every process, and no load misses it.
        id: its identity, if it has one already.

    Raises:
        DeclarationError: as for ``Param``; and if there is no `init`.

    >>> import lazyparam as lp
    >>> class Norm(lp.Module):
    ...     def __init__(self):
    ...         self.scale = lp.Param(2, lp.init.ones())
    ...         self.mean = lp.Buffer(2, lp.init.zeros())
    ...         self.steps = lp.Buffer((), lp.init.zeros(), "int64", persistent=False)
    >>> norm = Norm().unfreeze()
    >>> norm
    Norm(
      scale: Param(float32[2], numpy:cpu, lazy: ones()),
      mean: Buffer(float32[2], numpy:cpu, lazy: zeros()),
      steps: Buffer(int64[], numpy:cpu, lazy: zeros(), not stored),
    )
    >>> [path for path, _ in norm.named_parameters()], list(norm.state_dict())
    (['scale'], ['scale', 'mean'])
    >>> norm.mean.map(lambda mean: mean + 1).value
    array([1., 1.], dtype=float32)
    """

    def __init__(
        self,
        shape: Any,
        init: Init | Callable[[Plan], Any],
        dtype: Any = None,
        device: str | Device | object | None = None,
        persistent: bool = True,
        id: int | None = None,
    ) -> None:
        if init is None:
            raise DeclarationError(
                "a buffer says how it comes into being",
                expected="one of lazyparam.init, or a function of the plan",
                found="None",
                remedy="What only a file can say belongs into a Param with requires_grad=False.",
            )
        super().__init__(Param(shape, init, dtype, device, requires_grad=False, id=id))
        self._persistent = bool(persistent)

    @classmethod
    def from_data(
        cls,
        data: Any,
        device: str | Device | object | None = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> Self:
        """A buffer with the numbers in `data`; see ``Param.from_data``."""
        return cls._of(Param.from_data(data, device, dtype), persistent)

    @classmethod
    def from_tensor(cls, tensor: Any, persistent: bool = True) -> Self:
        """A buffer with the value of `tensor` (copied), where that is."""
        return cls._of(Param.initialized(tensor), persistent)

    @classmethod
    def _of(cls, base: Param[Any], persistent: bool) -> Self:
        made = object.__new__(cls)
        made._base = _untrained(base)
        made._persistent = bool(persistent)
        return made

    # ---- what is free to ask --------------------------------------------------------------------

    @property
    def persistent(self) -> bool:
        """Whether it is saved, loaded and recorded."""
        return self._persistent

    def grad(self) -> None:
        """None: nothing trains a buffer."""

    # ---- reading --------------------------------------------------------------------------------

    def val(self, timeout: float | None = None) -> Any:
        """The value, brought into being if need be; see ``Param.val``."""
        return self._base.val(timeout)

    def base(self, timeout: float | None = None) -> Any:
        """As :meth:`val`."""
        return self._base.val(timeout)

    def into_value(self) -> Any:
        """As :meth:`val`."""
        return self._base.val()

    def __dlpack__(self, **asked: Any) -> Any:
        return self._base.__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._base.__dlpack_device__()
        return device

    # ---- verbs ----------------------------------------------------------------------------------

    def map(self, f: Callable[[Any], Any], shape: Any = None, dtype: Any = None) -> Self:
        """The buffer whose value is ``f`` of this one's; see ``Param.map``. Lazy stays lazy."""
        return self._over(self._base.map(f, shape, dtype))

    def init_mapper(self, f: Callable[[Any], Any], shape: Any = None, dtype: Any = None) -> Self:
        """As :meth:`map`."""
        return self._over(self._base.init_mapper(f, shape, dtype))

    def load_mapper(self, f: Callable[[Any], Any], stored_shape: Any = None) -> Self:
        """As ``Param.load_mapper``."""
        return self._over(self._base.load_mapper(f, stored_shape))

    def save_mapper(self, f: Callable[[Any], Any], stored_shape: Any = None) -> Self:
        """As ``Param.save_mapper``."""
        return self._over(self._base.save_mapper(f, stored_shape))

    def with_reparameterization(self, reparameterization: object, name: str | None = None) -> Any:
        """Refused: what is attached would be there to be trained.

        Raises:
            ModuleError: always.
        """
        raise ModuleError(
            "nothing is attached to a buffer",
            path=self.path,
            remedy="What is to be adapted is a Param; requires_grad=False freezes it.",
        )

    def set_requires_grad(self, requires_grad: bool) -> Self:
        """Another handle on this buffer, which is not trained whatever is wished."""
        return self.clone()

    def materialize(self) -> Self:
        """Another handle on this buffer: nothing is attached to it."""
        return self._over(self._base.materialize())

    def transform_for_load(self, tensor: Any, id: int | None = None, dtype: Any = None) -> Self:
        """As ``Param.transform_for_load``."""
        return self._over(self._base.transform_for_load(tensor, id, dtype))

    def transform_for_save(self) -> Param[Any]:
        """As ``Param.transform_for_save``."""
        saved: Param[Any] = self._base.transform_for_save()
        return saved

    def __repr__(self) -> str:
        path = f"{self.path}: " if self.path else ""
        extents = ", ".join(map(str, self.shape))
        kept = "" if self._persistent else ", not stored"
        return f"Buffer({path}{self.dtype}[{extents}], {self.device}, {self.state}{kept})"

    # ---- as a branch of the tree --------------------------------------------------------------

    def _children(self) -> Iterator[tuple[str, object]]:
        yield _tree.HERE, self._base

    def _replaced(self, parts: Sequence[tuple[str, object, object]]) -> Self:
        ((_, _, base),) = parts
        return self._over(base)

    def _over(self, base: object) -> Self:
        """The same around another base: whatever a verb did to that, it is not trained."""
        made: Self = _tree._copy_branch(self)  # type: ignore[assignment]
        made._base = _untrained(base)
        return made


def _untrained(base: object) -> Any:
    return base.set_requires_grad(False) if isinstance(base, Param) and base.requires_grad else base


# ---- over whole modules --------------------------------------------------------------------------


def named(root: object) -> Iterator[tuple[str, Buffer]]:
    """The paths and buffers under `root`, in order, shared ones at each of their paths.

    Raises:
        ModuleError: if `root` cannot be walked.
    """
    _tree.walk(root)
    return _found(root, "")


def _found(node: object, path: str) -> Iterator[tuple[str, Buffer]]:
    if isinstance(node, Buffer):
        yield path, node
    elif _tree.is_container(node):
        for name, child in _tree.children(node):
            yield from _found(child, _tree.join(path, name))


def parameters(root: object) -> list[_tree.Leaf]:
    """Every parameter under `root`, buffers left out; as ``_tree.walk``."""
    return _without(root, {path for path, _ in named(root)})


def stored(root: object) -> list[_tree.Leaf]:
    """Everything under `root` that files and records have: not what is not persistent."""
    return _without(root, {path for path, buffer in named(root) if not buffer.persistent})


def _without(root: object, paths: set[str]) -> list[_tree.Leaf]:
    # A buffer and its base have one path.
    return [leaf for leaf in _tree.walk(root) if leaf.path not in paths]
