"""One tool call, read character by character: its name, and its arguments as they come (RFC 8259)."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import Final

_SPACE: Final = " \t\r\n"
_ARGUMENTS: Final = ("arguments", "parameters")
_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_TAG: Final = _NAME | frozenset("[]" + _SPACE)


class Malformed(Exception):
    """It is no call."""


class _Value:
    """Where an object, a list or a text of JSON ends. Begins with its first character."""

    __slots__ = ("_depth", "_escaped", "_quoted")

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def push(self, char: str) -> bool:
        """Whether ``char`` is the last one."""
        if self._quoted:
            if self._escaped:
                self._escaped = False
            elif char == "\\":
                self._escaped = True
            elif char == '"':
                self._quoted = False
                return self._depth == 0
        elif char == '"':
            self._quoted = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            return self._depth <= 0
        return False


class Call(ABC):
    """What both notations have in common. ``name`` is None until it is read; ``done`` once the call is complete."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.done = False
        self._pieces: list[str] = []
        self._any = False

    @abstractmethod
    def push(self, char: str) -> None:
        """Read one more character. Raises Malformed."""

    def take(self) -> str:
        """Characters of the arguments since the last time; a complete call without arguments has ``{}``."""
        if self.done and not self._any:
            self._add("{}")
        taken = "".join(self._pieces)
        self._pieces.clear()
        return taken

    def _add(self, text: str) -> None:
        self._pieces.append(text)
        self._any = True


class _In(Enum):
    OPEN = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    STRUCTURE = auto()  # inside a text, an object or a list
    SCALAR = auto()
    COMMA = auto()


class CallObject(Call):
    r"""``{"name": ..., "arguments": ...}`` in any order; other members are read over.

    Arguments in a text of JSON (``"{\"a\": 1}"``) are taken out of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._in = _In.OPEN
        self._value = _Value()
        self._text: list[str] = []
        self._key = ""
        self._is_key = False

    def push(self, char: str) -> None:
        """Read one more character. Raises Malformed."""
        state = self._in
        if state is _In.STRUCTURE:
            self._structure(char)
        elif state is _In.SCALAR and char not in ",}" + _SPACE:
            self._text.append(char)
        elif state is _In.SCALAR:
            self._end_value()
            self.push(char)
        elif char not in _SPACE:
            self._punctuation(state, char)

    def _punctuation(self, state: _In, char: str) -> None:
        if state is _In.OPEN and char == "{":
            self._in = _In.KEY
        elif state is _In.KEY and char == '"':
            self._is_key = True
            self._begin(char)
        elif state is _In.COLON and char == ":":
            self._in = _In.VALUE
        elif state is _In.VALUE and char in '"{[':
            self._begin(char)
        elif state is _In.VALUE and char in "-0123456789tfn":
            self._text = [char]
            self._in = _In.SCALAR
        elif state is _In.COMMA and char == ",":
            self._in = _In.KEY
        elif state in (_In.COMMA, _In.KEY) and char == "}":
            self.done = True
        else:
            raise Malformed

    def _begin(self, char: str) -> None:
        self._value = _Value()
        self._text = []
        self._in = _In.STRUCTURE
        self._structure(char)

    def _structure(self, char: str) -> None:
        self._text.append(char)
        if not self._is_key and self._key in _ARGUMENTS and self._text[0] != '"':
            self._add(char)
        if not self._value.push(char):
            return
        if self._is_key:
            self._is_key = False
            self._key = _loads(self._text)
            self._in = _In.COLON
        else:
            self._end_value()

    def _end_value(self) -> None:
        self._in = _In.COMMA
        first = self._text[0]
        if self._key == "name":
            if first != '"':
                raise Malformed
            self.name = _loads(self._text)
        elif self._key in _ARGUMENTS and first == '"':
            self._add(_loads(self._text))
        elif self._key in _ARGUMENTS and first not in "{[n":
            raise Malformed


class NamedCall(Call):
    """``f[ARGS]{...}``, also with a ``[CALL_ID]`` between; ``f{...}``."""

    def __init__(self) -> None:
        super().__init__()
        self._head: list[str] = []
        self._value: _Value | None = None

    def push(self, char: str) -> None:
        """Read one more character. Raises Malformed."""
        if self._value is None:
            if char != "{":
                if char not in _TAG:
                    raise Malformed
                self._head.append(char)
                return
            self.name = "".join(self._head).partition("[")[0].strip()
            self._value = _Value()
        self._add(char)
        self.done = self._value.push(char)


def _loads(text: list[str]) -> str:
    try:
        value = json.loads("".join(text), strict=False)
    except ValueError:
        raise Malformed from None
    if not isinstance(value, str):
        raise Malformed
    return value
