"""``ParamGroup``: which parameters of a module, as a value that combines, prints and is stored."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import FunctionType
from typing import Any, TypeAlias, final

from . import _tree
from ._core import Param
from .errors import GroupError, PickleError
from .flags import Flag

__all__ = ["Leaf", "ParamGroup", "Predicate", "chosen_in", "places_in", "shortened"]

Leaf: TypeAlias = Param[Any] | Flag
Predicate: TypeAlias = Callable[[str, Any], object]
Places: TypeAlias = Sequence[tuple[str, Leaf]]
"""The paths of one parameter, and the handle at each: several if it is tied."""

# Atoms that name any number of things and select what one of them fits.
_LISTS = {"paths": "from_paths", "glob": "glob", "matching": "matching", "ids": "from_ids"}


@final
class ParamGroup:
    """Some of the parameters and flags of a module (Burn's ``ParamGroup``).

    A group is an expression over paths, patterns, identities and predicates, combined by ``|``,
    ``&``, ``-`` and ``~``; which parameters it selects is decided where it is used. Naming nothing
    selects nothing, never everything: ``ParamGroup.glob()`` is ``ParamGroup.none()``.

    Tied parameters are one parameter that answers to each of its paths: whatever names one of them
    selects all, and ``~`` of that selects none. So a group and its complement never share a value.
    Nothing here brings a value into being.

    Groups never change. They compare, hash, print as the expression that makes them, pickle and
    become JSON (:meth:`to_dict`). They have no truth value: ``and``, ``or`` and ``not`` are errors.

    >>> import lazyparam as lp
    >>> net = {"embed": lp.Param(4, lp.init.ones()), "head": lp.Param(4, lp.init.ones())}
    >>> group = lp.ParamGroup.all() - lp.ParamGroup.glob("embed*")
    >>> group
    ~ParamGroup.glob('embed*')
    >>> group.paths(net)
    ['head']
    """

    __slots__ = ("_args", "_hash", "_op", "_set")

    def __init__(self, _op: str = "nothing", *_args: Any) -> None:
        self._op = _op
        self._args = tuple(dict.fromkeys(_args))
        self._set = frozenset(_args)
        self._hash = hash((_op, self._set))

    # What there is to combine.

    @classmethod
    def all(cls) -> ParamGroup:
        """Every parameter and every flag."""
        return _EVERYTHING

    @classmethod
    def none(cls) -> ParamGroup:
        """Nothing."""
        return _NOTHING

    @classmethod
    def from_paths(cls, *paths: str) -> ParamGroup:
        """What has exactly one of these paths. Verbs refuse paths that their module does not have.

        Raises:
            GroupError: if one of them is no text.
        """
        return _listed("paths", _texts("from_paths", paths))

    @classmethod
    def glob(cls, *patterns: str) -> ParamGroup:
        """What has a path that one of these patterns fits, as in a shell: ``"*.q_proj.weight"``.

        ``*`` is any text, dots included, ``?`` one character, ``[ab]`` one of several. A pattern
        fits whole paths, and tells capitals from small letters.

        Raises:
            GroupError: if one of them is no text.
        """
        return _listed("glob", _texts("glob", patterns))

    @classmethod
    def matching(cls, *patterns: str) -> ParamGroup:
        """What has a path that one of these regular expressions matches as a whole.

        As ``re.fullmatch`` does: ``"a"`` does not select whatever has an a somewhere in its path.

        Raises:
            GroupError: if one of them is no regular expression; it says where.
        """
        for pattern in _texts("matching", patterns):
            try:
                re.compile(pattern)
            except re.error as error:
                where = "" if error.pos is None else f" at position {error.pos}"
                raise GroupError(
                    f"this is no regular expression: {error.msg}{where}",
                    found=repr(pattern),
                    remedy="ParamGroup.glob takes shell patterns, such as '*.weight'.",
                ) from error
        return _listed("matching", patterns)

    @classmethod
    def from_ids(cls, *ids: int | Leaf) -> ParamGroup:
        """What has one of these identities; a parameter or flag stands for its own.

        Identities outlast moves, training and loading, and copies of a parameter share them:
        layers made by ``copy.deepcopy`` of one are told apart by paths only.

        Raises:
            GroupError: if one of them is no number.
        """
        numbers = [each.id if isinstance(each, Param | Flag) else each for each in ids]
        for each in numbers:
            if isinstance(each, bool) or not isinstance(each, int):
                raise GroupError(
                    "from_ids takes identities",
                    expected="numbers, parameters or flags",
                    found=f"{each!r:.80}",
                )
        return _listed("ids", numbers)

    @classmethod
    def of(cls, *parts: object) -> ParamGroup:
        """What is in these modules, or parts of modules, by identity: see :meth:`from_ids`.

        ``model.freeze(ParamGroup.of(model.encoder))``

        Raises:
            ModuleError: if one of them leads to no parameters.
        """
        leaves = (leaf for part in parts for places in places_in(part) for _, leaf in places)
        return cls.from_ids(*leaves)

    @classmethod
    def where(cls, predicate: Predicate) -> ParamGroup:
        """What `predicate`, asked with a path and a parameter, says yes to.

        A flag is not selected by a predicate that asks it for what only parameters have: a shape,
        a dtype, a device.

        Args:
            predicate: a function at the top level of a module, if the group is to be stored.

        Raises:
            GroupError: if it cannot be called, or has no hash.
        """
        try:
            hash(predicate)
        except TypeError:
            is_usable = False
        else:
            is_usable = callable(predicate)
        if not is_usable:
            raise GroupError(
                "this is no predicate",
                expected="a function of a path and a parameter",
                found=f"{predicate!r:.80}",
            )
        return ParamGroup("where", predicate)

    # Combining.

    def __or__(self, other: ParamGroup) -> ParamGroup:
        if not isinstance(other, ParamGroup):
            return NotImplemented
        return _joined("or", (self, other))

    def __and__(self, other: ParamGroup) -> ParamGroup:
        if not isinstance(other, ParamGroup):
            return NotImplemented
        return _joined("and", (self, other))

    def __sub__(self, other: ParamGroup) -> ParamGroup:
        if not isinstance(other, ParamGroup):
            return NotImplemented
        return self & ~other

    def __invert__(self) -> ParamGroup:
        opposite = {"everything": _NOTHING, "nothing": _EVERYTHING}
        if self._op in opposite:
            return opposite[self._op]
        inner: ParamGroup = self._args[0] if self._op == "not" else ParamGroup("not", self)
        return inner

    def __bool__(self) -> bool:
        raise GroupError(
            "a group is neither true nor false",
            found=shortened(self),
            remedy="Combine groups by & | - ~; ask one with matches(path, param).",
        )

    # Asking.

    def matches(self, path: str, param: Leaf) -> bool:
        """Whether the group selects `param`, if `path` is its one path."""
        return self._selects(((path, param),))

    def paths(self, module: object) -> list[str]:
        """The paths of what the group selects in `module`, in its order, tied ones at each.

        Raises:
            ModuleError: if `module` cannot be walked.
        """
        chosen = chosen_in(self, places_in(module))
        return [path for path, leaf in _in_order(module) if id(leaf) in chosen]

    def _selects(self, places: Places) -> bool:
        match self._op:
            case "everything" | "nothing":
                return self._op == "everything"
            case "or":
                return any(part._selects(places) for part in self._args)
            case "and":
                return all(part._selects(places) for part in self._args)
            case "not":
                return not self._args[0]._selects(places)
            case _:
                return any(self._fits(path, leaf) for path, leaf in places)

    def _fits(self, path: str, leaf: Leaf) -> bool:
        match self._op:
            case "paths":
                return path in self._set
            case "ids":
                return leaf.id in self._set
            case "glob":
                return any(fnmatchcase(path, pattern) for pattern in self._args)
            case "matching":
                return any(re.fullmatch(pattern, path) for pattern in self._args)
            case _:
                return _agrees(self._args[0], path, leaf)

    # Storing.

    def to_dict(self) -> dict[str, Any]:
        """The group as what JSON can hold; :meth:`from_dict` reads it.

        Raises:
            PickleError: if it has a predicate that cannot be imported, such as a lambda.
        """

        def plain(arg: Any) -> Any:
            if isinstance(arg, ParamGroup):
                return arg.to_dict()
            return _import_path(arg) if self._op == "where" else arg

        return {self._op: [plain(arg) for arg in self._args]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, trusted: bool = False) -> ParamGroup:
        """The group that :meth:`to_dict` wrote.

        Args:
            data: what it gave, perhaps by way of JSON.
            trusted: whether predicates may be imported and called: they run whatever code the
                data names.

        Raises:
            GroupError: if it is no group, or has a predicate and is not trusted.
        """
        match list(data.items()) if isinstance(data, Mapping) else None:
            case [("everything", [])]:
                return _EVERYTHING
            case [("nothing", [])]:
                return _NOTHING
            case [("not", [inner])]:
                return ~cls.from_dict(inner, trusted=trusted)
            case [("or" | "and" as op, [_, *_] as parts)]:
                return _joined(op, [cls.from_dict(part, trusted=trusted) for part in parts])
            case [(op, list(args))] if op in _LISTS:
                made: ParamGroup = getattr(cls, _LISTS[op])(*args)
                return made
            case [("where", [str(name)])]:
                return cls.where(_imported(name, trusted))
        raise GroupError(
            "this is no group",
            expected="what ParamGroup.to_dict gives",
            found=f"{data!r:.200}",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if self._op == "where" and isinstance(self._args[0], FunctionType):
            _import_path(self._args[0])  # a clear error, where there will be one
        return (ParamGroup, (self._op, *self._args))

    def __copy__(self) -> ParamGroup:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ParamGroup:
        return self

    # Comparing and printing.

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ParamGroup):
            return NotImplemented
        return self._hash == other._hash and self._op == other._op and self._set == other._set

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        match self._op:
            case "everything" | "nothing":
                return f"ParamGroup.{'all' if self._op == 'everything' else 'none'}()"
            case "or":
                return " | ".join(map(repr, self._args))
            case "and":
                return _difference(self._args)
            case "not":
                return f"~{self._args[0]._as_operand('or', 'and')}"
            case "where":
                return f"ParamGroup.where({_name_of(self._args[0])})"
            case _:
                return f"ParamGroup.{_LISTS[self._op]}({', '.join(map(repr, self._args))})"

    def _as_operand(self, *loose: str) -> str:
        """The text, in brackets if its outermost operator is one of `loose`."""
        return f"({self!r})" if self._op in loose else repr(self)


_EVERYTHING = ParamGroup("everything")
_NOTHING = ParamGroup("nothing")


def _listed(op: str, args: Sequence[Any]) -> ParamGroup:
    return ParamGroup(op, *args) if args else _NOTHING


def _texts(name: str, given: tuple[Any, ...]) -> tuple[str, ...]:
    for each in given:
        if not isinstance(each, str):
            raise GroupError(
                f"{name} takes texts",
                found=f"{each!r:.80} of type {type(each).__name__}",
                remedy=f"Hand over a list as ParamGroup.{name}(*texts).",
            )
    return given


def _joined(op: str, groups: Iterable[ParamGroup]) -> ParamGroup:
    """The groups joined by ``or`` or ``and``, flat, each once, and without what changes nothing."""
    unit, zero = (_NOTHING, _EVERYTHING) if op == "or" else (_EVERYTHING, _NOTHING)
    found: dict[str | ParamGroup, list[Any]] = {}
    for group in groups:
        for part in group._args if group._op == op else (group,):
            if op == "or" and part._op in _LISTS:
                # Lists of one sort become one: that is quicker to ask than many.
                found.setdefault(part._op, []).extend(part._args)
            elif part != unit:
                found[part] = []
    parts = [ParamGroup(key, *args) if isinstance(key, str) else key for key, args in found.items()]
    if zero in parts:
        return zero
    return ParamGroup(op, *parts) if len(parts) > 1 else next(iter(parts), unit)


def _difference(parts: Sequence[ParamGroup]) -> str:
    text = parts[0]._as_operand("or")
    for part in parts[1:]:
        # Minus binds tighter than &, and both do than |.
        text += (
            f" - {part._args[0]._as_operand('or', 'and')}"
            if part._op == "not"
            else f" & {part._as_operand('or')}"
        )
    return text


# ---- predicates ----------------------------------------------------------------------------------


def _agrees(predicate: Predicate, path: str, leaf: Leaf) -> bool:
    try:
        return bool(predicate(path, leaf))
    except Exception as error:
        # A flag was asked for what only parameters have (B04).
        if isinstance(leaf, Flag) and isinstance(error, AttributeError) and error.obj is leaf:
            return False
        error.add_note(f"while asking {_name_of(predicate)} about {path!r}")
        raise


def _name_of(function: object) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', None) or '?'}.{name}"


def _import_path(function: Any) -> str:
    """``module:name``, by which the function is found again.

    Raises:
        PickleError: if it is not.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    found: Any = sys.modules.get(str(module))
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is function:
        return f"{module}:{name}"
    raise PickleError(
        f"the predicate {_name_of(function)} cannot be stored: it is not found by its name",
        remedy="Use a function at the top level of a module, or paths and patterns: "
        "ParamGroup.from_paths(*group.paths(module)).",
    )


def _imported(name: str, trusted: bool) -> Predicate:
    if not trusted:
        raise GroupError(
            "this group has a predicate, which would run code that the data names",
            found=repr(name),
            remedy="ParamGroup.from_dict(data, trusted=True), if you know where it comes from.",
        )
    module, _, function = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise GroupError("there is no such predicate", found=repr(name)) from error
    predicate: Predicate = found
    return predicate


# ---- in a tree ----------------------------------------------------------------------------------


def _in_order(root: object) -> list[tuple[str, Leaf]]:
    found: list[tuple[str, Leaf]] = []

    def look(path: str, leaf: Leaf) -> None:
        found.append((path, leaf))

    _tree.visit(root, look, look_at_flag=look)
    return found


def places_in(root: object) -> list[list[tuple[str, Leaf]]]:
    """Paths and handles of the parameters and flags under `root`, tied ones together."""
    found: dict[tuple[type, int], list[tuple[str, Leaf]]] = {}
    for path, leaf in _in_order(root):
        tie = id(leaf) if isinstance(leaf, Flag) else leaf._tie
        found.setdefault((type(leaf), tie), []).append((path, leaf))
    return list(found.values())


def chosen_in(group: ParamGroup, every: Iterable[Places]) -> set[int]:
    """The `id` of each handle that is selected."""
    return {id(leaf) for places in every if group._selects(places) for _, leaf in places}


def shortened(group: ParamGroup) -> str:
    """The text of a group, for messages: it may have thousands of parts."""
    text = repr(group)
    return text if len(text) <= 200 else f"{text[:197]}..."
