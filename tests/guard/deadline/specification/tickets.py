"""Which request a promised start belongs to: the same bytes from the same sender, or whoever brings the ticket.

Stock clients know nothing of tickets; they send the same body again after the time that they were told. Equal requests
are a multiset: each booking serves one of them, whichever comes.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable, Iterator
from operator import attrgetter
from typing import Final, TypeVar

from specification.booking import Booking
from zerolayer.guard.deadline.booking import EARLY_NS
from zerolayer.guard.deadline.tickets import Asker

SPACING_NS: Final = 5_000_000  # between two bookings of one sender: one client process cannot wake twice at once
_LATE_NS: Final = 1_000_000_000  # for so long after its grace a client that comes is told from one that does not
_NS_PER_S: Final = 1_000_000_000
_TICKET_BYTES: Final = 9
T = TypeVar("T")
_START: Final = attrgetter("start_ns")


class Tickets:
    """All bookings by key (credential, route, body hash), by ticket and by credential."""

    def __init__(self, grace_ns: int) -> None:
        self._grace_ns = grace_ns
        self._by_key: dict[Hashable, list[Booking]] = {}
        self._by_ticket: dict[str, Booking] = {}
        self._starts: dict[Hashable, list[int]] = {}  # by credential, sorted
        self._lapsed: deque[tuple[int, Hashable]] = deque()  # until when they are remembered, and the key

    def __len__(self) -> int:
        return len(self._by_ticket)

    def __iter__(self) -> Iterator[Booking]:
        return iter(tuple(self._by_ticket.values()))

    def of(self, credential: Hashable) -> int:
        """How many bookings a sender holds."""
        return len(self._starts.get(credential, ()))

    def add(self, booking: Booking, asker: Asker, key: Hashable) -> None:
        """File a booking under ``key`` and give it its ticket."""
        booking.credential = asker.credential
        booking.key = (asker.credential, key)
        # Not to be guessed: whoever shares an address, as behind one proxy, could give back what others wait for.
        booking.ticket = secrets.token_urlsafe(_TICKET_BYTES)
        self._by_ticket[booking.ticket] = booking
        insort(self._by_key.setdefault(booking.key, []), booking, key=_START)
        insort(self._starts.setdefault(asker.credential, []), booking.start_ns)

    def remove(self, booking: Booking) -> None:
        """Forget a booking that was redeemed or void."""
        del self._by_ticket[booking.ticket]
        _discard(self._by_key, booking.key, booking)
        _discard(self._starts, booking.credential, booking.start_ns)

    def of_ticket(self, ticket: str, credential: Hashable) -> Booking | None:
        """The booking of this ticket, if it is this sender's and waits for him."""
        booking = self._by_ticket.get(ticket)
        return booking if booking is not None and booking.credential == credential and not booking.held else None

    def lapse(self, booking: Booking) -> None:
        """Nobody has come for it; whoever still does is recognised for a while."""
        self.remove(booking)
        self._lapsed.append((booking.start_ns + self._grace_ns + _LATE_NS, booking.key))

    def forget(self, now_ns: int) -> int:
        """How many of those that lapsed a while ago nobody has come for at all."""
        count = 0
        while self._lapsed and self._lapsed[0][0] < now_ns:
            self._lapsed.popleft()
            count += 1
        return count

    def comes_late(self, asker: Asker, key: Hashable) -> bool:
        """Whether this request had a booking that lapsed; it is told once."""
        if asker.retry is False or not self._lapsed:
            return False
        full_key = (asker.credential, key)
        found = next((entry for entry in self._lapsed if entry[1] == full_key), None)
        if found is not None:
            self._lapsed.remove(found)
        return found is not None

    def match(self, asker: Asker, key: Hashable, now_ns: int, heard_ns: int | None = None) -> Booking | None:
        """The booking that this request redeems, or comes too early for; None when it is a new request.

        It has come after ``heard_ns``, and may have waited since then to be read.
        """
        came_ns = now_ns if heard_ns is None else heard_ns
        full_key = (asker.credential, key)
        if asker.ticket is not None:
            booking = self._by_ticket.get(asker.ticket)
            if booking is not None and booking.key == full_key and not booking.held:
                return booking
        if asker.retry is False:
            return None
        early = None
        for booking in self._by_key.get(full_key, ()):
            if booking.held:
                continue
            if booking.start_ns - EARLY_NS <= now_ns and came_ns <= booking.start_ns + self._grace_ns:
                return booking
            if early is None and booking.start_ns > now_ns:
                early = booking
        # Who has asked before means the same request; who does not say may be another one with the same words.
        return early if asker.retry else None

    def due(self, credential: Hashable, key: Hashable, now_ns: int, heard_ns: int | None = None) -> Booking | None:
        """A booking of such a request whose time it is, whoever it was made for."""
        return self.match(Asker(credential), key, now_ns, heard_ns)

    def spaced(self, asker: Asker, now_ns: int, start_ns: int) -> int:
        """``start_ns``, or the next time after it that keeps the distance and that the client can be told."""
        starts = self._starts.get(asker.credential, [])
        while True:
            if not asker.reads_ms:
                start_ns = now_ns - (now_ns - start_ns) // _NS_PER_S * _NS_PER_S  # rounded up
            place = bisect_left(starts, start_ns - SPACING_NS + 1)
            if place == len(starts) or starts[place] >= start_ns + SPACING_NS:
                return start_ns
            start_ns = starts[place] + SPACING_NS


def _discard(table: dict[Hashable, list[T]], key: Hashable, item: T) -> None:
    table[key].remove(item)
    if not table[key]:
        del table[key]
