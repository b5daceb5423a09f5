"""Builders of checkpoint files, good and bad, by hand: no writer of lazyparam's is involved."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

TAGS = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "complex64": "C64",
    "float64": "F64",
    "int64": "I64",
    "uint64": "U64",
}
"""The dtypes whose elements fill whole bytes, and how a header spells them."""

PACKED = {
    "float4_e2m1fn": ("F4", 4),
    "float6_e2m3fn": ("F6_E2M3", 6),
    "float6_e3m2fn": ("F6_E3M2", 6),
}
"""The dtypes whose elements share bytes: their spelling and their bits."""


def dtype(name: str) -> np.dtype:
    """The NumPy dtype of this name, ml_dtypes' included."""
    return np.dtype(getattr(ml_dtypes, name, name))


def bits_of(name: str, count: int, seed: int = 0) -> np.ndarray:
    """`count` elements of a dtype with all sorts of bit patterns, NaN and infinities included."""
    kind = dtype(name)
    limit = 2 if name == "bool" else 1 << PACKED[name][1] if name in PACKED else 256
    noise = np.random.default_rng(seed).integers(0, limit, count * kind.itemsize, dtype=np.uint8)
    return noise.view(kind)


def raw(header: str | bytes, data: bytes = b"") -> bytes:
    """A file with this header, whatever it is, and this data."""
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text)) + text + data


def entry(shape: str = "[4]", offsets: str = "[0,4]", dtype: str = '"U8"') -> str:
    """The header entry of a tensor, from JSON texts."""
    return f'{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}'


def one(entry: str, data: bytes = b"1234") -> bytes:
    """A file with one tensor ``t`` that has this header entry."""
    return raw(f'{{"t":{entry}}}', data)


CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C order": lambda a: a.copy(),
    "Fortran order": np.asfortranarray,
    "transposed": lambda a: a.transpose(2, 0, 1),
    "every second": lambda a: a[:, ::2, ::3],
    "reversed": lambda a: a[::-1, :, ::-1],
    "broadcast": lambda a: np.broadcast_to(a[0, 0], (5, 4)),
    "broadcast from one": lambda a: np.broadcast_to(a[1, 1, 1], (3, 7)),
    "a part": lambda a: a[1:, 1:2, 1:3],
    "no elements": lambda a: a[:0],
    "no dimensions": lambda a: a[1, 2, 3],
    "big-endian": lambda a: a.astype(">f4"),
    "unaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), np.float32, offset=1),
    "a matrix": lambda a: a[0].view(np.matrix),
}
"""The same numbers in memory in all sorts of ways."""

GOOD = one(entry())
"""A file that is in order: ``t``, four bytes."""


def table(
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
    align: int = 8,
    off: int = 0,
) -> bytes:
    """A file with these arrays in order; the data begins `off` behind a multiple of `align`."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    data = bytearray()
    for name, array in arrays.items():
        begin = len(data)
        data += packed(array)
        tag = PACKED[array.dtype.name][0] if array.dtype.name in PACKED else TAGS[array.dtype.name]
        header[name] = {
            "dtype": tag,
            "shape": list(array.shape),
            "data_offsets": [begin, len(data)],
        }
    text = json.dumps(header)
    pad = (off - 8 - len(text)) % align
    return raw(text + " " * pad, bytes(data))


def packed(array: np.ndarray) -> bytes:
    """The elements in C order as a file has them, first element in the lowest bits."""
    if array.dtype.name not in PACKED:
        return np.ascontiguousarray(array).tobytes()
    width = PACKED[array.dtype.name][1]
    codes = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
    number = sum(int(code) << (width * at) for at, code in enumerate(codes))
    return number.to_bytes(codes.size * width // 8, "little")


def sharded(folder: Path, shards: Mapping[str, Mapping[str, np.ndarray]]) -> Path:
    """A checkpoint in several files, and its index, which is returned."""
    for file, arrays in shards.items():
        (folder / file).write_bytes(table(arrays))
    where = {name: file for file, arrays in shards.items() for name in arrays}
    return write_index(folder, where)


def write_index(folder: Path, where: Mapping[str, str]) -> Path:
    """An index that says which tensor lies in which file."""
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": dict(where)}))
    return path


def sparse(path: Path, size: int) -> None:
    """A file with one float32 tensor ``t`` of `size` bytes that takes no room on the disk."""
    header = raw(
        f'{{"t":{entry(f"[{size // 4}]", f"[0,{size}]", repr("F32").replace(chr(39), chr(34)))}}}'
    )
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + size)


def run_python(code: str, *args: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, from the folder that holds the tests."""
    root = Path(__file__).resolve().parent.parent
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
    )
