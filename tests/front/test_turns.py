"""The order of work: what has come is decided and answered before what was admitted is begun."""

from __future__ import annotations

import asyncio
import select
import threading
import time
from collections.abc import Callable

import pytest
import uvloop
from echo_service import Service, chat, expect_soon, read_reply

from zerolayer.front.turns import PATIENCE_NS, SILENCE_NS, Turns

PULSE, SLOTS = 64, 16


class Loop:
    """A loop in which a turn happens when it is told to; ``comes`` is what its look finds."""

    def __init__(self) -> None:
        self.now = 0
        self._soon: list[Callable[[], None]] = []
        self.turns = Turns(lambda: self.now, self._soon.append, lambda _, call: self._soon.append(call))
        self.begun: list[str] = []
        self.left: list[str] = []

    def admit(self, name: str) -> Exchange:
        exchange = Exchange()
        self.turns.begin_later(exchange, lambda: self.begun.append(name), lambda: self.left.append(name))
        return exchange

    def turn(self, comes: int = 0) -> None:
        """One turn: what was to come soon, then a look at the sockets."""
        soon, self._soon[:] = list(self._soon), []
        for call in soon:
            call()
        self.turns.came += comes

    @property
    def rests(self) -> bool:
        return not self._soon


class Exchange:
    on_gone: Callable[[], None] | None = None
    failure: Exception | None = None

    def defect(self, error: Exception) -> None:
        self.failure = error


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_somebody_alone_begins_after_one_look_at_the_sockets(loop):
    loop.admit("a")
    loop.turn()
    assert loop.begun == []
    loop.turn()
    assert (loop.begun, loop.rests) == (["a"], True)


def test_nobody_begins_while_others_come(loop):
    loop.admit("a")
    for _ in range(5):
        loop.turn(comes=1)
    assert loop.begun == []
    loop.turn()
    loop.turn()
    assert loop.begun == ["a"]


def test_one_begins_per_turn_in_the_order_of_admission_and_new_ones_are_read_between(loop):
    for name in "abc":
        loop.admit(name)
    loop.turn()
    loop.turn(comes=2)
    assert loop.begun == ["a"]
    loop.turn()
    assert loop.begun == ["a"]
    loop.turn()
    loop.turn()
    assert (loop.begun, loop.rests) == (["a", "b", "c"], True)


def test_those_who_never_stop_coming_hold_nobody_up_for_longer_than_the_patience(loop):
    loop.admit("a")
    loop.turn(comes=1)
    loop.now = PATIENCE_NS - 1
    loop.turn(comes=1)
    assert loop.begun == []
    loop.now = PATIENCE_NS
    loop.turn(comes=1)
    assert loop.begun == ["a"]


def test_who_has_just_connected_and_said_nothing_yet_is_waited_for(loop):
    loop.turns.connected("b")
    loop.admit("a")
    for _ in range(5):
        loop.turn()
    assert loop.begun == []
    loop.turns.spoke("b")
    loop.turn()
    assert loop.begun == ["a"]


def test_who_connects_and_says_nothing_holds_nobody_up_for_long(loop):
    loop.turns.connected("b")
    loop.admit("a")
    loop.turn()
    loop.now = SILENCE_NS - 1
    for _ in range(5):
        loop.turn()
    assert loop.begun == []
    loop.now = SILENCE_NS
    loop.turn()
    assert loop.begun == ["a"]


def test_those_who_spoke_are_forgotten_and_only_the_newest_silence_counts(loop):
    loop.turns.connected("old")
    loop.now = PATIENCE_NS
    for who in ("spoke", "left"):
        loop.turns.connected(who)
        loop.turns.spoke(who)
    loop.turns.spoke("left")
    loop.admit("a")
    loop.turn()
    loop.turn()
    assert loop.begun == ["a"]


def test_with_the_end_of_a_step_all_begin(loop):
    for name in "ab":
        loop.admit(name)
    loop.turns.step_ended()
    assert (loop.begun, len(loop.turns)) == (["a", "b"], 0)
    loop.turn()
    assert (loop.begun, loop.rests) == (["a", "b"], True)


def test_whoever_leaves_before_its_turn_gives_its_place_back_once_and_does_not_begin(loop):
    gone, stays = loop.admit("a"), loop.admit("b")
    gone.on_gone()
    for _ in range(3):
        loop.turn()
    assert (loop.left, loop.begun, stays.on_gone) == (["a"], ["b"], None)


def test_a_defect_costs_its_own_request_and_nobody_elses(loop):
    broken = Exchange()
    loop.turns.begin_later(broken, lambda: 1 / 0, lambda: None)
    loop.admit("b")
    for _ in range(3):
        loop.turn()
    assert (type(broken.failure), loop.begun) == (ZeroDivisionError, ["b"])


@pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_the_loop_sleeps_between_two_looks_for_who_is_silent(make_loop):
    """Else it keeps the core that the silent one may need to say something."""
    looks = 0

    def clock_ns() -> int:
        nonlocal looks
        looks += 1
        return 0

    async def wait() -> int:
        turns = Turns(clock_ns)
        turns.connected("b")
        turns.begin_later(Exchange(), lambda: None, lambda: None)
        began_ns = time.monotonic_ns()
        await asyncio.sleep(0.03)
        turns.spoke("b")
        return time.monotonic_ns() - began_ns

    with asyncio.Runner(loop_factory=make_loop) as runner:
        waited_ns = runner.run(wait())
    assert 2 < looks < 10 + waited_ns / 500_000  # one in half a millisecond at most


def _send_at_once(service: Service, clients: list, requests: list[bytes]) -> None:
    """All of it is there when the loop looks at its sockets next."""
    sent = threading.Event()
    service.loop.call_soon_threadsafe(sent.wait, 10)
    for client, request in zip(clients, requests, strict=True):
        client.sendall(request)
    sent.set()


def test_of_a_pulse_all_refusals_are_written_before_the_engine_gets_its_first_prompt(serve):
    service = serve(slots=SLOTS, step_us=1000)
    clients = [service.connect() for _ in range(PULSE)]
    for client in clients:
        client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        read_reply(client)
    answered: list[int] = []
    admit = service.server.steps.admit

    def noted(slot: int, generation: object) -> None:
        answered.append(len(select.select(clients, [], [], 0)[0]))
        admit(slot, generation)

    service.server.steps.admit = noted
    _send_at_once(service, clients, [chat(f"word {number}", max_tokens=4) for number in range(PULSE)])
    statuses = [read_reply(client).status for client in clients]
    assert (statuses.count(200), statuses.count(429)) == (SLOTS, PULSE - SLOTS)
    assert answered[0] == PULSE - SLOTS
    for client in clients:
        client.close()


def test_who_connected_first_is_decided_first(serve):
    """It is found by a look at the sockets, the others are read with their acceptance."""
    service = serve(slots=1, step_us=1000)
    for _ in range(5):
        with service.connect() as first:
            expect_soon(lambda: len(service.server.connections) == 1)
            held, sent = threading.Event(), threading.Event()
            service.loop.call_soon_threadsafe(lambda held=held, sent=sent: (held.set(), sent.wait(10)))
            assert held.wait(10)
            others = [service.connect() for _ in range(3)]
            for number, client in enumerate((first, *others)):
                client.sendall(chat(f"word {number}", max_tokens=4))
            sent.set()
            assert read_reply(first).status == 200
            for client in others:
                assert read_reply(client).status == 429
                client.close()
        expect_soon(lambda: service.free_slots() == 1 and not service.server.connections)
        admission = service.server.room.admission
        service.on_loop(lambda admission=admission: [admission.void(each) for each in admission.tickets])


def test_of_a_pulse_no_text_is_tokenised_before_all_refusals_are_written(serve):
    service = serve(slots=SLOTS, step_us=1000)
    for _ in range(2):  # what texts of this size are like is known from then on
        clients = [service.connect() for _ in range(PULSE)]
        answered: list[int] = []
        read = service.server.room.guard.reader.prompts

        def noted(request: object, clients=clients, answered=answered, read=read) -> object:
            answered.append(len(select.select(clients, [], [], 0)[0]))
            return read(request)

        service.server.room.guard.reader.prompts = noted
        _send_at_once(service, clients, [chat(f"word {number:2}", max_tokens=4) for number in range(PULSE)])
        statuses = [read_reply(client).status for client in clients]
        service.server.room.guard.reader.prompts = read
        assert (statuses.count(200), statuses.count(429)) == (SLOTS, PULSE - SLOTS)
        assert (answered[0], len(answered)) == (PULSE - SLOTS, SLOTS)
        for client in clients:
            client.close()
        expect_soon(lambda: service.free_slots() == SLOTS)


def test_a_pulse_whose_clients_connect_first_is_decided_as_a_whole(serve):
    """The loop finds nothing to do between what one and the next of them sends."""
    service = serve(slots=2)
    clients = [service.connect() for _ in range(4)]
    expect_soon(lambda: len(service.server.connections) == 4)
    turns = service.server.pace._turns
    service.on_loop(lambda: setattr(turns, "_clock_ns", lambda: 0))  # no time passes
    service.on_loop(lambda: turns._silent.update(dict.fromkeys(turns._silent, 0)))
    for number, client in enumerate(clients):
        assert service.running() == 0
        client.sendall(chat(f"word {number}", max_tokens=4))
        expect_soon(lambda left=3 - number: len(turns._silent) == left)
    assert sorted(read_reply(client).status for client in clients) == [200, 200, 429, 429]
    for client in clients:
        client.close()
    expect_soon(lambda: not turns._silent)


def test_a_client_that_leaves_before_its_turn_leaves_nothing_behind(serve):
    service = serve(slots=2)
    turns = service.server.pace._turns
    service.on_loop(lambda: setattr(turns, "_call_soon", lambda _: None))  # no turn comes
    client = service.connect()
    client.sendall(chat("hello", max_tokens=4))
    expect_soon(lambda: service.free_slots() == 1)
    client.close()
    expect_soon(lambda: service.free_slots() == 2)
    assert service.running() == 0
