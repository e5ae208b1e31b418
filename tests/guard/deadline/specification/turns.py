"""Whether somebody can have a slot for a while and those who are booked find one soon all the same, as a rule. Pure.

Promises go by slots: what is booked in one follows what runs there, at the latest. Plans do not: a client that is there
begins in the first slot that suits it. Where steps are quicker than planned, slots come free before what is booked in
them, and would rest until then; so they are lent, as far as others come free in time.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from specification.booking import Booking

_SOON_SHARE = 8  # of a service: so long its client may be held, as a rule, for who was not booked before it


def _begin(free_ns: list[int], booking: Booking) -> int:
    """It takes the slot that is free first; how long its client is held."""
    begun_ns = max(booking.start_ns, free_ns[0])
    heapq.heapreplace(free_ns, begun_ns + booking.typical_ns)
    return begun_ns - booking.start_ns


def is_spare(free_ns: Sequence[int], until_ns: int, booked: Sequence[Booking], turn_ns: int) -> bool:
    """Whether one of the slots that are free at ``free_ns`` can be taken until ``until_ns``.

    Nobody whose start is before ``turn_ns`` waits for that, if each who is booked takes the first slot.
    """
    if not free_ns:
        return not booked
    without, with_it = sorted(free_ns), sorted(free_ns)
    heapq.heapreplace(with_it, until_ns)
    for booking in booked:
        if booking.start_ns >= turn_ns:
            break
        held_ns = _begin(with_it, booking)
        if held_ns > max(_begin(without, booking), booking.typical_ns // _SOON_SHARE):
            return False
    return True
