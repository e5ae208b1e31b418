"""Who may have a slot beside others, seen from outside: tiers, senders that do not come, starts of one sender."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import pairwise

import pytest
from echo_service import Service, chat, expect_soon

FIRST = "x-stainless-retry-count: 0"
LAST = "x-stainless-retry-count: 2"


def _fill(service: Service, stack: ExitStack, count: int, **given: object) -> None:
    """Requests that run until steps are let go."""
    service.hold_steps()
    before = service.running()
    for number in range(count):
        stack.enter_context(service.connect()).sendall(
            chat(f"holder {number}", stream=True, max_tokens=100, ignore_eos=True, **given)
        )
    expect_soon(lambda: service.running() == before + count)


@pytest.mark.parametrize(("tier", "status"), [(None, 429), ("default", 429), ("flex", 429), ("priority", 200)])
def test_the_reserved_share_is_for_priority_alone(serve, tier, status):
    service = serve(slots=4, sections={"deadline": {"priority_slots": 1}})
    with ExitStack() as stack:
        _fill(service, stack, 3)
        service.step(1)
        given = {} if tier is None else {"service_tier": tier}
        client = stack.enter_context(service.connect())
        client.sendall(chat("me", LAST, stream=True, max_tokens=1, **given))
        service.step(10)
        assert client.recv(64).split()[1] == b"%d" % status


def test_priority_requests_use_every_slot_and_not_only_their_own(serve):
    service = serve(slots=4, sections={"deadline": {"priority_slots": 1}})
    with ExitStack() as stack:
        _fill(service, stack, 4, service_tier="priority")
        assert service.free_slots() == 0


def test_flex_leaves_an_eighth_of_the_slots_and_is_refused_there(serve):
    service = serve(slots=8)
    with ExitStack() as stack:
        _fill(service, stack, 7, service_tier="flex")
        assert service.ask(chat("one more", LAST, service_tier="flex")).status == 429
        assert service.free_slots() == 1


def test_whoever_lets_bookings_lapse_gets_no_ticket_any_more(serve):
    service = serve(slots=1, sections={"deadline": {"grace_ms": 1}})
    tickets = []
    for number in range(12):  # ten that lapse are evidence
        with ExitStack() as stack:
            _fill(service, stack, 1)
            reply = service.ask(chat(f"nobody comes for {number}", FIRST))
            assert reply.status == 429
            tickets.append("x-zl-ticket" in reply.headers)
            service.step(1_000)
            expect_soon(lambda: service.free_slots() == 1)
        expect_soon(lambda: service.on_loop(lambda: len(service.server.slots.bookings)) == 0)
    assert tickets[0]
    assert not tickets[-1]


def test_starts_that_are_booked_for_one_sender_are_five_milliseconds_apart(serve):
    service = serve(slots=8, step_us=100, sections={"deadline": {"grace_ms": 2_000}})  # none lapses on a busy machine
    with ExitStack() as stack:
        _fill(service, stack, 8)
        for number in range(16):
            service.ask(chat(f"me {number}", FIRST, max_tokens=1))
        starts = service.on_loop(lambda: sorted(each.start_ns for each in service.server.slots.bookings))
    assert len(starts) >= 8
    assert min(later - earlier for earlier, later in pairwise(starts)) >= 5_000_000
