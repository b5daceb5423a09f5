"""Identities and ties of stored parameters: a text in the metadata of a file, read strictly.

A file with such a text is an ordinary safetensors file to everybody else. Files without keep the
identities of the module that they are loaded into.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from .errors import FormatError

__all__ = ["KEY", "UNKNOWN", "Identities", "text_of", "told_by"]

KEY = "lazyparam.record"
"""The key in the metadata."""

VERSION = 1


class Identities(NamedTuple):
    """Who the tensors of a source are, as far as it knows.

    Attributes:
        ids: name of a tensor -> identity of its parameter.
        ties: another path of that parameter -> name of the tensor.
    """

    ids: Mapping[str, int]
    ties: Mapping[str, str]


UNKNOWN = Identities({}, {})
"""What a source says that carries none."""


def text_of(identities: Identities) -> str:
    """The text that :func:`told_by` reads."""
    held = {"version": VERSION, "ids": dict(identities.ids), "ties": dict(identities.ties)}
    return json.dumps(held, separators=(",", ":"))


def told_by(metadata: Mapping[str, str], names: Collection[str], label: str) -> Identities:
    """What the metadata of a file say of its tensors, which are called `names`.

    Raises:
        FormatError: if they say something that cannot be.
    """
    text = metadata.get(KEY)
    if text is None:
        return UNKNOWN
    try:
        return _checked(json.loads(text, object_pairs_hook=_once), names)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"its metadata {KEY!r} cannot be right: {error}",
            path=label,
            remedy="Nothing but lazyparam writes it; take it out if you do not need identities.",
        ) from error


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    held: dict[str, Any] = {}
    for name, value in pairs:
        if name in held:
            raise ValueError(f"{name!r:.80} appears twice")
        held[name] = value
    return held


def _checked(held: object, names: Collection[str]) -> Identities:
    """`held` as identities, or a ValueError with a clause that says why not."""
    if not isinstance(held, dict) or type(held.get("version")) is not int:
        raise ValueError("there is no version")
    if held["version"] != VERSION:
        raise ValueError(f"its version is {held['version']}, and this lazyparam reads {VERSION}")
    if held.keys() != {"version", "ids", "ties"}:
        raise ValueError(f"it has {', '.join(map(repr, held)):.80}, and not ids and ties")
    ids, ties = held["ids"], held["ties"]
    if not isinstance(ids, dict) or not isinstance(ties, dict):
        raise ValueError("ids and ties are no objects")
    for name, number in ids.items():
        if name not in names:
            raise ValueError(f"there is no tensor {name!r:.80}, which it gives an id")
        if type(number) is not int or not 0 <= number < 2**64:
            raise ValueError(f"the id of {name!r:.80} is {number!r:.40}")
    for path, name in ties.items():
        if path in names:
            raise ValueError(f"{path!r:.80} has a tensor and is tied to another")
        if not isinstance(name, str) or name not in names:
            raise ValueError(f"{path!r:.80} is tied to {name!r:.80}, which is no tensor")
    return Identities(ids, ties)
