"""``Module.initialize``: all lazy parameters at once, in parallel, and how it stops."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests import checkpoint_files as files
from tests.helpers import Boom, Counting, Linear, Tied, never, race


class Stack(lp.Module):
    """`count` parameters, each with `init`."""

    def __init__(self, count: int, init: Any, shape: Any = 3) -> None:
        self.of = [lp.Param(shape, init) for _ in range(count)]


def test_initialize_brings_all_into_being_and_gives_the_module_itself() -> None:
    model = Linear(3, 2, lp.init.ones())
    assert model.initialize() is model
    assert all(param.is_initialized for param in model.parameters())
    assert model.weight.value.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert model.initialize() is model


def test_initialize_runs_each_initialiser_once_and_tied_ones_together() -> None:
    init = Counting()
    model = Tied(init)
    race([model.initialize, model.initialize, model.middle[1].initialize])
    assert init.runs == 5
    assert model.head.value is model.embed.value


def test_initialize_loads_from_a_file_and_runs_no_initialiser(tmp_path: Path) -> None:
    arrays = {f"of.{at}": np.full(5000, at, np.float32) for at in range(40)}
    path = tmp_path / "model.safetensors"
    path.write_bytes(files.table(arrays))
    for mode in ("copy", "view"):
        model = Stack(40, never, 5000).load_file(path, mode=mode).initialize()
        assert all(param.is_initialized for param in model.parameters())
        assert [param.value[-1] for param in model.of] == list(range(40))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_initialize_uses_as_many_threads_as_it_is_told(threads: int) -> None:
    lock, now, most = threading.Lock(), 0, 0

    def init(plan: lp.Plan) -> np.ndarray:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.05)
        with lock:
            now -= 1
        return np.zeros(plan.shape, plan.dtype)

    Stack(12, init).initialize(threads=threads)
    assert most == threads


@pytest.mark.parametrize("count", [0, 1, 3])
def test_more_threads_than_params_do_no_harm(count: int) -> None:
    init = Counting()
    Stack(count, init).initialize(threads=64)
    assert init.runs == count


@pytest.mark.parametrize("threads", [0, -1, -(2**63)])
@pytest.mark.parametrize("count", [0, 2])
def test_at_least_one_thread_has_to_work(threads: int, count: int) -> None:
    with pytest.raises(lp.DeclarationError, match=f"found threads={threads}"):
        Stack(count, never).initialize(threads=threads)


def test_progress_is_told_of_the_bytes_done_and_ends_at_all_of_them() -> None:
    told: list[tuple[int, int]] = []
    model = Stack(30, Counting(seconds=0.01), 100)
    model.of[0].val()
    model.initialize(threads=2, progress=lambda done, total: told.append((done, total)))
    assert {total for _, total in told} == {29 * 400}, "what is there already is not counted"
    assert told[-1][0] == 29 * 400
    counts = [done for done, _ in told]
    assert counts == sorted(counts)
    assert len(told) > 1, "it is told on the way, too"


def test_progress_moves_while_one_large_parameter_is_drawn() -> None:
    told: list[int] = []
    # Some tenths of a second of arithmetic, in little memory.
    model = Stack(1, lp.init.orthogonal(), (3072, 3072))
    model.initialize(threads=1, progress=lambda done, _: told.append(done))
    assert told == sorted(told)
    assert told[-1] == model.of[0].nbytes
    assert any(0 < done < told[-1] for done in told)


def test_progress_never_counts_more_than_a_derived_parameter_has() -> None:
    told: list[int] = []
    model: Any = lp.Module()
    model.small = lp.Param((4096, 1024), lp.init.normal()).init_mapper(
        lambda a: a.astype("float16"), dtype="float16"
    )
    model.initialize(threads=1, progress=lambda done, _: told.append(done))
    assert told[-1] == max(told) == 2 * 4096 * 1024


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_threads_without_a_parameter_of_their_own_help_with_a_large_one(threads: int) -> None:
    """That they do shows in the benchmarks; here, that nothing depends on it."""
    model: Any = lp.Module()
    model.bias = lp.Param(3, lp.init.normal())
    model.weight = lp.Param((3000, 1000), lp.init.normal())
    model.scale = lp.Param(5, lp.init.normal())
    model = model.seed(7)
    told: list[int] = []
    model.initialize(threads=threads, progress=lambda done, _: told.append(done))
    assert told[-1] == 4 * 3_000_008
    key = lp.init.Key(7, "weight")
    assert np.array_equal(
        model.weight.value, lp.init.fill(lp.init.normal(), key, (3000, 1000), threads=1)
    )


def test_an_error_in_progress_stops_and_comes_out() -> None:
    init = Counting(seconds=0.02)

    def progress(done: int, total: int) -> None:
        raise Boom(f"{total} bytes")

    with pytest.raises(Boom, match="12000 bytes"):
        Stack(1000, init).initialize(threads=1, progress=progress)
    assert 0 < init.runs < 1000


def test_a_progress_bar_is_shown_on_request_and_else_only_on_a_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Stack(2, lp.init.zeros()).initialize()
    Stack(2, lp.init.zeros()).initialize(progress=False)
    assert capfd.readouterr().err == ""
    Stack(2, lp.init.zeros()).initialize(progress=True)
    err = capfd.readouterr().err
    assert "Stack: 100%" in err
    assert "24.0/24.0" in err


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_error_stops_and_leaves_the_rest_lazy(threads: int) -> None:
    init = Counting(seconds=0.01)
    model = Stack(200, init)
    model.of[5] = lp.Param(3, Counting(failures=1))
    with pytest.raises(Boom, match="run 1") as caught:
        model.initialize(threads=threads)
    assert caught.value.__notes__ == ["while initialising of.5"]
    there = [param.is_initialized for param in model.of]
    assert not there[5]
    assert init.runs == sum(there) <= 5 + threads
    # Nothing is spoilt: the next attempt does the rest, and only that.
    model.initialize()
    assert all(param.is_initialized for param in model.of)
    assert init.runs == 199


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, Boom])
def test_whatever_an_initialiser_raises_comes_out_as_it_is(kind: type[BaseException]) -> None:
    def init(plan: lp.Plan) -> np.ndarray:
        raise kind("mine")

    with pytest.raises(kind, match="mine") as caught:
        Stack(3, init).initialize(threads=1)
    assert caught.value.__notes__ == ["while initialising of.0"]


INTERRUPTED = """
    import os, signal, threading, time
    import numpy as np
    import lazyparam as lp

    # Also where whoever started this process ignores it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    beats, stop = [], threading.Event()

    def heart():
        while not stop.is_set():
            beats.append(1)
            time.sleep(0.005)

    def init(plan):
        time.sleep(0.2)
        return np.zeros(plan.shape, plan.dtype)

    model = lp.Module()
    model.of = [lp.Param(3, init) for _ in range(500)]
    threading.Thread(target=heart).start()
    threading.Timer(0.6, os.kill, (os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    try:
        model.initialize(threads=2)
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - begin)
    stop.set()
    print("beats", len(beats))
    print("made", sum(param.is_initialized for param in model.of))
    model.of = model.of[:1]
    model.initialize()
"""


def test_ctrl_c_stops_initialize_and_other_threads_run_meanwhile() -> None:
    done = files.run_python(INTERRUPTED)
    assert done.returncode == 0, done.stderr
    interrupted, beats, made = (line.split() for line in done.stdout.splitlines())
    assert interrupted[0] == "interrupted"
    assert 0.5 < float(interrupted[1]) < 2.5
    # Held up for the 0.6 s before the signal, the other thread would have had none.
    assert int(beats[1]) > 30
    # What had been begun was finished, and nothing more was begun.
    assert 2 <= int(made[1]) <= 16


@pytest.mark.parametrize("threads", [1, 2])
def test_an_initialize_that_needs_what_its_caller_is_making_is_an_error_at_once(
    threads: int,
) -> None:
    """B48: also through threads that work for the one that makes it."""

    class Model(lp.Module):
        def __init__(self) -> None:
            self.outer = lp.Param(3, self.make)
            self.inner = [lp.Param(3, lambda plan: self.outer.val() + 1) for _ in range(3)]

        def make(self, plan: lp.Plan) -> np.ndarray:
            self.initialize(threads=threads, progress=False)
            return np.zeros(plan.shape, plan.dtype)

    model = Model()
    for start in (model.outer.val, model.inner[0].val, model.initialize):
        with pytest.raises(lp.LazyCycleError, match="outer"):
            start()
    assert not any(param.is_initialized for param in model.parameters())


@pytest.mark.thread_unsafe(reason="sets the switch interval of the process")
def test_a_native_draw_lets_other_threads_run() -> None:
    """B50: where threads never take turns by themselves, another runs only if one lets go."""
    beats, stop, beating = 0, threading.Event(), threading.Event()

    def heart() -> None:
        nonlocal beats
        while not stop.is_set():
            beats += 1
            beating.set()
            time.sleep(0)

    before = sys.getswitchinterval()
    thread = threading.Thread(target=heart, daemon=True)
    try:
        sys.setswitchinterval(1e6)
        thread.start()
        assert beating.wait(30)
        begun = beats
        lp.Param(16 << 20, lp.init.ones()).val()
        assert beats > begun
    finally:
        sys.setswitchinterval(before)
        stop.set()
    thread.join(30)


def test_initialize_may_be_called_from_several_threads_at_once() -> None:
    init = Counting(seconds=0.005)
    model = Stack(40, init)
    results = race([lambda: model.initialize(threads=2)] * 6)
    assert all(result is model for result in results)
    assert init.runs == 40


def test_a_bar_that_is_not_shown_touches_nothing_of_the_whole_process() -> None:
    """Law 8: no lock and no thread that a fork would break; one that is shown has no thread."""
    code = """
        import sys, threading
        import lazyparam as lp
        for progress in (None, False, lambda done, total: None):
            lp.Module().initialize(progress=progress)
            model = lp.Module()
            model.p = lp.Param(3, lp.init.ones())
            model.initialize(progress=progress)
        assert "tqdm" not in sys.modules
        model.p = lp.Param(3, lp.init.ones())
        model.initialize(progress=True)
        assert len(threading.enumerate()) == 1, threading.enumerate()
    """
    done = files.run_python(code)
    assert done.returncode == 0, done.stderr
    assert "Module: 100%" in done.stderr
