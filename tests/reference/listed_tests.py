"""Lists of tests by number, as ``file::test``: whether each of them is there."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

TESTS = Path(__file__).parents[1]


def not_there(rows: Mapping[int, Iterable[str]]) -> list[str]:
    """Those of the named tests that do not exist."""
    named = [name for row in rows.values() for name in row]
    return [name for name in named if name.partition("::")[2] not in _tests_of(name.partition("::")[0])]


def _tests_of(file: str) -> set[str]:
    path = TESTS / file
    if not path.exists():
        return set()
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
