"""Modules as JAX's trees: values are what it maps, traces and differentiates, the form is the rest.

A module is taken apart as a whole, so that tied parameters are one leaf. JAX is not imported here
before somebody has imported it, or asks for something of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar

from . import _host, _tree
from ._core import Param
from .devices import when_loaded
from .errors import BackendMissing, ModuleError, RecordError
from .forms import Form, Leaf, Look, handle_of, is_trained, refilled
from .places import Content, Place

__all__ = ["abstract", "combine", "partition", "refuse_occupied", "register", "values_in"]

M = TypeVar("M")

_registered: set[type] = set()


def register(kind: type) -> None:
    """Make `kind`, a class of modules, a tree for JAX, if somebody has imported that.

    Called for each new module: so it is quick where there is nothing to do.
    """
    if kind not in _registered and sys.modules.get("jax.tree_util") is not None:
        _register(kind)


def _register(kind: type) -> None:
    from jax.tree_util import register_pytree_with_keys

    # Somebody may have: another thread just now, or its author, who knows better.
    with suppress(ValueError):
        register_pytree_with_keys(kind, _flatten_with_keys, _unflatten, _flatten)
    _registered.add(kind)


def _register_all() -> None:
    """Make trees of all classes of modules that there are, of parameters and of places."""
    for kind in chain((Param, Place), _below(_tree.Branch)):
        if kind not in _registered:
            _register(kind)


def _below(kind: type) -> Iterator[type]:
    derived: type
    for derived in kind.__subclasses__():
        yield derived
        yield from _below(derived)


when_loaded("jax", _register_all)


def _flatten(root: object) -> tuple[tuple[Any, ...], Form]:
    look = Look(root)
    # First, since it refuses what is no tree: nothing has come into being by then.
    form = look.form()
    return tuple(_value_of(group[0]) for group in look.groups), form


def _flatten_with_keys(root: object) -> tuple[tuple[tuple[Any, Any], ...], Form]:
    from jax.tree_util import GetAttrKey

    values, form = _flatten(root)
    keys = (GetAttrKey(path or "value") for path in form.paths)
    return tuple(zip(keys, values, strict=True)), form


def _unflatten(form: Form, values: Iterable[Any]) -> Any:
    return form.filled(tuple(values))


def _value_of(leaf: Leaf) -> Any:
    return leaf._content.value if isinstance(leaf, Place) else leaf.val()


# ---- verbs ---------------------------------------------------------------------------------------


def partition(module: M) -> tuple[M, M]:
    """Two modules: one with the parameters to train, one with the others; see ``Module``."""
    _jax()
    look = Look(module)
    trained = {leaf._tie for group in look.groups if is_trained(group) for leaf in group}
    nothing: dict[int, Content] = {}

    def in_first(path: str, leaf: Leaf) -> Leaf:
        return leaf if leaf._tie in trained else absent(path, leaf)

    def in_second(path: str, leaf: Leaf) -> Leaf:
        return absent(path, leaf) if leaf._tie in trained else leaf

    def absent(path: str, leaf: Leaf) -> Place:
        return _placed(path, leaf, nothing.setdefault(leaf._tie, Content()))

    return refilled(module, in_first), refilled(module, in_second)


def combine(first: M, *others: M) -> M:
    """The module whose parts these are: the two of ``Module.partition``, in any order.

    Works on lazy parameters, on parameters in being, and on tracers: within a function that JAX
    differentiates it puts the traced part and the other together. Constants are those of the first.

    Raises:
        ModuleError: if these are not parts of one module, or two have the same parameter.
    """
    look = Look(first)
    leaves = list(look.leaves)
    for other in others:
        beside = Look(other)
        if beside.shape != look.shape or _ids_of(beside) != _ids_of(look):
            raise ModuleError(
                "these are not parts of one module",
                expected=f"another part of {look.form()!r}",
                found=repr(beside.form()),
                remedy="Combine what one call of partition() gave, or trees mapped from it.",
            )
        leaves = [_either(*pair) for pair in zip(leaves, beside.leaves, strict=True)]
    return refilled(first, lambda _, leaf: leaves[look.numbers[id(leaf)]])


def _ids_of(look: Look) -> list[int]:
    return [leaf.id for leaf in look.leaves]


def _either(one: Leaf, other: Leaf) -> Leaf:
    if isinstance(one, Place) and not one.is_initialized:
        return other
    if isinstance(other, Place) and not other.is_initialized:
        return one
    raise ModuleError("this parameter is in both parts", path=one.path)


def abstract(module: M) -> M:
    """`module` with shapes and dtypes (``jax.ShapeDtypeStruct``) in the place of values."""
    outline = _jax().ShapeDtypeStruct
    contents: dict[int, Content] = {}

    def place(path: str, leaf: Leaf) -> Place:
        if leaf._tie not in contents:
            contents[leaf._tie] = Content(outline(leaf.shape, _host.dtype(leaf.dtype)))
        return _placed(path, leaf, contents[leaf._tie])

    return refilled(module, place)


def values_in(tree: object) -> Iterator[tuple[str, Leaf, Any]]:
    """Path, parameter or place, and value, where there is one; tied ones once."""
    look = Look(tree)
    for path, group in zip(look.paths, look.groups, strict=True):
        value = _value_of(group[0])
        if value is not None:
            yield path, group[0], value


def refuse_occupied(root: object) -> None:
    """Refuse places with something in them: a verb that takes parameters would pass over them.

    Raises:
        RecordError: at the first.
    """
    for leaf in Look(root).leaves:
        if isinstance(leaf, Place) and leaf.is_initialized:
            raise RecordError(
                "what is here cannot be stored",
                path=leaf.path,
                expected="an array on one device",
                found=leaf.state,
                remedy="Return the module from the traced function; jax.device_put(module, device) "
                "brings arrays to one device.",
            )


def _placed(path: str, leaf: Leaf, content: Content) -> Place:
    handle = handle_of(leaf)._emptied()
    handle._found_at(path)
    return Place(handle, content, leaf._is_stopped if isinstance(leaf, Place) else False)


def _jax() -> Any:
    """JAX, to which all modules are trees by now.

    Raises:
        BackendMissing: if it is not installed.
    """
    try:
        import jax
    except ImportError as error:
        raise BackendMissing(
            f"this is for JAX, which cannot be imported ({error})".partition("\n")[0],
            remedy="pip install jax",
        ) from error
    _register_all()
    return jax
