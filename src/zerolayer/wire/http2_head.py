"""Header blocks of HTTP/2 requests: HPACK bytes to a checked ``Head`` (RFC 7541, RFC 9113 section 8).

We announce a dynamic table of size 0, so that nearly every block stands for itself and the same bytes mean the same
head: such blocks, and their single fields, are looked up before they are decoded. A block that reads or changes the
dynamic table (a client may, until it has seen our SETTINGS, and some never look) goes to the stateful decoder.
"""

from __future__ import annotations

import re
from typing import Final

import hpack

from zerolayer.errors import HeadersTooLarge
from zerolayer.wire.http1_head import Head
from zerolayer.wire.http2_frames import Code, ConnectionFault

Field = tuple[bytes, bytes]

_HEADS: Final = 16  # whole blocks that a connection remembers
_FIELDS: Final = 128
_REMEMBERED_BYTES: Final = 4096  # longer blocks, and fields of over a quarter of it, are decoded each time
_STATIC: Final = 61  # entries of the static table
_FIELD_OVERHEAD: Final = 32  # of a header list's size (RFC 9113 section 6.5.2)

_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE: Final = re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")
_METHOD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH: Final = re.compile(rb"/[\x21\x22\x24-\x7e]*")  # visible ASCII without "#", as in HTTP/1.1
_PSEUDO: Final = frozenset({b":method", b":scheme", b":path", b":authority"})
_OF_CONNECTION: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})


class MalformedHead(Exception):
    """The fields make no request (RFC 9113 section 8.1.1); the stream ends, the connection does not."""


class HeadDecoder:
    """The receiving side of one connection's header compression."""

    def __init__(self, head_bytes: int, header_count: int) -> None:
        self._head_bytes = head_bytes
        self._header_count = header_count
        self._stateful = hpack.Decoder(max_header_list_size=head_bytes)
        self._stateless = hpack.Decoder(max_header_list_size=head_bytes)
        self._stateless.header_table_size = 0
        self._heads: dict[bytes, Head] = {}
        self._fields: dict[bytes, Field] = {}

    def request(self, block: bytes) -> Head:
        """The head of a request.

        Raises ``MalformedHead``, ``HeadersTooLarge`` (only of the stream), ``ConnectionFault`` (compression is broken).
        """
        head = self._heads.get(block)
        if head is not None:
            return head
        fields, stateless = self._decode(block)
        head = _request_head(fields)
        if stateless and len(block) <= _REMEMBERED_BYTES:
            if len(self._heads) >= _HEADS:
                self._heads.clear()
            self._heads[block] = head
        return head

    def trailers(self, block: bytes) -> None:
        """Check the fields after a body and drop them: nothing may be decided there. Raises as ``request``."""
        fields, _ = self._decode(block)
        for name, value in fields:
            _check_field(name, value)

    def _decode(self, block: bytes) -> tuple[list[Field], bool]:
        parts = _split(block, empty_table=self._stateful.header_table_size == 0)
        if parts is not None and len(parts) <= self._header_count:
            fields = [self._fields.get(part) or self._decode_field(part) for part in parts]
            if sum(len(name) + len(value) + _FIELD_OVERHEAD for name, value in fields) > self._head_bytes:
                raise self._too_large()
            return fields, True
        if parts is not None:
            raise self._too_large()
        fields = _decoded(self._stateful, block)
        if len(fields) > self._header_count:
            raise self._too_large()
        return fields, False

    def _decode_field(self, part: bytes) -> Field:
        field = _decoded(self._stateless, part)[0]
        if len(part) <= _REMEMBERED_BYTES // 4:
            if len(self._fields) >= _FIELDS:
                self._fields.clear()
            self._fields[part] = field
        return field

    def _too_large(self) -> HeadersTooLarge:
        return HeadersTooLarge(
            f"The headers are larger than {self._head_bytes} bytes or more than {self._header_count}; send fewer."
        )


def _decoded(decoder: hpack.Decoder, block: bytes) -> list[Field]:
    try:
        return [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    except hpack.OversizedHeaderListError:
        raise ConnectionFault(Code.ENHANCE_YOUR_CALM) from None
    except hpack.HPACKError:
        raise ConnectionFault(Code.COMPRESSION_ERROR) from None


def _split(block: bytes, *, empty_table: bool) -> list[bytes] | None:
    """The bytes of each field, or None when the block depends on the dynamic table or changes it.

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
                index, at = _integer(block, at, 0x7F)
            elif first & 0x60 == 0x20:
                _, at = _integer(block, at, 0x1F)
                stateless = False
                continue
            else:
                stateless = stateless and (empty_table or not first & 0x40)
                index, at = _integer(block, at, 0x3F if first & 0x40 else 0x0F)
                if not index:
                    length, at = _integer(block, at, 0x7F)
                    at += length
                length, at = _integer(block, at, 0x7F)
                at += length
            stateless = stateless and index <= _STATIC
            parts.append(block[start:at])
    except IndexError:
        at = size + 1
    if at > size:
        raise ConnectionFault(Code.COMPRESSION_ERROR)
    return parts if stateless else None


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
        if name.startswith(b":"):
            if headers or name in pseudo or name not in _PSEUDO or not _VALUE.fullmatch(value):
                raise MalformedHead
            pseudo[name] = value
            continue
        _check_field(name, value)
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
    return Head(method.decode("ascii"), path, query, tuple(headers), 2, True, expects, declared)
