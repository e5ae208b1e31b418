"""What one connection makes of the bytes it receives."""

from __future__ import annotations

import pytest

from zerolayer.errors import BodyTooLarge, HeadersTooLarge, InvalidRequest
from zerolayer.wire.http1 import Event, Fault, Head, Http1Protocol, Message

HEAD_BYTES = 1024
BODY_BYTES = 4096
GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: a\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"


def receive(*parts: bytes) -> list[Event]:
    protocol = Http1Protocol(HEAD_BYTES, BODY_BYTES)
    return [event for part in parts for event in protocol.receive(part)]


def only_head(raw: bytes) -> Head:
    head = receive(raw)[0]
    assert isinstance(head, Head), head
    return head


def bodies(*parts: bytes) -> list[bytes]:
    return [event.body for event in receive(*parts) if isinstance(event, Message)]


def fault(*parts: bytes) -> Exception:
    events = receive(*parts)
    faults = [event for event in events if isinstance(event, Fault)]
    assert len(faults) == 1, events
    assert events[-1] is faults[0]
    return faults[0].error


# --- requests that are in order


def test_a_request_without_a_body_is_a_head_and_a_message() -> None:
    events = receive(GET)
    assert events == [events[0], Message(only_head(GET), b"")]


def test_a_head_tells_method_path_query_and_headers() -> None:
    head = only_head(b"DELETE /v1/models/a%2Fb?x=1&y HTTP/1.1\r\nHost: h\r\nX-Two:  a b \t\r\n\r\n")
    assert (head.method, head.path, head.query) == ("DELETE", "/v1/models/a%2Fb", "x=1&y")
    assert head.headers == ((b"host", b"h"), (b"x-two", b"a b"))


def test_a_header_is_found_by_its_lower_case_name_and_the_first_one_counts() -> None:
    head = only_head(b"GET / HTTP/1.1\r\nhost: h\r\nX-A: 1\r\nx-a: 2\r\n\r\n")
    assert (head.get(b"x-a"), head.get(b"x-b")) == (b"1", None)


def test_header_values_may_hold_bytes_above_ascii_and_stay_bytes() -> None:
    assert only_head(b"GET / HTTP/1.1\r\nhost: h\r\nx-name: \xc3\xa9\xff\r\n\r\n").get(b"x-name") == b"\xc3\xa9\xff"


def test_an_absolute_target_gives_its_path() -> None:
    head = only_head(b"GET http://user@h:80/p?q=/ HTTP/1.1\r\nhost: h\r\n\r\n")
    assert (head.path, head.query) == ("/p", "q=/")


@pytest.mark.parametrize("rest", [b"1.1\r\nhost: other\r\n\r\n", b"1.0\r\n\r\n"], ids=["another host", "no host"])
@pytest.mark.parametrize("user", [b"", b"user@"])
def test_an_absolute_target_says_which_host_is_meant(user: bytes, rest: bytes) -> None:
    assert only_head(b"GET http://" + user + b"h:80/ HTTP/" + rest).get(b"host") == b"h:80"


def test_an_absolute_target_without_a_path_gives_the_root() -> None:
    head = only_head(b"GET HTTPS://h?q HTTP/1.1\r\nhost: h\r\n\r\n")
    assert (head.path, head.query) == ("/", "q")


def test_options_may_ask_for_the_whole_server() -> None:
    assert only_head(b"OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n").path == "*"


def test_a_body_is_as_long_as_content_length_says() -> None:
    assert bodies(POST + b"content-length: 3\r\n\r\nabc") == [b"abc"]


def test_the_head_comes_before_the_body_has_arrived() -> None:
    events = receive(POST + b"content-length: 3\r\n\r\nab")
    assert [type(event) for event in events] == [Head]
    assert events[0].content_length == 3  # type: ignore[union-attr]


def test_chunks_are_joined_and_extensions_and_trailers_dropped() -> None:
    assert bodies(CHUNKED + b"3;x=1\r\nabc\r\nA \r\n0123456789\r\n0\r\nx-check: 1\r\n\r\n") == [b"abc0123456789"]


def test_the_length_of_a_chunked_body_is_unknown_at_its_head() -> None:
    assert only_head(CHUNKED).content_length is None


def test_pipelined_requests_come_out_in_order() -> None:
    chunked = CHUNKED + b"1\r\nb\r\n0\r\n\r\n"
    events = receive(POST + b"content-length: 1\r\n\r\na" + chunked + GET)
    assert [type(event) for event in events] == [Head, Message] * 3
    assert [event.body for event in events if isinstance(event, Message)] == [b"a", b"b", b""]


def test_a_head_that_comes_again_is_the_same_head_with_its_own_body() -> None:
    post = POST + b"content-length: 1\r\n\r\n"
    events = receive(post + b"a", post + b"b")
    heads = [event for event in events if isinstance(event, Head)]
    assert heads[0] is heads[1]
    assert bodies(post + b"a", post + b"b") == [b"a", b"b"]


def test_one_empty_line_before_a_request_is_skipped() -> None:
    assert bodies(b"\r\n" + GET + b"\r\n" + GET) == [b"", b""]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_is_taken(kind: type[bytes]) -> None:
    assert bodies(kind(GET)) == [b""]


# --- connections


@pytest.mark.parametrize(
    ("raw", "keep_alive"),
    [
        (b"GET / HTTP/1.1\r\nhost: h\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nhost: h\r\nconnection: Close\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nhost: h\r\nconnection: te, close\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nhost: h\r\nconnection: te\r\nconnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nconnection: Keep-Alive\r\n\r\n", False),
    ],
)
def test_version_and_connection_decide_whether_it_stays_open(raw: bytes, keep_alive: bool) -> None:
    assert only_head(raw).keep_alive is keep_alive


def test_the_minor_version_is_told() -> None:
    assert (only_head(GET).minor, only_head(b"GET / HTTP/1.0\r\n\r\n").minor) == (1, 0)


def test_nothing_is_read_after_the_last_request_of_a_connection() -> None:
    assert bodies(b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n" + GET, GET) == [b""]


def test_nothing_is_read_after_a_fault() -> None:
    protocol = Http1Protocol(HEAD_BYTES, BODY_BYTES)
    assert len(protocol.receive(b"\x16\x03\x01" + GET)) == 1
    assert protocol.receive(GET) == []


@pytest.mark.parametrize(
    ("so_far", "idle"),
    [
        (b"", True),
        (b"G", False),
        (GET[:-1], False),
        (GET, True),
        (GET + b"G", False),
        (POST + b"content-length: 1\r\n\r\n", False),
        (POST + b"content-length: 1\r\n\r\na", True),
        (CHUNKED + b"1\r\na\r\n", False),
        (b"\x00", True),
    ],
)
def test_a_connection_is_idle_when_no_request_is_in_progress(so_far: bytes, idle: bool) -> None:
    protocol = Http1Protocol(HEAD_BYTES, BODY_BYTES)
    protocol.receive(so_far)
    assert protocol.idle is idle


def test_a_client_that_waits_for_100_continue_is_known() -> None:
    assert only_head(POST + b"content-length: 1\r\nExpect: 100-Continue\r\n\r\n").expects_continue


@pytest.mark.parametrize(
    "raw",
    [
        POST + b"content-length: 0\r\nexpect: 100-continue\r\n\r\n",
        POST + b"content-length: 1\r\nexpect: something\r\n\r\n",
        b"POST / HTTP/1.0\r\ncontent-length: 1\r\nexpect: 100-continue\r\n\r\n",
    ],
)
def test_100_continue_needs_a_body_and_http_1_1(raw: bytes) -> None:
    assert not only_head(raw).expects_continue


@pytest.mark.parametrize("protocol_name", [b"websocket", b"h2c"])
def test_an_upgrade_is_ignored_and_the_request_read_as_it_is(protocol_name: bytes) -> None:
    upgrade = b"connection: upgrade\r\nupgrade: " + protocol_name + b"\r\n"
    assert bodies(POST + upgrade + b"content-length: 3\r\n\r\nabc" + GET) == [b"abc", b""]


def test_a_request_line_does_not_end_at_a_bare_line_feed() -> None:
    raw = b"POST /\nhost:a/b HTTP/1.0\r\nhost: a\r\n\r\n"
    assert isinstance(fault(raw), InvalidRequest)
    assert isinstance(fault(raw[:-1], raw[-1:]), InvalidRequest)


# --- limits


def test_a_head_of_exactly_the_limit_passes() -> None:
    raw = b"GET / HTTP/1.1\r\nhost: h\r\nx: "
    assert bodies(raw + b"a" * (HEAD_BYTES - len(raw) - 4) + b"\r\n\r\n") == [b""]


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_a_head_above_the_limit_is_refused_however_it_arrives(step: int) -> None:
    raw = b"GET / HTTP/1.1\r\nhost: h\r\nx: "
    raw += b"a" * (HEAD_BYTES - len(raw) - 3) + b"\r\n\r\n"
    assert isinstance(fault(*[raw[i : i + step] for i in range(0, len(raw), step)]), HeadersTooLarge)


def test_a_request_line_without_end_is_refused_at_the_limit() -> None:
    assert isinstance(fault(b"GET /" + b"a" * HEAD_BYTES), HeadersTooLarge)


def test_too_many_headers_are_refused() -> None:
    lines = b"".join(b"x%d: 1\r\n" % number for number in range(100))
    assert isinstance(fault(b"GET / HTTP/1.1\r\nhost: h\r\n" + lines + b"\r\n"), HeadersTooLarge)


def test_the_head_limit_counts_each_head_alone() -> None:
    assert len(bodies(GET * (2 * HEAD_BYTES // len(GET)))) == 2 * HEAD_BYTES // len(GET)


def test_an_announced_body_above_the_limit_is_refused_before_it_is_read() -> None:
    events = receive(POST + b"content-length: %d\r\n\r\n" % (BODY_BYTES + 1))
    assert [type(event) for event in events] == [Head, Fault]
    assert isinstance(events[1].error, BodyTooLarge)  # type: ignore[union-attr]


def test_chunks_above_the_limit_are_refused_at_the_size_that_exceeds_it() -> None:
    error = fault(CHUNKED + b"fff\r\n" + b"a" * 0xFFF + b"\r\n2\r\n")
    assert isinstance(error, BodyTooLarge)


def test_a_body_of_exactly_the_limit_passes() -> None:
    body = b"a" * BODY_BYTES
    sized = POST + b"content-length: %d\r\n\r\n" % BODY_BYTES + body
    assert bodies(sized + CHUNKED + b"1000\r\n" + body + b"\r\n0\r\n\r\n") == [body, body]


def test_memory_is_not_taken_for_an_announced_body() -> None:
    protocol = Http1Protocol(HEAD_BYTES, 1 << 40)
    assert len(protocol.receive(POST + b"content-length: 1000000000000\r\n\r\n")) == 1


def test_trailers_obey_the_head_limit() -> None:
    assert isinstance(fault(CHUNKED + b"0\r\nx: " + b"a" * HEAD_BYTES), HeadersTooLarge)


@pytest.mark.parametrize("chunk", [b"1\r\na\r\n", b"1;" + b"x" * 250 + b"\r\na\r\n"])
def test_a_body_cut_into_absurdly_small_chunks_is_refused(chunk: bytes) -> None:
    events = Http1Protocol(HEAD_BYTES, 1 << 20).receive(CHUNKED + chunk * 14_000)
    assert isinstance(events[-1], Fault)


def test_a_long_body_in_small_chunks_passes() -> None:
    events = Http1Protocol(HEAD_BYTES, 1 << 20).receive(
        CHUNKED + (b"40\r\n" + b"a" * 64 + b"\r\n") * 16_384 + b"0\r\n\r\n"
    )
    assert events[-1] == Message(events[0], b"a" * (1 << 20))  # type: ignore[arg-type]


# --- requests that are not in order


@pytest.mark.parametrize(
    "raw",
    [
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1, 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: +1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 0x1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length:\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: " + b"9" * 40 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length : 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: gzip\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked, chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: identity\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: xchunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding:\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: \x0bchunked\r\n\r\n",
        b"POST / HTTP/1.0\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: h\r\nupgrade: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
    ],
)
def test_doubtful_framing_is_refused(raw: bytes) -> None:
    assert isinstance(fault(raw), InvalidRequest)


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\nhost: h\n\n",
        b"GET / HTTP/1.1\r\nhost: h\n\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: h\r\nx: a\rb\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: h\r\nx: a\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: h\r\nx: a\r\n b\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: h\r\n: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: h\r\nx\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: h\r\nx\xe9: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: h\r\n x: a\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: h\r\nhost: h\r\n\r\n",
        b"GET  / HTTP/1.1\r\nhost: h\r\n\r\n",
        b"GET / HTTP/1.1 \r\nhost: h\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/0.9\r\nhost: h\r\n\r\n",
        b"GET / HTTP/1.2\r\nhost: h\r\n\r\n",
        b"GET / HTTP/2.0\r\nhost: h\r\n\r\n",
        b"GET / RTSP/1.0\r\nhost: h\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"NOSUCH / HTTP/1.1\r\nhost: h\r\n\r\n",
        b"get / HTTP/1.1\r\nhost: h\r\n\r\n",
        b"CONNECT h:443 HTTP/1.1\r\nhost: h\r\n\r\n",
        b"GET * HTTP/1.1\r\nhost: h\r\n\r\n",
        b"GET path HTTP/1.1\r\nhost: h\r\n\r\n",
        b"GET /a#b HTTP/1.1\r\nhost: h\r\n\r\n",
        b"GET /\xe9 HTTP/1.1\r\nhost: h\r\n\r\n",
        b"GET /\x7f HTTP/1.1\r\nhost: h\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nhost: h\r\n\r\n",
        b"GET ftp://h/ HTTP/1.1\r\nhost: h\r\n\r\n",
        b"\r\n\r\n" + GET,
        b" " + GET,
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\x00",
        b"{}",
    ],
)
def test_a_malformed_head_is_one_clear_error(raw: bytes) -> None:
    assert isinstance(fault(raw), InvalidRequest)


NO_HOSTS = [b"localhost@evil.example", b"localhost:80@evil.example", b"a b", b"a, b", b"a:80x", b"[::1", b"a\\b", b"a#"]


@pytest.mark.parametrize("host", NO_HOSTS)
def test_a_host_is_a_name_and_perhaps_a_port(host: bytes) -> None:
    assert isinstance(fault(b"GET / HTTP/1.1\r\nhost: " + host + b"\r\n\r\n"), InvalidRequest)


@pytest.mark.parametrize("raw", [b"GET / HTTP/1.1\n", b"GET / HTTP/1.1\r\nx: \x01", b"GET / HTTP/1.1\rx"])
def test_a_head_that_can_only_fail_fails_before_it_is_complete(raw: bytes) -> None:
    assert isinstance(fault(raw), InvalidRequest)


@pytest.mark.parametrize(
    "body",
    [
        b"x\r\n",
        b"-1\r\n",
        b"0x1\r\n",
        b"\r\n",
        b"1\na\r\n",
        b" 1\r\na\r\n",
        b"1;\x00\r\na\r\n",
        b"ffffffffffffffffff\r\n",
        b"1;" + b"x" * 300 + b"\r\n",
        b"1;" + b"x" * 300,
        b"1\r\nab\r\n",
        b"1\r\na\n",
        b"1\r\na\r0",
        b"0\r\nx\r\n\r\n",
        b"0\r\nx y: 1\r\n\r\n",
        b"0\r\nx: \x00\r\n\r\n",
        b"0\r\n: a\r\n\r\n",
        b"0\r\n\n",
    ],
)
def test_a_malformed_chunk_is_one_clear_error(body: bytes) -> None:
    assert isinstance(fault(CHUNKED + body), InvalidRequest)


def test_no_byte_of_a_request_appears_in_its_error() -> None:
    assert "secret" not in str(fault(b"GET / HTTP/1.1\r\nhost: h\r\nsecret secret\r\n\r\n"))
