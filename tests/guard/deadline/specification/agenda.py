"""What is booked, slot by slot and in the order of the starts, and what that means for who runs. Pure.

The bookings of one slot are a chain (``chains.py``): each of them follows what runs in the slot, or the one before it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter

from specification.booking import NEVER, Booking
from specification.bounds import Bounds
from specification.chains import latest
from specification.demands import Demands
from specification.occupants import Occupants

_START = attrgetter("start_ns")


class Agenda:
    """One writer, the calendar. Lists have an entry for each slot."""

    def __init__(self, slots: int, occupants: Occupants) -> None:
        self.booked: list[Booking] = []  # all of them, by start
        self.chains: list[list[Booking]] = [[] for _ in range(slots)]
        self.demands = Demands(self.chains)
        self.behind = [NEVER] * slots  # when a slot must be free for what is booked in it
        self.follows = [False] * slots  # what runs there was booked
        self.reading: dict[int, Booking] = {}  # by slot: what was booked, while its prompt is read there
        self.not_before = [0] * slots  # number of the step after which the slot's next booking may begin
        self.opens = [0] * slots  # for a next booking: the last step of what runs, where nothing is booked
        self.tails = [NEVER] * slots  # and when the last booking of a slot typically ends
        self.unbooked = slots  # slots without bookings
        self.typical_ns = 0  # slot time of all bookings
        self.strict = 0  # how many of them allow no foreign chunk
        self.bounds = Bounds(occupants, self.booked, self.chains, self.not_before)
        self._occupants = occupants

    def before(self, end_ns: int) -> list[Booking]:
        """Bookings that start before ``end_ns``."""
        booked = self.booked
        return booked[: bisect_left(booked, end_ns, key=_START)] if booked else []

    def charge(self, end_ns: int, weight_ns: int) -> list[Booking]:
        """Somebody who was not booked adds that to all that start before ``end_ns``; returns them."""
        found = self.before(end_ns)
        for booking in found:
            self.demands.charge(booking, weight_ns)
        return found

    def add(self, booking: Booking) -> None:
        """File it in its slot; its margins are the caller's to add."""
        insort(self.booked, booking, key=_START)
        chain = self.chains[booking.slot]
        chain.append(booking)
        self.unbooked -= len(chain) == 1
        self._count(booking, 1)

    def remove(self, booking: Booking, *, begins: bool) -> None:
        """It ``begins``, or nobody will come for it."""
        self.lift(booking)
        (self.demands.begin if begins else self.demands.remove)(booking)

    def lift(self, booking: Booking) -> tuple[int, int]:
        """As if it was not booked, but for what others allow for it; where it stood, for ``put_back``."""
        chain = self.chains[booking.slot]
        places = self.booked.index(booking), chain.index(booking)
        self.booked.remove(booking)
        chain.remove(booking)
        self.unbooked += not chain
        self._count(booking, -1)
        return places

    def put_back(self, booking: Booking, places: tuple[int, int]) -> None:
        """As it was."""
        chain = self.chains[booking.slot]
        self.booked.insert(places[0], booking)
        chain.insert(places[1], booking)
        self.unbooked -= len(chain) == 1
        self._count(booking, 1)

    def bind(self, slot: int) -> None:
        """What a slot's occupant must not pass has changed."""
        chain, occupants = self.chains[slot], self._occupants
        self.behind[slot] = limit = latest(chain, follows=self.follows[slot]) if chain else NEVER
        self.bounds.bind(slot, min(limit, occupants.due[slot]))
        self.opens[slot] = NEVER if chain else occupants.last_step(slot)

    def _count(self, booking: Booking, sign: int) -> None:
        slot, chain = booking.slot, self.chains[booking.slot]
        self.typical_ns += sign * booking.typical_ns
        self.strict += sign * booking.strict
        self.bounds.booking_changed(sign * booking.weight_ns)
        self.tails[slot] = chain[-1].start_ns + chain[-1].typical_ns if chain else NEVER
        self.bind(slot)
