"""The end of the interpreter: daemon threads neither crash nor hold up the process."""

from __future__ import annotations

import textwrap

import pytest

from tests import checkpoint_files as files

PRELUDE = """
    import atexit, threading, time
    import numpy as np
    import lazyparam as lp

    started = threading.Event()

    class Busy:
        "Runs Python for a while, so it wants the interpreter all the time."
        def __init__(self, seconds):
            self.seconds = seconds
        def __call__(self, plan):
            started.set()
            end = time.monotonic() + self.seconds
            while time.monotonic() < end:
                pass
            return np.ones(plan.shape, plan.dtype)

    def forever(work):
        def run():
            while True:
                work()
        threading.Thread(target=run, daemon=True).start()
"""

SCENES = {
    "threads in initialisers": """
        p = lp.Param(2, Busy(0.3))
        for _ in range(2):
            forever(lambda: p.clone(independent=True).val())
        started.wait(30)
    """,
    "threads in short initialisers": """
        p = lp.Param(2, Busy(0.0005))
        for _ in range(3):
            forever(lambda: p.clone(independent=True).val())
        started.wait(30)
    """,
    "threads that wait for one another": """
        p = lp.Param(2, Busy(0.5))
        for read in (p.val, p.clone().val, p.init_mapper(np.negative).val):
            forever(read)
        started.wait(30)
    """,
    "threads in native draws": """
        for _ in range(2):
            forever(lambda: lp.Param(1 << 22, lp.init.ones()).val())
        time.sleep(0.1)
    """,
    "a thread in initialize": """
        def work():
            model = lp.Module()
            model.ps = [lp.Param(2, Busy(0.01)) for _ in range(50)]
            model.initialize(threads=2)
        forever(work)
        started.wait(30)
    """,
    "an exit handler that reads and initialises": """
        p = lp.Param(2, Busy(0.01))
        forever(lambda: p.clone(independent=True).val())
        started.wait(30)
        print(p.val().sum())
    """,
}

LATE = """
    import atexit

    def late():
        import lazyparam as lp
        model = lp.Module()
        model.ps = [lp.Param(2, lp.init.ones()) for _ in range(4)]
        model.initialize(threads=2)
        print("late", sum(p.val().sum() for p in model.ps))

    atexit.register(late)  # before lazyparam's own, so it runs after it
"""


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_an_interpreter_ends_well_beside(scene: str) -> None:
    done = files.run_python("\n".join(map(textwrap.dedent, (LATE, PRELUDE, scene))))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "late 8.0"
