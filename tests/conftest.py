"""What all tests share: a thread switch as often as asked for, and a hang is a failure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint_files import table


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


@pytest.fixture(autouse=True)
def _switch_interval(request: pytest.FixtureRequest) -> Iterator[None]:
    wanted = request.config.getoption("--switch-interval")
    before = sys.getswitchinterval()
    if wanted is not None:
        sys.setswitchinterval(wanted)
    yield
    sys.setswitchinterval(before)


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
    """Writes arrays to a file and gives its path."""

    def write(**arrays: np.ndarray) -> Path:
        path = tmp_path / "model.safetensors"
        path.write_bytes(table({name.replace("__", "."): a for name, a in arrays.items()}))
        return path

    return write
