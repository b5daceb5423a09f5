"""The same bits in every process, and in threads whose arithmetic somebody else has altered."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import pickle
import platform
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_all_start_methods, get_context
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from lazyparam import init
from lazyparam.init import Key, fill
from tests.helpers import Bag, Linear

# ---- processes -----------------------------------------------------------------------------------

METHODS = [method for method in ("fork", "spawn") if method in get_all_start_methods()]

in_processes = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forks beside threads


def net() -> Bag:
    """A tie, a mapper, and every kind of draw; nothing of it is there yet."""
    shared = lp.Param((5, 3), init.uniform(-1, 1))
    return Bag(
        embed=shared,
        layers=[Linear(7, 7, init.normal()) for _ in range(2)],
        wide=lp.Param((40, 5), init.sparse(0.2), dtype="float64"),
        half=lp.Param(31, init.trunc_normal(), dtype="bfloat16"),
        matrix=lp.Param((6, 9), init.orthogonal()),
        stacked=lp.Param((3, 4, 5), init.xavier_normal(), batch_axes=[0], rng_name="x"),
        head=shared,
    )


def drawn(param: lp.Param[Any]) -> tuple[int, bytes]:
    """Which process this is, and the bits of a parameter that came along lazy."""
    assert not param.is_initialized
    return os.getpid(), param.value.tobytes()


def shard(key: Key, box: slice) -> np.ndarray:
    return fill(init.normal(), key, (64, 33), box=[box, slice(None)], threads=1)


@in_processes
@pytest.mark.thread_unsafe(reason="forks while other threads run")
@pytest.mark.parametrize("method", METHODS)
def test_lazy_parameters_draw_the_same_bits_in_the_processes_of_a_pool(method: str) -> None:
    """B56: seeded by paths, or by keys that the declaration has decided."""
    params = [*net().seed(42).parameters(), *net().parameters()]
    with get_context(method).Pool(2) as pool:
        found = pool.map(drawn, params, chunksize=1)
        assert not any(param.is_initialized for param in params)
        assert os.getpid() not in {process for process, _ in found}
        assert [value for _, value in found] == [param.value.tobytes() for param in params]


@in_processes
@pytest.mark.thread_unsafe(reason="forks while other threads run")
@pytest.mark.parametrize("method", METHODS)
def test_processes_that_each_fill_a_shard_make_up_the_whole(method: str) -> None:
    """pytorch/torchtitan#3106, pytorch/pytorch#196562: each rank has its own rows, and no model."""
    key = Key(7, "layers", 3, "weight")
    boxes = [slice(0, 9), slice(9, 40), slice(40, 64)]
    with get_context(method).Pool(2) as pool:
        shards = pool.map(partial(shard, key), boxes, chunksize=1)
    assert np.concatenate(shards).tobytes() == fill(init.normal(), key, (64, 33)).tobytes()


@in_processes
@pytest.mark.thread_unsafe(reason="forks while other threads run")
@pytest.mark.parametrize("method", METHODS)
def test_errors_of_declarations_come_back_whole_from_a_pool(method: str) -> None:
    with get_context(method).Pool(1) as pool, pytest.raises(lp.DeclarationError) as caught:
        pool.apply(init.normal, (0.0, -1.0))
    error = caught.value
    assert (error.problem, error.found) == ("std has to be positive", "-1")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


# ---- the floating-point environment --------------------------------------------------------------

IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
UPWARD = 0x800 if IS_X86 else 0x400000
"""FE_UPWARD of the C library: x86-64, or AArch64."""
FLUSH = 0x8040
"""Of MXCSR: results that are subnormal become zero, and so do operands."""


@contextmanager
def rounding_up(libm: ctypes.CDLL) -> Iterator[None]:
    """This thread rounds towards infinity."""
    before = libm.fegetround()
    assert libm.fesetround(UPWARD) == 0
    try:
        assert np.float32(1) + np.float32(1e-30) > 1
        yield
        assert libm.fegetround() == UPWARD, "a fill has to put back what it found"
    finally:
        libm.fesetround(before)


@contextmanager
def flushing(libm: ctypes.CDLL) -> Iterator[None]:
    """This thread takes subnormal numbers for zeros, as -ffast-math makes it."""
    # The environment of x86-64 ends with MXCSR, its eighth word.
    before, altered = (ctypes.c_uint32 * 8)(), (ctypes.c_uint32 * 8)()
    assert libm.fegetenv(before) == 0
    altered[:] = before[:]
    altered[7] |= FLUSH
    assert libm.fesetenv(altered) == 0
    try:
        if np.float32(1e-30) * np.float32(1e-10) != 0:
            pytest.skip("this C library does not set MXCSR like that")
        yield
        assert np.float32(1e-30) * np.float32(1e-10) == 0, "a fill has to put back what it found"
    finally:
        libm.fesetenv(before)


ALTERED = {"rounding towards infinity": rounding_up, "subnormal numbers flushed": flushing}


def draws() -> list[bytes]:
    """What an altered environment would show in: subnormal values, gains, fans, square roots."""
    key = Key(3, "w")
    narrow = [
        *(init.normal(), init.normal(0.1, 0.7), init.normal(0, 1e-40), init.uniform(-0.1, 0.3)),
        *(init.trunc_normal(), init.trunc_normal(0.1, 0.3, -1, 0.9), init.trunc_normal(0, 1, 3, 9)),
        *(init.uniform(0, 1e-39), init.kaiming_uniform("fan_out", "leaky_relu", 0.3)),
        *(init.lecun_normal(), init.xavier_normal(), init.variance_scaling(0.7, "fan_geo_avg")),
        *(init.orthogonal(0.3), init.sparse(0.4), init.constant(0.1)),
    ]
    values = [fill(one, key, (65, 129), "float32", threads=2) for one in narrow]
    values += [fill(one, key, (65, 129), "float64") for one in narrow]
    small = [init.normal(0, 1e-6), init.uniform(-0.1, 0.3), init.trunc_normal()]
    values += [fill(one, key, 999, dtype) for one in small for dtype in ("float16", "bfloat16")]
    values.append(fill(init.normal(0, 1e-310), key, 999, "float64"))
    values.append(fill(init.normal(), key, 1 << 18, threads=4))
    return [value.tobytes() for value in values]


@pytest.mark.skipif(sys.platform != "linux", reason="knows the C library of Linux")
@pytest.mark.parametrize("how", ALTERED)
def test_an_altered_rounding_mode_changes_no_bit_and_is_left_as_it_was(how: str) -> None:
    """rust-random/rand#894, and whatever a library loaded with -ffast-math does to its threads.

    In a thread of its own, whose helpers inherit what it has altered.
    """
    if how.startswith("subnormal") and not IS_X86:
        pytest.skip("MXCSR is x86-64's")
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    expected = draws()
    outcome: list[Any] = []

    def work() -> None:
        try:
            with ALTERED[how](libm):
                outcome.append(draws())
        except BaseException as error:  # pytest's skip is one
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    (found,) = outcome
    if isinstance(found, BaseException):
        raise found
    assert found == expected
