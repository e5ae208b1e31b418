"""A range of captured bytes and what it is, and bodies whose bytes lie apart in the capture."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import msgspec

_SHOWN = 72


class ByteRange(msgspec.Struct, frozen=True):
    """``tag``: its name in the protocol; ``depth``: how many ranges enclose it; ``fault``: what is wrong with it."""

    offset: int
    size: int
    tag: str
    type: str
    value: str = ""
    fault: str = ""
    depth: int = 0


Ranges = Iterator[ByteRange]


class Body:
    """Bytes that were taken out of their framing. ``pieces``: (offset in the capture, bytes), in order."""

    def __init__(self, pieces: list[tuple[int, bytes]]) -> None:
        self.data = b"".join([piece for _, piece in pieces])
        self._starts: list[int] = []
        self._offsets: list[int] = []
        at = 0
        for offset, piece in pieces:
            if piece:
                self._starts.append(at)
                self._offsets.append(offset)
                at += len(piece)

    def offset(self, at: int) -> int:
        """Where the byte at ``at`` lies in the capture."""
        if not self._starts:
            return 0
        index = max(0, bisect_right(self._starts, at) - 1)
        return self._offsets[index] + at - self._starts[index]


def shown(raw: bytes | str) -> str:
    """A value on one line, shortened: quoted text where it is text, else hexadecimal."""
    if isinstance(raw, bytes):
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return f"0x{raw[: _SHOWN // 2].hex()}{'...' if len(raw) > _SHOWN // 2 else ''}"
    else:
        text = raw
    return repr(text[:_SHOWN]) + ("..." if len(text) > _SHOWN else "")
