"""Header blocks of HTTP/2 replies: literals without indexing (RFC 7541 section 6.2.2), no state, no Huffman coding."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from zerolayer.errors import RetryLater

_STATUS: Final = {200: b"\x88", 204: b"\x89", 206: b"\x8a", 304: b"\x8b", 400: b"\x8c", 404: b"\x8d", 500: b"\x8e"}
_STATUS_NAME: Final = b"\x08\x03"  # the name of entry 8 of the static table, and a value of three bytes

_BREAK: Final = re.compile(rb"[\r\n\0]")


def reply_block(status: int, headers: Iterable[tuple[bytes, bytes]], common: bytes = b"") -> bytes:
    """The block of a reply's HEADERS; ``common`` are fields that were rendered before, by ``header``.

    Names are lower-case. Raises ValueError when a header holds a line break.
    """
    return (_STATUS.get(status) or _STATUS_NAME + b"%03d" % status) + common + header_block(headers)


def later_block(error: RetryLater) -> bytes:
    """When to come back, and the slot that is kept until then, as ``http1_reply.later_lines``. Raises as that."""
    ms, ticket = error.retry_after_ms, error.ticket
    when = _new_header(b"retry-after-ms", b"%d" % ms) + header(b"retry-after", b"%d" % -(-ms // 1000)) + _SHOULD_RETRY
    return when if ticket is None else _new_header(b"x-zl-ticket", ticket.encode("ascii")) + when


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


_SHOULD_RETRY: Final = header(b"x-should-retry", b"true")
