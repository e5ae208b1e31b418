"""What the bookings of one slot, a chain, mean for each other and for what runs. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from specification.booking import NEVER, Booking

_LATE_NS = 5_000_000

Chains = Sequence[Sequence[Booking]]


def latest(chain: Sequence[Booking], *, follows: bool) -> int:
    """When a slot must be free for what is booked in it; ``follows``: after something that was booked, too."""
    limit, needs = NEVER, 0
    for booking in chain:
        limit = min(limit, booking.latest_ns - needs)
        needs += booking.need_ns - (booking.single_ns if needs or follows else 0)
    return limit


def is_next(booking: Booking, chain: Sequence[Booking], now_ns: int) -> bool:
    """Whether nobody is before it in its slot, or only who is late and can wait until it ends."""
    others = [other for other in chain if other is not booking]
    if not others or others[0].start_ns > booking.start_ns:
        return True
    absent = others[0].start_ns + _LATE_NS < now_ns and not others[0].held
    return absent and now_ns + booking.need_ns <= latest(others, follows=True)


def disturbed_end(end: int, booked: Sequence[Booking], *, waits: bool) -> int:
    """One end with what bookings add that start before it: each moves it, and so further ones in.

    ``waits``: their prompts may be read before its own. Otherwise they only make its steps longer.
    """
    for booking in booked:
        if booking.start_ns > end:
            break
        end += booking.weight_ns if waits else booking.work.chunk_ns
    return end


def disturbed(ends: list[int], booked: Sequence[Booking], *, wait: bool) -> list[int]:
    """``disturbed_end`` of all ends; 0, a free slot, stays so."""
    if not booked or booked[0].start_ns > max(ends):
        return ends
    added, place, count = 0, 0, len(booked)
    moved = list(ends)
    for slot in sorted(range(len(ends)), key=ends.__getitem__):
        end = ends[slot]
        while place < count and booked[place].start_ns <= end + added:
            booking = booked[place]
            added += booking.weight_ns if wait else booking.work.chunk_ns
            place += 1
        moved[slot] = end + added if end else 0
    return moved


def run_ns(chain: Sequence[Booking], reach: int, *, waits: bool = True) -> int:
    """What the bookings of one slot can add to somebody within ``reach`` steps.

    One begins after another at least by the steps that the earlier one may take, even if that ends early. Prompts are
    read in the order of admission: only the first one can be read before somebody else's, and only of who ``waits`` for
    its start or its text; further ones only make steps longer.
    """
    most = 0
    for place, first in enumerate(chain):
        added, steps = first.weight_ns if waits else first.work.chunk_ns, first.steps
        for later in chain[place + 1 :]:
            if steps > reach:
                break
            added += later.work.chunk_ns
            steps += later.steps
        most = max(most, added)
    return most


def grown_run_ns(chain: Sequence[Booking], last: Booking, reach: int) -> int:
    """What of ``run_ns`` of the chain and ``last`` behind it ends with ``last``."""
    most, added, steps = last.weight_ns, last.work.chunk_ns, 0
    for earlier in reversed(chain):
        steps += earlier.steps
        if steps > reach:
            break
        most = max(most, earlier.weight_ns + added)
        added += earlier.work.chunk_ns
    return most


def begun_within(
    left: int, until_ns: int, own: int, chains: Chains, not_yet: Sequence[int], wanted: Booking | None, *, waits: bool
) -> int:
    """What bookings of other slots than ``own`` that start by ``until_ns`` can add within ``left`` steps.

    ``wanted`` is included. ``not_yet`` are the steps before a slot's next booking may begin; ``waits`` as for
    ``disturbed_end``.
    """
    added = 0
    for slot, chain in enumerate(chains):
        all_of_it = [*chain, wanted] if wanted is not None and wanted.slot == slot else chain
        near = [booking for booking in all_of_it if booking.start_ns <= until_ns]
        room = left - max(0, not_yet[slot])
        if near and room >= 0 and slot != own:
            added += run_ns(near, room, waits=waits)
    return added
