"""HTTP/2 as the load client speaks it, judged by the library h2; then over a socket."""

from __future__ import annotations

import random
import socket
import threading

import h2.config
import h2.connection
import h2.events
import pytest
from h2.settings import SettingCodes, Settings
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.check import target as targets
from zerolayer.check.carrier import Http2Carrier
from zerolayer.check.errors import TargetError
from zerolayer.check.exchange import Exchange, Planned, read_tokens
from zerolayer.check.load_client import LoadClient


class Judge:
    """The server's side by h2: answers every request with its own body, in pieces."""

    def __init__(self, streams: int = 100, window: int = 65_535, status: bytes = b"200") -> None:
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        values = {SettingCodes.MAX_CONCURRENT_STREAMS: streams, SettingCodes.INITIAL_WINDOW_SIZE: window}
        self.h2.local_settings = Settings(client=False, initial_values=values)
        self.h2.initiate_connection()
        self.bodies: dict[int, bytes] = {}
        self.heads: dict[int, dict[bytes, bytes]] = {}
        self.resets: list[int] = []
        self.status = status

    def feed(self, data: bytes) -> bytes:
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                self.heads[event.stream_id], self.bodies[event.stream_id] = dict(event.headers), b""
            elif isinstance(event, h2.events.DataReceived):
                self.bodies[event.stream_id] += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                self.resets.append(event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.answer(event.stream_id)
        return self.h2.data_to_send()

    def answer(self, stream: int) -> None:
        head = [(b":status", self.status), (b"content-type", b"text/event-stream"), (b"retry-after-ms", b"7")]
        self.h2.send_headers(stream, head)
        for piece in (self.bodies[stream][:5], self.bodies[stream][5:16_000]):
            self.h2.send_data(stream, piece)
        self.h2.end_stream(stream)


def asked(body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> Exchange:
    target = targets.parse("http://host:80/x", "http", "", headers, "POST", body, http2=True)
    return Exchange(Planned(0, target.payload(body), "pulse", 1, 1, 0))


def talk(carrier: Http2Carrier, judge: Judge, data: bytes, cut: int = 1 << 20) -> list[Exchange]:
    """Carry bytes to and fro until both are silent, in reads of at most ``cut`` bytes."""
    ended: list[Exchange] = []
    while data:
        back = judge.feed(data)
        for at in range(0, len(back), cut):
            ended += carrier.feed(back[at : at + cut], 9)
        data = carrier.answer()
    return ended


def greeted(judge: Judge) -> Http2Carrier:
    carrier = Http2Carrier()
    talk(carrier, judge, carrier.answer())
    assert carrier.greeted
    return carrier


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 20_000), min_size=1, max_size=4),
    window=st.integers(1_000, 70_000),
    cut=st.integers(40, 30_000),
)
def test_every_request_arrives_whole_and_every_reply_is_its_own(sizes: list[int], window: int, cut: int) -> None:
    judge = Judge(window=window)
    carrier = greeted(judge)
    exchanges = [asked(bytes([65 + i]) * size) for i, size in enumerate(sizes)]
    data = b"".join([carrier.begin(each) for each in exchanges])
    ended = talk(carrier, judge, data, cut)
    assert [len(judge.bodies[1 + 2 * i]) for i in range(len(sizes))] == sizes
    assert {id(each) for each in ended} == {id(each) for each in exchanges}
    assert [each.body for each in exchanges] == [
        each.planned.payload[-min(s, 16_000) :] for each, s in zip(exchanges, sizes, strict=True)
    ]
    assert all(each.whole and each.status == 200 and each.promised_ms == 7 for each in exchanges)


def test_the_same_bytes_mean_the_same_head_on_every_stream() -> None:
    judge = Judge()
    carrier = greeted(judge)
    exchange = asked(b"{}", (("X-Key", "secret"),))
    talk(carrier, judge, carrier.begin(exchange) + carrier.begin(Exchange(exchange.planned)))
    assert judge.heads[1] == judge.heads[3]
    assert (judge.heads[1][b":path"], judge.heads[1][b"x-key"]) == (b"/x", b"secret")


def test_the_servers_limit_of_streams_is_the_room() -> None:
    carrier = greeted(Judge(streams=2))
    assert carrier.room == 2
    carrier.begin(asked(b"a"))
    assert carrier.room == 1


def test_leaving_resets_the_stream_and_keeps_the_connection() -> None:
    judge = Judge()
    carrier = greeted(judge)
    exchange = asked(b"")
    judge.answer = lambda stream: None  # type: ignore[method-assign]
    talk(carrier, judge, carrier.begin(exchange))
    talk(carrier, judge, carrier.leave(exchange) or b"")
    assert judge.resets == [1]
    assert carrier.room > 0


def test_what_is_no_http2_ends_every_exchange_with_an_error() -> None:
    carrier = Http2Carrier()
    exchange = asked(b"a")
    carrier.begin(exchange)
    assert carrier.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n", 9) == [exchange]
    assert (exchange.error, carrier.room) == ("not HTTP/2", 0)


@given(st.binary(max_size=200))
def test_no_bytes_of_a_server_break_the_carrier(data: bytes) -> None:
    carrier = greeted(Judge())
    carrier.begin(asked(b"a"))
    ended = carrier.feed(data, 9)
    assert len(ended) + len(carrier.end_of_file(10)) == 1


def serve(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    judge = Judge()
    with connection:
        connection.sendall(judge.h2.data_to_send())
        while data := connection.recv(65_536):
            connection.sendall(judge.feed(data))


def test_a_pulse_shares_one_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        target = targets.parse(f"http://127.0.0.1:{listener.getsockname()[1]}/", "openai", "m", (), http2=True)
        client = LoadClient(target.endpoint, 5)
        client.prepare(20)
        at = client.clock() + 2_000_000
        bodies = [target.make_body(random.Random(i), 4, 0) for i in range(20)]
        done = client.run([Planned(at, target.payload(b), "pulse", 1, 20, i, b) for i, b in enumerate(bodies)])
        client.close()
    assert [each.body for each in sorted(done, key=lambda each: each.planned.position)] == bodies
    assert all(read_tokens(each).count == 0 for each in done)


def test_a_server_without_http2_is_a_typed_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=refuse, daemon=True).start()
        target = targets.parse(f"http://127.0.0.1:{listener.getsockname()[1]}/", "http", "", (), http2=True)
        client = LoadClient(target.endpoint, 5)
        with pytest.raises(TargetError, match="does not speak HTTP/2"):
            client.prepare(1)
        client.close()
