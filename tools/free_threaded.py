"""Prove that lazyparam works without the GIL: the whole suite, then again in four threads.

The Python is $FREE_THREADED_PYTHON, or the newest free-threaded one found, or one built from
Debian's sources into .free-threaded/ (some minutes, once).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from installed import (
    FREE_THREADED,
    ROOT,
    Interpreter,
    build_environment,
    clean_environment,
    copy_of_the_project,
    for_tests_only,
    install,
    interpreters,
    maturin,
    probe,
    run,
    say,
    suite,
)


def interpreter() -> Interpreter:
    """A Python without the GIL, built if there is none."""
    if wanted := os.environ.get("FREE_THREADED_PYTHON"):
        python = probe(Path(wanted))
        if not python or not python.free_threaded:
            sys.exit(f"FREE_THREADED_PYTHON={wanted} is no free-threaded CPython that works")
        return python
    if not any(python.free_threaded for python in interpreters()):
        say("no free-threaded Python found: building one into .free-threaded/ (minutes, once)")
        run("bash", ROOT / "tools" / "build_free_threaded_python.sh", FREE_THREADED / "python")
    return next(python for python in reversed(interpreters()) if python.free_threaded)


def main() -> None:
    """Build the wheel, install it, run the suite twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", default="4", help="how many threads run each test together")
    options = parser.parse_args()
    python = interpreter()
    say(f"{python} at {python.path}" + (" (for tests only)" if for_tests_only(python) else ""))
    with tempfile.TemporaryDirectory(prefix="lazyparam-") as temporary:
        folder = Path(temporary).resolve()
        say("wheel (release)")
        release = ("build", "--release", "--locked", "--out", folder)
        maturin(*release, "--interpreter", python.path, env=build_environment(python))
        (wheel,) = folder.glob("lazyparam-*.whl")
        say("clean environment")
        its = clean_environment(python, folder / "environment")
        install(wheel, python, its)
        project = copy_of_the_project(folder / "project")
        say(f"the suite without the GIL ({wheel.name})")
        suite(its, project)
        say(f"the suite without the GIL, each test in {options.threads} threads at once")
        suite(its, project, f"--parallel-threads={options.threads}")
    say(f"lazyparam works on {python} without the GIL")


if __name__ == "__main__":
    main()
