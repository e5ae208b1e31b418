"""Header blocks of HTTP/2 requests: HPACK bytes to a checked ``Head`` (RFC 7541, RFC 9113 section 8).

We announce a dynamic table of size 0, so that nearly every block stands for itself and the same bytes mean the same
head: such blocks and their single fields are looked up before they are decoded, and of a block that differs from
earlier ones in some values only those are read (``http2_template``). A block that reads or changes the dynamic table (a
client may, until it has seen our SETTINGS, and some never look) goes to the stateful decoder.
"""

from __future__ import annotations

import re
from typing import Final

import hpack

from zerolayer.errors import HeadersTooLarge
from zerolayer.wire.head_template import remember
from zerolayer.wire.http1_head import HTTP2, Head, first_values, is_host
from zerolayer.wire.http2_fields import PSEUDO, Field, MalformedHead, check_field, checked_field, list_size, split
from zerolayer.wire.http2_frames import Code, ConnectionFault
from zerolayer.wire.http2_template import Habits

__all__ = ["HeadDecoder", "MalformedHead"]

_HEADS: Final = 16  # whole blocks that a connection remembers
_FIELDS: Final = 128
_REMEMBERED_BYTES: Final = 4096  # longer blocks, and fields of over a quarter of it, are decoded each time
_STATEFUL_TIMES: Final = 4  # as many headers are still decoded where others depend on it, before they are refused

_METHOD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH: Final = re.compile(rb"/[\x21\x22\x24-\x7e]*")  # visible ASCII without "#", as in HTTP/1.1


class HeadDecoder:
    """The receiving side of one connection's header compression."""

    def __init__(self, head_bytes: int, header_count: int) -> None:
        self._head_bytes = head_bytes
        self._header_count = header_count
        self._stateful = hpack.Decoder(max_header_list_size=head_bytes)
        self.heads: dict[bytes, Head] = {}  # whole blocks that came before
        self._habits = Habits(head_bytes)
        self._fields: dict[bytes, Field] = {}

    @property
    def stateless(self) -> bool:
        """Whether the client's table can hold nothing, so that the same bytes mean the same head."""
        return self._stateful.header_table_size == 0

    def request(self, block: bytes) -> Head:
        """The head of a request.

        Raises ``MalformedHead``, ``HeadersTooLarge`` (only of the stream), ``ConnectionFault`` (compression is broken).
        """
        return self.heads.get(block) or self._decoded_head(block)

    def known(self, block: bytes) -> Head | None:
        """The same, if a head like it came before. None for everything else; nothing was decoded then."""
        head = self.heads.get(block)
        if head is None:
            try:
                head = self._habits.head(block)
            except ConnectionFault:
                return None
        return head

    def trailers(self, block: bytes) -> None:
        """Check the fields after a body and drop them: nothing may be decided there. Raises as ``request``."""
        parts, stateless = self._split(block)
        fields = self._known_fields(parts) if stateless else self._stateful_fields(parts, block)
        if any(name.startswith(b":") for name, _ in fields):
            raise MalformedHead

    def _decoded_head(self, block: bytes) -> Head:
        head = self._habits.head(block)
        if head is not None:
            return head
        parts, stateless = self._split(block)
        if not stateless:
            fields = self._stateful_fields(parts, block)
            if not self.stateless:  # the same bytes no longer mean the same, and what adds to the table must be decoded
                self.heads.clear()
                self._habits.forget()
            return _request_head(fields)
        fields = self._known_fields(parts)
        head = _request_head(fields)
        if len(block) <= _REMEMBERED_BYTES:
            remember(self.heads, block, head, _HEADS)
            self._habits.learn(parts, fields, head)
        return head

    def _split(self, block: bytes) -> tuple[list[bytes], bool]:
        if len(block) > self._head_bytes:
            # Its rest may not have been kept. Nobody needs it where no later block depends on it.
            if self.stateless:
                raise self._too_large()
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM)
        return split(block, empty_table=self.stateless)

    def _stateful_fields(self, parts: list[bytes], block: bytes) -> list[Field]:
        if len(parts) > _STATEFUL_TIMES * self._header_count:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM)
        fields = _decoded(self._stateful, block)
        if len(fields) > self._header_count:
            raise self._too_large()
        for name, value in fields:
            check_field(name, value)
        return fields

    def _known_fields(self, parts: list[bytes]) -> list[Field]:
        if len(parts) > self._header_count:
            raise self._too_large()
        known = self._fields
        fields = []
        for part in parts:
            field = known.get(part)
            if field is None:
                field = checked_field(part)
                if len(part) <= _REMEMBERED_BYTES // 4:
                    remember(known, part, field, _FIELDS)
            fields.append(field)
        if list_size(fields) > self._head_bytes:
            raise self._too_large()
        return fields

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


def _request_head(fields: list[Field]) -> Head:
    pseudo: dict[bytes, bytes] = {}
    headers: list[Field] = []
    length: bytes | None = None
    host: bytes | None = None
    for name, value in fields:
        if name in PSEUDO:
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
    if not is_host(authority) or (host is not None and host.lower() != authority.lower()):
        raise MalformedHead
    if not _PATH.fullmatch(target) and not (target == b"*" and method == b"OPTIONS"):
        raise MalformedHead
    if host is None:
        headers.insert(0, (b"host", authority))
    path, _, query = target.decode("ascii").partition("?")
    declared = None if length is None else int(length)
    expects = declared != 0 and any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)
    values = first_values(tuple(headers))
    return Head(method.decode("ascii"), path, query, tuple(headers), HTTP2, True, expects, declared, values)
