"""Every bench that can write its figures is asked for them in the same way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

BENCHES = sorted((Path(__file__).parents[2] / "bench").glob("*.py"))
NAMES = ["--json", "--json-out"]  # the first is the documented one


def _flags(path: Path) -> list[list[str]]:
    """The names of each flag that has one of ``NAMES``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    texts = [[each.value for each in call.args if isinstance(each, ast.Constant)] for call in calls]
    return [names for names in texts if set(names) & set(NAMES)]


@pytest.mark.parametrize("path", [path for path in BENCHES if _flags(path)], ids=lambda path: path.stem)
def test_a_bench_writes_json_by_either_name(path: Path) -> None:
    assert all(names == NAMES for names in _flags(path))


def test_the_documentation_has_one_name() -> None:
    root = Path(__file__).parents[2]
    pages = [root / "README.md", root / "CONTRIBUTING.md", root / "bench" / "README.md", *(root / "docs").rglob("*.md")]
    assert [page.name for page in pages if "--json-out" in page.read_text(encoding="utf-8")] == []
