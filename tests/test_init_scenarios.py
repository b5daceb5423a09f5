"""What went wrong with initialisers elsewhere, each case by the name of its report."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from lazyparam.init import Key, fill
from tests.helpers import Bag, Counting, Linear, never, race, values

NORMAL = lp.init.normal()


# ---- work that nobody needs ----------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["copy", "view"])
def test_initialisers_of_what_a_checkpoint_has_never_run(
    stored: Callable[..., Path], mode: Any
) -> None:
    """huggingface/transformers#9205, #21913, #26258, #27709: 20 s of draws, all overwritten."""
    arrays = {
        "layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "layer.bias": np.ones(2, np.float32),
    }
    other = Counting()
    model = Bag(layer=Linear(3, 2, never), other=lp.Param(4, other))
    loaded: Any = model.load_file(stored(**arrays), strict=False, mode=mode).initialize()
    for path, param in loaded.layer.named_parameters():
        np.testing.assert_array_equal(param.value, arrays[f"layer.{path}"])
    assert other.runs == 1, "and what it has not is drawn"


def test_a_parameter_is_initialised_once_though_parent_and_child_ask() -> None:
    """huggingface/transformers#105, #21687, #21431, #17877: drawn two to four times."""
    init = Counting(0.01)
    child = Linear(3, 2, init)
    parent = Bag(child=child, again=[child], copies={"a": child.clone()})
    asked: list[Callable[[], Any]] = [
        *(parent.initialize, child.initialize),
        *(partial(values, parent), partial(values, child)),
    ]
    found = race(asked * 2)
    assert not [error for error in found if isinstance(error, BaseException)]
    parent.initialize()
    child.initialize()
    assert init.runs == 2, "one weight and one bias"
    assert values(parent)["child.weight"] == values(child)["weight"]


PEAK = """
import sys
from pathlib import Path
import lazyparam as lp

def memory(what):
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == what:
            return int(value.split()[0]) * 1024

def draw(count):
    init = getattr(lp.init, sys.argv[1])()
    return lp.init.fill(init, lp.init.Key(1), count, sys.argv[2], threads=4)

draw(1 << 20)  # what is needed once
before = memory("VmRSS")
kept = draw(1 << 25)
print(memory("VmHWM") - before - kept.nbytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["normal", "trunc_normal", "uniform"])
def test_a_fill_takes_no_memory_but_that_of_its_output(name: str, dtype: str) -> None:
    """vllm-project/vllm#54712, #54958: two temporaries of the full size, in a wider dtype.

    For bfloat16, one of float32 would be 128 MiB.
    """
    command = [sys.executable, "-c", PEAK, name, dtype]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    # Some kilobytes of stack for each thread, and what the kernel has not counted yet.
    assert int(done.stdout) <= 1 << 20


# ---- threads -------------------------------------------------------------------------------------


def test_eight_threads_that_fill_at_once_get_the_right_values() -> None:
    """pytorch/pytorch#22414, #21731: one generator and one lock for all."""
    params = [lp.Param((257, 301), NORMAL, rng_name=str(at)) for at in range(8)]
    model = Bag(params=params).seed(5)
    found = race([partial(getattr, param, "value") for param in model.parameters()])
    for at, value in enumerate(found):
        assert isinstance(value, np.ndarray), value
        assert value.tobytes() == fill(NORMAL, Key(5, str(at)), (257, 301)).tobytes()


@pytest.mark.thread_unsafe(reason="measures time")
def test_a_long_fill_does_not_keep_others_waiting() -> None:
    """pytorch/pytorch#22414, #21731: a lock that is held for the whole of a kernel."""
    span: list[float] = []

    def long() -> None:
        span.append(time.perf_counter())
        fill(NORMAL, Key(1), 1 << 25, threads=1)
        span.append(time.perf_counter())

    thread = threading.Thread(target=long)
    thread.start()
    times = []
    while thread.is_alive():
        fill(NORMAL, Key(2), 100)
        times.append(time.perf_counter())
    thread.join()
    began, ended = span
    within = [began, *(at for at in times if began < at < ended), ended]
    pause = max(later - earlier for earlier, later in pairwise(within))
    assert pause < 0.8 * (ended - began)


def make(seed: int) -> dict[str, bytes]:
    model = Bag(layers=[Linear(9, 7, NORMAL) for _ in range(5)]).seed(seed)
    return values(model.initialize())


def test_models_made_by_many_threads_are_those_made_by_one() -> None:
    """LaurentMazare/tch-rs#263, pytorch/pytorch#3794, #4777, #53983: other values, or a crash."""
    expected = [make(seed) for seed in range(4)]
    for _ in range(5):
        assert race([partial(make, seed) for seed in range(4)] * 2) == expected * 2


# ---- what a value depends on ---------------------------------------------------------------------


def test_modules_without_parameters_change_nothing() -> None:
    """google/flax#72, #77, tensorflow/tensorflow#54442: a dropout more, and all is drawn anew."""
    plain = Bag(a=Linear(3, 2, NORMAL), b=Linear(2, 3, NORMAL))
    empty = Bag(rate=0.5)
    wrapped = Bag(drop=Bag(), **vars(Linear(3, 2, NORMAL)))
    fuller = Bag(first=empty, a=wrapped, drop=empty, b=Linear(2, 3, NORMAL))
    assert values(fuller.seed(3)) == values(plain.seed(3))


def test_shards_differ_and_are_not_correlated() -> None:
    """pytorch/torchtitan#3106, pytorch/pytorch#196562: each rank draws the same shard."""
    shape = (8, 4096)
    shards = [
        fill(NORMAL, Key(1, "layers", layer, "w"), shape, box=np.s_[rank : rank + 1, :]).ravel()
        for layer in range(3)
        for rank in range(8)
    ]
    assert len({shard.tobytes() for shard in shards}) == 24
    correlations = np.corrcoef(np.stack(shards))[np.triu_indices(24, 1)]
    assert np.abs(correlations).max() < 4.5 / 64
    # Nor at any distance that blocks suggest.
    for shift in (1, 16, 32, 64):
        moved = [np.roll(shard, shift) for shard in shards]
        assert np.abs(np.corrcoef(shards, moved)[:24, 24:]).max() < 4.5 / 64


# ---- distributions -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_bounds_far_away_leave_a_normal_draw_alone(dtype: str) -> None:
    """pytorch/pytorch#145498, #155588, #175046, #174164, pytorch/torchtitan#2269: a mass at -2.

    A small deviation is usual for weights, and -2 is then an outlier of 2000 deviations.
    """
    drawn = fill(lp.init.trunc_normal(0, 1e-3, -2, 2), Key(1), 1 << 20, dtype)
    sample = drawn.astype(np.float64) / 1e-3
    assert 4.5 < np.abs(sample).max() < 6.56
    kurtosis = (sample**4).mean() / (sample**2).mean() ** 2
    assert abs(kurtosis - 3) < 0.02


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_no_more_is_rounded_to_a_bound_than_lies_next_to_it(dtype: str) -> None:
    """pytorch/pytorch#145498, #175046: a mass at the lower bound, of draws that failed."""
    sample = fill(lp.init.trunc_normal(), Key(1), 1 << 20, dtype).astype(np.float64)
    step = 2.0 ** {"bfloat16": -7, "float16": -10}[dtype]
    density = math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2))
    expected = density * step / 2 * sample.size
    for bound in (-2, 2):
        assert abs((sample == bound).sum() - expected) < 4.5 * math.sqrt(expected) + 0.02 * expected


@pytest.mark.parametrize("shape", [(1024, 1024), (1100, 1000)])
def test_large_orthogonal_matrices_are_orthogonal_too(shape: tuple[int, int]) -> None:
    """tensorflow/tensorflow#22226, keras-team/keras#11120: an error of 1e-2 from 1000 rows on."""
    q = fill(lp.init.orthogonal(), Key(1), shape).astype(np.float64)
    assert np.abs(q.T @ q - np.eye(shape[1])).max() < 2e-6


def test_bfloat16_draws_have_as_many_values_as_there_are() -> None:
    """numpy/numpy#17478: a bit is wasted; JAX's normal numbers in bfloat16 have 128 values."""
    drawn = fill(NORMAL, Key(1), 1 << 22, "bfloat16")
    assert len(np.unique(drawn.view(np.uint16))) >= 4000
    assert np.abs(drawn.astype(np.float32)).max() >= 4.5


def test_a_sparse_draw_goes_by_its_key() -> None:
    """pytorch/pytorch#196941, LuxDL/Lux.jl#1185: the zeros ignore the generator that is given."""
    init = lp.init.sparse(0.5)
    one, same, other = (fill(init, Key(seed), (40, 50)) == 0 for seed in (1, 1, 2))
    assert (one == same).all()
    assert 0.4 < (one == other).mean() < 0.6
