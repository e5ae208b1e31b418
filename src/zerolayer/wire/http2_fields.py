"""Fields of a header block that does not use the dynamic table: bytes to checked names and values (RFC 7541)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from hpack.table import HeaderTable

from zerolayer.wire.http2_frames import Code, ConnectionFault
from zerolayer.wire.http2_huffman import BadHuffman, decode_huffman

Field = tuple[bytes, bytes]

PSEUDO: Final = frozenset({b":method", b":scheme", b":path", b":authority"})
FIELD_OVERHEAD: Final = 32  # of a header list's size (RFC 9113 section 6.5.2)
VALUE: Final = re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")

_STATIC_TABLE: Final[tuple[Field, ...]] = tuple((name, value) for name, value in HeaderTable.STATIC_TABLE)
_STATIC: Final = len(_STATIC_TABLE)  # what is counted beyond it is the dynamic table
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_OF_CONNECTION: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})


class MalformedHead(Exception):
    """The fields make no request (RFC 9113 section 8.1.1); the stream ends, the connection does not."""


def list_size(fields: Sequence[Field]) -> int:
    """What the limit of a header list counts."""
    return sum([len(name) + len(value) + FIELD_OVERHEAD for name, value in fields])


def split(block: bytes, *, empty_table: bool) -> tuple[list[bytes], bool]:
    """The bytes of each field, and whether the block neither depends on the dynamic table nor changes it.

    Integers longer than any header block may need are refused here: HPACK itself sets no bound. Where the table can
    hold nothing, adding to it changes nothing. Raises ``ConnectionFault``.
    """
    parts: list[bytes] = []
    stateless = True
    at, size = 0, len(block)
    try:
        while at < size:
            start, first = at, block[at]
            if first & 0x80:
                index, at = (first & 0x7F, at + 1) if first < 0xFF else _integer(block, at, 0x7F)
                stateless = stateless and 0 < index <= _STATIC
            elif first & 0x60 == 0x20:
                _, at = _integer(block, at, 0x1F)
                stateless = False
                continue
            else:
                mask = 0x3F if first & 0x40 else 0x0F
                index, at = first & mask, at + 1
                if index == mask:
                    index, at = _integer(block, start, mask)
                if not index:
                    length = block[at] & 0x7F
                    at = at + 1 + length if length < 0x7F else _after_string(block, at)
                length = block[at] & 0x7F
                at = at + 1 + length if length < 0x7F else _after_string(block, at)
                if index > _STATIC or not (empty_table or mask == 0x0F):
                    stateless = False
            parts.append(block[start:at])
    except IndexError:
        at = size + 1
    if at > size:
        raise ConnectionFault(Code.COMPRESSION_ERROR)
    return parts, stateless


def _field(part: bytes) -> Field:
    if part[0] & 0x80:
        return _STATIC_TABLE[(part[0] & 0x7F) - 1]
    index, at = _integer(part, 0, 0x3F if part[0] & 0x40 else 0x0F)
    if index:
        name = _STATIC_TABLE[index - 1][0]
    else:
        end = _after_string(part, at)
        name, at = _name(part[at:end]), end
    value, _ = _string(part, at)
    return name, value


def value_start(part: bytes) -> int:
    """Where in a part of a stateless block the value's string begins; 0 where it has none of its own."""
    if part[0] & 0x80:
        return 0
    index, at = _integer(part, 0, 0x3F if part[0] & 0x40 else 0x0F)
    return at if index else _after_string(part, at)


@lru_cache(256)
def _name(string: bytes) -> bytes:
    return _string(string, 0)[0]


def checked_field(part: bytes) -> Field:
    """Name and value of one part of a stateless block. Raises ``ConnectionFault``, ``MalformedHead``."""
    name, value = _field(part)
    check_field(name, value)
    return name, value


def _string(part: bytes, at: int) -> tuple[bytes, int]:
    length, start = _integer(part, at, 0x7F)
    raw = part[start : start + length]
    if part[at] & 0x80:
        try:
            raw = decode_huffman(raw)
        except BadHuffman:
            raise ConnectionFault(Code.COMPRESSION_ERROR) from None
    return raw, start + length


def _after_string(block: bytes, at: int) -> int:
    length, at = _integer(block, at, 0x7F)
    return at + length


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """An integer with a prefix of ``mask`` bits (RFC 7541 section 5.1) and the position after it."""
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    for shift in (0, 7, 14):
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise ConnectionFault(Code.COMPRESSION_ERROR)


def check_field(name: bytes, value: bytes) -> None:
    """Raises ``MalformedHead`` for what no request may carry."""
    if name in PSEUDO and VALUE.fullmatch(value):
        return
    if not _NAME.fullmatch(name) or not VALUE.fullmatch(value) or name in _OF_CONNECTION:
        raise MalformedHead
    if name == b"te" and value.lower() != b"trailers":
        raise MalformedHead
