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
