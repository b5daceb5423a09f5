"""What all tests share: threads switch as often as asked for, and a GIL that comes back fails."""

from __future__ import annotations

import gc
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint_files import table

# Before anything imports it: asserts that fail there say what they saw, as those in tests do.
pytest.register_assert_rewrite("lazyparam.testing")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--switch-interval",
        type=float,
        default=None,
        help="seconds between thread switches in every test (default: Python's own)",
    )
    parser.addoption(
        "--proof",
        action="store_true",
        help="run the tests of stress at full size: minutes instead of seconds",
    )


def gil_came_back() -> bool:
    """Whether this build has no GIL and yet runs with it, because something imported needs it."""
    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    return free and bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def pytest_sessionfinish(session: pytest.Session) -> None:
    if gil_came_back():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


LIBRARIES = ("torch", "jax", "cupy", "peft", "bitsandbytes")
"""Array libraries beside NumPy, and what adapters and quantisation are compared with."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if absent := [library for library in LIBRARIES if not find_spec(library)]:
        terminalreporter.section("left out", yellow=True)
        terminalreporter.line(f"not installed, and so not tested: {', '.join(absent)}")
    if gil_came_back():
        terminalreporter.section("the GIL was switched on", red=True, bold=True)
        terminalreporter.line("what ran with it proves nothing about a build without it")


@pytest.fixture(autouse=True)
def _switch_interval(request: pytest.FixtureRequest) -> Iterator[None]:
    wanted = request.config.getoption("--switch-interval")
    before = sys.getswitchinterval()
    if wanted is not None:
        sys.setswitchinterval(wanted)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(autouse=sys.version_info < (3, 12))
def _silent_collector() -> Iterator[None]:
    """No callbacks of the collector, such as the one that comes with importing JAX.

    Python 3.11 makes the ``__dict__`` of an object when it is first asked for. A collection that
    this sets off may let another thread run, if it has a callback in Python; if that thread asks
    for the same ``__dict__``, the object gets two over one memory, which is then freed twice.
    """
    before = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = before


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Threads change as often as the interpreter can: for tests of concurrency."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def proof(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """Picks the size of a test: the first of two, the second one under ``--proof``."""
    is_full = request.config.getoption("--proof")
    return lambda short, full: full if is_full else short


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., Path]:
    """Writes arrays to a file of its own and gives its path."""

    def write(**arrays: np.ndarray) -> Path:
        # A new folder each time: threads that run one test together share this fixture.
        path = Path(tempfile.mkdtemp(dir=tmp_path)) / "model.safetensors"
        path.write_bytes(table({name.replace("__", "."): a for name, a in arrays.items()}))
        return path

    return write
