"""Every row of what must hold has a test that names it, and the page that says so is up to date."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "tools" / "rows.py"


@pytest.fixture(scope="module")
def rows() -> ModuleType:
    spec = spec_from_file_location("rows_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_row_has_a_test_and_the_page_is_what_the_tool_makes(rows: ModuleType) -> None:
    assert rows.faults() == []
    assert list(rows.HOLDS) == [f"B{row:02}" for row in range(1, 61)]


def test_rows_are_found_in_functions_methods_classes_and_rust(rows: ModuleType) -> None:
    source = '''
def helper():
    """B01"""

def test_one():
    """B02, B03: two rows."""
    def test_inner():
        """B04"""

class TestMany:
    """B14–B16."""
    async def test_in_it(self):
        """As before (B60)."""
'''
    found = {test.name: rows.rows_in(test.says) for test in rows.python_tests("a.py", source)}
    assert found == {
        "test_one": ["B02", "B03"],
        "TestMany.test_in_it": ["B60"],
    } | {"TestMany": ["B14", "B15", "B16"]}
    source = """
/// B05
fn helper() {}

/// Of two:
/// B06, and more.
#[cfg(unix)]
#[test]
#[ignore]
fn a_test() {}

proptest! {
    /// B07
    #[test]
    fn another(x in 0..3) {}
}
"""
    found = {test.name: rows.rows_in(test.says) for test in rows.rust_tests("a.rs", source)}
    assert found == {"a_test": ["B06"], "another": ["B07"]}


def test_what_is_wrong_is_said(
    rows: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text('def test_some():\n    """B01, B02, B99"""\n')
    page = tmp_path / "rows.md"
    monkeypatch.setattr(rows, "ROOT", tmp_path)
    monkeypatch.setattr(rows, "PAGE", page)
    monkeypatch.setattr(rows, "HOLDS", {"B01": "one", "B02": "two", "B03": "three"})
    assert rows.main([]) == 0
    assert "| B01 | one | [tests/test_some.py](../../tests/test_some.py): `test_some` |" in (
        page.read_text()
    )
    assert rows.faults() == [
        "B03 has no test: three",
        "tests/test_some.py: test_some names B99, which is no row",
    ]
    page.write_text(page.read_text().replace("two", "to"))
    assert rows.main(["--check"]) == 1
    assert rows.faults()[-1] == "rows.md is stale: python tools/rows.py"
