"""A forked child: what was being made in the parent is made anew, and nobody waits for ghosts."""

from __future__ import annotations

import os
import sysconfig
import textwrap

import pytest

from tests import checkpoint_files as files

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

PRELUDE = """
    import os, sys, threading, time, warnings
    import numpy as np
    import lazyparam as lp

    warnings.simplefilter("ignore", DeprecationWarning)  # forks of several threads, from 3.12 on

    def in_child(work):
        child = os.fork()
        if child == 0:
            try:
                work()
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    class Held:
        # Flags, not Events: the child may lack the thread that holds the lock inside one.
        running = finish = False
        def __call__(self, plan):
            self.running = True
            wait_until(lambda: self.finish)
            return np.ones(plan.shape, plan.dtype)

    def wait_until(done):
        end = time.monotonic() + 30
        while not done():
            assert time.monotonic() < end
            time.sleep(0.001)
"""

SCENES = {
    "a param that was ready": """
        p, q = lp.Param(2, lp.init.ones()), lp.Param(2, lp.init.ones())
        p.val()
        def work():
            assert p.is_initialized and p.val().sum() == q.val().sum() == 2
    """,
    "a param that another thread was making": """
        init = Held()
        p = lp.Param(2, init)
        derived = p.init_mapper(lambda a: a + 1)
        threads = [threading.Thread(target=r, daemon=True) for r in (p.val, derived.val)]
        for thread in threads: thread.start()
        wait_until(lambda: init.running)
        def work():
            init.finish = True
            assert derived.val(timeout=20).tolist() == [2, 2]
            assert p.val(timeout=20).tolist() == [1, 1]
    """,
    "a param that initialize was making": """
        init = Held()
        model = lp.Module()
        model.ps = [lp.Param(2, init), lp.Param(2, init), lp.Param(2, lp.init.ones())]
        threading.Thread(target=model.initialize, daemon=True).start()
        wait_until(lambda: init.running)
        def work():
            init.finish = True
            assert sum(p.val(timeout=20).sum() for p in model.ps) == 6
            model.initialize(progress=False)
    """,
    "a param whose initialiser forks": """
        codes = []
        def init(plan):
            def inner():
                try:
                    p.val()
                except lp.LazyCycleError:
                    return
                raise AssertionError("the turn was lost")
            codes.append(in_child(inner))
            return np.ones(plan.shape, plan.dtype)
        p = lp.Param(2, init)
        p.val()
        assert codes == [0]
        def work():
            assert p.val().sum() == 2
    """,
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_a_forked_child_reads(scene: str) -> None:
    """The child makes for itself what the parent had not finished."""
    lines = (PRELUDE, scene, "os._exit(in_child(work))")
    done = files.run_python("\n".join(map(textwrap.dedent, lines)))
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(
    FREE_THREADED,
    reason="a child of CPython without a GIL may find the lock of an object held by a thread that"
    " it does not have: forks beside threads that call one functools.cache hang by themselves",
)
def test_many_forks_beside_busy_threads_all_read() -> None:
    code = """
    stop = threading.Event()
    board = [lp.Param(8, lp.init.ones())]
    def busy():
        while not stop.is_set():
            board[0] = lp.Param(8, lp.init.ones()).init_mapper(lambda a: a * 2)
            for _ in range(3):
                board[0].init_mapper(lambda a: a + 1).val()
    # Started before the forks: CPython itself hangs where one meets a thread that is starting.
    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    shared = lp.Param(8, lp.init.ones())
    mine = shared.init_mapper(lambda a: a + 1)
    def work():
        assert mine.val(timeout=20).sum() == 16
        assert board[0].val(timeout=20).sum() in (8, 16)
    codes = [in_child(work) for _ in range(60)]
    stop.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * 60, codes
"""
    done = files.run_python(textwrap.dedent(PRELUDE) + textwrap.dedent(code))
    assert done.returncode == 0, done.stderr


def test_one_who_forks_in_a_factory_finishes_beside_threads_that_give_up_waiting() -> None:
    """They touch the bell of its turn while they are detached; the child must not need that one."""
    code = """
    is_child = False
    def factory():
        global is_child
        for reader in readers:
            reader.start()
        time.sleep(0.05)
        for _ in range(100):
            child = os.fork()
            if child == 0:
                is_child = True
                return 1
            wait_until(lambda: os.waitpid(child, os.WNOHANG)[0])
        return 2

    cell = lp.Lazy(factory)
    stop = False
    def read():
        while not stop:
            try:
                cell.get(timeout=0)
            except TimeoutError:
                pass

    readers = [threading.Thread(target=read, daemon=True) for _ in range(4)]
    value = cell.get()
    if is_child:
        os._exit(0)
    stop = True
    assert value == 2
    for reader in readers:
        reader.join()
"""
    done = files.run_python(textwrap.dedent(PRELUDE) + textwrap.dedent(code))
    assert done.returncode == 0, done.stderr


def test_a_child_forked_while_the_interpreter_ends_goes_on() -> None:
    """The thread that ends it has not come along, so there is nothing to stay out of."""
    code = """
    is_child = False
    def factory():
        global is_child
        time.sleep(0.3)
        try:
            child = os.fork()
        except RuntimeError:
            # Some versions of Python refuse to fork then.
            print([7], flush=True)
            return 1
        if child == 0:
            is_child = True
        else:
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            print(codes, flush=True)
        return 1

    codes = []
    def body():
        lp.Lazy(factory).get()
        if is_child:
            os._exit(lp.Lazy(lambda: 7).get())

    threading.Thread(target=body, daemon=True).start()
    time.sleep(0.1)
"""
    done = files.run_python(textwrap.dedent(PRELUDE) + textwrap.dedent(code), timeout=30)
    assert done.stdout.strip() == "[7]", done.stderr
