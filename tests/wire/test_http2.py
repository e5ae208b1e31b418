"""HTTP/2 requests and replies against the ``h2`` package, and what ends a stream or a connection (RFC 9113)."""

from __future__ import annotations

import h2.events
import h2.settings
import pytest
from http2_peer import GET, GET_BLOCK, HEADERS, POST_BLOCK, Peer, Raw

from zerolayer.wire.http2 import Code, Http2Limits, Http2Protocol
from zerolayer.wire.http2_events import Chunk, Closed, Gone, Message, Opened, Refused
from zerolayer.wire.http2_frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PREFACE,
    PRIORITY,
    Kind,
    frame,
    rst_stream,
    settings,
)

WHOLE = END_HEADERS | END_STREAM
REPLY = [(b"content-type", b"text/plain")]


def test_a_request_gives_its_head_and_then_its_body() -> None:
    peer = Peer()
    stream_id = peer.ask(b"hello", [*HEADERS, ("x-a", "b")])
    opened, message = peer.seen
    assert isinstance(opened, Opened)
    assert opened.head is not None
    assert (opened.head.method, opened.head.path, opened.head.query) == ("POST", "/v1/x", "y=1")
    assert opened.head.headers == ((b"host", b"localhost"), (b"x-a", b"b"))
    assert message == Message(stream_id, b"hello")


def test_a_request_without_a_body_is_complete_at_once() -> None:
    peer = Peer()
    stream_id = peer.ask(None, GET)
    assert peer.seen[-1] == Message(stream_id, b"")


def test_a_complete_reply_reaches_the_client() -> None:
    peer = Peer()
    stream_id = peer.ask()
    peer.server.reply(stream_id, 200, REPLY, b"body")
    peer.exchange()
    assert peer.of(h2.events.ResponseReceived)[0].headers == [(b":status", b"200"), (b"content-type", b"text/plain")]
    assert peer.read(stream_id) == b"body"
    assert peer.of(h2.events.StreamEnded)
    assert peer.server.streams == 0


@pytest.mark.parametrize("status", [200, 204, 400, 404, 405, 413, 429, 500, 503])
def test_every_status_is_told(status: int) -> None:
    peer = Peer()
    peer.server.reply(peer.ask(), status, [], b"")
    peer.exchange()
    assert peer.of(h2.events.ResponseReceived)[0].headers == [(b":status", b"%d" % status)]


def test_a_streamed_reply_with_trailers() -> None:
    peer = Peer()
    stream_id = peer.ask()
    peer.server.open_reply(stream_id, 200, REPLY)
    assert peer.server.send(stream_id, b"one ")
    peer.server.end(stream_id, b"two", [(b"grpc-status", b"0")])
    peer.exchange()
    assert peer.read(stream_id) == b"one two"
    assert peer.of(h2.events.TrailersReceived)[0].headers == [(b"grpc-status", b"0")]


def test_what_many_streams_have_to_say_is_one_write() -> None:
    peer = Peer()
    streams = [peer.ask() for _ in range(20)]
    for stream_id in streams:
        peer.server.open_reply(stream_id, 200, REPLY)
        peer.server.send(stream_id, b"token")
    peer.writes.clear()
    peer.exchange()
    assert len(peer.writes) == 1
    assert all(peer.body(stream_id) == b"token" for stream_id in streams)


def test_a_long_header_travels_in_continuation_frames() -> None:
    peer = Peer()
    peer.client.max_inbound_frame_size = 16_384
    peer.server.reply(peer.ask(), 200, [(b"x-long", b"v" * 40_000)], b"")
    peer.exchange()
    assert peer.of(h2.events.ResponseReceived)[0].headers[1] == (b"x-long", b"v" * 40_000)


def test_a_header_with_a_line_break_is_never_written() -> None:
    peer = Peer()
    with pytest.raises(ValueError, match="line break"):
        peer.server.reply(peer.ask(), 200, [(b"x", b"a\r\nb")], b"")


def test_a_reply_before_the_request_is_complete_asks_for_no_more() -> None:
    peer = Peer()
    peer.client.send_headers(1, HEADERS)
    peer.exchange()
    peer.server.reply(1, 404, REPLY, b"no")
    peer.exchange()
    assert peer.body(1) == b"no"
    assert peer.of(h2.events.StreamReset)[0].error_code == Code.NO_ERROR


def test_data_on_its_way_to_a_stream_that_we_ended_is_dropped() -> None:
    raw = Raw()
    raw.send(Kind.HEADERS, END_HEADERS, 1, POST_BLOCK)
    raw.server.reply(1, 404, REPLY, b"no")
    raw.frames()
    assert raw.send(Kind.DATA, END_STREAM, 1, b"x" * 300) == []
    assert raw.frames() == []


def test_request_trailers_are_checked_and_dropped() -> None:
    peer = Peer()
    peer.client.send_headers(1, HEADERS)
    peer.client.send_data(1, b"body")
    peer.client.send_headers(1, [("x-sum", "1")], end_stream=True)
    peer.exchange()
    assert peer.seen[-1] == Message(1, b"body")


def test_padding_and_priority_are_not_content() -> None:
    raw = Raw()
    raw.send(Kind.HEADERS, END_HEADERS | PADDED | PRIORITY, 1, b"\x02" + bytes(5) + POST_BLOCK + b"\0\0")
    events = raw.send(Kind.DATA, END_STREAM | PADDED, 1, b"\x03body\0\0\0")
    assert events == [Message(1, b"body")]


def test_a_body_can_be_taken_as_it_comes() -> None:
    peer = Peer()
    peer.client.send_headers(1, HEADERS)
    peer.client.send_data(1, b"a")
    peer.exchange()
    assert peer.server.incremental(1) == b"a"
    peer.client.send_data(1, b"b")
    peer.client.send_data(1, b"c", end_stream=True)
    peer.exchange()
    assert peer.seen[1:] == [Chunk(1, b"b", False), Chunk(1, b"c", True)]


def test_a_client_that_resets_its_stream_is_gone() -> None:
    peer = Peer()
    stream_id = peer.ask()
    peer.client.reset_stream(stream_id, Code.CANCEL)
    peer.exchange()
    assert peer.seen[-1] == Gone(stream_id)
    assert peer.server.streams == 0


def test_a_request_that_is_reset_in_the_same_bytes_is_never_seen() -> None:
    """Rapid reset costs no work (CVE-2023-44487)."""
    raw = Raw()
    ask = frame(Kind.HEADERS, WHOLE, 1, GET_BLOCK) + rst_stream(1, Code.CANCEL)
    assert raw.server.receive(ask) == [Gone(1)]


def test_calls_for_a_stream_that_is_gone_do_nothing() -> None:
    raw = Raw()
    raw.send(Kind.HEADERS, WHOLE, 1, GET_BLOCK)
    raw.send(Kind.RST_STREAM, 0, 1, bytes(4))
    raw.server.reply(1, 200, [], b"x")
    raw.server.end(1, b"x")
    raw.server.reset(1, Code.CANCEL)
    assert raw.server.send(1, b"x")
    assert raw.frames() == []


def test_goaway_names_the_last_request_and_lets_it_finish() -> None:
    raw = Raw()
    raw.send(Kind.HEADERS, WHOLE, 1, GET_BLOCK)
    raw.server.go_away()
    raw.server.reply(1, 200, REPLY, b"still")
    goaway, head, body = raw.frames()
    assert (goaway[0], goaway[3]) == (Kind.GOAWAY, bytes([0, 0, 0, 1, 0, 0, 0, 0]))
    assert (head[0], body[0], body[3]) == (Kind.HEADERS, Kind.DATA, b"still")


def test_a_request_after_goaway_is_refused_and_can_be_sent_elsewhere() -> None:
    raw = Raw()
    raw.server.go_away()
    raw.frames()
    assert raw.send(Kind.HEADERS, WHOLE, 1, GET_BLOCK) == []
    assert raw.frames() == [(Kind.RST_STREAM, 0, 1, bytes([0, 0, 0, Code.REFUSED_STREAM]))]


def test_a_ping_is_answered_with_its_own_bytes() -> None:
    raw = Raw()
    raw.send(Kind.PING, 0, 0, b"12345678")
    assert raw.frames() == [(Kind.PING, ACK, 0, b"12345678")]


def test_settings_are_acknowledged() -> None:
    peer = Peer()
    assert peer.of(h2.events.SettingsAcknowledged)


def test_what_we_announce() -> None:
    peer = Peer(Http2Limits(streams=7, head_bytes=9000, body_bytes=500_000, held_bytes=1 << 20))
    remote = peer.client.remote_settings
    assert remote.header_table_size == 0
    assert remote.max_concurrent_streams == 7
    assert remote.max_header_list_size == 9000
    assert remote.initial_window_size > 500_000
    assert peer.client.outbound_flow_control_window == 1 << 20


def test_unknown_frames_and_settings_are_ignored() -> None:
    raw = Raw()
    assert raw.send(0xFA, 0, 0, b"?") == []
    assert raw.send(Kind.SETTINGS, 0, 0, b"\xff\xff\0\0\0\1") == []
    assert raw.frames() == [(Kind.SETTINGS, ACK, 0, b"")]


@pytest.mark.parametrize("body", [b"four", b"five5"], ids=["shorter than it said", "longer than it said"])
def test_a_body_must_have_the_length_that_was_announced(body: bytes) -> None:
    raw = Raw()
    raw.send(Kind.HEADERS, END_HEADERS, 1, POST_BLOCK + b"\x0f\x0d\x01" + (b"5" if body == b"four" else b"4"))
    assert raw.send(Kind.DATA, END_STREAM, 1, body) == [Gone(1)]
    assert raw.frames() == [(Kind.RST_STREAM, 0, 1, bytes([0, 0, 0, Code.PROTOCOL_ERROR]))]


# What breaks one stream.


@pytest.mark.parametrize(
    ("kind", "flags", "payload", "code"),
    [
        (Kind.DATA, END_STREAM, b"more", Code.STREAM_CLOSED),
        (Kind.HEADERS, WHOLE, b"", Code.STREAM_CLOSED),
        (Kind.WINDOW_UPDATE, 0, bytes(4), Code.PROTOCOL_ERROR),
        (Kind.WINDOW_UPDATE, 0, b"\x7f\xff\xff\xff", Code.FLOW_CONTROL_ERROR),
    ],
)
def test_a_fault_of_a_stream_costs_that_stream(kind: int, flags: int, payload: bytes, code: Code) -> None:
    raw = Raw()
    raw.send(Kind.HEADERS, WHOLE, 1, GET_BLOCK)
    raw.send(Kind.HEADERS, WHOLE, 3, GET_BLOCK)
    assert raw.send(kind, flags, 1, payload) == [Gone(1)]
    assert raw.frames() == [(Kind.RST_STREAM, 0, 1, bytes([0, 0, 0, code]))]
    raw.server.reply(3, 200, [], b"fine")
    assert [kind for kind, _, _, _ in raw.frames()] == [Kind.HEADERS, Kind.DATA]


# What breaks the connection.


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(Kind.DATA, 0, 0, b"x"), Code.PROTOCOL_ERROR),
        (frame(Kind.DATA, 0, 5, b"x"), Code.PROTOCOL_ERROR),
        (frame(Kind.DATA, PADDED, 1, b"\x09x"), Code.PROTOCOL_ERROR),
        (frame(Kind.HEADERS, WHOLE, 2, GET_BLOCK), Code.PROTOCOL_ERROR),
        (frame(Kind.HEADERS, WHOLE, 0, GET_BLOCK), Code.PROTOCOL_ERROR),
        (frame(Kind.HEADERS, WHOLE, 1, b"\x80"), Code.COMPRESSION_ERROR),
        (frame(Kind.HEADERS, WHOLE, 1, b"\x00\x7f\xff\xff\xff\xff\xff"), Code.COMPRESSION_ERROR),
        (frame(Kind.HEADERS, 0, 1, GET_BLOCK) + frame(Kind.PING, 0, 0, bytes(8)), Code.PROTOCOL_ERROR),
        (frame(Kind.CONTINUATION, END_HEADERS, 1, b""), Code.PROTOCOL_ERROR),
        (frame(Kind.PRIORITY, 0, 0, bytes(5)), Code.PROTOCOL_ERROR),
        (frame(Kind.PRIORITY, 0, 1, bytes(4)), Code.FRAME_SIZE_ERROR),
        (frame(Kind.RST_STREAM, 0, 9, bytes(4)), Code.PROTOCOL_ERROR),
        (frame(Kind.RST_STREAM, 0, 1, bytes(3)), Code.FRAME_SIZE_ERROR),
        (frame(Kind.SETTINGS, 0, 1, b""), Code.PROTOCOL_ERROR),
        (frame(Kind.SETTINGS, 0, 0, bytes(5)), Code.FRAME_SIZE_ERROR),
        (frame(Kind.SETTINGS, ACK, 0, bytes(6)), Code.FRAME_SIZE_ERROR),
        (frame(Kind.SETTINGS, 0, 0, b"\0\4\x80\0\0\0"), Code.FLOW_CONTROL_ERROR),
        (frame(Kind.SETTINGS, 0, 0, b"\0\5\0\0\0\1"), Code.PROTOCOL_ERROR),
        (frame(Kind.SETTINGS, 0, 0, b"\0\2\0\0\0\2"), Code.PROTOCOL_ERROR),
        (frame(Kind.PUSH_PROMISE, 0, 1, bytes(4)), Code.PROTOCOL_ERROR),
        (frame(Kind.PING, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
        (frame(Kind.PING, 0, 0, bytes(7)), Code.FRAME_SIZE_ERROR),
        (frame(Kind.GOAWAY, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
        (frame(Kind.WINDOW_UPDATE, 0, 0, bytes(4)), Code.PROTOCOL_ERROR),
        (frame(Kind.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), Code.FLOW_CONTROL_ERROR),
        (b"\x00\x40\x01" + bytes(6), Code.FRAME_SIZE_ERROR),
    ],
)
def test_a_fault_of_the_connection_ends_it_with_goaway(data: bytes, code: Code) -> None:
    raw = Raw()
    assert raw.server.receive(data)[-1] == Closed(code)
    kind, _, _, payload = raw.frames()[-1]
    assert (kind, payload[4:]) == (Kind.GOAWAY, bytes([0, 0, 0, code]))
    assert raw.server.receive(frame(Kind.PING, 0, 0, bytes(8))) == []


@pytest.mark.parametrize("fields", [0, 200], ids=["like any other", "with too many fields"])
@pytest.mark.parametrize("stream_id", [1, 3, 5], ids=["reset by us", "never opened", "answered"])
def test_no_stream_is_opened_twice_or_after_a_later_one(stream_id: int, fields: int) -> None:
    raw = Raw()
    raw.send(Kind.HEADERS, END_HEADERS, 1, POST_BLOCK)
    raw.server.reset(1, Code.CANCEL)
    raw.send(Kind.HEADERS, WHOLE, 5, GET_BLOCK)
    raw.server.reply(5, 200, [], b"")
    events = raw.send(Kind.HEADERS, WHOLE, stream_id, GET_BLOCK + b"\0\1x\1y" * fields)
    assert not any(isinstance(event, Opened) for event in events)
    assert not raw.server.streams
    if stream_id != 1:  # there it may have been on its way
        assert events == [Closed(Code.STREAM_CLOSED)]


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", PREFACE + frame(Kind.PING, 0, 0, bytes(8))]
)
def test_a_connection_must_begin_with_the_preface_and_settings(data: bytes) -> None:
    assert Http2Protocol(Http2Limits()).receive(data) == [Closed(Code.PROTOCOL_ERROR)]


def test_the_beginning_counts_as_a_head_that_is_being_read() -> None:
    server = Http2Protocol(Http2Limits())
    server.receive(PREFACE[:10])
    assert server.reading_head
    server.receive(PREFACE[10:] + settings({}))
    assert not server.reading_head


def test_a_head_that_is_too_large_is_refused_and_the_connection_lives() -> None:
    peer = Peer(Http2Limits(header_count=20))
    first = peer.ask(None, [*GET, *[(f"x-{i}", "v") for i in range(40)]])
    opened, refused = peer.seen
    assert opened == Opened(first, None)
    assert isinstance(refused, Refused)
    assert refused.error.status == 431
    peer.server.reply(first, 431, [], b"")
    second = peer.ask(None, GET)
    assert peer.seen[-1] == Message(second, b"")
