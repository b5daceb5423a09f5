"""Build what would be published, into dist/, and test each of it installed and alone.

- one wheel for the stable ABI, for every CPython from 3.11 on that has a GIL;
- a wheel for each free-threaded CPython found that PyO3 supports;
- the source distribution.

With files as arguments, these are tested, with this Python, and nothing is built.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tarfile
import tempfile
from pathlib import Path

from installed import (
    ROOT,
    Interpreter,
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

DIST = ROOT / "dist"
IN_THE_SOURCES = [
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-*",
    "PKG-INFO",
    "README.md",
    "pyproject.toml",
    "python/lazyparam/*.py",
    "python/lazyparam/*.pyi",
    "python/lazyparam/py.typed",
    "rust/*/Cargo.toml",
    "rust/*/build.rs",
    "rust/*/src/*.rs",
    "rust/*/benches/*.rs",  # the manifests name these
    "rust/*/tests/*.rs",
]
"""What a build from source needs. There is nothing else in the source distribution."""


def build() -> list[tuple[str, Path, list[Interpreter]]]:
    """Fill dist/. Each thing built: what it is, its file, and the Pythons it is for."""
    found = interpreters()
    gil = [python for python in found if not python.free_threaded]
    free = [python for python in found if python.free_threaded]
    for old in [*DIST.glob("lazyparam-*.whl"), *DIST.glob("lazyparam-*.tar.gz")]:
        old.unlink()
    say(f"wheel for the stable ABI (Pythons found: {', '.join(map(str, gil))})")
    release = ("build", "--release", "--locked", "--out", DIST, "--interpreter")
    maturin(*release, gil[0].path, "--features", "abi3")
    built = [("stable ABI", only("*-cp311-abi3-*.whl"), gil)]
    for python in free:
        if for_tests_only(python):
            say(f"no wheel for {python}: PyO3 does not support it, so it is for tests only")
            continue
        say(f"wheel for {python}")
        maturin(*release, python.path)
        tag = "".join(map(str, python.version))
        built.append((str(python), only(f"*-cp{tag}-cp{tag}t-*.whl"), [python]))
    if len(built) == 1:
        say("no wheel for a free-threaded Python: none from 3.14t on is on this machine")
    say("source distribution")
    maturin("sdist", "--out", DIST)
    built.append(("sources", only("*.tar.gz"), gil[-1:]))
    return built


def only(pattern: str) -> Path:
    """The one file in dist/ that matches."""
    (file,) = DIST.glob(f"lazyparam{pattern}")
    return file


def check_sources(file: Path) -> None:
    """The source distribution has all that a build needs, and nothing else."""
    with tarfile.open(file) as archive:
        names = [member.name.partition("/")[2] for member in archive if member.isfile()]
    missing = [p for p in IN_THE_SOURCES if not fnmatch.filter(names, p)]
    needless = [n for n in names if not any(fnmatch.fnmatch(n, p) for p in IN_THE_SOURCES)]
    if missing or needless:
        sys.exit(f"{file.name} lacks {missing} and has no need of {needless}")


def main() -> None:
    """Build, look at, install and test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="test these, and build nothing")
    files = parser.parse_args().files
    if files:
        this = probe(Path(sys.executable))
        built = [(file.name, file.resolve(), [this]) for file in files if this]
    else:
        built = build()
        say("what is in them")
        check_sources(built[-1][1])
        run(sys.executable, "-m", "twine", "check", "--strict", *(file for _, file, _ in built))
    for what, file, pythons in built:
        for python in pythons:
            with tempfile.TemporaryDirectory(prefix="lazyparam-") as temporary:
                say(f"{what}, installed in a clean environment of {python}")
                folder = Path(temporary).resolve()
                its = clean_environment(python, folder / "environment")
                install(file, python, its)
                suite(its, copy_of_the_project(folder / "project"))
    say(f"all of it passes: {', '.join(file.name for _, file, _ in built)}")


if __name__ == "__main__":
    main()
