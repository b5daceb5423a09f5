"""Checkpoints to measure with, and what they really hold: read without either library."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from safetensors.numpy import save_file

from .harness import PAGE, WrongResult, apart

Arrays: TypeAlias = Mapping[str, np.ndarray[Any, Any]]
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]


class Stored(NamedTuple):
    """Where a tensor of float32 lies in the file."""

    shape: tuple[int, ...]
    begin: int


def make(path: Path, shapes: Shapes) -> Path:
    """A checkpoint of random float32 tensors, written once."""
    if not path.exists():
        apart(_write, path, dict(shapes))
    return path


def _write(path: Path, shapes: Shapes) -> None:
    draw = np.random.default_rng(1)
    save_file({name: draw.random(shape, np.float32) for name, shape in shapes.items()}, path)


def header(path: Path) -> dict[str, Stored]:
    """Every tensor of the file, in the order of the header."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entries = json.loads(file.read(length))
    entries.pop("__metadata__", None)
    return {
        name: Stored(tuple(entry["shape"]), 8 + length + entry["data_offsets"][0])
        for name, entry in entries.items()
    }


def views(path: Path) -> Arrays:
    """The tensors as NumPy views of a memory map: the least that Python can do."""
    whole = np.memmap(path, np.uint8, "r").view(np.ndarray)
    return {
        name: np.ndarray(shape, np.float32, whole, begin)
        for name, (shape, begin) in header(path).items()
    }


def check(arrays: Arrays, path: Path) -> None:
    """Raise if `arrays` are not, bit for bit, what the file holds."""
    expected = views(path)
    if arrays.keys() != expected.keys():
        raise WrongResult(f"other names: {arrays.keys() ^ expected.keys()}")
    for name, array in arrays.items():
        stored = expected[name]
        if (array.shape, array.dtype) != (stored.shape, stored.dtype):
            raise WrongResult(f"{name}: {array.dtype}{array.shape}")
        if not np.array_equal(array.view(np.uint32), stored.view(np.uint32)):
            raise WrongResult(f"{name}: other values")


def touch(arrays: Iterable[np.ndarray[Any, Any]]) -> int:
    """Read one byte of every page."""
    return sum(int(array.reshape(-1).view(np.uint8)[::PAGE].sum()) for array in arrays)
