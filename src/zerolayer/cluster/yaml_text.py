"""JSON-like values as YAML (https://yaml.org/spec/1.2.2/) in block style, with scalars as JSON has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

_PLAIN_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9./-]*")
_NOT_PLAIN: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})  # of YAML 1.1


def documents(values: Iterable[object]) -> str:
    """Each value as one document."""
    return "---\n".join("\n".join(_lines(value)) + "\n" for value in values)


def _lines(value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from _member(f"{_key(str(name))}:", member)
    elif isinstance(value, list) and value:
        for member in value:
            first, *rest = _lines(member)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _member(head: str, value: object) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        yield head
        yield from (f"  {line}" for line in _lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: object) -> str:
    """JSON, but for two things: YAML has no surrogate pairs, and takes no bare DEL."""
    if not isinstance(value, str):
        return json.dumps(value)
    return '"' + "".join([_character(character) for character in value]) + '"'


def _character(character: str) -> str:
    number = ord(character)
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return "\\u007f" if number == 0x7F else json.dumps(character)[1:-1]


def _key(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) and name.lower() not in _NOT_PLAIN else _scalar(name)
