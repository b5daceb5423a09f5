"""The shape of trees: which attributes of a module lead to parameters, and by which path.

A *container* is a Module, a list, a tuple, a dict or a dataclass; a *leaf* is a Param, or a Flag,
which only those hear of who ask; everything else is a constant. Containers are walked in the order
in which they were filled. A container that leads to no parameter is a constant too, unless it is a
Module.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from ._core import Param
from .errors import ModuleError
from .flags import Flag

T = TypeVar("T")


class Branch:
    """Base class of modules; here so that trees can be walked without knowing modules."""

    def _children(self) -> Iterator[tuple[str, object]]:
        """The names and values of what it holds, in order."""
        return _attributes(self)

    def _replaced(self, parts: Sequence[tuple[str, object, object]]) -> object:
        """A copy in which the parts, given as name, old and new value, are the new ones."""
        new = _copy_branch(self)
        for name, was, now in parts:
            if was is not now:
                object.__setattr__(new, name, now)
        return new


class _Here(str):
    """A type of its own, so that the name is not that of a dict's empty key."""


HERE = _Here()
"""The name of a compound's part that has the path of the whole."""


class Compound(Branch):
    """A branch that stands in a tree where a parameter could, and reads as one."""


class Leaf(NamedTuple):
    """A parameter and the dotted path that leads to it."""

    path: str
    param: Param[Any]


class Watcher:
    """Told of every container on the way; the base of visitors and mappers."""

    def enter_module(self, name: str, container_type: str) -> None:
        """A container called `name` begins; `container_type` is the name of its type."""

    def exit_module(self, name: str, container_type: str) -> None:
        """It ends."""


_LEAVES = (Param, Flag)
_CONTAINERS = (Branch, list, tuple, dict)
_NO_CONTAINERS = (set, frozenset, deque)


def is_container(node: object) -> bool:
    """Whether `node` may lead to parameters."""
    return isinstance(node, _CONTAINERS) or (
        dataclasses.is_dataclass(node) and not isinstance(node, type)
    )


def children(node: object) -> Iterator[tuple[str, object]]:
    """The names and values that the container `node` holds, in order."""
    if isinstance(node, Branch):
        yield from node._children()
    elif isinstance(node, dict):
        for key, value in node.items():
            yield str(key), value
    elif isinstance(node, list | tuple):
        # A named tuple's elements go by their names, any other's by their places.
        names = getattr(node, "_fields", None) or map(str, range(len(node)))
        yield from zip(names, node, strict=True)
    else:
        for field in dataclasses.fields(node):  # type: ignore[arg-type]
            if hasattr(node, field.name):
                yield field.name, getattr(node, field.name)


def _attributes(node: object) -> Iterator[tuple[str, object]]:
    for kind in reversed(type(node).__mro__):
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(node, name):
                yield name, getattr(node, name)
    yield from list(getattr(node, "__dict__", {}).items())


def walk(root: object) -> list[Leaf]:
    """Every parameter under `root`, tied ones at each of their paths.

    Raises:
        ModuleError: if `root` contains itself, or two parameters have one path.
    """
    leaves: list[Leaf] = []
    visit(root, lambda path, param: leaves.append(Leaf(path, param)))
    return leaves


def visit(
    root: object,
    look: Callable[[str, Param[Any]], object],
    watcher: Watcher | None = None,
    look_at_flag: Callable[[str, Flag], object] | None = None,
) -> None:
    """Call `look` with every parameter under `root`, `look_at_flag` with every flag.

    Raises as :func:`walk`.
    """
    seen: set[str] = set()

    def once(path: str, leaf: Param[Any] | Flag) -> None:
        if path in seen:
            raise ModuleError("two parameters have this path", path=path)
        if not path.isascii() and any("\ud800" <= char <= "\udfff" for char in path):
            raise ModuleError(
                "this path is no valid text (a lone surrogate)",
                path=ascii(path),
                remedy="Give that attribute or key a name that UTF-8 can encode.",
            )
        seen.add(path)
        if isinstance(leaf, Param):
            look(path, leaf)
        elif look_at_flag is not None:
            look_at_flag(path, leaf)

    if isinstance(root, _LEAVES):
        once("", root)
    elif is_container(root):
        _descend(root, "", set(), once, watcher)
    else:
        raise ModuleError(
            "this leads to no parameters",
            expected="a Module, list, tuple, dict or dataclass",
            found=type(root).__name__,
        )


def parts(root: object) -> dict[str, tuple[str | int, ...]]:
    """The names and places that make up each parameter's path: exact where dots are not."""
    found: dict[str, tuple[str | int, ...]] = {}

    def descend(node: object, path: str, above: tuple[str | int, ...]) -> None:
        for key, (name, child) in zip(_keys(node), children(node), strict=True):
            here = join(path, name)
            keys = above if name is HERE else (*above, key)
            if isinstance(child, Param):
                found[here] = keys
            elif is_container(child):
                descend(child, here, keys)

    walk(root)
    descend(root, "", ())
    return found


def _keys(node: object) -> Iterator[str | int]:
    """What tells the children of a container apart: names, and places of sequences."""
    if isinstance(node, list | tuple) and not hasattr(node, "_fields"):
        yield from range(len(node))
    elif isinstance(node, dict):
        for key in node:
            # Paths have places of 64 bits; a longer number is as good a name.
            is_place = type(key) is int and -(2**63) <= key < 2**63
            yield key if is_place else str(key)
    else:
        for name, _ in children(node):
            yield name


def unique(leaves: Iterable[Leaf]) -> Iterator[Leaf]:
    """The leaves without those that are tied to an earlier one."""
    seen: set[int] = set()
    for leaf in leaves:
        if leaf.param._tie not in seen:
            seen.add(leaf.param._tie)
            yield leaf


def name_params(root: object) -> None:
    """Tell every parameter under `root` its path, for messages."""
    for leaf in unique(walk(root)):
        leaf.param._found_at(leaf.path)


def rebuild(
    root: T,
    change: Callable[[str, Param[Any]], Param[Any]],
    watcher: Watcher | None = None,
    path: str = "",
    change_flag: Callable[[str, Flag], Flag] | None = None,
) -> T:
    """`root` with every parameter changed, and every flag; `root` itself stays as it is.

    What is shared stays shared: a container in two places becomes one new container, tied
    parameters are changed once and stay tied, and one flag in two places stays one. `path` is that
    of `root`.

    Raises:
        ModuleError: as :func:`walk`; or if `change` returns something else than a Param, or
            `change_flag` something else than a Flag.
    """
    walk(root)
    rebuilding = _Rebuilding(change, watcher or Watcher(), change_flag)
    return rebuilding.container(path, root)  # type: ignore[return-value]


def substitute(root: T, change: Callable[[str, Any], object], *, once: bool = True) -> T:
    """`root` with what `change` makes of everything that stands for one parameter: Params and
    compounds, which are not looked into. Each object is changed once, or else once for each place
    in the containers, which are gone through once in any case.

    Raises:
        ModuleError: as :func:`walk`.
    """
    walk(root)
    substituting = _Substituting(change, once)
    if isinstance(root, Param | Compound):
        return substituting.node("", "", root)  # type: ignore[return-value]
    return substituting.container("", root)  # type: ignore[return-value]


def places(root: object) -> list[tuple[str, Any]]:
    """The path of everything that stands for one parameter, and the Param or compound there."""
    found: list[tuple[str, Any]] = []

    def note(path: str, node: Any) -> Any:
        found.append((path, node))
        return node

    substitute(root, note, once=False)
    return found


def join(path: str, name: str) -> str:
    """The path of `name` under `path`."""
    if name is HERE:
        return path
    return f"{path}.{name}" if path else name


def _descend(
    node: object,
    path: str,
    above: set[int],
    look: Callable[[str, Param[Any] | Flag], object],
    watcher: Watcher | None,
) -> None:
    """Look at all under the container `node`; `above` are the containers that lead to it."""
    if id(node) in above:
        raise ModuleError(
            "this module contains itself",
            path=path,
            remedy="Keep a weak reference (weakref.ref) to a parent instead.",
        )
    above.add(id(node))
    for name, child in children(node):
        if isinstance(child, _LEAVES):
            look(join(path, name), child)
        elif is_container(child):
            kind = type(child).__name__
            if watcher is not None:
                watcher.enter_module(name, kind)
            _descend(child, join(path, name), above, look, watcher)
            if watcher is not None:
                watcher.exit_module(name, kind)
        elif isinstance(child, _NO_CONTAINERS):
            _refuse_hidden(join(path, name), child)
    above.discard(id(node))


def _refuse_hidden(path: str, node: Iterable[object]) -> None:
    """Refuse parameters in a collection that is not walked: they would be lost in silence."""
    if any(isinstance(item, (*_LEAVES, Branch)) for item in node):
        raise ModuleError(
            f"parameters in a {type(node).__name__} are not found",
            path=path,
            remedy="Use a list, a tuple, a dict or a dataclass.",
        )


class _Rebuilding:
    """One rebuild: what has been changed already, by identity."""

    def __init__(
        self,
        change: Callable[[str, Param[Any]], Param[Any]],
        watcher: Watcher,
        change_flag: Callable[[str, Flag], Flag] | None = None,
    ) -> None:
        self._change = change
        self._change_flag = change_flag
        self._watcher = watcher
        # The old objects are kept too, so that no id is used twice.
        self._containers: dict[int, tuple[object, object]] = {}
        self._handles: dict[int, tuple[Param[Any], Param[Any]]] = {}
        self._flags: dict[int, tuple[Flag, Flag]] = {}
        self._ties: dict[int, tuple[Param[Any], Param[Any]]] = {}

    def node(self, name: str, path: str, node: object) -> object:
        if isinstance(node, Param):
            return self.leaf(path, node)
        if isinstance(node, Flag):
            return self.flag(path, node)
        if not is_container(node):
            return node
        kind = type(node).__name__
        self._watcher.enter_module(name, kind)
        new = self.container(path, node)
        self._watcher.exit_module(name, kind)
        return new

    def leaf(self, path: str, old: Param[Any]) -> Param[Any]:
        if id(old) in self._handles:
            return self._handles[id(old)][1]
        first = self._ties.get(old._tie)
        if first is None or first[0].is_tied_to(first[1]):
            new = self._change(path, old)
            _insist(new, Param, "a mapper of parameters returns a parameter", path)
            new._found_at(path if first is None else first[1].path or path)
            self._ties.setdefault(old._tie, (old, new))
        else:
            new = old._retied(*first)
        self._handles[id(old)] = (old, new)
        return new

    def flag(self, path: str, old: Flag) -> Flag:
        if self._change_flag is None:
            return old
        if id(old) not in self._flags:
            new = self._change_flag(path, old)
            _insist(new, Flag, "a mapper of flags returns a flag", path)
            self._flags[id(old)] = (old, new)
        return self._flags[id(old)][1]

    def container(self, path: str, old: object) -> object:
        if id(old) in self._containers:
            return self._containers[id(old)][1]
        new = [
            (name, child, self.node(name, join(path, name), child)) for name, child in children(old)
        ]
        changed = isinstance(old, Branch) or any(was is not now for _, was, now in new)
        made = _replace(old, new) if changed else old
        self._containers[id(old)] = (old, made)
        return made


class _Substituting(_Rebuilding):
    """A rebuild in which anything may come in the place of a parameter."""

    def __init__(self, change: Callable[[str, Any], object], once: bool) -> None:
        super().__init__(lambda _, param: param, Watcher())
        self._substitute = change
        self._once = once
        self._made: dict[int, tuple[object, object]] = {}

    def node(self, name: str, path: str, node: object) -> object:
        if not isinstance(node, Param | Compound):
            return super().node(name, path, node)
        if not self._once:
            return self._substitute(path, node)
        if id(node) not in self._made:
            self._made[id(node)] = (node, self._substitute(path, node))
        return self._made[id(node)][1]


def _insist(made: object, kind: type, rule: str, path: str) -> None:
    if not isinstance(made, kind):
        raise ModuleError(rule, path=path, expected=kind.__name__, found=type(made).__name__)


def _replace(old: Any, parts: list[tuple[str, object, object]]) -> object:
    """A copy of the container `old` with the parts that changed."""
    if isinstance(old, Branch):
        return old._replaced(parts)
    values = [now for _, _, now in parts]
    if isinstance(old, tuple):
        make = getattr(old, "_make", None)  # a named tuple
        return make(values) if make is not None else type(old)(values)
    new: Any = copy.copy(old)
    if isinstance(old, dict):
        for key, value in zip(old, values, strict=True):
            new[key] = value
    elif isinstance(old, list):
        new[:] = values
    else:
        for name, was, now in parts:
            if was is not now:
                object.__setattr__(new, name, now)
    return new


def _copy_branch(old: Branch) -> Branch:
    """A shallow copy that runs nothing of the user's."""
    new = object.__new__(type(old))
    for name, value in _attributes(old):
        object.__setattr__(new, name, value)
    return new
