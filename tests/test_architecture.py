"""The floors hold: who may use whom, and what may appear only in its room."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "python" / "lazyparam"

# Each file, and the files of the package that it may use: lower floors only.
FLOORS = [
    {"_core", "errors"},
    {"backends", "_host", "flags", "_nearest"},
    {"backends._numpy", "backends._torch_scope"},
    {"backends._torch", "backends._jax", "backends._cupy"},
    {"cells", "devices", "init", "places", "_awaiting", "_tree", "_progress"},
    {"identities", "forms", "standins", "groups", "quant"},
    {"sources", "pytrees", "buffers", "selection"},
    {"visitors", "display", "drafts", "grads", "freezing"},
    {"records", "reparam"},
    {"quantized"},
    {"norms", "targets", "merging"},
    {"lora"},
    {"factored", "qlora", "adapter_configs"},
    {"adapter_files"},
    {"plans"},
    {"module"},
    {"__init__"},
    # What others test their backends with: a user of the public list.
    {"testing._tools"},
    {"testing._base"},
    {"testing._arrays", "testing._params"},
    {"testing._backend"},
    {"testing._devices", "testing._gradients"},
    {"testing"},
]
FOLDERS = ["rust", "python", "tests", "docs", "examples", "benchmarks", "tools", ".ci", ".github"]
BESIDE_THE_PROJECT = [(r"\.\./", "shared"), ("/", "(?:root|work)/")]

CORE = ["sync", "graph", "cell", "value", "lazy", "mapper", "param", "lib"]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def python_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


FILES = {"_core"} | {name_of(path) for path in python_files()}


def used_by(path: Path) -> set[str]:
    """The files of the package that `path` imports, type-checking imports left out."""
    package = [*path.relative_to(PACKAGE).parts[:-1]]
    used: set[str] = set()

    def look(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.ImportFrom) and child.level:
                base = package[: len(package) - child.level + 1]
                if child.module:
                    used.add(".".join([*base, child.module]))
                    continue
                for alias in child.names:
                    # A module of the package, or something that the package itself has.
                    file = ".".join([*base, alias.name])
                    used.add(file if file in FILES else ".".join(base))
            look(child)

    look(ast.parse(path.read_text()))
    return used


def floor_of(name: str) -> int:
    return next(at for at, names in enumerate(FLOORS) if name in names)


@pytest.mark.parametrize("path", python_files(), ids=name_of)
def test_a_file_uses_only_the_floors_below_it(path: Path) -> None:
    name = name_of(path) or "__init__"
    for used in used_by(path):
        assert floor_of(used) < floor_of(name), f"{name} uses {used}"


def test_the_parts_of_the_core_use_only_the_parts_before_them() -> None:
    source = ROOT / "rust" / "core" / "src"
    assert {path.stem for path in source.glob("*.rs")} == set(CORE)
    for at, part in enumerate(CORE[:-1]):
        for path in (source / f"{part}.rs", *(source / part).glob("*.rs")):
            for other in re.findall(r"crate::(\w+)", without_tests_and_comments(path)):
                assert other in CORE[: at + 1], f"{path.name} uses {other}"


def without_tests_and_comments(path: Path) -> str:
    return "\n".join(
        line for line in path.read_text().splitlines() if not line.lstrip().startswith("//")
    )


@pytest.mark.parametrize(
    ("crate", "forbidden"),
    [
        ("core", {"pyo3", "lazyparam-bytes", "numpy"}),
        ("bytes", {"pyo3", "lazyparam-core", "numpy"}),
        ("py", {"numpy", "ndarray"}),
    ],
)
def test_the_pure_crates_know_neither_python_nor_each_other(crate: str, forbidden: set) -> None:
    manifest = tomllib.loads((ROOT / "rust" / crate / "Cargo.toml").read_text())
    assert not forbidden & set(manifest.get("dependencies", {}))
    if crate == "core":
        assert not manifest.get("dependencies")


def rust_files() -> list[Path]:
    return sorted((ROOT / "rust").glob("*/src/**/*.rs"))


def files_with(pattern: str) -> set[str]:
    return {
        str(path.relative_to(ROOT / "rust"))
        for path in rust_files()
        if re.search(pattern, without_tests_and_comments(path))
    }


def test_unsafe_code_stays_in_its_rooms() -> None:
    assert files_with(r"\bunsafe\b(?!_)") <= {
        "py/src/raw/buffer.rs",
        "py/src/raw/member.rs",
        "py/src/raw/method.rs",
        "py/src/raw/mod.rs",
        "py/src/raw/slot.rs",
        "bytes/src/buffer.rs",
        "bytes/src/fill/env.rs",
        "bytes/src/fill/job.rs",
        "bytes/src/fill/simd/avx2.rs",
        "bytes/src/fill/simd/avx512.rs",
        "bytes/src/fill/simd/neon.rs",
        "bytes/src/store/map.rs",
    }
    assert "#![forbid(unsafe_code)]" in (ROOT / "rust/core/src/lib.rs").read_text()
    assert "#![deny(unsafe_code)]" in (ROOT / "rust/bytes/src/lib.rs").read_text()
    assert "#![deny(unsafe_code)]" in (ROOT / "rust/py/src/lib.rs").read_text()


def test_the_core_is_told_of_the_model_checker_in_one_place() -> None:
    assert files_with(r"\bloom\b") == {"core/src/sync.rs", "core/src/sync/model.rs"}


def test_detaching_and_attaching_stay_at_the_gate() -> None:
    pattern = r"\.detach\(|Python::(try_)?attach|with_gil|allow_threads|_py_attached"
    assert files_with(pattern) == {"py/src/gate.rs"}


def test_the_glue_names_no_array_library() -> None:
    libraries = re.compile(r'"(numpy|torch|jax|cupy)"')
    named = {
        path.name
        for path in (ROOT / "rust/py/src").glob("*.rs")
        if libraries.search(without_tests_and_comments(path))
    }
    # The grammar of devices gives bare names their meaning; nothing is reached by them.
    assert named <= {"device.rs"}


def test_every_file_says_in_its_first_line_what_it_does() -> None:
    for path in rust_files():
        assert path.read_text().startswith("//! "), path
    for path in python_files():
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_tests_docs_and_code_stand_alone() -> None:
    """Nothing names a folder beside the project or a path of somebody's machine."""
    # Put together here, so that this file passes its own test.
    beside = re.compile("|".join(rf"{slash}(?:{names})" for slash, names in BESIDE_THE_PROJECT))
    kinds = {".py", ".pyi", ".rs", ".md", ".toml", ".yml", ".cfg", ".sh", ""}
    for top in FOLDERS:
        for path in (ROOT / top).rglob("*"):
            if path.is_file() and path.suffix in kinds and "target" not in path.parts:
                assert not beside.search(path.read_text()), path
    for path in (ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "Makefile"):
        assert not beside.search(path.read_text()), path


def test_the_public_list_is_sorted_and_whole() -> None:
    import lazyparam as lp

    assert lp.__all__ == sorted(lp.__all__)
    assert all(hasattr(lp, name) for name in lp.__all__)
    public = {name for name in vars(lp) if not name.startswith("_")}
    submodules = {name_of(path) for path in python_files()}
    assert public - submodules <= set(lp.__all__)
