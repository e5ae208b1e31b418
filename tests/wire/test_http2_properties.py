"""Properties: any split of the bytes gives the same events, no bytes raise, and nothing grows without bound."""

from __future__ import annotations

from itertools import pairwise

from http2_peer import GET_BLOCK, HEADERS, POST_BLOCK, Peer, Raw
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.wire.http2 import Http2Limits, Http2Protocol
from zerolayer.wire.http2_events import Event, Message, Opened
from zerolayer.wire.http2_frames import END_HEADERS, END_STREAM, PREFACE, Kind, frame
from zerolayer.wire.http2_frames import settings as settings_frame

LIMITS = Http2Limits(
    streams=8, head_bytes=2048, body_bytes=4096, held_bytes=1 << 17, unsent_bytes=4096, unsent_total_bytes=16_384
)
BEGIN = PREFACE + settings_frame({})
BLOCKS = st.sampled_from([GET_BLOCK, POST_BLOCK, b"", b"\x82", b"\xbe", b"\x20", GET_BLOCK + b"\x40\x01a\x01b"])
STREAMS = st.integers(0, 12)
FLAGS = st.sampled_from([0, END_STREAM, END_HEADERS, END_HEADERS | END_STREAM, 0x08, 0x2D])
FRAMES = st.one_of(
    st.builds(frame, st.just(Kind.HEADERS), FLAGS, STREAMS, BLOCKS),
    st.builds(frame, st.just(Kind.CONTINUATION), FLAGS, STREAMS, BLOCKS),
    st.builds(frame, st.just(Kind.DATA), FLAGS, STREAMS, st.binary(max_size=300)),
    st.builds(frame, st.just(Kind.WINDOW_UPDATE), st.just(0), STREAMS, st.binary(min_size=4, max_size=4)),
    st.builds(frame, st.just(Kind.RST_STREAM), st.just(0), STREAMS, st.binary(min_size=4, max_size=4)),
    st.builds(frame, st.just(Kind.SETTINGS), st.just(0), st.just(0), st.binary(max_size=12)),
    st.builds(frame, st.integers(0, 255), st.integers(0, 255), STREAMS, st.binary(max_size=20)),
)


def run(*parts: bytes, limits: Http2Limits = LIMITS) -> tuple[list[Event], bytes]:
    server = Http2Protocol(limits)
    events = [event for part in parts for event in server.receive(part)]
    return events, server.take()


@st.composite
def splits(draw: st.DrawFn, raw: bytes) -> list[bytes]:
    cuts = sorted(draw(st.sets(st.integers(0, len(raw)), max_size=12)) | {0, len(raw)})
    return [raw[start:end] for start, end in pairwise(cuts)]


@given(st.lists(st.tuples(st.binary(max_size=50), st.booleans()), max_size=8))
def test_requests_of_another_client_arrive_as_they_were_sent(requests: list[tuple[bytes, bool]]) -> None:
    peer = Peer()
    for body, padded in requests:
        stream_id = peer.client.get_next_available_stream_id()
        peer.client.send_headers(stream_id, HEADERS)
        peer.client.send_data(stream_id, body, end_stream=True, pad_length=7 if padded else None)
        peer.exchange()
        assert peer.seen[-1].body == body  # type: ignore[union-attr]
        peer.server.reply(stream_id, 200, [], body)
        peer.exchange()
        assert peer.read(stream_id) == body


@given(st.data(), st.lists(FRAMES, max_size=10))
def test_any_split_of_the_bytes_gives_the_same_replies(data: st.DataObject, frames: list[bytes]) -> None:
    """And the same events, but for those of a request that was reset before anybody saw it."""
    raw = BEGIN + b"".join(frames)
    assert run(*data.draw(splits(raw)))[1] == run(raw)[1]


@given(st.lists(FRAMES, max_size=10))
def test_bytes_may_arrive_one_by_one(frames: list[bytes]) -> None:
    raw = BEGIN + b"".join(frames)
    assert run(*[raw[at : at + 1] for at in range(len(raw))])[1] == run(raw)[1]


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_arbitrary_bytes_never_raise(parts: list[bytes]) -> None:
    events, out = run(BEGIN, *parts)
    assert len(out) < 10_000
    assert all(event.stream_id >= 0 for event in events)


@given(st.binary(max_size=100))
def test_an_arbitrary_header_block_never_raises(block: bytes) -> None:
    events, _ = run(BEGIN + frame(Kind.HEADERS, END_HEADERS | END_STREAM, 1, block))
    assert len(events) <= 2


@settings(max_examples=50)
@given(st.lists(FRAMES, min_size=1, max_size=6))
def test_whatever_is_repeated_what_is_held_has_a_bound(frames: list[bytes]) -> None:
    raw = Raw(LIMITS)
    for _ in range(200):
        for event in raw.server.receive(b"".join(frames)):
            if event.stream_id:
                raw.server.open_reply(event.stream_id, 200, [])
                raw.server.send(event.stream_id, b"x" * 1000)
    streams, sender = raw.server._streams, raw.server.sender
    assert len(streams.open) <= LIMITS.streams
    assert sum(len(stream.body) for stream in streams.open.values()) <= LIMITS.held_bytes
    assert sender.pending_bytes <= LIMITS.unsent_total_bytes + LIMITS.streams * 1000
    assert len(raw.server._buffer) <= 16_384 + 9
    assert len(raw.server._block or b"") <= LIMITS.head_bytes + 16_384


@given(st.lists(st.tuples(st.sampled_from([1, 3, 5]), st.integers(0, 30_000)), max_size=30), st.data())
def test_no_reply_exceeds_a_window_and_every_byte_arrives(pieces: list[tuple[int, int]], data: st.DataObject) -> None:
    """``h2`` raises when a window is exceeded."""
    peer = Peer(Http2Limits(unsent_bytes=1 << 20, unsent_total_bytes=1 << 22))
    sent = dict.fromkeys((1, 3, 5), b"")
    for stream_id in sent:
        assert peer.ask() == stream_id
        peer.server.open_reply(stream_id, 200, [])
    for stream_id, size in pieces:
        piece = bytes([stream_id]) * size
        assert peer.server.send(stream_id, piece)
        sent[stream_id] += piece
        if data.draw(st.booleans()):
            peer.exchange()
            peer.read(stream_id)
    for stream_id, body in sent.items():
        peer.server.end(stream_id, b"")
        peer.exchange()
        assert peer.read(stream_id) == body


WHOLE = st.builds(
    lambda stream_id, block, body: (
        frame(Kind.HEADERS, END_HEADERS if body else END_HEADERS | END_STREAM, stream_id, block)
        + (frame(Kind.DATA, END_STREAM, stream_id, body) if body else b"")
    ),
    st.integers(0, 12),
    st.sampled_from([GET_BLOCK, POST_BLOCK, GET_BLOCK + b"\x00\x06expect\x0c100-continue", b"\x82"]),
    st.binary(max_size=40) | st.just(bytes(4097)),
)


@given(st.lists(st.lists(WHOLE | FRAMES, max_size=4).map(b"".join), max_size=6))
def test_whole_requests_are_the_same_requests(parts: list[bytes]) -> None:
    usual, quick = Http2Protocol(LIMITS), Http2Protocol(LIMITS)
    for part in (BEGIN, *parts):
        expected = usual.receive(part)
        whole = quick.whole(part)
        if whole is None:
            assert quick.receive(part) == expected
        else:
            assert [event for each in whole for event in (Opened(*each[:2]), Message(each[0], each[2]))] == expected
        assert (quick.take(), quick.streams, quick.partial) == (usual.take(), usual.streams, usual.partial)


def test_whole_requests_are_found_where_a_head_comes_again() -> None:
    raw = Raw(LIMITS)
    ask = [frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream_id, GET_BLOCK) for stream_id in (1, 3, 5)]
    raw.server.receive(ask[0])
    whole = raw.server.whole(ask[1] + ask[2])
    assert [(stream_id, head.method, body) for stream_id, head, body in whole or ()] == [
        (3, "GET", b""),
        (5, "GET", b""),
    ]
