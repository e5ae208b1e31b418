"""The order of the house, as the design states it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "zerolayer"
MODULES = sorted(SOURCE.rglob("*.py"))
SCRIPTS = sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")])
NATIVE = sorted(path for path in (SOURCE / "native").rglob("*") if path.suffix in {".cpp", ".hpp", ".h"})


def name(path: Path) -> str:
    return str(path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT))


def test_rooms_import_only_down_the_listing() -> None:
    # A process of its own: the linter sets up logging as it likes, and other tests read log records.
    check = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True, no_logo=True))"
    result = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("path", MODULES + NATIVE + SCRIPTS, ids=name)
def test_a_file_has_under_400_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 400


@pytest.mark.parametrize("path", MODULES + SCRIPTS, ids=name)
def test_a_function_has_under_60_lines(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [node.name for node in functions if node.end_lineno is not None and node.end_lineno - node.lineno + 1 >= 60]
    assert long == []


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path.name == "__init__.py" and path.parent != SOURCE], ids=name
)
def test_a_folders_init_holds_its_docstring_and_nothing_else(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    assert len(tree.body) == 1


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_no_folder_or_file_is_called_by_what_it_is_not() -> None:
    assert [
        name(path)
        for path in [*SOURCE.rglob("*"), *SCRIPTS]
        if path.stem in {"utils", "util", "helpers", "common", "misc"}
    ] == []


def test_guards_stages_are_joined_by_guard_alone() -> None:
    joined = [
        name(path)
        for path in (SOURCE / "guard").glob("*.py")
        if path.name != "guard.py" and "zerolayer.guard" in path.read_text(encoding="utf-8")
    ]
    assert joined == []
