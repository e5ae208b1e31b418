"""Each known flood against its limit; the connection ends with ENHANCE_YOUR_CALM, and never holds more than it may."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http2_peer import GET_BLOCK, POST_BLOCK, Raw

from zerolayer.wire.http2 import Code, Http2Limits
from zerolayer.wire.http2_events import Closed, Event, Message, Refused
from zerolayer.wire.http2_frames import END_HEADERS, END_STREAM, NO_TABLE, Kind, frame, rst_stream

WHOLE = END_HEADERS | END_STREAM
CALM = Closed(Code.ENHANCE_YOUR_CALM)
SMALL = Http2Limits(
    resets=10, faults=10, settings=10, pings=10, window_updates=10, small_data=10, ignored=10, continuations=10
)


def rapid_resets() -> Iterator[bytes]:
    for stream_id in range(1, 99, 2):
        yield frame(Kind.HEADERS, WHOLE, stream_id, GET_BLOCK) + rst_stream(stream_id, Code.CANCEL)


def provoked_resets() -> Iterator[bytes]:
    for stream_id in range(1, 99, 2):
        yield frame(Kind.HEADERS, WHOLE, stream_id, GET_BLOCK) + frame(Kind.WINDOW_UPDATE, 0, stream_id, bytes(4))


def repeated(data: bytes, before: bytes = b"") -> Iterator[bytes]:
    yield before
    yield from [data] * 40


OPEN = frame(Kind.HEADERS, END_HEADERS, 1, POST_BLOCK)
FLOODS = {
    "rapid reset (CVE-2023-44487, CVE-2019-9514)": rapid_resets(),
    "provoked resets (CVE-2025-8671)": provoked_resets(),
    "SETTINGS (CVE-2019-9515)": repeated(frame(Kind.SETTINGS, 0, 0, b"")),
    "PING (CVE-2019-9512)": repeated(frame(Kind.PING, 0, 0, bytes(8))),
    "small windows (CVE-2019-9511)": repeated(frame(Kind.WINDOW_UPDATE, 0, 0, b"\0\0\0\1")),
    "empty DATA (CVE-2019-9518)": repeated(frame(Kind.DATA, 0, 1, b""), OPEN),
    "priorities (CVE-2019-9513)": repeated(frame(Kind.PRIORITY, 0, 1, bytes(5))),
    "unknown frames": repeated(frame(0xFA, 0, 0, b"")),
    "CONTINUATION (CVE-2024-27316, CVE-2023-45288)": repeated(
        frame(Kind.CONTINUATION, 0, 1, b""), frame(Kind.HEADERS, 0, 1, GET_BLOCK)
    ),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
def test_a_flood_ends_its_connection(flood: Iterator[bytes]) -> None:
    raw = Raw(SMALL)
    events: list[Event] = []
    for data in flood:
        events += raw.server.receive(data)
    assert events[-1] == CALM


def test_what_is_counted_is_forgotten_with_the_period() -> None:
    raw = Raw(SMALL)
    for _ in range(10):
        for _ in range(9):
            assert raw.send(Kind.PING, 0, 0, bytes(8)) == []
        raw.server.new_period()


LONG = b"\0\1x\x7f\x81\x5d" + b"y" * 12_032  # one field


def test_a_header_block_has_a_largest_size() -> None:
    """Later blocks may name what this one would have put into the client's table."""
    raw = Raw(Http2Limits(head_bytes=20_000))
    raw.send(Kind.HEADERS, END_STREAM, 1, GET_BLOCK + LONG)
    assert raw.send(Kind.CONTINUATION, END_HEADERS, 1, LONG) == [CALM]


@pytest.mark.parametrize("more", [1, 15])
def test_a_block_that_is_too_long_costs_its_own_request_where_the_client_keeps_no_table(more: int) -> None:
    raw = Raw(Http2Limits(head_bytes=20_000))
    raw.send(Kind.HEADERS, WHOLE, 1, NO_TABLE + GET_BLOCK)
    raw.send(Kind.HEADERS, END_STREAM, 3, GET_BLOCK + LONG)
    for at in range(more):
        events = raw.send(Kind.CONTINUATION, END_HEADERS if at == more - 1 else 0, 3, LONG)
    assert [event.error.status for event in events if isinstance(event, Refused)] == [431]
    assert raw.send(Kind.HEADERS, WHOLE, 5, GET_BLOCK)[-1] == Message(5, b"")


def test_no_more_of_a_block_is_kept_than_it_may_have() -> None:
    raw = Raw(Http2Limits(head_bytes=20_000))
    raw.send(Kind.HEADERS, END_STREAM, 1, GET_BLOCK)
    for _ in range(16):
        raw.send(Kind.CONTINUATION, 0, 1, LONG)
    assert len(raw.server._block or b"") == 20_001


def test_an_hpack_bomb_is_not_unpacked() -> None:
    """One entry of 3 KB in the table, named 2,000 times (CVE-2016-6581)."""
    raw = Raw()
    bomb = b"\x40\x01a\x7f\x89\x17" + b"v" * 3080 + b"\xbe" * 2000
    assert raw.send(Kind.HEADERS, WHOLE, 1, GET_BLOCK + bomb) == [CALM]


def test_requests_beyond_the_limit_are_refused_one_by_one() -> None:
    raw = Raw(Http2Limits(streams=2))
    for stream_id in (1, 3, 5):
        raw.send(Kind.HEADERS, WHOLE, stream_id, GET_BLOCK)
    assert raw.frames() == [(Kind.RST_STREAM, 0, 5, bytes([0, 0, 0, Code.REFUSED_STREAM]))]
    raw.server.reply(1, 200, [], b"")
    assert len(raw.send(Kind.HEADERS, WHOLE, 7, GET_BLOCK)) == 2


def test_a_body_that_announces_too_much_is_refused_before_it_comes() -> None:
    raw = Raw(Http2Limits(body_bytes=1000))
    events = raw.send(Kind.HEADERS, END_HEADERS, 1, POST_BLOCK + b"\x0f\x0d\x045000")
    assert [event.error.status for event in events if isinstance(event, Refused)] == [413]


def test_a_body_that_grows_too_large_is_refused() -> None:
    raw = Raw(Http2Limits(body_bytes=1000))
    raw.send(Kind.HEADERS, END_HEADERS, 1, POST_BLOCK)
    raw.send(Kind.DATA, 0, 1, b"x" * 1000)
    events = raw.send(Kind.DATA, 0, 1, b"x" * 65)
    assert [event.error.status for event in events if isinstance(event, Refused)] == [413]


def test_a_client_that_ignores_its_window_loses_its_connection_or_stream() -> None:
    raw = Raw(Http2Limits(body_bytes=100_000, held_bytes=100_000))
    raw.send(Kind.HEADERS, END_HEADERS, 1, POST_BLOCK)
    events = [event for _ in range(20) for event in raw.send(Kind.DATA, 0, 1, b"x" * 16_384)]
    kinds = {type(event).__name__ for event in events}
    assert kinds & {"Gone", "Refused", "Closed"}


def test_incomplete_bodies_are_limited_together() -> None:
    raw = Raw(Http2Limits(body_bytes=100_000, held_bytes=200_000, streams=50))
    events: list[Event] = []
    for stream_id in range(1, 61, 2):
        raw.send(Kind.HEADERS, END_HEADERS, stream_id, POST_BLOCK)
        for _ in range(5):
            events += raw.send(Kind.DATA, 0, stream_id, b"x" * 16_000)
    assert len([event for event in events if isinstance(event, Refused)]) == 28
    assert sum(len(stream.body) for stream in raw.server._streams.open.values()) <= 200_000


def test_a_hundred_and_twenty_eight_prompts_fit_before_a_reply() -> None:
    raw = Raw()
    seen = []
    for stream_id in range(1, 257, 2):
        raw.send(Kind.HEADERS, END_HEADERS, stream_id, POST_BLOCK)
        raw.send(Kind.DATA, 0, stream_id, b"x" * 16_000)
        seen += raw.send(Kind.DATA, END_STREAM, stream_id, b"x" * 16_000)
    assert len(seen) == 128


def test_a_stream_without_a_window_takes_no_more_than_its_limit() -> None:
    raw = Raw(Http2Limits(unsent_bytes=10_000))
    raw.send(Kind.HEADERS, WHOLE, 1, GET_BLOCK)
    raw.server.open_reply(1, 200, [])
    sent = 0
    while raw.server.send(1, b"x" * 1000):
        sent += 1000
    assert sent == 65_000 + 10_000  # the window takes 65 whole pieces, the limit ten


def test_all_streams_without_a_window_have_one_limit_together() -> None:
    raw = Raw(Http2Limits(unsent_bytes=10_000, unsent_total_bytes=50_000))
    sent = 0
    for stream_id in range(1, 41, 2):
        raw.send(Kind.HEADERS, WHOLE, stream_id, GET_BLOCK)
        raw.server.open_reply(stream_id, 200, [])
        while raw.server.send(stream_id, b"x" * 1000):
            sent += 1000
    assert sent <= 65_535 + 50_000 + 20 * 1000
