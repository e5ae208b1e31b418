"""A reply is the same, byte for byte and in every count, taken by its line or pushed token by token."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import hpack
import pytest
from echo_model import END, START, byte_vocabulary
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.front import lines
from zerolayer.front._native import Growth
from zerolayer.front.connection import Connection
from zerolayer.front.dispatch import Dispatcher
from zerolayer.front.exchange import Exchange
from zerolayer.front.grpc_inference import GrpcFraming
from zerolayer.front.http2_connection import Http2Connection
from zerolayer.front.lines import _TYPES, Words
from zerolayer.front.openai_form import OpenAiAnswers
from zerolayer.front.outbox import MANY
from zerolayer.front.schema_form import SchemaAnswers
from zerolayer.front.site import ConnectionLimits, Site
from zerolayer.front.stream import Reply
from zerolayer.front.transcript import Transcripts
from zerolayer.guard.deadline.booking import Terms, Work
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.prompts.prompt import Prompt
from zerolayer.model.cost import Prices
from zerolayer.model.engine import Generation, SampledToken
from zerolayer.model.letters import StepReport
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.metrics import Gauges, Metrics
from zerolayer.text.tool_format import HERMES
from zerolayer.wire.schema import Account, FinishReason, Request, Route, Sampling, TokenLogprob

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
GAP_NS = 100
VOCABULARY = byte_vocabulary()


class Transport:
    """Of a socket that takes everything, except while ``blocked``: then it keeps what it is given."""

    def __init__(self, ours: socket.socket) -> None:
        self._socket = ours
        self._unsent = b""
        self.blocked = False

    def write(self, data: bytes) -> None:
        self._unsent += data
        if not self.blocked:
            self.unblock()

    def unblock(self) -> None:
        self.blocked = False
        self._socket.sendall(self._unsent)
        self._unsent = b""

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def get_extra_info(self, name: str) -> socket.socket | None:
        return self._socket if name == "socket" else None

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    abort = write_eof = close

    def can_write_eof(self) -> bool:
        return True


class Streams:
    """Two replies on the way to one client; ``lines`` says whether they may have any."""

    def __init__(self, kind: str, *, lines: bool, stop: tuple[str, ...] = ()) -> None:
        self._now = 0
        self._soon: list[Callable[[], None]] = []
        self._pairs = []
        loop = SimpleNamespace(call_soon=self._soon.append)
        self.metrics = Metrics("m")
        clock = lambda: self._now  # noqa: E731
        site = Site(ConnectionLimits(), clock, lambda: 0.0, "m", lambda: b"", self.metrics, GlueMeter())
        calendar = Calendar(2, clock, lambda: Prices(step_ns=10))
        steps = SimpleNamespace(admit=lambda *_: None, cancel=lambda *_: None)
        self.dispatcher = Dispatcher(calendar, steps, self.metrics, GlueMeter())
        if not lines:
            self.dispatcher._lines.add = lambda *_: None  # type: ignore[method-assign]
        self.transcripts = []
        self.transports: list[Transport] = []
        self.connections: list[Connection | Http2Connection] = []
        exchanges = self._http2(site, loop) if kind in ("grpc", "http2") else self._http1(site, loop, kind)
        words = SchemaAnswers(GrpcFraming(), VOCABULARY)
        answers = OpenAiAnswers(site, "m", VOCABULARY, Transcripts(VOCABULARY, HERMES))
        for exchange in exchanges:
            route = Route.CHAT if kind == "http1" else Route.COMPLETIONS
            request = Request(route=route, model="m", stream=True, stop=stop, max_tokens=1000)
            transcript, form = (words if kind == "grpc" else answers)(exchange, request, Prompt([1, 2, 3], 0, 0))
            reply = Reply(
                exchange,
                transcript,
                form,
                self.metrics,
                prompt_tokens=3,
                applied=Account({}, "", 1000, 10),
                hold=SimpleNamespace(settle=lambda _: None),
                limits_ns=(10_000, GAP_NS),
            )
            work = Work(1, 0, 0, 10)
            slot = calendar.claim(work, Terms(0, 10_000, 10_000, 1 << 60))
            assert calendar.confirm(slot, work)
            exchange.on_gone = lambda slot=slot: self.dispatcher.cancel(slot)
            self.transcripts.append(transcript)
            self.dispatcher.start(slot, Generation([1, 2, 3], Sampling(), 1000), reply)

    def _accepted(self, kind: type, site: Site, loop: object) -> Connection | Http2Connection:
        router = SimpleNamespace(check=lambda exchange: setattr(exchange, "action", lambda _: None))
        connection = kind(site, router, set(), loop)
        self._pairs.append(socket.socketpair())
        for end in self._pairs[-1]:
            end.settimeout(5)
        self.transports.append(Transport(self._pairs[-1][0]))
        connection.connection_made(self.transports[-1])
        self.connections.append(connection)
        return connection

    def _http1(self, site: Site, loop: object, kind: str) -> Iterator[Exchange]:
        version = b"0" if kind == "http1.0" else b"1"
        for _ in range(2):
            connection = self._accepted(Connection, site, loop)
            connection.data_received(
                b"POST /x HTTP/1.%b\r\nhost: a\r\nx-request-id: r\r\ncontent-length: 2\r\n\r\n{}" % version
            )
            yield connection._exchange

    def _http2(self, site: Site, loop: object) -> Iterator[Exchange]:
        connection = self._accepted(Http2Connection, site, loop)
        connection.data_received(PREFACE + frame(4, 0, 0, (4).to_bytes(2, "big") + (600).to_bytes(4, "big")))
        encoder = hpack.Encoder()
        for stream_id in (1, 3):
            head = [(":method", "POST"), (":path", "/x"), (":scheme", "http"), (":authority", "a")]
            head.append(("x-request-id", "r"))
            connection.data_received(frame(1, 4, stream_id, encoder.encode(head)) + frame(0, 1, stream_id, b"{}"))
            yield connection._streams[stream_id].exchange

    def step(self, tokens: list[SampledToken], elapsed_ns: int) -> None:
        self._now += elapsed_ns
        ends = [token.slot for token in tokens if token.finish is not None]
        decode = tuple(token.slot for token in tokens)
        report = StepReport(self._now - 1, self._now, "plain", decode=decode, tokens=tokens, released=ends)
        self.dispatcher.on_step(report)
        self.turn()

    def turn(self) -> None:
        while self._soon:
            self._soon.pop(0)()

    def widen(self, size: int) -> None:
        """The client takes more, where it says so."""
        if isinstance(self.connections[0], Http2Connection):
            for stream_id in (0, 1, 3):
                self.connections[0].data_received(frame(8, 0, stream_id, size.to_bytes(4, "big")))

    def block(self, place: int) -> None:
        self.transports[place % len(self.transports)].blocked = True

    def unblock(self) -> None:
        for transport in self.transports:
            transport.unblock()

    def outcome(self) -> list[object]:
        """All bytes that each client got, and what was counted."""
        self.unblock()
        got = []
        for ours, theirs in self._pairs:
            ours.close()
            data = b""
            while piece := theirs.recv(1 << 20):
                data += piece
            theirs.close()
            got.append(by_stream(data) if isinstance(self.connections[0], Http2Connection) else data)
        counts = [(each.completion_tokens, each.token_id, each.reason) for each in self.transcripts]
        missed = [line for line in self.metrics.render(Gauges()).split(b"\n") if b"missed" in line]
        return [got, counts, missed, self.dispatcher.running]


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream_id.to_bytes(4, "big") + payload


def by_stream(data: bytes) -> dict[int, bytes]:
    """What each stream got; of one step's frames it does not matter whose comes first."""
    found: dict[int, bytes] = {}
    while data:
        size, stream_id = int.from_bytes(data[:3], "big"), int.from_bytes(data[5:9], "big")
        found[stream_id] = found.get(stream_id, b"") + data[9 : 9 + size]
        data = data[9 + size :]
    return found


TOKENS = st.integers(0, 255) | st.sampled_from([*b'"\\\n a<', START, *"é☃😀".encode(), 1 << 20])


@st.composite
def steps(draw: st.DrawFn) -> tuple[object, ...]:
    return ("step", draw(TOKENS), draw(TOKENS), draw(st.sampled_from([10, 10, 10, GAP_NS + 1])))


EVENTS = st.one_of(
    steps(),
    steps(),
    steps(),
    st.tuples(st.just("block"), st.integers(0, 1)),
    st.tuples(st.just("unblock")),
    st.tuples(st.just("widen"), st.integers(1, 300)),
    st.tuples(st.just("end"), st.integers(0, 1), st.sampled_from([FinishReason.STOP, FinishReason.LENGTH])),
    st.tuples(st.just("logprob"), st.integers(0, 1)),
    st.tuples(st.just("leave"), st.integers(0, 1)),
)


def played(streams: Streams, events: list[tuple[object, ...]]) -> list[object]:
    over: set[int] = set()
    for event in events:
        what, *how = event
        if what == "step":
            tokens = [SampledToken(slot, how[slot]) for slot in (0, 1) if slot not in over]
            streams.step(tokens, how[2])
        elif what in ("end", "logprob") and how[0] not in over:
            finish = how[1] if what == "end" else None
            logprob = None if what == "end" else TokenLogprob(97, -0.5)
            streams.step([SampledToken(how[0], END if finish is FinishReason.STOP else 97, finish, logprob)], 10)
            over |= {how[0]} if what == "end" else set()
        elif what == "leave" and how[0] not in over:
            over.add(how[0])
            streams.dispatcher.cancel(how[0])
        elif what in ("block", "unblock", "widen"):
            getattr(streams, what)(*how)
    return streams.outcome()


@pytest.mark.parametrize("kind", ["http1", "http1.0", "http2", "grpc"])
@given(events=st.lists(EVENTS, max_size=30), many=st.sampled_from([1, MANY]), together=st.sampled_from([1, 4]))
def test_a_line_makes_of_tokens_what_pushing_them_makes(kind, events, many, together):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "MANY", many)
        patch.setattr(lines, "TOGETHER", together)
        assert played(Streams(kind, lines=True), events) == played(Streams(kind, lines=False), events)


def sent(streams: Streams, steps: int) -> list[object]:
    for step in range(steps):
        streams.step([SampledToken(0, 97 + step), SampledToken(1, 98 + step)], 10)
    return streams.outcome()[0]


@pytest.mark.parametrize("kind", ["http1", "grpc"])
def test_many_pieces_leave_where_the_kernel_has_no_ring_for_them(kind, monkeypatch):
    monkeypatch.setattr(lines, "TOGETHER", 1)
    streams, usual = Streams(kind, lines=True), Streams(kind, lines=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        streams.dispatcher._lines._growth = Growth({each.__name__: each for each in lines._TYPES})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for step in range(3):
        streams.step([SampledToken(0, 97 + step), SampledToken(1, 98 + step)], 10)
    assert streams.outcome()[0] == sent(usual, 3)


def test_a_client_that_has_gone_costs_the_others_of_a_ring_nothing(monkeypatch):
    monkeypatch.setattr(lines, "TOGETHER", 1)
    streams = Streams("http1", lines=True)
    streams.step([SampledToken(0, 97), SampledToken(1, 98)], 10)
    streams._pairs[0][1].close()
    streams.transports[0].write = lambda _: None  # type: ignore[method-assign]
    for _ in range(3):
        streams.step([SampledToken(0, 97), SampledToken(1, 98)], 10)
    streams.transports[1].unblock()
    assert streams._pairs[1][1].recv(1 << 20).count(b'"content":"b"') == 4


@pytest.mark.parametrize("kind", ["http1", "http1.0", "http2", "grpc"])
def test_a_plain_token_is_taken_by_its_line(kind, monkeypatch):
    streams = Streams(kind, lines=True)
    streams.step([SampledToken(0, 97), SampledToken(1, 98)], 10)
    monkeypatch.setattr(Reply, "push", lambda *_: pytest.fail("it was pushed"))
    streams.step([SampledToken(0, 99), SampledToken(1, 100)], 10)
    counts = streams.outcome()[1]
    assert counts == [(2, 99, None), (2, 100, None)]


@pytest.mark.parametrize(
    "change",
    [
        lambda connection: connection.write(b""),
        lambda connection: connection.pause_writing(),
        lambda connection: connection._end(),
        lambda connection: connection.data_received(frame(6, 0, 0, b"8 bytes.")),  # a ping, which is answered
    ],
    ids=["written", "stalled", "draining", "answered"],
)
def test_where_frames_may_go_is_asked_once_until_that_may_have_changed(change, monkeypatch):
    streams, asked = Streams("grpc", lines=True), []
    usual = Http2Connection.free_descriptor
    monkeypatch.setattr(Http2Connection, "free_descriptor", lambda self: asked.append(1) or usual(self))
    for _ in range(4):
        streams.step([SampledToken(0, 97), SampledToken(1, 98)], 10)
    before = len(asked)
    streams.step([SampledToken(0, 97), SampledToken(1, 98)], 10)
    assert len(asked) == before
    change(streams.connections[0])
    streams.step([SampledToken(0, 97), SampledToken(1, 98)], 10)
    assert len(asked) > before


def test_a_reply_with_stop_strings_has_no_line():
    streams = Streams("http1", lines=True, stop=("b",))
    streams.step([SampledToken(0, 97), SampledToken(1, 98)], 10)
    assert streams.dispatcher._running[0].line is None


def test_a_word_that_cannot_be_rendered_costs_nobody_anything():
    words = Words(["a", "b"], lambda *_: 1 // 0)
    streams = Streams("http1", lines=True)
    streams.step([SampledToken(0, 97), SampledToken(1, 98)], 10)
    streams.dispatcher._lines._lines[0].render = words.of
    streams.dispatcher._lines._lines[0].known = words.known
    streams.step([SampledToken(0, 1), SampledToken(1, 98)], 10)
    assert [count for count, *_ in streams.outcome()[1]] == [2, 2]


@pytest.mark.parametrize("missing", [each.__name__ for each in _TYPES])
def test_types_that_keep_their_attributes_elsewhere_are_refused(missing):
    class Loose:
        pass

    with pytest.raises((TypeError, AttributeError)):
        Growth({each.__name__: Loose if each.__name__ == missing else each for each in _TYPES})
