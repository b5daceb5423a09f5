"""What is meant when a verb is told to act on some parameters: paths, globs, functions, groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeAlias

from ._nearest import nearest
from .errors import ModuleError

__all__ = ["Selecting", "Target", "near", "selected"]


class Selecting(Protocol):
    """Anything that can tell whether it means a parameter, such as a group of them."""

    def matches(self, path: str, param: Any) -> bool: ...


Target: TypeAlias = str | Sequence[str] | Callable[[str, Any], object] | Selecting
"""Paths or globs (in which ``*`` stands for dots too), a function of path and parameter, or
whatever has such a method ``matches``."""


def selected(target: Target, places: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Those of `places`, paths with what is there, that `target` means, in their order.

    Raises:
        ModuleError: if it is no target, or one of its texts means nothing.
    """
    if isinstance(target, str):
        target = [target]
    if isinstance(target, list | tuple | set | frozenset):
        for text in target:
            _insist_on_a_match(text, places)
        return [at for at in places if any(fnmatchcase(at[0], text) for text in target)]
    matches = getattr(target, "matches", target)
    if not callable(matches):
        raise ModuleError(
            "this selects no parameters",
            expected="a path, a glob, a list of them, a function of path and parameter, or a group",
            found=f"{target!r:.80}",
        )
    return [(path, param) for path, param in places if matches(path, param)]


def _insist_on_a_match(text: object, places: Sequence[tuple[str, Any]]) -> None:
    if not isinstance(text, str):
        raise ModuleError(
            "this selects no parameters", expected="a path or a glob", found=f"{text!r:.80}"
        )
    if not any(fnmatchcase(path, text) for path, _ in places):
        raise ModuleError(
            f"no parameter is called {text!r}",
            remedy=f"There are {near(text, [path for path, _ in places])}.",
        )


def near(name: str, names: Sequence[str]) -> str:
    """Some of `names` for a message: the one most like `name`, or the first ones."""
    like = nearest(name, names)
    told = names[:3] if like is None else [like]
    return ", ".join(map(repr, told)) + (" and others" if len(names) > len(told) else "")
