"""HTTP/2 without sockets: against other people's implementation, and against bytes that break the rules."""

from __future__ import annotations

import h2.config
import h2.connection
import h2.events
import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.client.errors import BadReply
from zerolayer.client.http2 import STREAM_ROOM, Broken, Data, Done, Head, Http2Client, head_block
from zerolayer.wire.http2_frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    Code,
    Kind,
    Setting,
    frame,
    goaway,
    rst_stream,
    settings,
)

FIELDS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "a:1"),
    (":path", "/v1/generate"),
    ("x-long", "v" * 200),
]
OK = hpack.Encoder().encode([(":status", "200"), ("x-zl-load", "free=1;next_ms=0")])


class Peer:
    """A server of the library h2."""

    def __init__(self) -> None:
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.h2.initiate_connection()

    def take(self, data: bytes) -> list[h2.events.Event]:
        return self.h2.receive_data(data)


def client() -> Http2Client:
    return Http2Client(hpack.Decoder())


def begun(body: bytes = b"") -> tuple[Http2Client, int]:
    """A client with one request under way, that has been greeted."""
    http2 = client()
    stream = http2.request(FIELDS, body)
    http2.receive(settings({}))
    http2.take()
    return http2, stream


def head(stream: int, flags: int = END_HEADERS, block: bytes = OK) -> bytes:
    return frame(Kind.HEADERS, flags, stream, block)


def data(stream: int, payload: bytes, flags: int = 0) -> bytes:
    return frame(Kind.DATA, flags, stream, payload)


def test_a_request_is_what_another_implementation_reads() -> None:
    http2, peer = client(), Peer()
    http2.request(FIELDS, b"hello")
    events = peer.take(http2.take())
    (request,) = [event for event in events if isinstance(event, h2.events.RequestReceived)]
    assert [tuple(field) for field in request.headers] == FIELDS
    assert b"".join(event.data for event in events if isinstance(event, h2.events.DataReceived)) == b"hello"
    assert any(isinstance(event, h2.events.StreamEnded) for event in events)


@given(st.integers(1, 400))
def test_a_reply_of_another_implementation_is_read_however_it_is_cut(size: int) -> None:
    http2, peer = client(), Peer()
    stream = http2.request(FIELDS, b"x")
    peer.take(http2.take())
    peer.h2.send_headers(stream, [(":status", "200"), ("server", "other"), ("x-a", "1")])
    peer.h2.send_data(stream, b"one")
    peer.h2.send_data(stream, b"two")
    peer.h2.send_headers(stream, [("grpc-status", "0")], end_stream=True)
    sent = peer.h2.data_to_send()
    events = [event for at in range(0, len(sent), size) for event in http2.receive(sent[at : at + size])]
    assert events == [
        Head(stream, 200, {"server": "other", "x-a": "1"}),
        Data(stream, b"one"),
        Data(stream, b"two"),
        Done(stream, {"grpc-status": "0"}),
    ]


def test_a_body_waits_for_the_servers_window_and_goes_on_with_it() -> None:
    http2, peer = client(), Peer()
    stream = http2.request(FIELDS, b"z" * 200_000)
    received = 0
    for _ in range(20):
        for event in peer.take(http2.take()):
            if isinstance(event, h2.events.DataReceived):
                received += len(event.data)
                peer.h2.acknowledge_received_data(event.flow_controlled_length, stream)
        http2.receive(peer.h2.data_to_send())
    assert received == 200_000


def test_a_reader_that_keeps_up_is_never_without_room() -> None:
    http2, peer = client(), Peer()
    stream = http2.request(FIELDS, b"")
    peer.take(http2.take())
    peer.h2.send_headers(stream, [(":status", "200")])
    got = 0
    for _ in range(200):
        room = min(peer.h2.local_flow_control_window(stream), 16_384)
        peer.h2.send_data(stream, b"d" * room)
        for event in http2.receive(peer.h2.data_to_send()):
            if isinstance(event, Data):
                got += len(event.data)
                http2.consumed(stream, len(event.data))
        peer.take(http2.take())
    assert got == 200 * 16_384 > STREAM_ROOM


def test_a_reader_that_does_not_read_is_sent_no_more_than_its_room() -> None:
    http2, peer = client(), Peer()
    stream = http2.request(FIELDS, b"")
    peer.take(http2.take())
    assert peer.h2.local_flow_control_window(stream) == STREAM_ROOM


def test_a_cancelled_request_is_reset_and_what_still_comes_is_dropped() -> None:
    http2, stream = begun()
    http2.receive(head(stream))
    http2.cancel(stream)
    assert http2.take() == rst_stream(stream, Code.CANCEL)
    assert http2.receive(data(stream, b"late", END_STREAM)) == []
    assert http2.streams == 0


def test_cancelling_what_has_ended_sends_nothing() -> None:
    http2, stream = begun()
    http2.receive(head(stream, END_HEADERS | END_STREAM))
    http2.cancel(stream)
    assert http2.take() == b""


def test_a_refused_stream_was_not_looked_at() -> None:
    http2, stream = begun()
    assert http2.receive(rst_stream(stream, Code.REFUSED_STREAM)) == [Broken(stream, unseen=True)]


def test_a_reset_stream_may_have_been_worked_on() -> None:
    http2, stream = begun()
    assert http2.receive(rst_stream(stream, Code.INTERNAL_ERROR)) == [Broken(stream, unseen=False)]


def test_a_server_that_goes_away_says_what_it_did_not_look_at_and_finishes_the_rest() -> None:
    http2, first = begun()
    second = http2.request(FIELDS, b"")
    assert http2.receive(goaway(first, Code.NO_ERROR)) == [Broken(second, unseen=True)]
    assert not http2.open
    assert http2.receive(head(first, END_HEADERS | END_STREAM))[-1] == Done(first, {"x-zl-load": "free=1;next_ms=0"})


def test_a_lost_connection_breaks_all_that_is_under_way() -> None:
    http2, stream = begun()
    assert http2.lost() == [Broken(stream, unseen=False)]
    assert not http2.open


def test_the_server_says_how_many_requests_it_takes() -> None:
    http2 = client()
    http2.receive(settings({Setting.MAX_CONCURRENT_STREAMS: 7}))
    assert http2.most == 7


@pytest.mark.parametrize("size", [0, 4095, 4096])
def test_a_server_with_a_smaller_table_reads_the_next_request(size: int) -> None:
    http2, decoder = client(), hpack.Decoder()
    http2.receive(settings({Setting.HEADER_TABLE_SIZE: size}))
    http2.take()
    decoder.max_allowed_table_size = size
    http2.request(FIELDS, b"")
    assert [tuple(field) for field in decoder.decode(http2.take()[9:])] == FIELDS


def test_pings_are_answered() -> None:
    http2, _ = begun()
    http2.receive(frame(Kind.PING, 0, 0, b"12345678"))
    assert http2.take() == frame(Kind.PING, ACK, 0, b"12345678")


def test_interim_replies_are_skipped() -> None:
    http2, stream = begun()
    early = hpack.Encoder().encode([(":status", "103")])
    events = http2.receive(head(stream, block=early) + head(stream))
    assert [event.status for event in events if isinstance(event, Head)] == [200]


@pytest.mark.parametrize(
    "wrong",
    [
        frame(Kind.PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2"),
        frame(Kind.CONTINUATION, END_HEADERS, 1, OK),
        frame(Kind.HEADERS, 0, 1, OK[:2]) + frame(Kind.DATA, 0, 1, b"x"),
        frame(Kind.DATA, 0, 1, b"before its head"),
        frame(Kind.HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
        frame(Kind.HEADERS, END_HEADERS, 1, hpack.Encoder().encode([("x-a", "no status")])),
        b"\xff\xff\xff" + b"\0" * 6,
        frame(Kind.RST_STREAM, 0, 1, b"\0"),
        b"".join([frame(Kind.HEADERS, 0, 1, b"")] + [frame(Kind.CONTINUATION, 0, 1, b"\0" * 16_000) for _ in range(5)]),
        frame(Kind.HEADERS, END_HEADERS, 1, OK) + frame(Kind.DATA, 0, 1, b"x" * 16_384) * (STREAM_ROOM // 16_384 + 1),
    ],
)
def test_what_breaks_the_protocol_ends_the_connection(wrong: bytes) -> None:
    http2, _ = begun()
    with pytest.raises(BadReply):
        http2.receive(wrong)
    assert not http2.open


def test_what_is_no_http2_is_told_at_the_first_frame() -> None:
    with pytest.raises(BadReply):
        client().receive(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 255), st.integers(0, 5), st.binary(max_size=40))))
def test_no_bytes_break_the_reader(frames: list[tuple[int, int, int, bytes]]) -> None:
    http2, _ = begun(b"body")
    sent = b"".join(frame(*each) for each in frames)
    try:
        events = http2.receive(sent)
    except BadReply:
        assert not http2.open
        return
    assert all(event.stream_id == 1 for event in events)


@pytest.mark.parametrize("size", [0, 126, 127, 128, 254, 255, 300, 20_000])
def test_header_strings_of_every_length_are_read(size: int) -> None:
    block = head_block([("x-a", "v" * size), ("x-b", "w")])
    assert hpack.Decoder().decode(block) == [("x-a", "v" * size), ("x-b", "w")]
