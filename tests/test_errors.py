"""Messages: in words, for whoever has to do something about it."""

from __future__ import annotations

import ast
import errno
from pathlib import Path

from zerolayer.errors import system_reason

SOURCE = Path(__file__).parent.parent / "src" / "zerolayer"
NUMBERS = (".errno", ".strerror")  # the words of an error may come from anybody


def test_what_the_system_refused_is_told_in_its_words_and_names_no_file() -> None:
    assert system_reason(FileNotFoundError(errno.ENOENT, "secret", "/home/secret")) == "No such file or directory"
    assert system_reason(OSError("secret")) == "no reason was given"


def test_no_message_has_the_number_of_an_error_in_place_of_words() -> None:
    found = []
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
        parts = [part.value for text in texts for part in text.values if isinstance(part, ast.FormattedValue)]
        found += [f"{path.name}: {ast.unparse(part)}" for part in parts if ast.unparse(part).endswith(NUMBERS)]
    assert found == []


def test_no_message_has_the_name_of_an_errors_class_in_place_of_words() -> None:
    """Only the log may tell it, and a look-up by it is no message."""
    found = []
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        known = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript) or _logs(node)]
        silent = {id(inner) for node in known for inner in ast.walk(node)}
        names = [node for node in ast.walk(tree) if _is_class_name(node) and id(node) not in silent]
        found += [f"{path.name}: {ast.unparse(node)}" for node in names]
    assert found == []


def _is_class_name(node: ast.AST) -> bool:
    """``type(error).__name__``, or its like."""
    if not isinstance(node, ast.Attribute) or node.attr not in ("__name__", "__qualname__"):
        return False
    owner = node.value
    by_type = isinstance(owner, ast.Call) and ast.unparse(owner.func) == "type"
    return by_type or (isinstance(owner, ast.Attribute) and owner.attr == "__class__")


def _logs(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("_log.")
