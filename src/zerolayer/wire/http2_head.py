"""Header blocks of HTTP/2 requests: HPACK bytes to a checked ``Head`` (RFC 7541, RFC 9113 section 8).

We announce a dynamic table of size 0, so that nearly every block stands for itself and the same bytes mean the same
head: such blocks, their single fields, and what is left of a block without the fields that change from request to
request, are looked up before they are decoded. A block that reads or changes the dynamic table (a client may, until it
has seen our SETTINGS, and some never look) goes to the stateful decoder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeVar

import hpack
import msgspec
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from zerolayer.errors import HeadersTooLarge
from zerolayer.wire.http1_head import Head, first_values
from zerolayer.wire.http2_frames import Code, ConnectionFault

Field = tuple[bytes, bytes]
Known = TypeVar("Known")

_HEADS: Final = 16  # whole blocks that a connection remembers, and as many without what changes
_FIELDS: Final = 128
_CHANGING: Final = 4  # fields that may differ from the last request's without a full decode
_REMEMBERED_BYTES: Final = 4096  # longer blocks, and fields of over a quarter of it, are decoded each time
_STATEFUL_TIMES: Final = 4  # as many headers are still decoded where others depend on it, before they are refused
_STATIC_TABLE: Final[tuple[Field, ...]] = tuple((name, value) for name, value in HeaderTable.STATIC_TABLE)
_STATIC: Final = len(_STATIC_TABLE)  # what is counted beyond it is the dynamic table
_FIELD_OVERHEAD: Final = 32  # of a header list's size (RFC 9113 section 6.5.2)

_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE: Final = re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")
_METHOD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH: Final = re.compile(rb"/[\x21\x22\x24-\x7e]*")  # visible ASCII without "#", as in HTTP/1.1
_PSEUDO: Final = frozenset({b":method", b":scheme", b":path", b":authority"})
_STEERING: Final = _PSEUDO | {b"host", b"content-length", b"expect"}  # what ``_request_head`` reads
_OF_CONNECTION: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})


class MalformedHead(Exception):
    """The fields make no request (RFC 9113 section 8.1.1); the stream ends, the connection does not."""


class _Base(msgspec.Struct, frozen=True):
    """A head without the fields that change from request to request, such as a deadline or the request's name.

    ``pseudo`` fields stand first in it; ``size`` is what it counts of the limit.
    """

    head: Head
    pseudo: int
    size: int


class HeadDecoder:
    """The receiving side of one connection's header compression."""

    def __init__(self, head_bytes: int, header_count: int) -> None:
        self._head_bytes = head_bytes
        self._header_count = header_count
        self._stateful = hpack.Decoder(max_header_list_size=head_bytes)
        self._heads: dict[bytes, Head] = {}
        self._bases: dict[bytes, _Base] = {}
        self._fields: dict[bytes, Field] = {}

    @property
    def stateless(self) -> bool:
        """Whether the client's table can hold nothing, so that the same bytes mean the same head."""
        return self._stateful.header_table_size == 0

    def request(self, block: bytes) -> Head:
        """The head of a request.

        Raises ``MalformedHead``, ``HeadersTooLarge`` (only of the stream), ``ConnectionFault`` (compression is broken).
        """
        return self._heads.get(block) or self._decoded_head(block)

    def trailers(self, block: bytes) -> None:
        """Check the fields after a body and drop them: nothing may be decided there. Raises as ``request``."""
        parts, stateless = self._split(block)
        fields = self._known_fields(parts) if stateless else self._stateful_fields(parts, block)
        if any(name.startswith(b":") for name, _ in fields):
            raise MalformedHead

    def _decoded_head(self, block: bytes) -> Head:
        parts, stateless = self._split(block)
        if not stateless:
            return _request_head(self._stateful_fields(parts, block))
        known = self._fields
        new = [part for part in parts if part not in known]
        rest = b"".join([part for part in parts if part in known]) if 0 < len(new) <= _CHANGING else b""
        base = self._bases.get(rest)
        head = None if base is None else self._extended(base, parts, new)
        if head is None:
            fields = self._known_fields(parts)
            head = _request_head(fields)
            if len(block) <= _REMEMBERED_BYTES:
                _remember(self._heads, block, head, _HEADS)
                if rest:
                    pairs = list(zip(parts, fields, strict=True))
                    left = [field for part, field in pairs if part not in new]
                    self._remember_base(rest, left, [field for part, field in pairs if part in new])
        return head

    def _extended(self, base: _Base, parts: list[bytes], new: list[bytes]) -> Head | None:
        """``base`` with the fields of ``new`` parts; None where one of them means more than its value."""
        fields = [_checked_field(part) for part in new]
        if base.size + _list_size(fields) > self._head_bytes:
            raise self._too_large()
        known = base.head
        if parts.index(new[0]) < base.pseudo or any(name in known.values or name in _STEERING for name, _ in fields):
            return None
        return Head(
            known.method,
            known.path,
            known.query,
            (*known.headers, *fields),
            known.minor,
            known.keep_alive,
            known.expects_continue,
            known.content_length,
            known.values | first_values(tuple(fields)),
        )

    def _remember_base(self, rest: bytes, left: list[Field], new: list[Field]) -> None:
        """What is left of a head without the fields that were new to it, if that is a head."""
        if not any(name in _STEERING for name, _ in new):
            pseudo = sum(name in _PSEUDO for name, _ in left)
            _remember(self._bases, rest, _Base(_request_head(left), pseudo, _list_size(left)), _HEADS)

    def _split(self, block: bytes) -> tuple[list[bytes], bool]:
        return _split(block, empty_table=self.stateless)

    def _stateful_fields(self, parts: list[bytes], block: bytes) -> list[Field]:
        if len(parts) > _STATEFUL_TIMES * self._header_count:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM)
        fields = _decoded(self._stateful, block)
        if len(fields) > self._header_count:
            raise self._too_large()
        for name, value in fields:
            _check_field(name, value)
        return fields

    def _known_fields(self, parts: list[bytes]) -> list[Field]:
        if len(parts) > self._header_count:
            raise self._too_large()
        known = self._fields
        fields = []
        for part in parts:
            field = known.get(part)
            if field is None:
                field = _checked_field(part)
                if len(part) <= _REMEMBERED_BYTES // 4:
                    _remember(known, part, field, _FIELDS)
            fields.append(field)
        if _list_size(fields) > self._head_bytes:
            raise self._too_large()
        return fields

    def _too_large(self) -> HeadersTooLarge:
        return HeadersTooLarge(
            f"The headers are larger than {self._head_bytes} bytes or more than {self._header_count}; send fewer."
        )


def _remember(memory: dict[bytes, Known], key: bytes, value: Known, most: int) -> None:
    """Whoever sends something new each time must not make the server grow."""
    if len(memory) >= most:
        memory.clear()
    memory[key] = value


def _list_size(fields: Sequence[Field]) -> int:
    return sum([len(name) + len(value) + _FIELD_OVERHEAD for name, value in fields])


def _decoded(decoder: hpack.Decoder, block: bytes) -> list[Field]:
    try:
        return [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    except hpack.OversizedHeaderListError:
        raise ConnectionFault(Code.ENHANCE_YOUR_CALM) from None
    except hpack.HPACKError:
        raise ConnectionFault(Code.COMPRESSION_ERROR) from None


def _split(block: bytes, *, empty_table: bool) -> tuple[list[bytes], bool]:
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
    """Name and value of one part of a stateless block. Raises ``ConnectionFault``."""
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


@lru_cache(256)
def _name(string: bytes) -> bytes:
    return _string(string, 0)[0]


def _checked_field(part: bytes) -> Field:
    name, value = _field(part)
    _check_field(name, value)
    return name, value


def _string(part: bytes, at: int) -> tuple[bytes, int]:
    length, start = _integer(part, at, 0x7F)
    raw = part[start : start + length]
    if part[at] & 0x80:
        try:
            raw = bytes(decode_huffman(raw))
        except hpack.HPACKError:
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


def _check_field(name: bytes, value: bytes) -> None:
    if name in _PSEUDO and _VALUE.fullmatch(value):
        return
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name in _OF_CONNECTION:
        raise MalformedHead
    if name == b"te" and value.lower() != b"trailers":
        raise MalformedHead


def _request_head(fields: list[Field]) -> Head:
    pseudo: dict[bytes, bytes] = {}
    headers: list[Field] = []
    length: bytes | None = None
    host: bytes | None = None
    for name, value in fields:
        if name in _PSEUDO:
            if headers or name in pseudo:
                raise MalformedHead
            pseudo[name] = value
            continue
        if name == b"content-length":
            if not value.isdigit() or len(value) > 18 or length not in (None, value):
                raise MalformedHead
            length = value
        if name == b"host":
            if host is not None:
                raise MalformedHead
            host = value
        headers.append((name, value))
    return _joined(pseudo, headers, host, length)


def _joined(pseudo: dict[bytes, bytes], headers: list[Field], host: bytes | None, length: bytes | None) -> Head:
    method, target = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    scheme = pseudo.get(b":scheme", b"").lower()
    authority = pseudo.get(b":authority") or host
    if not _METHOD.fullmatch(method) or method == b"CONNECT" or scheme not in (b"http", b"https") or not authority:
        raise MalformedHead
    if host is not None and host.lower() != authority.lower():
        raise MalformedHead
    if not _PATH.fullmatch(target) and not (target == b"*" and method == b"OPTIONS"):
        raise MalformedHead
    if host is None:
        headers.insert(0, (b"host", authority))
    path, _, query = target.decode("ascii").partition("?")
    declared = None if length is None else int(length)
    expects = declared != 0 and any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)
    values = first_values(tuple(headers))
    return Head(method.decode("ascii"), path, query, tuple(headers), 2, True, expects, declared, values)
