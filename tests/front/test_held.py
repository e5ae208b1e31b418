"""When a held client is looked at again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import uvloop

from zerolayer.front.held import HeldClients

MS = 1_000_000
CLOCKS = [uvloop.new_event_loop, asyncio.new_event_loop]


class Exchange:
    on_gone: Callable[[], None] | None = None


class Guard:
    """Has a slot for everybody whose start has come, and notes who asked before."""

    def __init__(self, bookings: list[SimpleNamespace], grace_ns: int = 250 * MS) -> None:
        self.slots = SimpleNamespace(bookings=bookings, grace_ns=grace_ns)

    def resume(self, held: SimpleNamespace) -> SimpleNamespace | None:
        return held if time.monotonic_ns() >= held.booking.start_ns else None


def _booking(start_ns: int) -> SimpleNamespace:
    return SimpleNamespace(start_ns=start_ns, slot=0, due_ns=start_ns + 60_000 * MS)


@pytest.mark.parametrize("make_loop", CLOCKS)
def test_who_is_early_begins_with_its_start_though_nothing_else_happens(make_loop):
    async def wait() -> None:
        for part in range(40):
            loop = asyncio.get_running_loop()
            begun = loop.create_future()
            held = HeldClients(Guard([]), time.monotonic_ns, loop)
            booking = _booking(time.monotonic_ns() + 2 * MS + part * MS // 40)
            exchange = Exchange()
            held.add(exchange, SimpleNamespace(booking=booking), lambda *_, begun=begun: begun.set_result(None))
            await asyncio.wait_for(begun, 10)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(wait())


@pytest.mark.parametrize("make_loop", CLOCKS)
def test_who_waits_behind_another_booking_looks_again_when_that_has_lapsed_and_not_before(make_loop):
    async def wait() -> None:
        for part in range(40):
            loop = asyncio.get_running_loop()
            lapsed = loop.create_future()
            now_ns = time.monotonic_ns()
            ahead, booking = _booking(now_ns), _booking(now_ns)
            grace_ns = 2 * MS + part * MS // 40
            held = HeldClients(Guard([ahead], grace_ns), time.monotonic_ns, loop)
            held.hear = lambda lapsed=lapsed: lapsed.done() or lapsed.set_result(time.monotonic_ns())
            held.add(Exchange(), SimpleNamespace(booking=booking), lambda *_: None)
            assert await asyncio.wait_for(lapsed, 10) > now_ns + grace_ns

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(wait())
