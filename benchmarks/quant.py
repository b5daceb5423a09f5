"""Quantisation: gigabytes of float32 a second, in turns with bitsandbytes and the copy limit."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np

from lazyparam import _core, _host, quant

from .harness import Scale, WrongResult, apart, make_room, take_turns
from .table import Row, times

Case: TypeAlias = tuple[str, str, int]
"""Which scheme, who does what, and with how many threads."""

SCHEMES = {
    "Q8S, one scale": quant.q8s(),
    "Q8S, blocks of 64": quant.q8s(64),
    "Q4S, blocks of 64": quant.q4s(64),
    "NF4, blocks of 64": quant.nf4(),
}
THREADS = (1, 2)


def dequantized(packed: quant.QuantArray, dtype: str, threads: int) -> Any:
    """What `QuantArray.dequantize` does, with so many threads."""
    arrays = map(_host.contiguous_bytes, packed.arrays.values())
    return _core.dequantize(packed.scheme._parts, packed.shape, dtype, *arrays, threads)


def copied(array: np.ndarray[Any, Any], threads: int) -> Any:
    """The limit: the elements into fresh memory, each thread its part."""
    out = np.empty_like(array)
    parts = list(zip(np.array_split(out, threads), np.array_split(array, threads), strict=True))
    helpers = [threading.Thread(target=np.copyto, args=part) for part in parts[1:]]
    for helper in helpers:
        helper.start()
    np.copyto(*parts[0])
    for helper in helpers:
        helper.join()
    return out


def bitsandbytes(array: np.ndarray[Any, Any]) -> dict[tuple[str, str], Callable[[], Any]]:
    """What bitsandbytes does on the CPU, checked against ours; nothing if it is not installed."""
    if not (find_spec("torch") and find_spec("bitsandbytes")):
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        functional = import_module("bitsandbytes.functional")
    tensor = import_module("torch").from_numpy(array)
    values, state = functional.quantize_4bit(tensor, blocksize=64, quant_type="nf4")
    if values.numpy().tobytes() != quant.quantize(array, quant.nf4()).values.tobytes():
        raise WrongResult("bitsandbytes makes other bytes of NF4")
    codes, blocks = functional.quantize_blockwise(tensor, blocksize=64)
    nf4, q8s = "NF4, blocks of 64", "Q8S, blocks of 64"
    return {
        (nf4, "quantise"): partial(
            functional.quantize_4bit, tensor, blocksize=64, quant_type="nf4"
        ),
        (nf4, "dequantise"): partial(functional.dequantize_4bit, values, state),
        # Not the same codes, but as many bytes.
        (q8s, "quantise"): partial(functional.quantize_blockwise, tensor, blocksize=64),
        (q8s, "dequantise"): partial(functional.dequantize_blockwise, codes, blocks),
    }


def best(cases: dict[Case, Callable[[], Any]], rounds: int, room: int) -> dict[Case, float]:
    """Seconds that every case took in its best round."""
    set_threads: Callable[[int], object] = (
        import_module("torch").set_num_threads if find_spec("torch") else lambda _: None
    )

    def timed(case: Case) -> float:
        make_room(room)
        set_threads(case[2])
        start = time.perf_counter()
        made = cases[case]()
        seconds = time.perf_counter() - start
        del made
        return seconds

    measured = take_turns(rounds, {case: partial(timed, case) for case in cases})
    return {case: min(seconds) for case, seconds in measured.items()}


def measure(quick: bool) -> tuple[list[Row], bool]:
    """Everything, in one process."""
    shape = (256, 1024) if quick else (4096, 4096)
    array = np.random.default_rng(1).standard_normal(shape, np.float32) * np.float32(0.02)
    peers = bitsandbytes(array)
    cases: dict[Case, Callable[[], Any]] = {}
    for threads in THREADS:
        cases["", "copy", threads] = partial(copied, array, threads)
        for name, scheme in SCHEMES.items():
            packed = quant.quantize(array, scheme)
            cases[name, "quantise", threads] = partial(
                quant.quantize, array, scheme, threads=threads
            )
            cases[name, "dequantise", threads] = partial(dequantized, packed, "float32", threads)
            cases[name, "dequantise to bfloat16", threads] = partial(
                dequantized, packed, "bfloat16", threads
            )
        for (name, what), work in peers.items():
            cases[name, f"their {what}", threads] = work
    spent = best(cases, 2 if quick else 7, array.nbytes)
    rows = []
    for name, what, threads in cases:
        if what == "copy" or what.startswith("their"):
            continue
        seconds = spent[name, what, threads]
        subject = f"{name}: {what}, {threads} thread{'s' * (threads > 1)}"
        ours = speed(array.nbytes, seconds)
        limit = spent["", "copy", threads]
        share = f"{limit / seconds:.0%} of its speed"
        rows.append(Row(subject, ours, f"copy: {speed(array.nbytes, limit)}", share))
        theirs = spent.get((name, f"their {what}", threads))
        if theirs is not None:
            peer = f"bitsandbytes: {speed(array.nbytes, theirs)}"
            ratio = theirs / seconds
            rows.append(Row(subject, ours, peer, f"{times(ratio)} the speed", "≥ 1×", ratio >= 1))
    return rows, bool(peers)


def speed(nbytes: int, seconds: float) -> str:
    return f"{nbytes / seconds / 1e9:.3g} GB/s"


def run(scale: Scale) -> list[Row]:
    rows, has_peer = apart(measure, scale.quick)
    if not has_peer:
        rows.append(Row("the same against bitsandbytes", "", "bitsandbytes not installed"))
    return rows
