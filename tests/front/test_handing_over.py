"""A server hands everything to another process, which is played here: nothing is kept twice, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import ExitStack, closing

import pytest
from echo_service import chat, expect_soon, read_reply
from http2_client import Http2Client

from zerolayer.errors import DeployFailed
from zerolayer.guard.budget.succession import Settled
from zerolayer.guard.ledger.annex import annexes
from zerolayer.guard.ledger.ledger import Ledger
from zerolayer.guard.ledger.record import Entry
from zerolayer.guard.ledger.segment import Chain
from zerolayer.serve.admin_place import addresses
from zerolayer.serve.entrances import SERVICE
from zerolayer.serve.takeover import old
from zerolayer.serve.takeover.channel import Channel
from zerolayer.serve.takeover.clocks import clocks
from zerolayer.serve.takeover.messages import Drained, Estate, Go, Hello, Message, Ready, Refused, Take, Welcome
from zerolayer.serve.takeover.states import Event, Old

WAIT_S = 10.0
LONG = "a long answer " * 14  # 196 steps


class Heir:
    """The process that would take over."""

    def __init__(self, service) -> None:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.connect(service.server.admin_socket)
        self.channel = Channel(connected)
        self.descriptors: list[int] = []
        self.channel.send(Hello("test", clocks(), addresses(service.contract, os.environ)))

    def hear(self) -> Message:
        found = self.channel.ask(WAIT_S)
        assert found is not None
        self.descriptors += found[1]
        return found[0]

    def welcomed(self) -> Heir:
        assert isinstance(self.hear(), Welcome)
        return self

    def take(self) -> Estate:
        self.channel.send(Take())
        estate = self.hear()
        assert isinstance(estate, Estate), estate
        return estate

    def serve(self) -> None:
        self.channel.send(Ready())
        assert isinstance(self.hear(), Go)

    def rest(self) -> list[Message]:
        """Everything until the server has ended its replies."""
        heard = [self.hear()]
        while not isinstance(heard[-1], Drained):
            heard.append(self.hear())
        return heard

    def close(self) -> None:
        self.channel.close()
        while self.descriptors:
            os.close(self.descriptors.pop())


@pytest.fixture
def heirs(tmp_path):
    """Starts processes that would take over."""
    with ExitStack() as stack:

        def start(service) -> Heir:
            return stack.enter_context(closing(Heir(service)))

        yield start


@pytest.fixture
def start(serve, tmp_path):
    """Starts servers that can be taken over."""

    def begin(**given):
        return serve(admin_unix=str(tmp_path / "admin.sock"), **given)

    return begin


def stream(stack: ExitStack, service, text: str = LONG):
    """A stream that has begun."""
    client = stack.enter_context(service.connect())
    client.sendall(chat(text, stream=True, max_tokens=len(text) + 1))
    first = bytearray(client.recv(1))
    return lambda: read_reply(client, first)


def booked(service, text: str = "booked") -> tuple[str, int]:
    """A start that was promised: its ticket, and when it is."""
    refused = service.ask(chat(text, "x-stainless-retry-count: 0"))
    assert refused.status == 429
    booking = service.on_loop(lambda: list(service.server.admission.tickets))[0]
    assert booking.ticket == refused.headers["x-zl-ticket"]
    return booking.ticket, booking.start_ns


def come(stack: ExitStack, service, text: str = "booked") -> socket.socket:
    """A client that comes for what it was promised."""
    client = stack.enter_context(service.connect())
    client.sendall(chat(text, "x-stainless-retry-count: 1"))
    return client


def until(moment_ns: int) -> None:
    time.sleep(max(0.0, (moment_ns - time.monotonic_ns()) / 1e9))


def kept(service) -> int:
    return service.on_loop(lambda: service.server.metrics.totals(0, 0).bookings["kept"])


def held(stack: ExitStack, service):
    """Who came for its start while the slot is in use: its ticket, its connection, and what ends the other's stream."""
    finish = stream(stack, service)
    ticket, start_ns = booked(service)
    service.hold_steps()
    until(start_ns)
    client = come(stack, service)
    expect_soon(lambda: service.on_loop(lambda: len(service.server.held)) == 1)
    return ticket, client, finish


def test_whoever_is_held_for_a_promised_start_is_sent_on_with_its_promise(start, heirs):
    service = start(slots=1, step_us=2000)
    with ExitStack() as stack:
        ticket, client, finish = held(stack, service)
        heir = heirs(service).welcomed()
        assert [promise.ticket for promise in heir.take().engagements.promises] == [ticket]
        service.step(1000)
        assert finish().complete
        heir.serve()
        reply = read_reply(client)
        assert (reply.status, reply.headers["retry-after-ms"]) == (503, "50")
        assert kept(service) == 0


def test_whoever_is_held_is_served_here_when_the_other_process_never_begins(start, heirs):
    service = start(slots=1, step_us=2000)
    with ExitStack() as stack:
        _, client, finish = held(stack, service)
        heir = heirs(service).welcomed()
        heir.take()
        heir.close()
        service.step(1000)
        assert finish().complete
        assert read_reply(client).status == 200
        assert kept(service) == 1


def test_whoever_came_in_time_and_was_not_read_keeps_its_start(start, heirs):
    service = start(slots=1, step_us=2000)
    with ExitStack() as stack:
        finish = stream(stack, service)
        _, start_ns = booked(service)
        heir = heirs(service).welcomed()
        heir.take()
        client = come(stack, service)  # waits in the kernel
        until(start_ns + service.server.slots.grace_ns + 50_000_000)
        heir.close()
        assert read_reply(client).status == 200
        assert kept(service) == 1
        assert finish().complete


def test_what_a_request_uses_that_ends_before_the_other_process_serves_is_told(start, heirs):
    service = start(step_us=1000, tenants={"tokens_per_minute": 10_000})
    with ExitStack() as stack:
        service.hold_steps()
        client = stack.enter_context(service.connect())
        client.sendall(chat("hello", max_tokens=50))
        service.step(2)
        expect_soon(lambda: service.running() == 1)
        heir = heirs(service).welcomed()
        legacy = heir.take().legacies[0]
        service.step(100)
        used = read_reply(client).json["usage"]["total_tokens"]
        heir.serve()
        told = [message for message in heir.rest() if isinstance(message, Settled)]
    assert legacy.held.tokens > used
    assert sum(message.given.tokens for message in told) == legacy.held.tokens
    assert sum(message.used.tokens for message in told) == used


def test_a_process_that_takes_everything_and_hangs_is_not_waited_for(start, heirs, monkeypatch):
    monkeypatch.setitem(old._TIMES, Old.OFFERED, 0.2)
    service = start()
    heirs(service).welcomed().take()
    began = time.monotonic()
    assert service.ask(chat("hello")).status == 200
    assert time.monotonic() - began < 5


def test_while_one_that_hangs_keeps_the_ledger_nobody_takes_over_and_every_record_stays(start, heirs, tmp_path):
    service = start(ledger=str(tmp_path / "ledger"))
    first = heirs(service).welcomed()
    first.take()
    theirs = Ledger(tmp_path / "ledger", time.time)
    first.close()
    assert service.ask(chat("hello")).status == 200
    second = heirs(service).welcomed()
    second.channel.send(Take())
    refused = second.hear()
    assert isinstance(refused, Refused)
    assert "end that process" in refused.why
    theirs.close()
    expect_soon(lambda: not service.on_loop(lambda: service.server.moving_in))
    third = heirs(service).welcomed()
    third.take()
    third.close()
    assert service.ask(chat("again")).status == 200
    service.close()
    records = [link.record() for link in Chain(tmp_path / "ledger")]
    assert sum(isinstance(record, Entry) for record in records) == 2
    assert annexes(tmp_path / "ledger") == []


def test_no_model_is_deployed_while_another_process_takes_over(start, heirs):
    service = start()
    heir = heirs(service).welcomed()
    with pytest.raises(DeployFailed, match=f"PID {os.getpid()}.* is taking over"):
        service.deploy("/models/next.gguf")
    heir.close()
    expect_soon(lambda: not service.on_loop(lambda: service.server.heirs.in_the_way))
    service.deploy("/models/next.gguf").reached("done")


def test_nobody_takes_over_while_a_model_is_deployed(start, heirs):
    service = start(step_us=2000)
    with ExitStack() as stack:
        finish = stream(stack, service)
        deploying = service.deploy("/models/next.gguf")
        refused = heirs(service).hear()
        assert isinstance(refused, Refused)
        assert "a model is being deployed" in refused.why
        finish()
        deploying.reached("done")
    heirs(service).welcomed()


def test_a_server_that_was_told_to_end_ends_though_the_process_that_took_over_died(start, heirs):
    service = start(step_us=2000)
    with ExitStack() as stack:
        finish = stream(stack, service)
        heir = heirs(service).welcomed()
        heir.take()
        heir.serve()
        settled = asyncio.run_coroutine_threadsafe(service.server.heirs.settle(), service.loop)
        time.sleep(0.05)
        assert not settled.done()
        heir.close()
        assert settled.result(WAIT_S) is False  # it is for this process to drain
        assert finish().complete
        refused = heirs(service).hear()
        assert isinstance(refused, Refused)
        assert "told to end" in refused.why


def test_a_request_on_http2_that_was_not_read_is_asked_to_come_again(start, heirs):
    service = start()
    with Http2Client(service.connect()) as client:
        client.reply(client.chat("hello"))
        heir = heirs(service).welcomed()
        heir.take()
        late = client.chat("late")
        heir.serve()
        status, _ = client.reply(late)
        assert (status, client.headers(late)["retry-after-ms"]) == (503, "50")
        while client.read():
            pass
        assert heir.rest()


def test_a_request_on_http1_that_was_not_read_goes_along_with_its_connection(start, heirs):
    service = start()
    with service.connect() as client:
        client.sendall(chat("hello"))
        assert read_reply(client).status == 200
        heir = heirs(service).welcomed()
        heir.take()
        client.sendall(chat("late"))
        heir.serve()
        listening = len(heir.descriptors)
        heir.rest()
        (moved,) = heir.descriptors[listening:]
        with socket.socket(fileno=os.dup(moved)) as taken:
            assert b"late" in taken.recv(65536)


def test_a_connection_that_was_just_accepted_is_not_answered_by_two(start, heirs):
    service = start()
    heir = heirs(service).welcomed()
    clients = []

    def come_and_take() -> None:
        clients.append(service.connect())
        clients[0].sendall(chat("hello"))
        listener = service.server.entrances._listeners[SERVICE]
        listener._accept(listener.sockets[0])
        service.server.heirs._heir._take(Event.TAKE)

    service.on_loop(come_and_take)
    with clients[0] as client:
        assert isinstance(heir.hear(), Estate)
        begun = service.engine.opened
        time.sleep(0.1)
        assert service.engine.opened == begun
        heir.close()
        assert read_reply(client).status == 200
