"""HTTP/2 on real sockets: the same routes, many requests on one connection, and every way to end."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import closing

import h2.events
import pytest
from echo_service import NS, Service, chat, expect_soon, get, read_reply
from http2_client import Http2Client

from zerolayer.errors import EngineFailed
from zerolayer.front.http2_connection import Http2Connection
from zerolayer.front.site import ConnectionLimits
from zerolayer.wire.http2 import Code


@pytest.fixture
def service(serve) -> Service:
    return serve(slots=4)


def client(service: Service, **given: object) -> Http2Client:
    return Http2Client(service.connect(), **given)


def test_a_chat(service):
    with client(service) as peer:
        status, body = peer.reply(peer.chat("Say this."))
    assert status == 200
    assert json.loads(body)["choices"][0]["message"]["content"] == "Say this."


def test_replies_carry_the_same_headers_as_on_http_1(service):
    with client(service) as peer:
        stream_id = peer.ask("GET", "/v1/models", x_request_id="mine")
        peer.reply(stream_id)
    headers = peer.headers(stream_id)
    plain = service.ask(get("/v1/models", "x-request-id: mine")).headers
    assert set(headers) - {":status"} == set(plain)
    assert headers["x-request-id"] == "mine"


def test_options_of_the_whole_server_are_those_of_http_1(service):
    with client(service) as peer:
        stream_id = peer.ask("OPTIONS", "*")
        assert peer.reply(stream_id) == (204, b"")
    assert peer.headers(stream_id)["allow"] == service.ask(get("*", method="OPTIONS")).headers["allow"]


def test_a_head_request_has_the_length_and_no_body(service):
    with client(service) as peer:
        stream_id = peer.ask("HEAD", "/v1/models")
        assert peer.reply(stream_id) == (200, b"")
    assert int(peer.headers(stream_id)["content-length"]) > 0


def test_a_stream_ends_with_done(service):
    with client(service) as peer:
        stream_id = peer.chat("ab", stream=True)
        _, body = peer.reply(stream_id)
    assert peer.headers(stream_id)["content-type"].startswith("text/event-stream")
    assert body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", "/v1/chat/completions", 405), ("GET", "/livez", 200), ("GET", "/readyz", 200)],
)
def test_routes_answer_as_on_http_1(service, method, path, status):
    with client(service) as peer:
        assert peer.reply(peer.ask(method, path))[0] == status


def test_a_bad_request_costs_itself_only(service):
    with client(service) as peer:
        bad = peer.ask("POST", "/v1/chat/completions", b"{", content_type="application/json")
        good = peer.chat("fine")
        assert peer.reply(bad)[0] == 400
        assert peer.reply(good)[0] == 200


def test_a_foreign_host_name_is_kept_out(service):
    with client(service) as peer:
        stream_id = peer.h2.get_next_available_stream_id()
        fields = [(":method", "GET"), (":scheme", "http"), (":path", "/v1/models"), (":authority", "evil.example")]
        peer.h2.send_headers(stream_id, fields, end_stream=True)
        peer.flush()
        assert peer.reply(stream_id)[0] == 403


def test_requests_of_one_connection_run_at_once_and_a_busy_server_refuses_the_next(serve):
    service = serve(slots=2)
    service.hold_steps()
    with client(service) as peer:
        running = [peer.chat("a", stream=True), peer.chat("b", stream=True)]
        expect_soon(lambda: service.running() == 2)
        refused = peer.chat("c")
        assert peer.reply(refused)[0] == 429
        assert int(peer.headers(refused)["retry-after-ms"]) >= 1
        service.step(100)
        assert [peer.reply(stream_id)[0] for stream_id in running] == [200, 200]


def test_the_tokens_of_a_step_reach_all_streams_of_a_connection_in_one_write(serve):
    service = serve(slots=8)
    service.hold_steps()
    with client(service) as peer:
        streams = [peer.chat("abcdefghijklmnopqrstuvwxyz", stream=True) for _ in range(8)]
        expect_soon(lambda: service.running() == 8)
        service.step(10)  # one prompt a step: the last stream has its third token then
        peer.until(lambda: b'"c"' in peer.body(streams[-1]))
        writes = count_writes(service)
        service.step(1)
        peer.until(lambda: service.on_loop(lambda: len(writes)))
    assert len(writes) == 1
    assert writes[0].count(b"data: ") == 8


def count_writes(service: Service) -> list[bytes]:
    """From now on what the only HTTP/2 connection writes is also kept."""
    writes: list[bytes] = []

    class Spy:
        def __init__(self, transport) -> None:
            self._transport = transport

        def write(self, data: bytes) -> None:
            writes.append(data)
            self._transport.write(data)

        def __getattr__(self, name: str):
            return getattr(self._transport, name)

    def watch() -> None:
        (connection,) = service.server.connections
        connection._transport = Spy(connection._transport)
        connection.descriptor, connection.core.sender.free = -1, 0  # nothing goes past it

    service.on_loop(watch)
    return writes


def test_a_reset_stream_frees_its_slot_and_no_other(service):
    service.hold_steps()
    with client(service) as peer:
        left, stays = peer.chat("abc", stream=True), peer.chat("abc", stream=True)
        expect_soon(lambda: service.running() == 2)
        peer.h2.reset_stream(left, Code.CANCEL)
        peer.flush()
        expect_soon(lambda: service.running() == 1)
        service.step(2)  # the one that was running, and the one at whose border the slot was left
        expect_soon(lambda: service.free_slots() == 3)
        service.step(100)
        assert peer.reply(stays)[0] == 200


def test_a_lost_connection_frees_all_its_slots(service):
    service.hold_steps()
    with client(service) as peer:
        for _ in range(3):
            peer.chat("abc", stream=True)
        expect_soon(lambda: service.running() == 3)
    expect_soon(lambda: service.running() == 0)
    service.step(2)
    expect_soon(lambda: service.free_slots() == 4)


def test_a_stream_that_fails_after_its_200_is_reset(service):
    service.hold_steps()
    with client(service) as peer:
        stream_id = peer.chat("abc", stream=True)
        expect_soon(lambda: service.running() == 1)
        service.step(2)
        peer.until(lambda: peer.body(stream_id))
        service.engine.broken = EngineFailed("a step failed; send the request again")
        service.step(10)
        peer.until(lambda: peer.of(h2.events.StreamReset, stream_id))
    assert b'"error"' in peer.body(stream_id)
    assert not peer.ended(stream_id)


def test_a_client_that_opens_all_windows_and_does_not_read_costs_no_more_than_any_other(service):
    body = bytes(range(256)) * 8192
    route = {"GET": lambda exchange: exchange.reply(200, (), body)}
    service.on_loop(lambda: service.server.tables.routers.service.offer("/livez", route))
    with client(service, window=(1 << 31) - 1) as peer:
        peer.h2.increment_flow_control_window((1 << 31) - 1 - 65_535)
        streams = [peer.ask("GET", "/livez") for _ in range(16)]
        expect_soon(lambda: _held_back(service) > 0)
        assert _held_back(service) < 1 << 20
        peer.until(lambda: all(peer.ended(stream_id) for stream_id in streams))
        assert all(peer.body(stream_id) == body for stream_id in streams)


def _held_back(service) -> int:
    """Bytes; of a client whom the listener, or the door behind it, has not let in yet there are none."""

    def held() -> int:
        inside = [each for each in service.server.connections if isinstance(each, Http2Connection)]
        return sum(each.core.sender.out_bytes + each._transport.get_write_buffer_size() for each in inside)

    return service.on_loop(held)


def test_a_stream_without_a_window_is_cancelled_at_its_limit_and_frees_its_slot(serve):
    limits = ConnectionLimits(unsent_bytes=4096)
    service = serve(slots=2, slot_tokens=8192, step_us=0, limits=limits, section={"max_tokens": 8000})
    with client(service, window=0) as peer:
        stream_id = peer.chat("a" * 1000, stream=True, ignore_eos=True, max_tokens=6000)
        peer.until(lambda: peer.of(h2.events.StreamReset, stream_id))
        expect_soon(lambda: service.free_slots() == 2)
    assert peer.of(h2.events.StreamReset, stream_id)[0].error_code == Code.ENHANCE_YOUR_CALM


def test_a_complete_reply_that_nobody_takes_is_cancelled_after_the_stall_limit(serve):
    service = serve(limits=ConnectionLimits(stall_ns=NS // 5))
    with client(service, window=0) as peer:
        stream_id = peer.chat("abc")
        peer.until(lambda: peer.of(h2.events.StreamReset, stream_id))
        expect_soon(lambda: service.on_loop(lambda: not any(c.busy for c in service.server.connections)))


def test_a_body_that_drips_is_answered_408(serve):
    service = serve(limits=ConnectionLimits(body_ns=NS // 5))
    with client(service) as peer:
        fields = [(":method", "POST"), (":scheme", "http"), (":path", "/v1/completions"), (":authority", "localhost")]
        peer.h2.send_headers(1, [*fields, ("content-type", "application/json")])
        peer.h2.send_data(1, b"{")
        peer.flush()
        peer.until(lambda: peer.of(h2.events.StreamReset, 1) or peer.ended(1))
        assert peer.status(1) == 408


def test_a_head_that_drips_ends_the_connection(serve):
    service = serve(limits=ConnectionLimits(head_ns=NS // 5))
    with closing(service.connect()) as raw:
        raw.sendall(b"PRI * HTTP/2.0\r\n\r\n")
        while raw.recv(4096):
            pass
    expect_soon(lambda: not service.server.connections)


def test_two_bytes_that_could_be_either_protocol_end_after_the_head_limit(serve):
    service = serve(limits=ConnectionLimits(head_ns=NS // 5))
    with closing(service.connect()) as raw:
        raw.sendall(b"PR")
        assert raw.recv(1) == b""


def test_an_idle_connection_is_sent_goaway(serve):
    service = serve(limits=ConnectionLimits(idle_ns=NS // 5))
    with client(service) as peer:
        peer.until(lambda: peer.of(h2.events.ConnectionTerminated))
        assert peer.of(h2.events.ConnectionTerminated)[0].error_code == Code.NO_ERROR


def test_a_broken_client_is_told_why(service):
    with client(service) as peer:
        peer.socket.sendall(b"\0\0\0\x05\0\0\0\0\1")
        peer.until(lambda: peer.of(h2.events.ConnectionTerminated))
        assert peer.of(h2.events.ConnectionTerminated)[0].error_code == Code.PROTOCOL_ERROR


def test_a_flood_costs_its_connection_only(service):
    with client(service) as flood, client(service) as other:
        for _ in range(2000):
            flood.h2.ping(b"12345678")
        flood.socket.sendall(flood.h2.data_to_send())
        flood.until(lambda: flood.of(h2.events.ConnectionTerminated))
        assert other.reply(other.chat("fine"))[0] == 200


def test_draining_finishes_what_runs_then_sends_goaway_and_closes(service):
    service.hold_steps()
    with client(service) as peer, client(service) as idle:
        idle.reply(idle.ask("GET", "/livez"))
        stream_id = peer.chat("abc", stream=True)
        expect_soon(lambda: service.running() == 1)
        drained = asyncio.run_coroutine_threadsafe(service.server.drain(), service.loop)
        idle.until(lambda: idle.of(h2.events.ConnectionTerminated))
        refused = peer.chat("new")
        assert peer.reply(refused)[0] == 503
        assert peer.headers(refused)["retry-after-ms"]
        service.step(100)
        peer.until(lambda: peer.of(h2.events.ConnectionTerminated))
        drained.result(10)
    assert b"data: [DONE]" in peer.body(stream_id)


def test_what_a_client_still_sends_while_it_takes_the_last_reply_in_does_not_destroy_that_reply(service):
    service.hold_steps()
    with client(service) as peer:
        stream_id = peer.chat("abc", stream=True)
        expect_soon(lambda: service.running() == 1)
        drained = asyncio.run_coroutine_threadsafe(service.server.drain(), service.loop)
        service.step(100)
        drained.result(10)
        for _ in range(2):  # the first one would be answered by a reset, and the second one fail
            peer.h2.ping(b"12345678")
            peer.flush()
            time.sleep(0.02)
        peer.until(lambda: peer.of(h2.events.ConnectionTerminated))
    assert b"data: [DONE]" in peer.body(stream_id)


def test_both_protocols_share_the_port(service):
    with client(service) as new, closing(service.connect()) as old:
        old.sendall(chat("old"))
        assert new.reply(new.chat("new"))[0] == 200
        assert read_reply(old).status == 200


def test_a_body_over_the_limit_is_answered_413_before_it_is_read(service):
    with client(service) as peer:
        fields = [(":method", "POST"), (":scheme", "http"), (":path", "/v1/completions"), (":authority", "localhost")]
        fields += [("content-type", "application/json"), ("content-length", "99999999")]
        peer.h2.send_headers(1, fields)
        peer.flush()
        peer.until(lambda: peer.of(h2.events.ResponseReceived, 1))
        assert peer.status(1) == 413


def test_a_client_that_waits_for_100_continue_is_told_to_go_on(service):
    with client(service) as peer:
        fields = [(":method", "POST"), (":scheme", "http"), (":path", "/v1/completions"), (":authority", "localhost")]
        fields += [("content-type", "application/json"), ("expect", "100-continue")]
        peer.h2.send_headers(1, fields)
        peer.flush()
        peer.until(lambda: peer.of(h2.events.InformationalResponseReceived, 1))
        peer.h2.send_data(1, b'{"model":"echo","prompt":"x"}', end_stream=True)
        peer.flush()
        assert peer.reply(1)[0] == 200


def test_a_defect_costs_its_own_request_only(service):
    def defect(*_: object) -> None:
        raise KeyError("secret")

    service.loaded.encoder.before = defect
    with client(service) as peer:
        status, body = peer.reply(peer.chat("x"))
        assert status == 500
        assert b"secret" not in body
        service.loaded.encoder.before = lambda: None
        assert peer.reply(peer.chat("y"))[0] == 200


def test_a_defect_within_a_stream_resets_it_and_frees_what_it_held(service):
    gone: list[str] = []

    def defect(exchange) -> None:
        exchange.on_gone = lambda: gone.append("gone")
        exchange.stream(b"data: begun\n\n")
        raise KeyError("secret")

    service.on_loop(lambda: service.server.tables.routers.service.offer("/livez", {"GET": defect}))
    with client(service) as peer:
        stream_id = peer.ask("GET", "/livez")
        peer.until(lambda: peer.of(h2.events.StreamReset, stream_id))
        assert peer.reply(peer.chat("y"))[0] == 200
    assert gone == ["gone"]
