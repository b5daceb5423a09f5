"""Modules as JAX's trees: parameters are what it maps, traces and differentiates, all else is form.

A module is taken apart as a whole. Its *children* are the values of its parameters, tied ones once;
its *form* is everything else: classes, names, constants, and of each parameter identity, wish and
mappers. Two modules of one form are one to ``jax.jit``, which then does not trace again. A module is
put together from a form and anything: arrays become parameters again, the rest is left in places.

JAX is not imported here before somebody has imported it, or asks for something of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from . import _host, _tree
from ._core import Param
from .backends import Backend
from .devices import backend_holding, when_loaded
from .errors import BackendMissing, InitError, LazyParamError, ModuleError, RecordError
from .places import Content, Place

__all__ = ["abstract", "by_id", "combine", "partition", "refuse_occupied", "register"]

M = TypeVar("M")

Leaf = Param[Any] | Place
_LEAF = (Param, Place)


# ---- what JAX is told ----------------------------------------------------------------------------

_registered: set[type] = set()


def register(kind: type) -> None:
    """Make `kind`, a class of modules, a tree for JAX, if somebody has imported that.

    Called for each new module: so it is quick where there is nothing to do.
    """
    if kind not in _registered and sys.modules.get("jax.tree_util") is not None:
        _register(kind)


def _register(kind: type) -> None:
    from jax.tree_util import register_pytree_with_keys

    try:
        register_pytree_with_keys(kind, _flatten_with_keys, _unflatten, _flatten)
    except ValueError:
        # Somebody has: another thread just now, or its author, who knows better.
        pass
    _registered.add(kind)


def register_all() -> None:
    """Make trees of all classes of modules there are, of parameters and of places.

    Raises:
        BackendMissing: if JAX is not installed.
    """
    try:
        import jax.tree_util  # noqa: F401
    except ImportError as error:
        raise BackendMissing(
            "this needs JAX, which cannot be imported",
            found=f"{type(error).__name__}: {error}".partition("\n")[0],
            remedy="pip install jax",
        ) from error
    for kind in chain((Param, Place), _below(_tree.Branch)):
        if kind not in _registered:
            _register(kind)


def _below(kind: type) -> Iterator[type]:
    for derived in kind.__subclasses__():
        yield derived
        yield from _below(derived)


when_loaded("jax", register_all)


def _flatten(root: Any) -> tuple[tuple[Any, ...], Form]:
    look = _Look(root)
    return tuple(_content_of(group[0]) for group in look.groups), look.form()


def _flatten_with_keys(root: Any) -> tuple[tuple[tuple[Any, Any], ...], Form]:
    from jax.tree_util import GetAttrKey

    children, form = _flatten(root)
    keys = (GetAttrKey(path or "value") for path in form.paths)
    return tuple(zip(keys, children, strict=True)), form


def _unflatten(form: Form, children: Any) -> Any:
    return form.filled_with(children)


def _content_of(leaf: Leaf) -> Any:
    return leaf._content.value if isinstance(leaf, Place) else leaf.val()


# ---- verbs ---------------------------------------------------------------------------------------


def partition(module: M) -> tuple[M, M]:
    """Two modules: one with the parameters to train, one with the others; see ``Module``."""
    register_all()
    look = _Look(module)
    trained = {leaf._tie for group in look.groups if _is_trained(group) for leaf in group}
    nothing: dict[int, Content] = {}

    def part(is_trained: bool) -> M:
        def pick(path: str, leaf: Leaf) -> Leaf:
            if (leaf._tie in trained) is is_trained:
                return leaf
            return Place(_handle_of(leaf), nothing.setdefault(leaf._tie, Content()))

        return _Refilling(pick).whole(module)

    return part(True), part(False)


def combine(first: M, *others: M) -> M:
    """The module whose parts these are: the two of ``Module.partition``, in any order.

    Works on lazy parameters, on parameters in being, and on tracers: within a function that JAX
    differentiates it puts the traced part and the other together. Constants are those of the first.

    Raises:
        ModuleError: if these are not parts of one module, or two have the same parameter.
    """
    look = _Look(first)
    leaves = list(look.leaves)
    for other in others:
        beside = _Look(other)
        if beside.shape != look.shape or beside.ids != look.ids:
            raise ModuleError(
                "these are not parts of one module",
                expected=f"another part of {look.form()!r}",
                found=repr(beside.form()),
                remedy="Combine what one call of partition() gave, or trees mapped from it.",
            )
        leaves = [_either(*pair) for pair in zip(leaves, beside.leaves, strict=True)]
    numbers = look.numbers
    return _Refilling(lambda _, leaf: leaves[numbers[id(leaf)]]).whole(first)


def _either(one: Leaf, other: Leaf) -> Leaf:
    if isinstance(one, Place) and not one.is_initialized:
        return other
    if isinstance(other, Place) and not other.is_initialized:
        return one
    raise ModuleError("this parameter is in both parts", path=one.path)


def abstract(module: M) -> M:
    """`module` with shapes and dtypes (``jax.ShapeDtypeStruct``) in the place of values."""
    register_all()
    import jax

    contents: dict[int, Content] = {}

    def outline(path: str, leaf: Leaf) -> Place:
        if leaf._tie not in contents:
            contents[leaf._tie] = Content(jax.ShapeDtypeStruct(leaf.shape, _host.dtype(leaf.dtype)))
        return Place(_handle_of(leaf), contents[leaf._tie])

    return _Refilling(outline).whole(module)


def by_id(tree: object) -> Mapping[int, Any]:
    """The values in `tree`, a tree of gradients of a module, by the identity of parameters."""
    found = {}
    for leaf in _Look(tree).leaves:
        value = _content_of(leaf)
        if value is not None:
            found.setdefault(leaf.id, value)
    return found


def refuse_occupied(root: object) -> None:
    """Refuse places with something in them: a verb that takes parameters would pass over them.

    Raises:
        RecordError: at the first.
    """
    for leaf in _Look(root).leaves:
        if isinstance(leaf, Place) and leaf.is_initialized:
            raise RecordError(
                "what is here cannot be stored",
                path=leaf.path,
                expected="an array on one device",
                found=leaf.state,
                remedy="Return the module from the traced function; jax.device_put(module, device) "
                "brings arrays to one device.",
            )


def _is_trained(group: list[Leaf]) -> bool:
    """Whether gradients reach tied parameters: one that wants them is enough."""
    return any(leaf.is_active for leaf in group)


def _handle_of(leaf: Leaf) -> Param[Any]:
    """The parameter without a value, which would be kept as long as the form of a tree."""
    return leaf._handle if isinstance(leaf, Place) else leaf._emptied()


# ---- taking apart --------------------------------------------------------------------------------


class _Look:
    """One look at a tree: its leaves in order and its shape, as a key to compare.

    Attributes:
        leaves: each parameter or place once, in order.
        numbers: where each is in `leaves`, by `id`.
        groups: the same, tied ones together.
        paths: where each was seen first.
        shape: everything else, hashable.
    """

    def __init__(self, root: object) -> None:
        self.leaves: list[Leaf] = []
        self.numbers: dict[int, int] = {}
        self.groups: list[list[Leaf]] = []
        self.paths: list[str] = []
        self._root = root
        self._group_of: dict[int, int] = {}
        self._seen: dict[int, Any] = {}
        self.shape = self._leaf(root, "") if isinstance(root, _LEAF) else self._node(root, "")

    @property
    def ids(self) -> list[int]:
        """The identities of the leaves."""
        return [leaf.id for leaf in self.leaves]

    def form(self) -> Form:
        """The form of the tree: one object for as long as somebody holds it."""
        key = _Key((self.shape, tuple(map(_traits_of, self.leaves))))
        # What is not compared, but told by the places that are left.
        told = tuple(map(_told_by, self.leaves))
        form = _forms.get((key, told))
        if form is None:
            form = _forms[key, told] = Form(key, self)
        return form

    def _node(self, node: Any, path: str) -> Any:
        """The shape of a container, or None if it leads to no parameter."""
        number = id(node)
        if number in self._seen:
            return self._seen[number]
        # Its number stands for it where it comes again; there it is no parameter's first place.
        self._seen[number] = ("again", len(self._seen))
        before = len(self.leaves)
        parts: list[Any] = []
        for name, child in _tree.children(node):
            if isinstance(child, _LEAF):
                shape: Any = self._leaf(child, _tree.join(path, name))
            elif _tree.is_container(child):
                shape = self._node(child, _tree.join(path, name))
            else:
                shape = None
            parts += (name, _Constant(child) if shape is None else shape)
        kind = type(node)
        if len(self.leaves) == before and not self._is_form(node, parts):
            self._seen[number] = None
            return None
        # The names of a dict's keys do not tell 1 from "1".
        return (kind, tuple(node) if isinstance(node, dict) else None, *parts)

    @staticmethod
    def _is_form(node: object, parts: list[Any]) -> bool:
        """Whether a container is one for its own sake, or for leaves seen elsewhere before."""
        return isinstance(node, _tree.Branch) or any(type(part) is not _Constant for part in parts[1::2])

    def _leaf(self, leaf: Leaf, path: str) -> tuple[int, int]:
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


def _traits_of(leaf: Leaf) -> tuple[Any, ...]:
    identity, wish, stored, load, save = leaf._traits
    if load or save:
        load, save = tuple(map(_Constant, load)), tuple(map(_Constant, save))
    return (identity, wish, leaf.device.is_autodiff, stored, load, save)


def _told_by(leaf: Leaf) -> tuple[Any, ...]:
    handle = leaf._handle if isinstance(leaf, Place) else leaf
    return (handle.shape, handle.dtype, handle.device)


class _Constant:
    """Anything in a module that is no parameter, as a part of a key."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Constant):
            return NotImplemented
        one, other = self.value, other.value
        if one is other:
            return True
        if type(one) is not type(other):
            return False
        try:
            # Arrays answer with arrays.
            return (one == other) is True
        except Exception:
            return False

    def __hash__(self) -> int:
        try:
            return hash(self.value)
        except TypeError:
            return hash(type(self.value))

    def __repr__(self) -> str:
        return f"{self.value!r:.40}"


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


# ---- putting together ----------------------------------------------------------------------------


class Form:
    """What JAX keeps of a module: everything but the values. It keeps no value alive.

    Attributes:
        paths: of the children.
    """

    __slots__ = ("__weakref__", "_key", "_template", "paths")

    def __init__(self, key: _Key, look: _Look) -> None:
        root = look._root
        _check(root)
        self._key = key
        self.paths = tuple(look.paths)
        self._template = _Template(look)

    def filled_with(self, children: Any) -> Any:
        """A tree of this form around `children`, which may be anything."""
        return self._template.filled_with(tuple(children))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Form) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return repr(self._template)


_forms: WeakValueDictionary[tuple[_Key, Any], Form] = WeakValueDictionary()


class _Template:
    """A tree with an empty place for each parameter."""

    def __init__(self, look: _Look) -> None:
        contents = [Content() for _ in look.groups]
        number_of = {leaf._tie: at for at, group in enumerate(look.groups) for leaf in group}
        trained = [_is_trained(group) for group in look.groups]
        self._number_of: dict[int, int] = {}

        def empty(path: str, leaf: Leaf) -> Place:
            at = number_of[leaf._tie]
            handle = _handle_of(leaf)
            handle._found_at(path)
            place = Place(handle, contents[at], trained[at] and not leaf.is_active)
            self._number_of[id(place)] = at
            return place

        self._root: Any = _Refilling(empty).whole(look._root)

    def filled_with(self, children: tuple[Any, ...]) -> Any:
        contents: dict[int, Content] = {}
        params: dict[int, tuple[Param[Any], Param[Any] | None]] = {}

        def fill(path: str, place: Place) -> Leaf:
            at = self._number_of[id(place)]
            if at not in params:
                params[at] = (place._handle, _param_over(children[at], place._handle))
            first, param = params[at]
            if param is None:
                content = contents.setdefault(at, Content(children[at]))
                return Place(place._handle, content, place._is_stopped)
            if place._handle is first:
                return param
            tied = place._handle._retied(first, param)
            tied._found_at(path)
            return tied

        return _Refilling(fill).whole(self._root)

    def __repr__(self) -> str:
        root = self._root
        if isinstance(root, Place):
            return repr(root)
        each = ", ".join(
            f"{path}: id {place.id}, {'trainable' if place.requires_grad else 'frozen'}"
            for path, place in zip(_Look(root).paths, _Look(root).leaves, strict=False)
        )
        return f"{type(root).__name__}({each})"


def _check(root: object) -> None:
    """Refuse a tree that cannot be walked, as all verbs do."""
    if not isinstance(root, _LEAF):
        _tree.walk(root)


class _Refilling(_tree._Rebuilding):
    """A rebuild in which places count as parameters, and anything may become of either."""

    def __init__(self, fill: Callable[[str, Any], Leaf]) -> None:
        super().__init__(lambda _, param: param, _tree.Watcher())
        self._fill = fill
        self._filled: dict[int, Leaf] = {}

    def whole(self, root: M) -> M:
        made = self.node("", "", root) if isinstance(root, _LEAF) else self.container("", root)
        return made  # type: ignore[return-value]

    def node(self, name: str, path: str, node: object) -> object:
        if not isinstance(node, _LEAF):
            return super().node(name, path, node)
        if id(node) not in self._filled:
            self._filled[id(node)] = self._fill(path, node)
        return self._filled[id(node)]


_backends: dict[type, Backend | None] = {}
"""The backend whose array an object of a type may be. Types of JAX's own markers are many."""


def _param_over(value: Any, handle: Param[Any]) -> Param[Any] | None:
    """`handle`'s parameter with `value`, or None if that is no array with elements."""
    kind = type(value)
    if kind not in _backends:
        try:
            _backends[kind] = backend_holding(value)
        except InitError:
            _backends[kind] = None
    backend = _backends[kind]
    if backend is None:
        return None
    try:
        backend.check(value)
        wanted = handle.device
        if not getattr(value, "committed", True) and wanted.backend == backend.name:
            # It is where JAX happens to make arrays: that is nobody's wish.
            value = backend.to_device(value, wanted)
        return Param.from_mapped_value(handle.id, value, handle._mapper())
    except LazyParamError:
        return None
