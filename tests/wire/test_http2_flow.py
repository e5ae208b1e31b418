"""Flow control of replies: never more than either window allows, and everything once it does (RFC 9113 section 5.2)."""

from __future__ import annotations

import h2.events
import pytest
from http2_peer import GET_BLOCK, HEADERS, Peer, Raw, parse

from zerolayer.wire.http2 import Http2Limits
from zerolayer.wire.http2_events import Message
from zerolayer.wire.http2_frames import (
    END_HEADERS,
    END_STREAM,
    LARGEST_WINDOW,
    WINDOW,
    Kind,
    Setting,
    settings,
    window_update,
)

WHOLE = END_HEADERS | END_STREAM


def data_of(frames: list[tuple[int, int, int, bytes]], stream_id: int) -> bytes:
    return b"".join(payload for kind, _, of, payload in frames if kind == Kind.DATA and of == stream_id)


def asked(raw: Raw, *streams: int) -> None:
    for stream_id in streams:
        raw.send(Kind.HEADERS, WHOLE, stream_id, GET_BLOCK)


def test_a_reply_larger_than_the_windows_arrives_whole() -> None:
    peer = Peer()
    stream_id = peer.ask()
    body = bytes(range(256)) * 1000
    peer.server.reply(stream_id, 200, [], body)
    peer.exchange()
    assert peer.read(stream_id) == body
    assert peer.of(h2.events.StreamEnded)


def test_no_frame_is_larger_than_everybody_must_take() -> None:
    raw = Raw()
    asked(raw, 1)
    raw.server.reply(1, 200, [], b"x" * 60_000)
    assert max(len(payload) for _, _, _, payload in raw.frames()) == 16_384


def test_the_connection_s_window_holds_for_all_streams_together() -> None:
    raw = Raw()
    asked(raw, 1, 3)
    raw.server.reply(1, 200, [], b"a" * 50_000)
    raw.server.reply(3, 200, [], b"b" * 50_000)
    frames = raw.frames()
    assert len(data_of(frames, 1)) + len(data_of(frames, 3)) == 65_535


def test_streams_share_a_window_that_opens_slowly() -> None:
    raw = Raw()
    asked(raw, 1, 3)
    raw.server.reply(1, 200, [], b"a" * 65_535)
    raw.frames()
    raw.server.reply(3, 200, [], b"b" * 40_000)
    asked(raw, 5)
    raw.server.reply(5, 200, [], b"c" * 40_000)
    raw.send(Kind.WINDOW_UPDATE, 0, 0, (40_000).to_bytes(4, "big"))
    frames = raw.frames()
    assert data_of(frames, 3)
    assert data_of(frames, 5)


def test_a_smaller_first_window_can_make_a_stream_s_window_negative() -> None:
    raw = Raw()
    asked(raw, 1)
    raw.server.open_reply(1, 200, [])
    raw.server.send(1, b"x" * 50_000)
    raw.frames()
    raw.server.receive(settings({Setting.INITIAL_WINDOW_SIZE: 10_000}))
    raw.server.send(1, b"y" * 100)
    assert data_of(raw.frames(), 1) == b""
    raw.send(Kind.WINDOW_UPDATE, 0, 1, (40_001).to_bytes(4, "big"))
    assert data_of(raw.frames(), 1) == b"y"


def test_a_larger_first_window_frees_what_waited() -> None:
    raw = Raw()
    raw.server.receive(settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    asked(raw, 1)
    raw.server.reply(1, 200, [], b"waits")
    assert data_of(raw.frames(), 1) == b""
    raw.server.receive(settings({Setting.INITIAL_WINDOW_SIZE: 100}))
    assert data_of(raw.frames(), 1) == b"waits"


def test_trailers_wait_for_the_data_before_them() -> None:
    raw = Raw()
    raw.server.receive(settings({Setting.INITIAL_WINDOW_SIZE: 3}))
    asked(raw, 1)
    raw.server.open_reply(1, 200, [])
    raw.server.end(1, b"12345", [(b"grpc-status", b"0")])
    assert [kind for kind, _, _, _ in raw.frames()][-1] == Kind.DATA
    raw.send(Kind.WINDOW_UPDATE, 0, 1, (2).to_bytes(4, "big"))
    assert [(kind, flags) for kind, flags, _, _ in raw.frames()] == [(Kind.DATA, 0), (Kind.HEADERS, WHOLE)]


def test_an_end_without_data_needs_no_window() -> None:
    raw = Raw()
    raw.server.receive(settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    asked(raw, 1)
    raw.server.open_reply(1, 200, [])
    raw.server.end(1, b"", [(b"grpc-status", b"0")])
    assert raw.frames()[-1][:2] == (Kind.HEADERS, WHOLE)


@pytest.mark.parametrize("held", [False, True], ids=["at once", "when the socket takes something again"])
@pytest.mark.parametrize("trailers", [[], [(b"grpc-status", b"0")]], ids=["END_STREAM", "trailers"])
def test_an_end_without_data_needs_no_window_of_either_kind(held: bool, trailers: list[tuple[bytes, bytes]]) -> None:
    raw = Raw()
    asked(raw, 1)
    raw.server.open_reply(1, 200, [])
    for size in (16_384, 16_384, 16_384, 16_383):
        raw.server.send(1, b"x" * size)  # the connection has no window left
    raw.server.receive(settings({Setting.INITIAL_WINDOW_SIZE: 100}))  # and the stream less than none
    raw.frames()
    raw.server.hold(held=held)
    raw.server.end(1, b"", trailers)
    raw.server.hold(held=False)
    assert raw.frames()[-1][1] & END_STREAM


def test_what_a_reset_stream_had_waiting_is_void() -> None:
    raw = Raw()
    raw.server.receive(settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    asked(raw, 1)
    raw.server.reply(1, 200, [], b"waits")
    assert raw.server.blocked() == {1: 0}
    raw.send(Kind.RST_STREAM, 0, 1, bytes(4))
    assert raw.server.blocked() == {}


def test_no_data_leaves_while_the_socket_takes_nothing() -> None:
    raw = Raw()
    asked(raw, 1)
    raw.server.open_reply(1, 200, [])
    raw.server.hold(held=True)
    raw.server.send(1, b"a")
    raw.server.end(1, b"b")
    assert data_of(raw.frames(), 1) == b""
    raw.server.hold(held=False)
    assert data_of(raw.frames(), 1) == b"ab"


def test_room_is_given_back_in_halves_of_the_window() -> None:
    peer = Peer()
    for _ in range(40):
        stream_id = peer.ask(b"x" * 500_000)
        peer.server.reply(stream_id, 200, [], b"")
    updates = [event for event in peer.of(h2.events.WindowUpdated) if event.stream_id == 0]
    assert len(updates) == 1 + 40 * 500_000 // (8 << 20)
    assert peer.client.outbound_flow_control_window > 8 << 20


def test_padding_takes_no_room_from_a_body_that_may_be_as_long_as_allowed() -> None:
    peer = Peer(Http2Limits(body_bytes=20_000))
    stream_id = peer.client.get_next_available_stream_id()
    peer.client.send_headers(stream_id, HEADERS)
    for left in reversed(range(20)):
        peer.client.send_data(stream_id, b"x" * 1000, end_stream=not left, pad_length=255 if left else 0)
        peer.exchange()
    assert peer.seen[-1] == Message(stream_id, b"x" * 20_000)


def test_a_stream_whose_body_is_taken_as_it_comes_has_room_without_end() -> None:
    peer = Peer()
    peer.client.send_headers(1, [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")])
    peer.exchange()
    peer.server.incremental(1)
    for _ in range(300):
        peer.client.send_data(1, b"x" * 16_000)
        peer.exchange()
    assert peer.client.local_flow_control_window(1) > 16_000


def test_a_client_with_wide_windows_is_given_what_it_asked_for_bit_by_bit() -> None:
    """Else all the replies of a connection would be copied for it at once, however slowly it reads."""
    raw, body = Raw(), bytes(range(256)) * 4000
    raw.server.receive(settings({Setting.INITIAL_WINDOW_SIZE: LARGEST_WINDOW}))
    raw.server.receive(window_update(0, LARGEST_WINDOW - WINDOW))
    streams = range(1, 41, 2)
    asked(raw, *streams)
    for stream_id in streams:
        raw.server.reply(stream_id, 200, [], body)
    writes = []
    while raw.server.sender.out_bytes or raw.server.sender.more:
        writes.append(raw.server.take())
    assert max(map(len, writes)) < 200_000
    frames = parse(b"".join(writes))
    assert all(data_of(frames, stream_id) == body for stream_id in streams)
    assert not raw.server.streams
