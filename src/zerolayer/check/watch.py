"""``zerolayer watch``: the live page in a terminal, from the same stream of events."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final, TextIO

import msgspec

from zerolayer.check.admin import ask_admin
from zerolayer.check.errors import TargetError
from zerolayer.check.screen import LATENCIES, Screen
from zerolayer.client.address import Patience
from zerolayer.client.errors import BrokenReply

_SILENCE_S: Final = 10.0  # a moment comes several times a second
_VERSION: Final = 1  # of the lines of JSON


def watch(url: str, *, once: bool, latency: str = LATENCIES[0], json: bool = False, out: TextIO | None = None) -> int:
    """Draw until interrupted, or the first whole picture alone; ``latency`` is that of the heat map.

    With ``json``, events as lines in place of pictures. Raises ``ClientError`` and ``TargetError``.
    """
    out = out or sys.stdout
    moving = out.isatty() and not once
    patience = Patience(_SILENCE_S, None, time.monotonic_ns)
    exchange = ask_admin(url, "/live", patience)
    try:
        size = shutil.get_terminal_size()
        screen = Screen(size.columns, size.lines - 1 if moving else 0, latency)
        for name, data in events(exchange.lines(patience)):
            whole = screen.take(name, data)
            if json:
                out.write(_line(name, data) + "\n")
            elif whole:
                out.write(("\x1b[H\x1b[J" if moving else "") + "\n".join(screen.lines()) + "\n")
            out.flush()
            if once and whole:
                return 0
    except (OSError, BrokenReply):
        raise TargetError("the server fell silent; is it still running?") from None
    finally:
        exchange.close()
    raise TargetError("the server ended the stream; start the command again when it is back")


def _line(name: str, data: bytes) -> str:
    """An event as a line of JSON, whatever the server sent. Raises ``TargetError`` for what is none."""
    try:
        return msgspec.json.encode({"version": _VERSION, "event": name, "data": msgspec.json.decode(data)}).decode()
    except msgspec.MsgspecError:
        raise TargetError("what answers here is no live stream of zerolayer; give the admin address") from None


def events(lines: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Name and data of each event with one line of data (WHATWG HTML, section 9.2)."""
    name = ""
    for line in lines:
        field, _, value = line.rstrip(b"\r\n").partition(b": ")
        if field == b"event":
            name = value.decode("ascii", "replace")
        elif field == b"data":
            yield name, value
