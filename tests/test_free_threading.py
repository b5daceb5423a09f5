"""On a build without the GIL, nothing of lazyparam's switches it on again."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig

import pytest

pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"),
    reason="this Python always has the GIL; make proof-free-threaded brings one that has none",
)


@pytest.mark.parametrize("code", ["import lazyparam", "import lazyparam._core"])
def test_importing_lazyparam_leaves_the_gil_off(code: str) -> None:
    """In a process of its own: in this one, something else may have been imported first."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    done = subprocess.run(
        # A module that needs the GIL switches it on with a warning, which is an error here.
        [sys.executable, "-W", "error", "-c", f"{code}; import sys; print(sys._is_gil_enabled())"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("False", "")


def test_the_gil_is_off_here_and_now() -> None:
    """What the tests import leaves it off too; the end of the session asks once more."""
    assert not sys._is_gil_enabled()
