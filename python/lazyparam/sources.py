"""Where stored tensors come from: a checkpoint, or a dict of arrays."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from . import identities
from ._core import Checkpoint, Param, dtype_size
from .devices import backend_holding
from .errors import DeclarationError, InitError, RecordError
from .identities import Identities

__all__ = ["DictSource", "FileSource", "Mode", "PathLike", "Source"]

Mode: TypeAlias = Literal["auto", "copy", "view"]

PathLike: TypeAlias = str | os.PathLike[str]


class Source(Protocol):
    """Where tensors come from: a checkpoint, a dict of arrays, or a record.

    Attributes:
        label: what it is called in messages.
        metadata: its free texts.
        warnings: oddities that are no errors.
        identities: whose the tensors are, as far as it says so.
    """

    label: str
    metadata: Mapping[str, str]
    warnings: Sequence[str]
    identities: Identities

    def entries(self) -> Mapping[str, tuple[str, tuple[int, ...], int]]:
        """Name -> dtype, shape and bytes."""

    def load(
        self, param: Param[Any], name: str, dtype: str | None = None, id: int | None = None
    ) -> Param[Any]:
        """`param` with the tensor called `name`, cast to `dtype`, its identity `id` if given."""


class FileSource:
    """The tensors of a checkpoint; loading one gives a parameter a recipe to read it."""

    def __init__(self, path: PathLike, mode: Mode) -> None:
        self._checkpoint = Checkpoint(path)
        if mode == "auto":
            mode = "view" if self._checkpoint.prefers_view else "copy"
        elif mode not in ("copy", "view"):
            raise RecordError(
                "there is no such mode of reading",
                expected='"auto", "copy" or "view"',
                found=repr(mode),
            )
        self.mode = mode
        self.label = os.fspath(path)
        texts = self._checkpoint.metadata
        self._entries = self._checkpoint.entries()
        self.identities = identities.told_by(texts, self._entries, self.label)
        texts.pop(identities.KEY, None)
        self.metadata: Mapping[str, str] = texts
        self.warnings: Sequence[str] = self._checkpoint.warnings

    def entries(self) -> Mapping[str, tuple[str, tuple[int, ...], int]]:
        return self._entries

    def load(
        self, param: Param[Any], name: str, dtype: str | None = None, id: int | None = None
    ) -> Param[Any]:
        return param._load_from(self._checkpoint, name, self.mode, dtype, id)


class DictSource:
    """The arrays of a state dict; loading one copies it."""

    label = "the state dict"
    identities = identities.UNKNOWN

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.metadata: Mapping[str, str] = {}
        self.warnings: Sequence[str] = ()
        if not isinstance(arrays, Mapping):
            raise RecordError(
                "a state dict is a mapping from paths to arrays", found=type(arrays).__name__
            )
        self._arrays = {name: _array(name, held) for name, held in arrays.items()}

    def entries(self) -> Mapping[str, tuple[str, tuple[int, ...], int]]:
        return {name: _described(array) for name, array in self._arrays.items()}

    def load(
        self, param: Param[Any], name: str, dtype: str | None = None, id: int | None = None
    ) -> Param[Any]:
        return param.transform_for_load(self._arrays[name], id, dtype)


def _array(name: str, held: object) -> Any:
    """`held` as it is, if it is an array of some library; else what NumPy makes of it."""
    try:
        backend = backend_holding(held)
    except InitError:
        return np.asarray(held)
    try:
        backend.check(held)
    except InitError as error:
        raise RecordError(error.problem, path=name, remedy=error.remedy) from None
    return held


def _described(array: Any) -> tuple[str, tuple[int, ...], int]:
    """Name of the dtype, shape, and bytes."""
    shape, dtype = backend_holding(array).meta(array)
    try:
        size = dtype_size(dtype)
    except DeclarationError:
        size = 0  # of no consequence: nothing can be loaded from it
    return dtype, shape, size * math.prod(shape)
