"""Signals, forks and the end of the interpreter: whatever comes between a thread and its value."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import lazyparam as lp
from tests import checkpoint_files as files
from tests import once_scenarios as scenarios
from tests.once_forms import FORMS, LAZY_GET, Form, Runs, every_form, settle, started, until

pytestmark = pytest.mark.usefixtures("eager_switching")

unix = pytest.mark.skipif(sys.platform == "win32", reason="sends signals to itself")

PRELUDE = """
    import os, signal, sys, threading, time
    import lazyparam as lp
    from tests.once_forms import *

    armed = []

    def handler(*_):
        if armed:
            armed.clear()
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handler)

    def interrupted(work, condition=lambda: True):
        "How long after the first signal, sent once `condition` holds, `work` is ended by one."
        sent = []
        armed.append(sent)
        def send():
            until(condition)
            time.sleep(0.03)
            # One that comes just before Python itself sleeps in a lock does not wake it.
            while armed and armed[0] is sent:
                sent.append(time.perf_counter())
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.2)
        try:
            started(send)
            work()
        except KeyboardInterrupt:
            return time.perf_counter() - sent[0]
        sys.exit("no KeyboardInterrupt")
"""


def says(scene: str, *expected: str) -> None:
    """Run `scene` in a process of its own, which prints the lines `expected`."""
    done = files.run_python(textwrap.dedent(PRELUDE) + textwrap.dedent(scene))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.splitlines() == list(expected)


@unix
def test_ctrl_c_ends_a_wait_and_not_the_run() -> None:
    """python/cpython#125546, Eventual-Inc/Daft#755, PyO3/pyo3#3218: for every form."""
    says(
        """
        delays = []
        for form in FORMS:
            gate = Gate()
            made = form(gate)
            reader = started(made)
            assert gate.running.wait(30)
            delays.append(interrupted(made))
            gate.finish.set()
            settle(reader)
            assert made() == [1] and gate.runs == 1, form
        # At least every 50 ms; the machine may be busy with something else, but not each time.
        assert min(delays) < 0.1 and max(delays) < 5, delays
        print("interrupted", len(delays))
        """,
        f"interrupted {len(FORMS)}",
    )


@unix
def test_ctrl_c_in_the_factory_itself_gives_the_turn_to_one_who_waits() -> None:
    """ionelmc/python-lazy-object-proxy#3: a KeyboardInterrupt is an error like any other."""
    says(
        """
        for form in FORMS:
            runs, second = [], []
            def factory():
                runs.append(1)
                if len(runs) == 1:
                    waiter.append(started(lambda: second.append(made())))
                    time.sleep(30)
                return "value"
            waiter = []
            made = form(factory)
            assert interrupted(made, lambda: waiter) < 5
            settle(waiter[0])
            assert second == ["value"] and made() == "value" and len(runs) == 2
        print("taken over")
        """,
        "taken over",
    )


@unix
def test_ctrl_c_ends_a_factory_that_joins_a_thread_that_waits_for_it() -> None:
    """python/cpython#125037: the import lock's version of a deadlock that nobody can see."""
    says(
        """
        for form in FORMS:
            inner, threads = [], []
            def factory():
                if not threads:
                    threads.append(started(lambda: inner.append(made())))
                    threads[0].join()
                return "value"
            made = form(factory)
            assert interrupted(made, lambda: threads) < 5
            until(lambda: inner)  # Python 3.11 calls a thread ended whose join was interrupted
            assert inner == ["value"] and made() == "value"
        print("ended")
        """,
        "ended",
    )


@pytest.mark.thread_unsafe(reason="signals and their handlers are the main thread's")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
@every_form
def test_a_signal_handler_may_read_the_cell_that_its_thread_waits_for(form: Form) -> None:
    """python/cpython#125546: the handler waits too, and then both have the value."""
    made = form(Runs(0.15))
    seen: list[Any] = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(made()))
    try:
        reader = started(made)
        time.sleep(0.01)
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        value = made()
        until(lambda: bool(seen))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    settle(reader)
    assert seen == [[1]]
    assert seen[0] is value


@pytest.mark.thread_unsafe(reason="signals and their handlers are the main thread's")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
@every_form
def test_a_signal_handler_that_reads_the_cell_its_thread_makes_is_refused(form: Form) -> None:
    """Suor/funcy#184: a re-entry that nobody wrote as one."""
    seen: list[Any] = []

    def handler(*_: object) -> None:
        try:
            seen.append(made())
        except lp.LazyCycleError as error:
            seen.append(error)

    def factory() -> str:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        until(lambda: bool(seen))
        return "value"

    made = form(factory)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        assert made() == "value"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    [error] = seen
    assert isinstance(error, lp.LazyCycleError)


@pytest.mark.thread_unsafe(reason="signals and their handlers are the main thread's")
def test_an_error_of_a_signal_handler_ends_the_wait() -> None:
    """python/cpython#125546: whatever error, not KeyboardInterrupt alone."""
    if not hasattr(signal, "setitimer"):
        pytest.skip("needs timers")

    class Enough(Exception):
        pass

    def handler(*_: object) -> None:
        raise Enough

    made = LAZY_GET(Runs(0.3))
    reader = started(made)
    time.sleep(0.02)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(Enough):
            made()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    settle(reader)
    assert made() == [1]


# ---- fork ----------------------------------------------------------------------------------------

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def verdicts(scenario: str) -> set[str]:
    """What comes of `scenario` for any form, in a process of its own that may fork."""
    return set(scenarios.run_alone([(scenario, form.name, None) for form in FORMS]))


@forks
def test_a_forked_child_makes_what_the_parent_had_not_finished() -> None:
    """getsentry/sentry-python#6159, grantjenks/python-diskcache#299, python/cpython#126692."""
    assert verdicts("a_forked_child_makes_it_for_itself") == {"passes"}


@forks
def test_one_who_forks_in_a_factory_keeps_the_turn_in_both_processes() -> None:
    """iloveitaly/celery-healthcheck#45: the survivor is still in its factory."""
    assert verdicts("one_who_forks_in_a_factory_keeps_the_turn") == {"passes"}


@forks
def test_a_child_forked_by_one_who_waits_makes_it_for_itself() -> None:
    """getsentry/sentry-python#6159: the fork is in a signal handler, in the middle of a wait."""
    says(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        children = []
        def handler(*_):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                gate.finish.set()
            else:
                children.append(child)
        signal.signal(signal.SIGUSR1, handler)
        for form in FORMS:
            gate = Gate()
            made = form(gate)
            reader = started(made)
            assert gate.running.wait(30)
            def send():
                time.sleep(0.02)
                os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.02)
                until(lambda: bool(children))
                gate.finish.set()
            sender = started(send)
            parent = os.getpid()
            # In the child, this thread goes on waiting; then it has the turn.
            value = made()
            if not children:
                os._exit(0 if value == [2] else 1)
            status = os.waitpid(children.pop(), 0)[1]
            assert status == 0, (form, status)
            assert value == [1]
            settle(sender), settle(reader)
        print("all children made it")
        """,
        "all children made it",
    )


@forks
def test_a_pool_of_forked_processes_reads_what_is_there_and_makes_what_is_not() -> None:
    """iloveitaly/celery-healthcheck#45: what multiprocessing does."""
    says(
        """
        import multiprocessing, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        ready, unread = lp.Lazy(os.getpid), lp.Lazy(os.getpid)
        ready.value
        def work(_):
            return ready.value == os.getppid(), unread.value == os.getpid()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert set(pool.map(work, range(8))) == {(True, True)}
        assert not unread.is_ready
        print("pooled")
        """,
        "pooled",
    )


# ---- the end of the interpreter ------------------------------------------------------------------

ENDS = {
    "threads in factories": """
        for form in FORMS:
            started(form(lambda: busy(0.2)))
        until(lambda: len(inside) == len(FORMS))
    """,
    "threads in short factories, again and again": """
        def forever(form):
            while True:
                form(lambda: busy(0.0005))()
        for form in FORMS:
            started(lambda form=form: forever(form))
        until(lambda: len(inside) > len(FORMS))
    """,
    "threads that wait": """
        for form in FORMS:
            made = form(lambda: busy(0.3))
            for _ in range(2):
                started(made)
        until(lambda: len(inside) == len(FORMS))
    """,
    "threads that wait for what will never be": """
        for form in FORMS:
            made = form(lambda: (inside.append(1), time.sleep(3600)))
            for _ in range(2):
                started(made)
        until(lambda: len(inside) == len(FORMS))
    """,
    "a thread whose factory fails over and over": """
        def forever(form):
            made = form(Runs(failures=10**9))
            while True:
                try:
                    made()
                except BaseException:
                    inside.append(1)
        for form in FORMS:
            started(lambda form=form: forever(form))
        until(lambda: len(inside) > 20)
    """,
    "an exit handler that reads what a thread is making": """
        for form in FORMS:
            made = form(lambda: busy(0.05))
            started(made)
            atexit.register(made)
        until(lambda: len(inside) == len(FORMS))
    """,
    "values that read others as they go": """
        class Late:
            def __init__(self):
                self.other = lp.Lazy(lambda: 3)
            def __del__(self):
                assert self.other.value == 3
        kept = [form(Late) for form in FORMS]
        for made in kept:
            made()
    """,
}

END_PRELUDE = """
    import atexit, threading, time
    import lazyparam as lp
    from tests.once_forms import *
    from tests.helpers import Boom

    inside = []

    def busy(seconds):
        "Runs Python all the time, so it wants the interpreter back when it is going."
        inside.append(1)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass

    atexit.register(lambda: print("end"))
"""


@pytest.fixture(scope="module")
def ended() -> dict[str, Any]:
    """What came of each scene; they do not mind each other, so they run at the same time."""
    with ThreadPoolExecutor(3) as pool:
        texts = [textwrap.dedent(END_PRELUDE) + textwrap.dedent(scene) for scene in ENDS.values()]
        return dict(zip(ENDS, pool.map(files.run_python, texts), strict=True))


@pytest.mark.parametrize("scene", ENDS)
def test_the_interpreter_ends_well_beside(scene: str, ended: dict[str, Any]) -> None:
    """Daemon threads neither hold up the process nor crash it, whichever form they are in."""
    done = ended[scene]
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "end\n")


def test_a_wait_does_not_need_the_main_thread() -> None:
    """python/cpython#125037: a thread that waits while the main one is in a join."""
    made = LAZY_GET(Runs(0.02))
    threads = [threading.Thread(target=made) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        settle(thread)
    assert made() == [1]
