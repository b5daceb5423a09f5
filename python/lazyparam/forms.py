"""Trees taken apart into values and a *form*, and put together again around anything.

The form is everything but the values: classes, names, constants, and of each parameter identity,
wish and mappers. Forms compare and hash, and keep no value alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from . import _tree
from ._core import Param
from .backends import Backend
from .devices import backend_holding
from .errors import InitError, LazyParamError
from .places import Content, Place

__all__ = ["LEAF", "Form", "Leaf", "Look", "is_trained", "refilled"]

M = TypeVar("M")

Leaf: TypeAlias = Param[Any] | Place
LEAF = (Param, Place)


class Look:
    """One look at a tree: its leaves in order, and the rest as a key to compare.

    Attributes:
        root: the tree.
        leaves: each parameter and place once.
        numbers: where each is in `leaves`, by `id`.
        groups: the same, tied ones together.
        paths: of the groups, where each was seen first.
        shape: everything else, hashable.
    """

    def __init__(self, root: object) -> None:
        self.root = root
        self.leaves: list[Leaf] = []
        self.numbers: dict[int, int] = {}
        self.groups: list[list[Leaf]] = []
        self.paths: list[str] = []
        self._group_of: dict[int, int] = {}
        self._seen: dict[int, tuple[Any, ...] | None] = {}
        self.shape = self._leaf(root, "") if isinstance(root, LEAF) else self._container(root, "")

    def form(self) -> Form:
        """The form of the tree: the same object for as long as somebody holds it.

        Raises:
            ModuleError: if the tree cannot be walked.
        """
        key = _Key((self.shape, tuple(map(_traits_of, self.leaves))))
        told = tuple(map(_told_by, self.leaves))
        form = _forms.get((key, told))
        if form is None:
            form = _forms[key, told] = Form(key, self)
        return form

    def _leaf(self, leaf: Leaf, path: str) -> tuple[Any, ...]:
        number = self.numbers.get(id(leaf))
        if number is None:
            number = self.numbers[id(leaf)] = len(self.leaves)
            self.leaves.append(leaf)
            group = self._group_of.setdefault(leaf._tie, len(self.groups))
            if group == len(self.groups):
                self.groups.append([])
                self.paths.append(path)
            self.groups[group].append(leaf)
        return (number, self._group_of[leaf._tie])

    def _container(self, node: Any, path: str) -> tuple[Any, ...] | None:
        """What a container adds to the key, or None if it leads to no leaf: a constant."""
        if id(node) in self._seen:
            return self._seen[id(node)]
        # Where it comes again, its number says that it is the same.
        self._seen[id(node)] = ("again", len(self._seen))
        parts: list[Any] = []
        is_form = isinstance(node, _tree.Branch)
        for name, child in _tree.children(node):
            part = None
            if isinstance(child, LEAF):
                part = self._leaf(child, _tree.join(path, name))
            elif _tree.is_container(child):
                part = self._container(child, _tree.join(path, name))
            is_form = is_form or part is not None
            parts += (name, _Constant(child) if part is None else part)
        if not is_form:
            self._seen[id(node)] = None
            return None
        # The names of a dict's keys do not tell 1 from "1".
        return (type(node), tuple(node) if isinstance(node, dict) else None, *parts)


def _traits_of(leaf: Leaf) -> tuple[Any, ...]:
    """What is compared of a parameter: what a traced function may go by, or hand on."""
    identity, wish, stored, load, save = leaf._traits
    if load or save:
        load, save = tuple(map(_Constant, load)), tuple(map(_Constant, save))
    return (identity, wish, leaf.device.is_autodiff, stored, load, save)


def _told_by(leaf: Leaf) -> tuple[Any, ...]:
    """What is not compared, but told by the places that a form leaves."""
    handle = handle_of(leaf)
    return (handle.shape, handle.dtype, handle.device)


def handle_of(leaf: Leaf) -> Param[Any]:
    """The parameter that speaks for a leaf."""
    return leaf._handle if isinstance(leaf, Place) else leaf


class _Constant:
    """Anything in a tree that is no leaf, as a part of a key: lists as they are now, and so on."""

    __slots__ = ("value",)

    def __init__(self, value: object, outer: tuple[int, ...] = ()) -> None:
        self.value = _snapshot(value, outer)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Constant):
            return NotImplemented
        one, two = self.value, other.value
        if one is two:
            return True
        if type(one) is not type(two):
            return False
        if isinstance(one, float) and isinstance(two, float):
            # Signed zeros are not the same to a function; a NaN is the same as itself.
            return one.hex() == two.hex()
        try:
            answer = one == two
        except Exception:
            # Arrays within, say: they answer with arrays.
            return False
        return isinstance(answer, bool | np.bool_) and bool(answer)

    def __hash__(self) -> int:
        try:
            return hash(self.value)
        except Exception:
            return hash(type(self.value))


class _Snapshot(NamedTuple):
    """What a container holds just now; the container itself may change."""

    kind: type
    parts: object


def _snapshot(value: Any, outer: tuple[int, ...]) -> object:
    kind = type(value)
    if kind not in _COPIES or id(value) in outer:
        return value
    outer = (*outer, id(value))
    if kind is dict:
        pairs = ((_Constant(key, outer), _Constant(each, outer)) for key, each in value.items())
        return _Snapshot(kind, tuple(pairs))
    parts = (_Constant(each, outer) for each in value)
    return _Snapshot(kind, tuple(parts) if kind in (list, tuple) else frozenset(parts))


def _apart(value: Any, outer: tuple[int, ...] = ()) -> Any:
    """`value`; or a copy, if it is a container that its owner may change."""
    copied = _COPIES.get(type(value))
    if copied is None or id(value) in outer:
        return value
    return copied(value, (*outer, id(value)))


_COPIES: dict[type, Callable[[Any, tuple[int, ...]], object]] = {
    list: lambda value, outer: [_apart(each, outer) for each in value],
    tuple: lambda value, outer: tuple(_apart(each, outer) for each in value),
    dict: lambda value, outer: {key: _apart(each, outer) for key, each in value.items()},
    set: lambda value, outer: set(value),
    frozenset: lambda value, outer: value,
}


class _Key:
    """A key whose hash is made once."""

    __slots__ = ("_hash", "parts")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        self._hash = hash(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.parts == other.parts

    def __hash__(self) -> int:
        return self._hash


class Form:
    """A tree with a place for each parameter, to be filled any number of times.

    Attributes:
        paths: of the groups of tied parameters; one value goes with each.
    """

    __slots__ = ("__weakref__", "_group_of", "_key", "_template", "paths")

    def __init__(self, key: _Key, look: Look) -> None:
        if not isinstance(look.root, LEAF):
            _tree.walk(look.root)  # refuses what cannot be walked
        self._key = key
        self.paths = tuple(look.paths)
        self._group_of: dict[int, int] = {}
        contents = [Content() for _ in look.groups]

        def empty(path: str, leaf: Leaf) -> Place:
            group = look._group_of[leaf._tie]
            # A place of its own, without the value: forms live long.
            handle = handle_of(leaf)._emptied()
            handle._found_at(path)
            is_stopped = not leaf.is_active and is_trained(look.groups[group])
            place = Place(handle, contents[group], is_stopped)
            self._group_of[id(place)] = group
            return place

        self._template: Any = refilled(look.root, empty, apart=True)

    def filled(self, values: Sequence[Any]) -> Any:
        """The tree around one value for each group: arrays as parameters, the rest in places."""
        firsts: list[tuple[Param[Any], Param[Any] | Content] | None] = [None] * len(values)

        def fill(path: str, place: Place) -> Leaf:
            group = self._group_of[id(place)]
            first = firsts[group]
            if first is None:
                value = values[group]
                made = _param_over(value, place._handle) or Content(value)
                first = firsts[group] = (place._handle, made)
            handle, made = first
            if isinstance(made, Content):
                return Place(place._handle, made, place._is_stopped)
            if handle is place._handle:
                return made
            tied = place._handle._retied(handle, made)
            tied._found_at(path)
            return tied

        return refilled(self._template, fill, apart=True)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Form) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        each = [
            f"{place.path or ''}: id {place.id}, {'wanted' if place.requires_grad else 'frozen'}"
            for place in Look(self._template).leaves
        ]
        return f"{type(self._template).__name__}({'; '.join(each)})"


_forms: WeakValueDictionary[tuple[_Key, Any], Form] = WeakValueDictionary()


def is_trained(group: Sequence[Leaf]) -> bool:
    """Whether gradients reach tied parameters: one that wants them is enough."""
    return any(leaf.is_active for leaf in group)


def refilled(root: M, fill: Callable[[str, Any], Leaf], apart: bool = False) -> M:
    """`root` with what `fill` makes of each parameter and place, asked once for each.

    `apart` says that constants are not to change with those of `root`: lists and the like are
    copied.
    """
    if isinstance(root, LEAF):
        return fill("", root)  # type: ignore[return-value]
    return _Refilling(fill, apart).container("", root)  # type: ignore[return-value]


class _Refilling(_tree._Rebuilding):
    """A rebuild in which places count as parameters, and either may become the other."""

    def __init__(self, fill: Callable[[str, Any], Leaf], apart: bool) -> None:
        super().__init__(lambda _, param: param, _tree.Watcher())
        self._fill = fill
        self._is_apart = apart
        self._filled: dict[int, Leaf] = {}

    def node(self, name: str, path: str, node: object) -> object:
        if not isinstance(node, LEAF):
            made = super().node(name, path, node)
            return _apart(made) if self._is_apart and made is node else made
        if id(node) not in self._filled:
            self._filled[id(node)] = self._fill(path, node)
        return self._filled[id(node)]


_backends: dict[type, Backend | None] = {}
"""Whose arrays the objects of a type are, if anybody's: JAX has many markers of its own."""


def _param_over(value: Any, handle: Param[Any]) -> Param[Any] | None:
    """`handle`'s parameter with `value`, or None if that is no array that a parameter can have."""
    kind = type(value)
    try:
        if kind not in _backends:
            _backends[kind] = _backend_holding(value)
        backend = _backends[kind]
        if backend is None:
            return None
        backend.check(value)
        if backend.is_public(value):
            return handle._holding(value, backend.device_of(value))
        wanted = handle.device
        if wanted.backend == backend.name and not getattr(value, "committed", True):
            # It is where JAX happens to make arrays, which is nobody's wish.
            value = backend.to_device(value, wanted)
        return Param.from_mapped_value(handle.id, value, handle._mapper())
    except LazyParamError:
        return None


def _backend_holding(value: object) -> Backend | None:
    try:
        return backend_holding(value)
    except InitError:
        return None
