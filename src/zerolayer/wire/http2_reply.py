"""Header blocks of HTTP/2 replies: literals without indexing (RFC 7541 section 6.2.2), no state, no Huffman coding."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from zerolayer.wire._native import http2_when

_STATUS: Final = {200: b"\x88", 204: b"\x89", 206: b"\x8a", 304: b"\x8b", 400: b"\x8c", 404: b"\x8d", 500: b"\x8e"}
_STATUS_NAME: Final = b"\x08\x03"  # the name of entry 8 of the static table, and a value of three bytes

_BREAK: Final = re.compile(rb"[\r\n\0]")


def reply_block(status: int, headers: Iterable[tuple[bytes, bytes]], common: bytes = b"") -> bytes:
    """The block of a reply's HEADERS; ``common`` are fields that were rendered before, by ``header``.

    Names are lower-case. Raises ValueError when a header holds a line break.
    """
    return status_field(status) + common + header_block(headers)


status_field = tuple([_STATUS.get(status) or _STATUS_NAME + b"%03d" % status for status in range(1000)]).__getitem__
"""``:status``."""


later_block = http2_when
"""When to come back, and the slot that is kept until then, as ``http1_reply.later_lines``. Raises as that."""


def length_field(size: int) -> bytes:
    """``content-length``."""
    return _LENGTHS[size] if size < len(_LENGTHS) else _new_header(b"content-length", b"%d" % size)


def _new_header(name: bytes, value: bytes) -> bytes:
    """One literal. Raises ValueError as ``reply_block``."""
    if _BREAK.search(value):
        raise ValueError("a header must not hold a line break")
    return b"\0" + _length(len(name)) + name + _length(len(value)) + value


header = lru_cache(1024)(_new_header)


@lru_cache(64)
def trailer_block(trailers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """``header_block`` of trailers, which are few and come again and again."""
    return header_block(trailers)


def header_block(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Literals alone. Raises ValueError as ``reply_block``."""
    return b"".join([header(name, value) for name, value in headers])


def _length(size: int) -> bytes:
    """An integer with a prefix of seven bits (RFC 7541 section 5.1)."""
    if size < 0x7F:
        return b"%c" % size
    size -= 0x7F
    rest = bytearray([0x7F])
    while size >= 0x80:
        rest.append(0x80 | size & 0x7F)
        size >>= 7
    rest.append(size)
    return bytes(rest)


_LENGTHS: Final = tuple(_new_header(b"content-length", b"%d" % size) for size in range(1024))  # most complete replies
