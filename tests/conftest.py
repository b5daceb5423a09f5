"""What all tests share: a thread switch as often as asked for, and a hang is a failure."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--switch-interval",
        type=float,
        default=None,
        help="seconds between thread switches in every test (default: Python's own)",
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
