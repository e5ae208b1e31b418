"""Clients that have come for what they were promised and are a moment early, or their slot a moment late.

No queue: everybody here holds a booking, whose bound says for how long they can be here at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from zerolayer.errors import DeadlineMissed, ZerolayerError
from zerolayer.front.exchange import Exchange
from zerolayer.guard.deadline.reservation import Held, Reservation
from zerolayer.guard.guard import Guard

_NS_PER_S: Final = 1_000_000_000
_MOMENT_NS: Final = 1_000_000

Start = Callable[[Exchange, Reservation], None]


class HeldClients:
    """All methods run on the loop. ``clock_ns`` is the clock of the bookings."""

    def __init__(self, guard: Guard, clock_ns: Callable[[], int], loop: asyncio.AbstractEventLoop) -> None:
        self._guard = guard
        self._clock_ns = clock_ns
        self._loop = loop
        self._waiting: dict[Exchange, tuple[Held, Start]] = {}
        self.foresee: Callable[[], None] = lambda: None  # before somebody may start: who ends soon
        self.hear: Callable[[], None] = lambda: None  # find out who has come: others lose bookings. Then ``wake``

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, exchange: Exchange, held: Held, start: Start) -> None:
        """Hold a client until its start has come and a slot is free, then call ``start``."""
        self._waiting[exchange] = (held, start)
        exchange.on_gone = partial(self._leave, exchange)
        booking, slots = held.booking, self._guard.slots
        now_ns = self._clock_ns()
        if booking.start_ns > now_ns:
            self._call_at(booking.start_ns, self.wake)
        # Whoever was booked before it in its slot comes until then or loses its booking, whether steps run or not.
        for ahead in slots.bookings:
            if ahead.slot == booking.slot and ahead.start_ns <= booking.start_ns:
                self._call_at(max(now_ns, ahead.start_ns + slots.grace_ns) + _MOMENT_NS, lambda: self.hear())

    def let_go(self) -> list[Exchange]:
        """Hold nobody any more: who was held has its booking again, as if it had not come, and asks once more."""
        exchanges = list(self._waiting)
        for exchange, (held, _) in self._waiting.items():
            exchange.on_gone = None
            self._guard.put_off(held)
        self._waiting.clear()
        return exchanges

    def wake(self) -> None:
        """Start whoever can be started. Called when slots came back, when starts have come, and now and then."""
        if self._waiting:
            self.foresee()
        for exchange, (held, start) in list(self._waiting.items()):
            if exchange not in self._waiting:
                continue  # it left while another one was started
            try:
                reservation = self._guard.resume(held)
                if reservation is None and self._clock_ns() < held.booking.due_ns:
                    continue
            except ZerolayerError as refusal:
                self._end(exchange, refusal)
                continue
            if reservation is None:
                error = DeadlineMissed("no slot came free in time, though it was promised; try again")
                self._end(exchange, error, broken=True)
                continue
            del self._waiting[exchange]
            exchange.on_gone = None
            try:
                start(exchange, reservation)
            except Exception as error:  # noqa: BLE001 - as on the connection, which is not below us here
                exchange.defect(error)

    def _call_at(self, due_ns: int, call: Callable[[], None]) -> None:
        """Call it, not before ``due_ns``: a loop that counts in milliseconds is early by one, and nobody asks again."""
        left_ns = due_ns - self._clock_ns()
        if left_ns > 0:
            self._loop.call_later(max(left_ns, _MOMENT_NS) / _NS_PER_S, self._call_at, due_ns, call)
        else:
            call()

    def _end(self, exchange: Exchange, error: ZerolayerError, *, broken: bool = False) -> None:
        held, _ = self._waiting.pop(exchange)
        (self._guard.broken if broken else self._guard.leave)(held)
        exchange.on_gone = None
        exchange.error(error)

    def _leave(self, exchange: Exchange) -> None:
        held, _ = self._waiting.pop(exchange)
        self._guard.leave(held)


def ask_again(exchange: Exchange) -> None:
    """Somebody who was let go asks as if he came now: the start that he was held for may be another one."""
    try:
        if exchange.action is not None:
            exchange.action(exchange)
    except Exception as error:  # noqa: BLE001 - as on the connection, which is not below us here
        exchange.defect(error)
