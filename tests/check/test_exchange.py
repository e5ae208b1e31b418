"""One reply, from bytes in any pieces to what is counted."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.check.exchange import Exchange, Planned, ReplyParser, promised_ms, read_tokens

PLANNED = Planned(0, b"", "baseline", 0, 1, 0)


def event(**delta: object) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"


ROLE = event(role="assistant", content="")
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 21, "completion_tokens": 9}}\n\ndata: [DONE]\n\n'


def chunked(*parts: bytes, kind: str = "text/event-stream") -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def parsed(data: bytes, cuts: list[int] | None = None) -> Exchange:
    exchange = Exchange(PLANNED)
    parser = ReplyParser(exchange)
    borders = [0, *sorted({cut % len(data) for cut in cuts or []}), len(data)]
    for a, b in itertools.pairwise(borders):
        if b > a:
            parser.feed(data[a:b], b)
    return exchange


@given(tokens=st.integers(0, 20), cuts=st.lists(st.integers(0, 5000), max_size=20))
def test_tokens_are_counted_right_however_the_bytes_are_cut(tokens: int, cuts: list[int]) -> None:
    seen = parsed(chunked(ROLE, *[event(content="x")] * tokens, USAGE), cuts)
    assert seen.whole
    assert (read_tokens(seen).count, read_tokens(seen).prompt_tokens) == (tokens, 21)


def test_a_role_without_text_is_no_first_token() -> None:
    exchange = Exchange(PLANNED)
    parser = ReplyParser(exchange)
    head, _, rest = chunked(ROLE, event(content="a")).partition(ROLE)
    parser.feed(head + ROLE + b"\r\n", 100)
    parser.feed(rest.removeprefix(b"\r\n"), 700)
    assert read_tokens(exchange).first_ns == 700


@pytest.mark.parametrize("delta", [{"reasoning_content": "hm"}, {"reasoning": "hm"}, {"tool_calls": [{"index": 0}]}])
def test_reasoning_and_tool_calls_are_tokens(delta: dict[str, object]) -> None:
    assert read_tokens(parsed(chunked(event(**delta)))).count == 1


def test_anthropics_deltas_are_tokens_and_its_pings_are_not() -> None:
    events = [
        b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 30}}}\n\n',
        b'event: ping\ndata: {"type": "ping"}\n\n',
        b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"text": "a"}}\n\n',
        b'event: message_stop\ndata: {"type": "message_stop"}\n\n',
    ]
    seen = read_tokens(parsed(chunked(*events)))
    assert (seen.count, seen.prompt_tokens) == (1, 30)


def test_a_reply_that_is_cut_is_not_whole() -> None:
    exchange = Exchange(PLANNED)
    parser = ReplyParser(exchange)
    parser.feed(chunked(event(content="a"))[:-5], 1)
    parser.end_of_file(2)
    assert (exchange.whole, exchange.error) == (False, "cut")


def test_a_reply_without_length_ends_with_its_connection() -> None:
    exchange = Exchange(PLANNED)
    parser = ReplyParser(exchange)
    parser.feed(b"HTTP/1.0 200 OK\r\n\r\nhello", 1)
    parser.end_of_file(2)
    assert (exchange.whole, exchange.body) == (True, b"hello")


def test_an_interim_reply_is_passed_over() -> None:
    seen = parsed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
    assert (seen.whole, seen.status, seen.body) == (True, 200, b"ok")


def test_bytes_that_are_no_http_are_an_error_and_no_crash() -> None:
    assert parsed(b"SSH-2.0-OpenSSH\r\n").error == "not HTTP"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, -1),
        ({b"retry-after-ms": b"40"}, 40),
        ({b"retry-after-ms": b"40", b"retry-after": b"1"}, 40),
        ({b"retry-after": b"1.5"}, 1500),
        ({b"retry-after": b"Wed, 21 Oct 2026 07:28:00 GMT"}, -1),
        ({b"retry-after-ms": b"nan"}, -1),
        ({b"retry-after": b"-3"}, -1),
        ({b"retry-after": b"1e99"}, -1),
    ],
)
def test_the_promised_time_is_read_as_stock_clients_read_it(headers: dict[bytes, bytes], expected: int) -> None:
    assert promised_ms(headers) == expected
