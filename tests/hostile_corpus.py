"""Files and indexes that have to be refused, each with words that the message has to contain."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from typing import NamedTuple

from tests.checkpoint_files import GOOD, entry, one, raw


class Bad(NamedTuple):
    """A file that is to be refused, and words that the message has to contain."""

    name: str
    contents: bytes
    words: tuple[str, ...]


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("data.pkl", "x")
    return out.getvalue()


def _two(first: str, second: str, data: bytes) -> bytes:
    return raw(f'{{"a":{first},"b":{second}}}', data)


def _twice(first: str, second: str, data: bytes = b"1234") -> bytes:
    return raw(f'{{"t":{first},"t":{second}}}', data)


def _length(length: int) -> bytes:
    """The good file with another header length."""
    return struct.pack("<Q", length) + GOOD[8:]


HOSTILE = [
    # ---- names and fields that are there twice
    Bad(
        "a name twice, same bytes",
        _twice(entry(), entry(dtype='"I8"')),
        ('"t"', "twice", "U8", "I8"),
    ),
    Bad("a name twice, other shape", _twice(entry(), entry("[2,2]")), ('"t"', "twice", "[2, 2]")),
    Bad(
        "a name twice, other bytes",
        _twice(entry(), entry(offsets="[4,8]"), b"12345678"),
        ('"t"', "twice"),
    ),
    Bad(
        "a name twice, spelled with an escape",
        raw(f'{{"t":{entry()},"\\u0074":{entry(offsets="[4,8]")}}}', b"12345678"),
        ('"t"', "twice"),
    ),
    Bad(
        "a dtype twice",
        one('{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}'),
        ("duplicate", "dtype"),
    ),
    Bad(
        "a shape twice",
        one('{"dtype":"U8","shape":[4],"shape":[4],"data_offsets":[0,4]}'),
        ("duplicate", "shape"),
    ),
    Bad(
        "offsets twice",
        one('{"dtype":"U8","shape":[4],"data_offsets":[0,4],"data_offsets":[0,4]}'),
        ("duplicate", "data_offsets"),
    ),
    Bad(
        "metadata twice",
        raw(f'{{"__metadata__":{{}},"__metadata__":{{}},"t":{entry()}}}', b"1234"),
        ("__metadata__", "twice"),
    ),
    Bad(
        "a metadata key twice",
        raw(f'{{"__metadata__":{{"k":"1","k":"2"}},"t":{entry()}}}', b"1234"),
        ('"k"', "twice"),
    ),
    # ---- bytes that belong to nobody
    Bad("a trailing byte", GOOD + b"x", ("follow the last tensor",)),
    Bad("a zip appended", GOOD + _zip(), ("follow the last tensor",)),
    Bad("a hole", _two(entry(), entry(offsets="[5,9]"), b"123456789"), ('"b"', "hole")),
    Bad("a hole at the start", one(entry(offsets="[4,8]"), b"12345678"), ('"t"', "instead of 0")),
    Bad("an overlap", _two(entry(), entry(offsets="[3,7]"), b"1234567"), ('"b"', "overlaps")),
    Bad("one range for two", _two(entry(), entry(), b"1234"), ('"b"', "overlaps")),
    Bad("data cut short", GOOD[:-1], ("cut short", "4 bytes", "3 are there")),
    Bad("no data", GOOD[:-4], ("cut short",)),
    # ---- headers that are not what a header is
    Bad("nul padding", raw(f'{{"t":{entry()}}}\0\0', b"1234"), ("header is not valid",)),
    Bad(
        "a byte order mark",
        raw(b"\xef\xbb\xbf" + f'{{"t":{entry()}}}'.encode(), b"1234"),
        ("header is not valid",),
    ),
    Bad("a list", raw("[]"), ("header is not valid", "an object of tensors")),
    Bad("a number", raw("17"), ("header is not valid",)),
    Bad("two objects", raw("{}{}"), ("header is not valid",)),
    Bad("a trailing comma", raw(f'{{"t":{entry()},}}', b"1234"), ("header is not valid",)),
    Bad("an unclosed object", raw(f'{{"t":{entry()}', b"1234"), ("header is not valid",)),
    Bad("an empty header", raw("", b"1234"), ("header is not valid",)),
    Bad("only spaces", raw("    "), ("header is not valid",)),
    Bad("not utf-8", raw(b'{"t\xff":' + entry().encode() + b"}", b"1234"), ("UTF-8",)),
    Bad(
        "a lone surrogate in a name",
        raw(f'{{"\\ud800":{entry()}}}', b"1234"),
        ("header is not valid", "hex escape"),
    ),
    Bad("nested 5000 deep", one("[" * 5000 + "]" * 5000), ('"t"', "not valid")),
    Bad(
        "an unknown field nested 5000 deep",
        one('{"x":' + "[" * 5000 + "]" * 5000 + "}"),
        ('"t"', "recursion"),
    ),
    Bad(
        "an unknown field nested 200000 deep",
        one('{"x":' + '{"a":' * 200_000),
        ('"t"', "recursion"),
    ),
    Bad("metadata is a number", raw('{"__metadata__":7}'), ("__metadata__",)),
    Bad("a metadata value is a number", raw('{"__metadata__":{"key":1}}'), ('"key"', "a string")),
    Bad(
        "a metadata value is nested",
        raw('{"__metadata__":{"key":{"a":"b"}}}'),
        ('"key"', "a string"),
    ),
    Bad("a metadata value is null", raw('{"__metadata__":{"key":null}}'), ('"key"', "a string")),
    # ---- entries
    Bad("an entry is a list", one('["U8",[4],[0,4]]'), ('"t"', "an object with")),
    Bad("an entry is null", one("null"), ('"t"', "an object with")),
    Bad("no dtype", one('{"shape":[4],"data_offsets":[0,4]}'), ('"t"', "missing", "dtype")),
    Bad("no shape", one('{"dtype":"U8","data_offsets":[0,4]}'), ('"t"', "missing", "shape")),
    Bad("no offsets", one('{"dtype":"U8","shape":[4]}'), ('"t"', "missing", "data_offsets")),
    Bad("an unknown dtype", one(entry(dtype='"U9"')), ('"t"', '"U9"', "unknown")),
    Bad("a dtype of NumPy's", one(entry(dtype='"uint8"')), ('"t"', '"uint8"', "unknown")),
    Bad("a dtype that is a number", one(entry(dtype="8")), ('"t"', "the name of a dtype")),
    *(
        Bad(f"an extent of {text}", one(entry(f"[{text}]")), ('"t"', "whole number"))
        for text in ("-4", "4.0", "4e0", "true", "null", '"4"', "18446744073709551616")
    ),
    Bad("an extent of NaN", one(entry("[NaN]")), ('"t"', "not valid")),
    Bad("a shape that is a number", one(entry("4")), ('"t"', "a shape")),
    Bad("a rank of 65", one(entry(str([1] * 64 + [4]))), ('"t"', "64")),
    Bad("a rank of 10000", one(entry(str([1] * 9999 + [4]))), ('"t"', "64")),
    Bad(
        "a shape that overflows",
        one(entry(f"[{2**40},{2**40}]")),
        ('"t"', "more bytes than memory"),
    ),
    Bad(
        "an extent that overflows with its item",
        one(entry(f"[{2**62}]", dtype='"F32"')),
        ('"t"', "more bytes than memory"),
    ),
    Bad(
        "an empty shape that overflows, zero last",
        one(entry(f"[{2**62},{2**62},0]", "[0,0]"), b""),
        ('"t"', "more bytes than memory"),
    ),
    Bad(
        "an empty shape that overflows, zero first",
        one(entry(f"[0,{2**40},{2**40}]", "[0,0]"), b""),
        ('"t"', "more bytes than memory"),
    ),
    Bad("a shape larger than its bytes", one(entry("[5]")), ('"t"', "needs 5 bytes", "4")),
    Bad("a shape smaller than its bytes", one(entry("[3]")), ('"t"', "needs 3 bytes", "4")),
    Bad("offsets that run backwards", one(entry(offsets="[4,0]")), ('"t"', "before it begins")),
    Bad("offsets beyond the file", one(entry(f"[{2**40}]", f"[0,{2**40}]")), ("cut short",)),
    Bad(
        "offsets near the end of numbers",
        one(entry(offsets=f"[{2**64 - 4},{2**64 - 1}]")),
        ('"t"', "instead of 0"),
    ),
    Bad("a negative offset", one(entry(offsets="[-1,3]")), ('"t"', "whole number")),
    Bad("one offset", one(entry(offsets="[4]")), ('"t"', "begin and end")),
    Bad("three offsets", one(entry(offsets="[0,4,4]")), ('"t"', "begin and end")),
    Bad(
        "four-bit elements that do not fill bytes",
        one(entry("[7]", "[0,4]", '"F4"')),
        ('"t"', "whole bytes"),
    ),
    Bad(
        "six-bit elements that do not fill bytes",
        one(entry("[5]", "[0,4]", '"F6_E2M3"')),
        ('"t"', "whole bytes"),
    ),
    # ---- header lengths that lie
    Bad("a header longer than the file", _length(1_000_000), ("1000000 bytes", "only")),
    Bad("a header one byte too long", _length(len(GOOD) - 7), ("but the file has only",)),
    Bad("a header beyond the cap", _length(100_000_001), ("100000001", "allowed")),
    Bad("a header of 2^64 - 1 bytes", _length(2**64 - 1), ("allowed",)),
    Bad("a header of 2^63 bytes", _length(2**63), ("allowed",)),
    Bad("seven bytes", b"\x02\0\0\0\0\0\0", ("7 bytes", "too few")),
    # ---- other things that people have under this name
    Bad("nothing", b"", ("empty",)),
    Bad(
        "a git-lfs pointer",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n",
        ("git-lfs pointer", "git lfs pull"),
    ),
    Bad("a web page", b"\n<!DOCTYPE html><html><body>404</body></html>", ("web page",)),
    Bad("gzip", b"\x1f\x8b\x08" + bytes(20), ("gzip",)),
    Bad("zip", _zip(), ("zip archive",)),
    Bad("pickle", pickle.dumps({"t": list(range(9))}), ("pickle",)),
    Bad("npy", b"\x93NUMPY\x01\0" + bytes(70), ("NumPy",)),
    Bad("gguf", b"GGUF\x03\0\0\0" + bytes(32), ("GGUF",)),
    Bad("json without a map", b'{"model_type": "bert", "layers": 2}', ("weight_map",)),
]
"""Every file here is refused with a FormatError."""

BAD_INDEXES = [
    *(
        Bad(f"a shard {text!r}", json.dumps({"weight_map": {"t": text}}).encode(), ('"t"', word))
        for text, word in [
            ("../x.safetensors", "plain file name"),
            ("/etc/passwd", "plain file name"),
            ("a/../../x", "plain file name"),
            ("sub/x.safetensors", "plain file name"),
            ("a\0b", "plain file name"),
            ("..", "no file name"),
            ("", "no file name"),
        ]
    ),
    Bad("a shard that is a number", b'{"weight_map":{"t":1}}', ("name of a file",)),
    Bad(
        "a tensor twice",
        b'{"weight_map":{"t":"a.safetensors","t":"a.safetensors"}}',
        ('"t"', "twice"),
    ),
    Bad("two maps", b'{"weight_map":{},"weight_map":{}}', ("duplicate", "weight_map")),
    Bad("a map that is a list", b'{"weight_map":[]}', ("weight_map",)),
    Bad("cut short", b'{"weight_map":{"t":"a.safe', ("index is not valid",)),
    Bad(
        "missing shards",
        b'{"weight_map":{"t":"gone-1.safetensors","u":"gone-2.safetensors"}}',
        ("gone-1", "gone-2"),
    ),
]
"""Every index here is refused with a FormatError."""
