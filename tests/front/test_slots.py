"""A slot's whole life seen from outside: claimed, refused, freed when the client goes away in any phase."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack

import msgspec
import pytest
from echo_model import EchoEngine
from echo_service import Service, chat, expect_soon, get, read_reply

from zerolayer.errors import EngineFailed

SLOTS = 2
PHASES = {"prefill": 1, "decode": 8}  # steps before the client goes; the prompt needs five


def _held(serve, **given) -> Service:
    service = serve(slots=SLOTS, **given)
    service.hold_steps()
    return service


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("phase", PHASES)
def test_a_client_that_goes_away_frees_its_slot_within_one_step(serve, phase, stream):
    service = _held(serve)
    with service.connect() as client:
        client.sendall(chat("a" * 300, stream=stream))
        expect_soon(lambda: service.running() == 1)
        service.step(PHASES[phase])
        expect_soon(lambda: service.stepped() == PHASES[phase])
    expect_soon(lambda: service.running() == 0)
    service.step()
    expect_soon(lambda: service.free_slots() == SLOTS)


def test_a_client_that_goes_away_costs_nobody_else_anything(serve):
    service = serve(slots=SLOTS, step_us=1000)
    with service.connect() as leaver, service.connect() as stayer:
        leaver.sendall(chat("b" * 200, stream=True))
        stayer.sendall(chat("stays" * 10, stream=True))
        leaver.recv(100)
        leaver.close()
        assert read_reply(stayer).text == "stays" * 10


def test_a_client_that_goes_away_while_its_text_is_tokenised_frees_its_slot_at_once(serve):
    service = serve(slots=1, slot_tokens=8192)
    may_go_on = threading.Event()
    started = threading.Event()

    def before() -> None:
        started.set()
        may_go_on.wait(10)

    service.loaded.encoder.before = before
    opened = service.engine.opened
    with service.connect() as client:
        client.sendall(chat("a" * 5000))
        assert started.wait(30)
        assert service.free_slots() == 0
    expect_soon(lambda: service.free_slots() == 1)
    may_go_on.set()
    assert service.ask(chat("next")).status == 200
    assert service.engine.opened == opened + 1


def test_the_model_may_remember_once_its_last_step_has_run(serve):
    service = serve()
    alive = []
    service.loaded.remember = lambda: alive.append(service.server.steps.alive)
    service.close()
    assert alive == [False]


def test_long_text_is_tokenised_off_the_loop(serve):
    service = serve(slots=1, slot_tokens=8192)
    threads = []
    service.loaded.encoder.before = lambda: threads.append(threading.current_thread().name)
    assert service.ask(chat("a" * 4096, max_tokens=1)).status == 200
    assert service.ask(chat("a" * 4097, max_tokens=1)).status == 200
    assert [name.startswith("zerolayer-helper") for name in threads] == [False, True]


def test_a_long_text_that_does_not_fit_gets_its_own_error_and_its_slot_back(serve):
    service = serve(slots=1, slot_tokens=4500)
    assert service.ask(chat("a" * 4500, max_tokens=100)).error["code"] == "context_length_exceeded"
    assert service.free_slots() == 1


def test_a_stop_string_frees_the_slot_within_one_step(serve):
    service = _held(serve)
    with service.connect() as client:
        client.sendall(chat("ab" + "c" * 200, stop=["b"]))
        service.step(5)  # four for the prompt, the last of which says "a"; one for "b"
        assert read_reply(client).json["choices"][0]["message"]["content"] == "a"
        service.step()
        expect_soon(lambda: service.free_slots() == SLOTS)


def test_no_slot_means_429_with_both_headers_in_one_write(serve):
    service = _held(serve)
    with ExitStack() as stack:
        for _ in range(SLOTS):
            stack.enter_context(service.connect()).sendall(chat("a" * 50))
        expect_soon(lambda: service.running() == SLOTS)
        client = stack.enter_context(service.connect())
        expect_soon(lambda: len(service.server.connections) == SLOTS + 1)
        writes = _count_writes(service)
        client.sendall(chat("one too many"))
        reply = read_reply(client)
        assert len(writes) == 1
    wait_ms = int(reply.headers["retry-after-ms"])
    assert (reply.status, reply.error["code"]) == (429, "slots_busy")
    assert wait_ms >= 1
    assert int(reply.headers["retry-after"]) == -(-wait_ms // 1000)
    assert reply.headers["x-should-retry"] == "true"
    assert reply.headers["x-zl-load"].startswith("free=0;next_ms=")


def test_a_burst_admits_exactly_the_slots_and_tokenises_nothing_else(serve):
    service = _held(serve)
    before = service.loaded.encoder.calls
    with ExitStack() as stack:
        clients = [stack.enter_context(service.connect()) for _ in range(30)]
        for client in clients:
            client.sendall(chat("burst"))
        expect_soon(lambda: service.running() == SLOTS)
        service.step(100)
        statuses = [read_reply(client).status for client in clients]
    assert sorted(statuses) == [200] * SLOTS + [429] * (30 - SLOTS)
    assert service.loaded.encoder.calls - before == SLOTS


def test_a_refused_request_is_served_when_it_comes_back(serve):
    service = _held(serve)
    with ExitStack() as stack:
        holders = [stack.enter_context(service.connect()) for _ in range(SLOTS)]
        for client in holders:
            client.sendall(chat("ab"))
        expect_soon(lambda: service.running() == SLOTS)
        assert service.ask(chat("me")).status == 429
        service.step(100)
        assert [read_reply(client).status for client in holders] == [200] * SLOTS
    assert service.ask(chat("me")).status == 200


def test_each_step_is_one_write_per_connection(serve):
    service = serve()
    service.hold_steps()
    with service.connect() as client:
        expect_soon(lambda: len(service.server.connections) == 1)
        writes = _count_writes(service)
        client.sendall(chat("abc", stream=True))
        for written in (1, 2, 3, 4):  # a, b, c, end token
            service.step(1)
            expect_soon(lambda: len(writes) >= written)  # noqa: B023
        assert read_reply(client).text == "abc"
    assert len(writes) == 4


@pytest.mark.parametrize("stream", [False, True])
def test_a_failed_step_ends_its_replies_with_an_error_and_gives_the_slots_back(serve, stream):
    service = _held(serve)
    with service.connect() as client:
        client.sendall(chat("abcdef", stream=stream))
        service.step(3)
        expect_soon(lambda: service.stepped() == 3)
        service.engine.broken = EngineFailed("a step failed; send the request again")
        service.step()
        reply = read_reply(client)
    if stream:
        assert not reply.complete
        assert reply.events[-1]["error"]["code"] == "engine_failed"
    else:
        assert (reply.status, reply.error["code"]) == (500, "engine_failed")
    expect_soon(lambda: service.free_slots() == SLOTS)
    service.engine.broken = None
    service.step(100)
    assert service.ask(chat("well again")).status == 200


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_step_thread_ends_all_replies_and_readiness(serve):
    service = _held(serve)
    with service.connect() as client:
        client.sendall(chat("abcdef", stream=True))
        service.step(2)
        expect_soon(lambda: service.stepped() == 2)
        service.engine.broken = MemoryError()
        service.step()
        reply = read_reply(client)
    assert not reply.complete
    assert reply.events[-1]["error"]["code"] == "engine_failed"
    assert service.ask(get("/readyz")).status == 503
    assert service.ask(get("/livez")).status == 200
    assert service.ask(chat("new")).error["code"] == "unavailable"
    assert service.free_slots() == SLOTS


def test_a_defect_on_the_helper_thread_costs_its_own_request_only(serve, caplog):
    service = serve(slots=1, slot_tokens=8192)

    def before() -> None:
        raise KeyError("secret")

    service.loaded.encoder.before = before
    reply = service.ask(chat("secret" * 1000))
    assert (reply.status, reply.error["code"]) == (500, "internal_error")
    assert "KeyError at test_slots.py" in caplog.text
    assert "secret" not in caplog.text + reply.body.decode()
    assert service.free_slots() == 1


def test_what_does_not_finish_within_the_grace_is_cut_with_an_error(serve):
    service = _held(serve)
    with service.connect() as client:
        client.sendall(chat("abcdef", stream=True))
        service.step(2)
        expect_soon(lambda: service.stepped() == 2)
        draining = asyncio.run_coroutine_threadsafe(service.server.drain(0.05), service.loop)
        reply = read_reply(client)
        draining.result(5)
    assert not reply.complete
    assert reply.events[-1]["error"]["code"] == "unavailable"


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_that_cannot_be_rendered_costs_nobody_else_anything(serve, monkeypatch, stream):
    original = EchoEngine._sample

    def spoilt(engine, slot):
        token = original(engine, slot)
        return token if token.logprob is None else msgspec.structs.replace(token, logprob="no log probability")

    monkeypatch.setattr(EchoEngine, "_sample", spoilt)
    service = _held(serve)
    with service.connect() as good, service.connect() as bad:
        good.sendall(chat("good", stream=True))
        bad.sendall(chat("bad", logprobs=True, stream=stream))
        expect_soon(lambda: service.running() == SLOTS)
        service.step(20)
        broken = read_reply(bad)
        assert read_reply(good).text == "good"
    assert broken.status == 500 or broken.events[-1]["error"]["code"] == "engine_failed"
    expect_soon(lambda: service.free_slots() == SLOTS)


def _count_writes(service: Service) -> list[bytes]:
    """Collect what every open connection hands to its transport."""
    written: list[bytes] = []

    class Counting:
        def __init__(self, transport) -> None:
            self._transport = transport

        def write(self, data: bytes) -> None:
            written.append(data)
            self._transport.write(data)

        def get_extra_info(self, name: str, default: object = None) -> object:
            """No socket: nothing goes past it."""
            return default if name == "socket" else self._transport.get_extra_info(name, default)

        def __getattr__(self, name: str) -> object:
            return getattr(self._transport, name)

    def wrap() -> None:
        for connection in service.server.connections:
            connection._transport = Counting(connection._transport)

    service.on_loop(wrap)
    return written
