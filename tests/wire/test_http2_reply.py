"""Header blocks of replies say what the same headers say, read by another implementation of HPACK."""

from __future__ import annotations

import hpack
import pytest
from http2_peer import GET_BLOCK, Raw

from zerolayer.wire.http2 import Http2Protocol
from zerolayer.wire.http2_frames import END_HEADERS, END_STREAM, Kind, Setting, settings
from zerolayer.wire.http2_reply import later_block


@pytest.mark.parametrize(
    ("ms", "seconds", "ticket"), [(1, b"1", ""), (1001, b"2", "t1"), (123_456_789, b"123457", "t" * 200)]
)
def test_a_refusal_that_passes_says_when_to_come_back_and_by_which_ticket(ms, seconds, ticket):
    block = later_block(ms, ticket)
    told = {b"retry-after-ms": b"%d" % ms, b"retry-after": seconds, b"x-should-retry": b"true"}
    if ticket:
        told[b"x-zl-ticket"] = ticket.encode()
    assert dict(hpack.Decoder().decode(block, raw=True)) == told


@pytest.mark.parametrize("ticket", ["a\r\nevil: 1", "a\n", "\u00e9"])
def test_a_ticket_that_is_no_header_is_never_written(ticket):
    with pytest.raises(ValueError, match=r"line break|ascii"):
        later_block(7, ticket)


def _complete(server: Http2Protocol) -> None:
    server.reply(1, 200, ((b"a", b"b"),), b"body")


def _streamed(server: Http2Protocol) -> None:
    server.open_reply(1, 200, ((b"a", b"b"),))
    server.send(1, b"body")
    server.end(1, b"", ((b"grpc-status", b"0"),))


@pytest.mark.parametrize("reply", [_complete, _streamed])
@pytest.mark.parametrize("sizes", [(0,), (100,), (4095, 65_536), (8192,)])
def test_a_client_with_a_smaller_table_is_told_that_none_is_used(reply, sizes):
    """Whoever makes its table smaller must be told a size that fits, or reads no further head: nghttp2 does not."""
    raw, decoder = Raw(), hpack.Decoder()
    for size in sizes:
        raw.server.receive(settings({Setting.HEADER_TABLE_SIZE: size}))
        decoder.max_allowed_table_size = size
    raw.send(Kind.HEADERS, END_HEADERS | END_STREAM, 1, GET_BLOCK)
    reply(raw.server)
    told = [decoder.decode(payload, raw=True) for kind, _, _, payload in raw.frames() if kind == Kind.HEADERS]
    assert (b":status", b"200") in told[0]


def test_a_table_that_becomes_smaller_within_a_reply_is_told_in_its_trailers():
    raw, decoder = Raw(), hpack.Decoder()
    raw.send(Kind.HEADERS, END_HEADERS | END_STREAM, 1, GET_BLOCK)
    raw.server.open_reply(1, 200, ())
    raw.frames()
    raw.server.receive(settings({Setting.HEADER_TABLE_SIZE: 0}))
    decoder.max_allowed_table_size = 0
    raw.server.end(1, b"", ((b"grpc-status", b"0"),))
    assert (b"grpc-status", b"0") in decoder.decode(raw.frames()[-1][3], raw=True)
