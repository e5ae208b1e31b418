"""JSON value by value (RFC 8259), each with its path and place; and server-sent events, whose data is mostly JSON."""

from __future__ import annotations

import re

from zerolayer.check.wire_range import Body, ByteRange, Ranges, shown

_TOKEN = re.compile(
    rb"""[ \t\r\n]*(?:
    (?P<string>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*")
    |(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    |(?P<literal>true|false|null)
    |(?P<mark>[{}\[\],:])
    )""",
    re.VERBOSE,
)
_EVENT_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r)")
_SPACE = b" \t\r\n"
_DONE = b"[DONE]"  # how OpenAI's streams end
_DEPTH = 200


class JsonDump:
    """Walks one JSON text in ``body[start:end]``. After the first fault the rest is one range."""

    def __init__(self, body: Body, start: int, end: int, depth: int = 0) -> None:
        self._body = body
        self._at = start
        self._end = end
        self._depth = depth

    def ranges(self) -> Ranges:
        """Every scalar, in the order of the text."""
        try:
            yield from self._value("", 0)
            if self._body.data[self._at : self._end].strip(_SPACE):
                raise _Wrong("something follows the value")
        except _Wrong as wrong:
            rest = self._body.data[self._at : self._end]
            yield self._range(self._at, self._end, "", "json", shown(rest[:20]), str(wrong))

    def _value(self, path: str, nesting: int) -> Ranges:
        if nesting > _DEPTH:
            raise _Wrong(f"nested more than {_DEPTH} deep")
        kind, start, raw = self._next()
        if kind == "mark" and raw == b"{":
            yield from self._members(path, nesting)
        elif kind == "mark" and raw == b"[":
            yield from self._items(path, nesting)
        elif kind == "mark":
            self._at = start
            raise _Wrong("a value is expected here")
        else:
            fault = "" if kind != "string" or _is_text(raw) else "not UTF-8"
            yield self._range(start, self._at, path or "$", kind, shown(raw), fault)

    def _members(self, path: str, nesting: int) -> Ranges:
        if self._skip(b"}"):
            return
        while True:
            kind, start, raw = self._next()
            if kind != "string":
                self._at = start
                raise _Wrong("a name in double quotes is expected here")
            name = raw[1:-1].decode("utf-8", "replace")
            self._expect(b":")
            yield from self._value(f"{path}.{name}" if path else name, nesting + 1)
            if self._skip(b"}"):
                return
            self._expect(b",")

    def _items(self, path: str, nesting: int) -> Ranges:
        if self._skip(b"]"):
            return
        number = 0
        while True:
            yield from self._value(f"{path}[{number}]", nesting + 1)
            number += 1
            if self._skip(b"]"):
                return
            self._expect(b",")

    def _next(self) -> tuple[str, int, bytes]:
        match = _TOKEN.match(self._body.data, self._at, self._end)
        if match is None or match.lastgroup is None:
            while self._at < self._end and self._body.data[self._at] in _SPACE:
                self._at += 1
            raise _Wrong("the text ends too early" if self._at >= self._end else "no JSON from here on")
        self._at = match.end()
        return match.lastgroup, match.start(match.lastgroup), match[match.lastgroup]

    def _skip(self, mark: bytes) -> bool:
        before = self._at
        try:
            if self._next()[2] == mark:
                return True
        except _Wrong:
            pass
        self._at = before
        return False

    def _expect(self, mark: bytes) -> None:
        _, start, raw = self._next()
        if raw != mark:
            self._at = start
            raise _Wrong(f"{mark.decode()!r} is expected here")

    def _range(self, start: int, end: int, tag: str, kind: str, value: str, fault: str) -> ByteRange:
        return ByteRange(self._body.offset(start), end - start, tag, kind, value, fault, self._depth)


def event_ranges(body: Body, depth: int) -> Ranges:
    """Server-sent events (WHATWG HTML section 9.2), line by line."""
    data, at, complete = body.data, 0, True
    while at < len(data):
        match = _EVENT_LINE.match(data, at)
        if match is None:
            yield ByteRange(body.offset(at), len(data) - at, "event", "line", shown(data[at:]), "no line end", depth)
            return
        field, _, value = match[1].partition(b":")
        complete = not match[1]
        if match[1]:
            yield ByteRange(body.offset(at), len(match[1]), field.decode("utf-8", "replace"), "event", "", "", depth)
            start = at + len(field) + 1 + value.startswith(b" ")
            if field == b"data" and value.strip().startswith((b"{", b"[")) and value.strip() != _DONE:
                yield from JsonDump(body, start, at + len(match[1]), depth + 1).ranges()
            elif value:
                size = at + len(match[1]) - start
                yield ByteRange(body.offset(start), size, "", "text", shown(value.strip()), "", depth + 1)
        at = match.end()
    if not complete:
        yield ByteRange(body.offset(len(data) - 1), 0, "event", "end", "", "no empty line after the last event", depth)


class _Wrong(Exception):
    """What is wrong at the walker's place."""


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
