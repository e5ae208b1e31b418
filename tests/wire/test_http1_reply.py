"""Replies are read back by the standard library's client."""

from __future__ import annotations

import http.client
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.errors import SlotsBusy, Unavailable
from zerolayer.wire.http1_reply import (
    LAST_CHUNK,
    chunk,
    header,
    later_lines,
    response,
    retry_headers,
    server_timing,
    stream_head,
)

HEADERS = ((b"server", b"zerolayer/0"), (b"x-request-id", b"r1"))


class FakeSocket:
    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


def read(raw: bytes, method: str = "GET") -> tuple[http.client.HTTPResponse, bytes]:
    reply = http.client.HTTPResponse(FakeSocket(raw), method=method)  # type: ignore[arg-type]
    reply.begin()
    return reply, reply.read()


def test_a_reply_is_read_back_with_status_headers_and_body() -> None:
    reply, body = read(response(429, HEADERS, b"abc", keep_alive=True))
    assert (reply.status, reply.reason, reply.headers["x-request-id"], body) == (429, "Too Many Requests", "r1", b"abc")


def test_an_empty_body_has_a_length() -> None:
    assert b"content-length: 0\r\n" in response(200, (), b"", keep_alive=True)


def test_only_a_connection_that_closes_says_so() -> None:
    assert b"connection" not in response(200, (), b"", keep_alive=True)
    assert b"connection: close\r\n" in response(200, (), b"", keep_alive=False)


def test_head_is_answered_with_the_length_but_without_the_body() -> None:
    raw = response(200, (), b"abc", keep_alive=True, head_only=True)
    assert b"content-length: 3\r\n" in raw
    assert raw.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_content_has_neither_length_nor_body(status: int) -> None:
    raw = response(status, (), b"abc", keep_alive=True)
    assert b"content-length" not in raw
    assert raw.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: x", b"a\nb", b"a\rb"])
def test_a_line_break_in_a_header_is_never_sent(value: bytes) -> None:
    with pytest.raises(ValueError):
        response(200, ((b"x", value),), b"", keep_alive=True)


@given(st.lists(st.binary(max_size=5000), max_size=5))
def test_a_stream_of_chunks_is_read_back_whole(parts: list[bytes]) -> None:
    raw = stream_head(HEADERS) + b"".join(map(chunk, parts)) + LAST_CHUNK
    assert read(raw)[1] == b"".join(parts)


def test_an_empty_chunk_is_not_sent_because_it_would_end_the_stream() -> None:
    assert chunk(b"") == b""


def test_a_stream_without_its_last_chunk_is_seen_as_cut() -> None:
    with pytest.raises(http.client.IncompleteRead):
        read(stream_head(HEADERS) + chunk(b"abc"))


def test_a_stream_for_http_1_0_ends_with_the_connection() -> None:
    raw = stream_head((), chunked=False)
    assert b"transfer-encoding" not in raw
    assert b"connection: close\r\n" in raw
    assert read(raw + b"abc")[1] == b"abc"


def test_a_stream_may_be_the_last_reply_of_its_connection() -> None:
    raw = stream_head((), keep_alive=False)
    assert b"transfer-encoding: chunked\r\n" in raw
    assert b"connection: close\r\n" in raw


def test_stages_are_milliseconds_with_three_decimals() -> None:
    assert server_timing({"read": 12, "prefill": 1_234_567, "write": 0}) == (
        b"read;dur=0.012, prefill;dur=1234.567, write;dur=0.000"
    )


@pytest.mark.parametrize(("ms", "seconds"), [(1, b"1"), (1000, b"1"), (1001, b"2"), (37, b"1")])
def test_a_retry_is_told_in_milliseconds_and_in_seconds_rounded_up(ms: int, seconds: bytes) -> None:
    closed = Unavailable("closed", retry_after_ms=ms)
    headers = {b"retry-after-ms": b"%d" % ms, b"retry-after": seconds, b"x-should-retry": b"true"}
    assert later_lines(ms, "") == b"".join([header(*each) for each in headers.items()])
    assert dict(retry_headers(closed)) == headers


def test_a_retry_is_never_told_to_come_at_once() -> None:
    assert SlotsBusy("busy", retry_after_ms=0).retry_after_ms == 1


def test_a_ticket_is_told_before_its_time() -> None:
    assert later_lines(7, "t1") == b"x-zl-ticket: t1\r\n" + later_lines(7, "")


@pytest.mark.parametrize("ticket", ["a\r\nevil: 1", "a\n", "\u00e9"])
def test_a_ticket_that_is_no_header_is_never_written(ticket: str) -> None:
    with pytest.raises(ValueError, match=r"line break|ascii"):
        later_lines(7, ticket)
