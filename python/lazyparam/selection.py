"""What a verb's group means in a module; one that means nothing there is refused."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from ._nearest import nearest
from .errors import GroupError
from .flags import Flag
from .groups import Leaf, ParamGroup, chosen_in, places_in, shortened

__all__ = ["GroupLike", "choose"]

GroupLike: TypeAlias = ParamGroup | str
"""What verbs take: a group, or a shell pattern for paths."""


def choose(
    root: object, group: GroupLike | None, *, allow_missing: bool = False, flags: bool = True
) -> Callable[[Leaf], bool]:
    """Tells whether a parameter or flag of `root` is meant by `group`; None means all.

    Args:
        root: a module, or whatever leads to parameters.
        group: a group, or a shell pattern.
        allow_missing: whether it may select nothing, and name paths that are not there.
        flags: whether flags are asked about, too.

    Raises:
        GroupError: if it is no group, or selects nothing, or names paths that are not there.
    """
    if group is None:
        return lambda leaf: True
    group = _as_group(group)
    every = places_in(root)
    asked = every if flags else [each for each in every if not isinstance(each[0][1], Flag)]
    chosen = chosen_in(group, asked)
    if not allow_missing:
        known = [path for places in every for path, _ in places]
        _insist(group, chosen, known, "nothing" if flags else "nothing that has gradients")
    return lambda leaf: id(leaf) in chosen


def _as_group(group: object) -> ParamGroup:
    if isinstance(group, str):
        return ParamGroup.glob(group)
    if isinstance(group, ParamGroup):
        return group
    raise GroupError(
        "this is no group of parameters",
        expected="a ParamGroup, or a text such as 'encoder.*'",
        found=f"{group!r:.80}" if isinstance(group, list | tuple | set) else type(group).__name__,
        remedy="ParamGroup.glob(*patterns), ParamGroup.from_paths(*paths) and "
        "ParamGroup.of(module) make groups.",
    )


def _insist(group: ParamGroup, chosen: set[int], known: Sequence[str], nothing: str) -> None:
    """Refuse what is meant for another module, or misspelt: it would be passed over in silence."""
    there = set(known)
    unknown = [path for atom in _atoms(group, "paths") for path in atom._args if path not in there]
    if unknown:
        raise GroupError(
            "this group names what the module does not have",
            found=", ".join(path + _hint(path, known) for path in unknown[:5]),
            remedy="allow_missing=True passes over them.",
        )
    if not chosen:
        raise GroupError(
            f"this group selects {nothing} in the module",
            found=shortened(group),
            remedy="".join(_advice(group, known)) + "allow_missing=True lets it.",
        )


def _atoms(group: ParamGroup, op: str) -> Iterator[ParamGroup]:
    if group._op == op:
        yield group
    elif group._op in ("or", "and", "not"):
        for part in group._args:
            yield from _atoms(part, op)


def _hint(path: str, known: Sequence[str]) -> str:
    if any(other.startswith(f"{path}.") for other in known):
        return f" (a module: ParamGroup.glob('{path}.*') selects what is in it)"
    near = nearest(path, known)
    return f" (nearest: {near})" if near is not None else ""


def _advice(group: ParamGroup, known: Sequence[str]) -> Iterator[str]:
    """What may have been meant by the patterns that fit no path."""
    for atom in _atoms(group, "glob"):
        for pattern in atom._args[:5]:
            if not any(fnmatch.fnmatchcase(path, pattern) for path in known) and (
                hint := _hint(pattern, known)
            ):
                yield f"No path fits {pattern!r}{hint}. "
    for atom in _atoms(group, "matching"):
        for pattern in atom._args[:5]:
            if any(map(re.compile(pattern).fullmatch, known)):
                continue
            if any(map(re.compile(pattern).search, known)):
                yield f"{pattern!r} has to match a whole path: '.*{pattern}.*'. "
