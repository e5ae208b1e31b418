"""One connection with a clock that only moves when the test says so, and a transport that only remembers."""

from __future__ import annotations

import pytest

from zerolayer.front.connection import Connection
from zerolayer.front.gate import Gate
from zerolayer.front.routes import Routes
from zerolayer.front.site import ConnectionLimits, Site
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.metrics import Metrics

S = 1_000_000_000
LIMITS = ConnectionLimits(
    head_bytes=4096, body_bytes=1000, unsent_bytes=500, head_ns=10 * S, body_ns=20 * S, idle_ns=60 * S, stall_ns=30 * S,
    linger_ns=2 * S,
)  # fmt: skip
GET = b"GET /now HTTP/1.1\r\nhost: x\r\n\r\n"
LATER = b"GET /later HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /now HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\n"


class Transport:
    def __init__(self) -> None:
        self.written = b""
        self.buffered = 0
        self.closed = self.aborted = self.ended = False

    def write(self, data: bytes) -> None:
        self.written += data

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True


class Loop:
    def __init__(self) -> None:
        self.soon = []

    def call_soon(self, work) -> None:
        self.soon.append(work)

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()


class Bench:
    """A connection with its surroundings; ``later`` holds exchanges whose reply the test gives."""

    def __init__(self) -> None:
        self.now = S
        self.loop = Loop()
        self.transport = Transport()
        self.connections: set[Connection] = set()
        self.later = []
        self.gone = 0
        self.glue = GlueMeter()
        site = Site(LIMITS, lambda: self.now, lambda: 0.0, "test", lambda: b"free=1", Metrics("m"), self.glue)
        table = {"/now": {"GET": self._now, "POST": self._now}, "/later": {"GET": self._later}}
        self.connection = Connection(site, Routes(Gate(), table), self.connections, self.loop)
        self.connection.connection_made(self.transport)

    def _now(self, exchange) -> None:
        exchange.reply(200, (), b"body=" + exchange.body)

    def _later(self, exchange) -> None:
        exchange.on_gone = self._count_gone
        self.later.append(exchange)

    def _count_gone(self) -> None:
        self.gone += 1

    def feed(self, data: bytes) -> bytes:
        """What the connection wrote on these bytes."""
        before = len(self.transport.written)
        self.connection.data_received(data)
        self.loop.run()
        return self.transport.written[before:]

    def pass_time(self, seconds: float) -> None:
        self.now += int(seconds * S)
        self.connection.expire(self.now)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_connection_stays_open_between_requests(bench):
    assert bench.feed(GET).startswith(b"HTTP/1.1 200")
    assert bench.feed(POST + b"true").endswith(b"body=true")
    assert not bench.transport.closed


def test_a_client_that_asks_for_it_is_closed_after_its_reply(bench):
    bench.feed(GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    assert bench.transport.closed


def test_pipelined_requests_are_answered_in_order_one_at_a_time(bench):
    bench.feed(LATER + POST + b"null" + LATER)
    assert len(bench.later) == 1
    bench.later[0].reply(200, (), b"first")
    bench.loop.run()
    assert bench.transport.written.index(b"first") < bench.transport.written.index(b"body=null")
    assert len(bench.later) == 2


def test_bytes_that_arrive_while_a_request_is_answered_wait_their_turn(bench):
    bench.feed(LATER)
    assert bench.feed(GET[:10]) == b""
    bench.feed(GET[10:])
    bench.later[0].reply(200, (), b"first")
    bench.feed(b"")
    assert bench.transport.written.count(b"HTTP/1.1 200") == 2


def test_too_many_bytes_ahead_of_their_turn_cut_the_connection(bench):
    bench.feed(LATER)
    bench.feed(b"x" * (LIMITS.head_bytes + LIMITS.body_bytes + 1))
    assert bench.transport.aborted
    assert bench.gone == 1


def test_a_head_that_drips_is_answered_408_and_closed(bench):
    for _ in range(5):
        bench.feed(b"G" if not bench.connection._http._buffer else b"E")
        bench.pass_time(1.9)
    bench.pass_time(1)
    assert bench.transport.written.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in bench.transport.written


def test_a_body_that_drips_is_answered_408(bench):
    bench.feed(POST + b"t")
    bench.pass_time(19)
    assert bench.transport.written == b""
    bench.pass_time(1)
    assert bench.transport.written.startswith(b"HTTP/1.1 408")


def test_an_idle_connection_is_closed_without_a_word(bench):
    bench.feed(GET)
    written = bench.transport.written
    bench.pass_time(60)
    assert bench.transport.closed
    assert bench.transport.written == written


def test_a_running_request_has_no_idle_limit(bench):
    bench.feed(LATER)
    bench.pass_time(1000)
    assert not bench.transport.closed
    assert not bench.transport.aborted


def test_a_client_that_does_not_read_is_cut_when_the_limit_is_reached(bench):
    bench.feed(LATER)
    bench.connection.pause_writing()
    bench.transport.buffered = 300
    for _ in range(3):
        bench.later[0].stream(b"x" * 60)
    assert bench.transport.aborted
    assert bench.gone == 1


def test_what_a_slow_reader_has_not_taken_comes_in_one_piece_when_it_reads_again(bench):
    bench.feed(LATER)
    bench.later[0].stream(b"a")
    bench.connection.pause_writing()
    before = bench.transport.written
    bench.later[0].stream(b"b")
    bench.later[0].stream(b"c")
    assert bench.transport.written == before
    bench.connection.resume_writing()
    assert bench.transport.written[len(before) :] == b"1\r\nb\r\n1\r\nc\r\n"


def test_further_pieces_are_written_when_all_of_the_turn_are_made(bench):
    bench.feed(LATER)
    bench.later[0].stream(b"a")
    before = bench.transport.written
    bench.later[0].stream(b"b")
    assert bench.transport.written == before
    bench.loop.run()
    assert bench.transport.written[len(before) :] == b"1\r\nb\r\n"


def test_an_end_in_the_turn_of_a_piece_comes_after_it(bench):
    bench.feed(LATER)
    bench.later[0].stream(b"a")
    before = bench.transport.written
    bench.later[0].stream(b"b")
    bench.later[0].end_stream(b"c")
    bench.loop.run()
    assert bench.transport.written[len(before) :] == b"1\r\nb\r\n1\r\nc\r\n0\r\n\r\n"


def test_what_was_made_is_written_before_a_close(bench):
    bench.feed(LATER)
    bench.later[0].stream(b"a")
    bench.later[0].stream(b"b")
    bench.connection.close()
    bench.loop.run()
    assert bench.transport.written.endswith(b"1\r\na\r\n1\r\nb\r\n")


def test_a_client_that_stops_reading_is_cut_after_the_stall_limit(bench):
    bench.feed(LATER)
    bench.later[0].stream(b"a")
    bench.connection.pause_writing()
    bench.pass_time(29)
    assert not bench.transport.aborted
    bench.pass_time(1)
    assert bench.transport.aborted
    assert bench.gone == 1


def test_no_next_request_begins_while_the_client_does_not_read(bench):
    bench.connection.pause_writing()
    assert bench.feed(GET) == b""
    bench.connection.resume_writing()
    assert bench.transport.written.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("request_", [POST + b"null", POST[:9], LATER], ids=["whole", "partial", "unanswered"])
def test_what_a_client_sends_that_does_not_read_has_a_bound(bench, request_):
    bench.connection.pause_writing()
    allowed = (LIMITS.head_bytes + LIMITS.body_bytes) // len(request_)
    for _ in range(allowed):
        bench.feed(request_)
    assert not bench.transport.aborted
    bench.feed(request_)
    assert bench.transport.aborted


def test_a_long_body_is_written_as_it_is_since_others_may_be_sent_it_too(bench):
    bench.feed(LATER)
    written, body = [], bytes(100_000)
    bench.transport.write = written.append
    bench.later[0].reply(200, (), body)
    assert written[0].endswith(b"content-length: 100000\r\n\r\n")
    assert written[1] is body


def test_requests_sent_ahead_by_a_client_that_reads_again_are_answered_in_order(bench):
    bench.connection.pause_writing()
    for cut in (slice(5), slice(5, None)):
        bench.feed((POST + b"null" + GET)[cut])
    bench.connection.resume_writing()
    bench.loop.run()
    assert bench.transport.written.count(b"HTTP/1.1 200") == 2
    assert bench.transport.written.index(b"body=null") < bench.transport.written.rindex(b"HTTP/1.1 200")


def test_a_client_that_leaves_is_told_to_its_request_once(bench):
    bench.feed(LATER)
    bench.connection.eof_received()
    bench.connection.connection_lost(None)
    assert bench.gone == 1
    assert not bench.connections


def test_a_reply_that_was_complete_is_not_gone_when_the_client_leaves(bench):
    bench.feed(LATER)
    bench.later[0].reply(200, (), b"")
    bench.connection.connection_lost(None)
    assert bench.gone == 0


def test_writing_after_the_client_left_does_nothing(bench):
    bench.feed(LATER)
    bench.connection.connection_lost(None)
    bench.later[0].stream(b"late")
    bench.later[0].end_stream(b"later")
    assert bench.transport.written == b""


def test_an_early_refusal_leaves_time_to_read_it(bench):
    bench.feed(POST.replace(b"/now", b"/not"))
    assert bench.transport.written.startswith(b"HTTP/1.1 404")
    assert bench.transport.ended
    assert not bench.transport.closed
    bench.feed(b"true")
    bench.pass_time(2)
    assert bench.transport.aborted


def test_a_refusal_whose_body_came_along_keeps_the_connection(bench):
    bench.feed(POST.replace(b"/now", b"/not") + b"true")
    assert bench.feed(GET).startswith(b"HTTP/1.1 200")


def test_a_broken_stream_has_no_last_chunk_and_is_closed(bench):
    bench.feed(LATER)
    bench.later[0].stream(b"a")
    bench.later[0].break_stream(b"failed")
    assert bench.transport.written.endswith(b"6\r\nfailed\r\n")
    assert bench.transport.closed


def test_a_defect_costs_its_own_request_only(bench):
    def defect(exchange) -> None:
        raise KeyError("secret")

    bench.connection._router.offer("/now", {"GET": defect, "POST": bench._now})
    written = bench.feed(GET)
    assert written.startswith(b"HTTP/1.1 500")
    assert b"secret" not in written
    assert bench.feed(POST + b"null").startswith(b"HTTP/1.1 200")


def test_busy_time_ends_with_every_kind_of_end(bench):
    bench.feed(GET)
    bench.feed(LATER)
    bench.now += S
    bench.connection.connection_lost(None)
    assert bench.glue.busy_ns(bench.now + 10 * S) == S


def test_an_empty_line_between_requests_starts_no_head(bench):
    bench.feed(GET + b"\r\n")
    bench.pass_time(11)
    assert bench.transport.written.count(b"HTTP/1.1") == 1
