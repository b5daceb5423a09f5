"""The examples in docstrings, in the README and in the docs run and tell the truth."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lazyparam as lp

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = ["lazyparam", *(m.name for m in pkgutil.walk_packages(lp.__path__, "lazyparam."))]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("_core")])
def test_docstring_examples_run(name: str) -> None:
    _skip_without_the_library_of(name.rpartition("._")[2].partition("_")[0])
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0


def _skip_without_the_library_of(name: str) -> None:
    """Backends and the pages about them are named after an array library."""
    if name in ("torch", "jax", "cupy"):
        pytest.importorskip(name)


def blocks(page: Path) -> Iterator[str]:
    """The Python blocks of a page, in order."""
    yield from re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_blocks_of_a_page_run_in_order(page: Path) -> None:
    _skip_without_the_library_of(page.stem)
    space: dict[str, object] = {}
    for block in blocks(page):
        if block.startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(block, space, page.name, str(page), 0)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            assert runner.run(test, clear_globs=False).failed == 0
            space.update(test.globs)
        else:
            exec(compile(block, str(page), "exec"), space)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_and_to_tests_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_tests_that_the_readme_names_exist() -> None:
    named = re.findall(r"\[`(test_\w+)`\]\((tests/\w+\.py)\)", (ROOT / "README.md").read_text())
    assert named
    for test, file in named:
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text(), re.MULTILINE), test


def test_every_public_thing_has_a_docstring() -> None:
    for name in lp.__all__:
        thing = getattr(lp, name)
        assert thing.__doc__, name
        if isinstance(thing, type):
            for attribute, value in vars(thing).items():
                if not attribute.startswith("_") and callable(value):
                    assert value.__doc__, f"{name}.{attribute}"


def test_the_make_targets_that_the_readme_names_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / "README.md").read_text(), re.M))
    assert named <= targets
    assert {"demo", "test"} <= named
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
