"""What the calendar holds: a request's work, its terms, and a promised start. Pure.

Plans use what is typical, promises use bounds. A booking starts when its slot is typically free, and its client is held
until the slot is: for moments as a rule, and never beyond ``hold_ns``, which covers the distance to the bound and which
the client's own limits allow. It may also come late, by up to ``grace_ns``. Both are bounds of its start, so the bound
of its end is ``max(start + grace, free) + need``, where its slot is free at ``free`` at the latest; and what is booked
behind it must be able to wait for that.

``need`` holds what others may add meanwhile (``demands.py``). Whoever was not booked takes from what is left of it.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from zerolayer.guard.deadline import booking
from zerolayer.guard.deadline.booking import JOIN_STEPS, NEVER
from zerolayer.model.cost import Prices

__all__ = ["JOIN_STEPS", "NEVER", "Booking", "Kin", "Margin", "Terms", "Work"]


class Work(booking.Work, frozen=True):
    """What a request needs, and what that is to others."""

    def weight_ns(self, prices: Prices) -> int:
        """How much later its prompt makes somebody who waits for it."""
        return self.chunk_ns + self.chunks * prices.step_ns

    def typical_ns(self, prices: Prices, others: int) -> int:
        """How long it usually takes while each of ``others`` slots begins one request like it."""
        return int((self.steps * prices.step_ns + (1 + others) * self.chunk_ns) / prices.rate)


class Terms(booking.Terms, frozen=True):
    """What must hold for a request."""

    @property
    def due_ns(self) -> int:
        """The deadline."""
        return min(self.from_ns + self.end_ns, self.patience_ns)


class Kin:
    """Bookings to whom others can add the same: those with about as many steps, or, until its first token, all."""

    __slots__ = ("least_ns", "members", "parts", "reach", "used_ns")

    def __init__(self, reach: int, parts: list[int]) -> None:
        self.reach = reach  # steps in which others can begin
        self.parts = parts  # what the bookings of each slot may add within so many steps
        self.used_ns = sum(parts)  # and what has begun since; only its growth matters
        self.least_ns = NEVER  # the smallest margin
        self.members: list[Margin] = []


class Margin(msgspec.Struct, eq=False):
    """What the ``used_ns`` of a booking's kin may grow to."""

    kin: Kin
    slot: int
    margin_ns: int

    @property
    def spare_ns(self) -> int:
        """What others may still add."""
        return self.margin_ns - self.kin.used_ns


class Booking(msgspec.Struct, eq=False):
    """A start that is promised. Whoever made it comes within ``start_ns`` and ``start_ns`` plus the grace."""

    start_ns: int
    slot: int
    work: Work
    terms: Terms
    steps: int
    typical_ns: int  # from start to end, as it usually goes
    need_ns: int  # the bound of that, with everything that others may add
    weight_ns: int  # what it adds to others
    single_ns: int = (
        0  # of need_ns: the first chunks of other slots, which it need not fear again if it follows at once
    )
    first_ns: int = 0  # as need_ns, from start to first token
    hold_ns: int = 0  # how long its client may be held
    margins: tuple[Margin, ...] = ()  # until its end, and until its first token
    strict: bool = False  # its stream allows no foreign chunk
    soft: bool = False  # it gives way to whoever comes before its client does
    awaits_ns: int = 0  # of what others may add: so long after its start prompts may be read that waited
    credential: Hashable = None
    key: Hashable = None
    ticket: str = ""
    lends: bool = False  # its slot is lent to others, as long as it can wait for them
    held: bool = False  # its client is here
    doubled: bool = False  # an equal request that says that it is none of this came in its time

    @property
    def yields(self) -> bool:
        """Whether it gives way."""
        return self.soft and not self.held

    @property
    def spare_ns(self) -> int:
        """What others may still add."""
        return min([margin.spare_ns for margin in self.margins])

    @property
    def latest_ns(self) -> int:
        """When its slot must be free."""
        return self.start_ns + self.hold_ns

    def last_ns(self, grace_ns: int, free_ns: int = 0) -> int:
        """The bound of its end, when its client is as late as it may be and its slot is free at ``free_ns``."""
        return max(self.start_ns + grace_ns, free_ns or self.latest_ns) + self.need_ns

    def next_ns(self, grace_ns: int, free_ns: int) -> int:
        """The same for one that follows upon another booking of its slot."""
        return max(self.start_ns + grace_ns + self.need_ns, free_ns + self.need_ns - self.single_ns)
