"""Gradients by parameter, and the leaves that record them.

A parameter that is read in an autodiff context hands out a leaf, and the library's own machinery
does the rest: ``loss.backward()`` and an optimiser over the leaves, or :func:`gradients`, which
leaves no trace. Nothing here names a library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, overload

from . import _tree, pytrees, selection
from ._core import Param
from .devices import backend_of
from .errors import AutodiffUnsupported, DeviceError, ModuleError
from .places import Place
from .selection import GroupLike

__all__ = ["Grads", "gradients", "grads_of", "leaves_of"]


class Grads(Mapping[int, Any]):
    """Gradients by the ids of parameters; a parameter stands for its id. Never changes.

    A parameter keeps its id through moves, maps, training and loading, so what was computed with
    one module can be looked up with another that was made from it. Parameters without a gradient
    are absent.

    Args:
        gradients: from ids to gradients, whatever those are.

    >>> import lazyparam as lp
    >>> weight, bias = lp.Param(2, lp.init.ones()), lp.Param(2, lp.init.zeros())
    >>> grads = lp.Grads({weight.id: [0.5, 0.25]})
    >>> grads[weight], grads[weight.id], weight.clone() in grads
    ([0.5, 0.25], [0.5, 0.25], True)
    >>> grads.get(bias) is None
    True
    """

    __slots__ = ("_gradients",)

    def __init__(self, gradients: Mapping[int, Any]) -> None:
        self._gradients = dict(gradients)

    @classmethod
    def from_tree(cls, tree: object) -> Grads:
        """The gradients in `tree`: a module of them, as ``jax.grad`` gives one."""
        return _collected(((path, at), value) for path, at, value in pytrees.values_in(tree))

    def __getitem__(self, param: Param[Any] | Place | int) -> Any:
        try:
            return self._gradients[_id_of(param)]
        except KeyError:
            raise KeyError(f"no gradient of {param!r}") from None

    @overload
    def get(self, param: Param[Any] | Place | int, default: None = None) -> Any: ...
    @overload
    def get(self, param: Param[Any] | Place | int, default: Any) -> Any: ...
    def get(self, param: Param[Any] | Place | int, default: Any = None) -> Any:
        """The gradient of a parameter, or `default` if it has none."""
        return self._gradients.get(_id_of(param), default)

    def __contains__(self, param: object) -> bool:
        return _id_of(param) in self._gradients

    def __iter__(self) -> Iterator[int]:
        return iter(self._gradients)

    def __len__(self) -> int:
        return len(self._gradients)

    def __repr__(self) -> str:
        return f"Grads({len(self)} gradients, for {', '.join(map(str, self)) or 'nothing'})"


def _id_of(param: object) -> Any:
    return param.id if isinstance(param, Param | Place) else param


def gradients(
    loss: Any, module: object, *, retain_graph: bool = False, create_graph: bool = False
) -> Grads:
    """The gradients of `loss` by the parameters of `module`; nothing is added to any leaf.

    Args:
        loss: what the module gave in training, a scalar of its library.
        module: a Module, or whatever leads to parameters, in training: see :meth:`Module.train`.
        retain_graph: keep what the library has recorded, to go through it again.
        create_graph: record the gradients too, for gradients of gradients.

    Returns:
        One gradient for each parameter on which the loss depends, tied ones once.

    Raises:
        DeviceError: if a parameter that is to be trained is read untracked.
        AutodiffUnsupported: if its library does not record gradients.
        ModuleError: if `loss` is none, or depends on no parameter of `module`.
    """
    wanted = _trained(module)
    if not wanted:
        return Grads({})
    leaves = [leaf.param.val() for leaf in wanted]
    backend = backend_of(wanted[0].param.device)
    if not backend.owns(loss):
        raise ModuleError(
            "this is no loss",
            expected=f"{backend.array_type} that was computed with the module",
            found=type(loss).__name__,
        )
    found = backend.gradients(loss, leaves, retain_graph, create_graph)
    if all(gradient is None for gradient in found):
        raise ModuleError(
            "the loss depends on no parameter of this module",
            remedy="Use the module that computed it: copies and loaded modules have leaves of "
            "their own.",
        )
    return _collected(zip(wanted, found, strict=True))


def leaves_of(
    module: object, group: GroupLike | None = None, allow_missing: bool = False
) -> list[Any]:
    """The leaves of :meth:`Module.leaves`."""
    chosen = selection.choose(module, group, allow_missing=allow_missing, flags=False)
    return [leaf.param.val() for leaf in _trained(module, chosen)]


def grads_of(module: object) -> Grads:
    """The gradients of :meth:`Module.grads`."""
    return _collected((leaf, leaf.param.grad()) for leaf in _trained(module))


def _trained(
    module: object, chosen: Callable[[Param[Any]], bool] = lambda _: True
) -> list[_tree.Leaf]:
    """The parameters of `module` that are to be trained and are read tracked, tied ones once."""
    active = (leaf for leaf in _tree.walk(module) if leaf.param.is_active and chosen(leaf.param))
    # One of several tied ones may be frozen: then another stands for them.
    wanted = list(_tree.unique(active))
    for path, param in wanted:
        if not backend_of(param.device).records_gradients:
            raise AutodiffUnsupported(
                f"arrays on {param.device} do not record gradients",
                path=path,
                remedy='Move the module to a device that does, such as "torch:cpu", or freeze() '
                "what is not to be trained. On JAX, use jax.grad and Module.partition().",
            )
        if not param.device.is_autodiff:
            raise DeviceError(
                "this parameter is read untracked",
                path=path,
                expected="an autodiff context",
                found=f"{param.device} outside of one",
                remedy="Use the module that module.train() returns.",
            )
    return wanted


def _collected(found: Any) -> Grads:
    """Gradients by id; a parameter without one is left out."""
    paths: dict[int, str] = {}
    gradients: dict[int, Any] = {}
    for (path, param), gradient in found:
        if gradient is None:
            continue
        if (first := paths.setdefault(param.id, path)) != path:
            raise ModuleError(
                "two parameters that are not tied have one id, so their gradients cannot be told "
                "apart by it",
                path=path,
                found=f"the id of {first!r}",
                remedy="Read their own: param.grad(). Copies of a module keep the ids.",
            )
        gradients[param.id] = gradient
    return Grads(gradients)
