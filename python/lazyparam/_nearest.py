"""Which known name a wrong one was meant for."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

__all__ = ["nearest"]


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The one of `known` that is most like `name`, or None if none is."""
    # Often a whole prefix is missing or too much.
    for other in known:
        if _ends_alike(other, name) or other.casefold() == name.casefold():
            return other
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)


def _ends_alike(one: str, other: str) -> bool:
    return one.endswith(f".{other}") or other.endswith(f".{one}")
