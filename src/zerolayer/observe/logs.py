"""What stderr is told: one line an event, with fields, as text or as JSON; nothing in it ends a line or moves a cursor.

The text form is ``2026-11-29T21:00:00.123Z INFO zerolayer.serve draining grace_s=10``. Whatever is not printable is
escaped, so that no name that a client chose can write a second line or speak to a terminal. Of an exception its type
and place are told, never its text, which may quote a prompt.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import PurePath
from traceback import walk_tb
from types import TracebackType
from typing import Final, TextIO

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_BARE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:+@")
_LONGEST: Final = 4096  # characters of one value


def start_logging(form: str, level: str, *, access: bool, stream: TextIO | None = None) -> None:
    """Send everything to stderr in ``form`` (``text`` or ``json``); requests only with ``access``."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.getLogger("zerolayer.access").setLevel(logging.INFO if access else logging.CRITICAL)


class TextLines(logging.Formatter):
    """For people and ``grep``: time, level, origin, event, ``name=value`` pairs."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        parts = [_time(record), record.levelname, record.name, escaped(_event(record))]
        parts += [f"{name}={_value(value)}" for name, value in _fields(record).items()]
        return " ".join(parts)


class JsonLines(logging.Formatter):
    """For programs: an object a line, with ``time``, ``level``, ``logger``, ``event`` and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, ASCII only."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "event": _event(record),
        }
        return json.dumps(line | _fields(record))


def escaped(text: str) -> str:
    """``text`` on one line of printable characters; what is not is written as Python writes it."""
    if text.isprintable():
        return text[:_LONGEST]
    return "".join([_escape(character) for character in text[:_LONGEST]])


def _escape(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def _value(value: object) -> str:
    text = str(value)
    if text and len(text) <= _LONGEST and _BARE.issuperset(text):
        return text
    return '"' + escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _event(record: logging.LogRecord) -> str:
    return record.getMessage()


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = {
        name: value if isinstance(value, int | float | str | bool) else str(value)
        for name, value in vars(record).items()
        if name not in _STANDARD
    }
    if record.exc_info and record.exc_info[0] is not None:
        fields["exception"] = record.exc_info[0].__name__
        fields["at"] = _place(record.exc_info[2])
    return fields


def _place(trace: TracebackType | None) -> str:
    place = ""
    for frame, line in walk_tb(trace):
        place = f"{PurePath(frame.f_code.co_filename).name}:{line}"
    return place


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
