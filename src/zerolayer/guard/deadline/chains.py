"""What the bookings of one slot, a chain, mean for each other and for other slots. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from zerolayer.guard.deadline.booking import NEVER, Booking

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


def disturbed(ends: list[int], booked: Sequence[Booking]) -> list[int]:
    """Ends with what bookings add that start before them: each moves the ends behind it, and so further ones in."""
    if not booked or booked[0].start_ns >= max(ends):
        return ends
    added, place, count = 0, 0, len(booked)
    moved = list(ends)
    for slot in sorted(range(len(ends)), key=ends.__getitem__):
        end = ends[slot]
        while place < count and booked[place].start_ns < end + added:
            added += booked[place].weight_ns
            place += 1
        moved[slot] = end + added if end else 0
    return moved


def begun_within(left: int, own: int, chains: Chains, waits: Sequence[int], wanted: Booking | None) -> int:
    """What bookings of other slots than ``own`` can add within ``left`` steps, ``wanted`` included.

    ``waits`` are the steps before a slot's next booking may begin.
    """
    added = 0
    for slot, chain in enumerate(chains):
        near = [*chain, wanted] if wanted is not None and wanted.slot == slot else chain
        room = left - max(0, waits[slot])
        if near and room >= 0 and slot != own:
            added += max([(1 + room // ahead.work.steps) * ahead.weight_ns for ahead in near])
    return added


class Demands:
    """For each slot the heaviest and the shortest of its bookings: kept up to date, because refusals must be quick."""

    __slots__ = ("shortest", "weights")

    def __init__(self, slots: int) -> None:
        self.weights = [0] * slots  # 0: nothing is booked
        self.shortest = [1] * slots  # in steps

    def update(self, slot: int, chain: Sequence[Booking]) -> None:
        """The bookings of a slot have changed."""
        self.weights[slot] = max([booking.weight_ns for booking in chain], default=0)
        self.shortest[slot] = min([booking.work.steps for booking in chain], default=1)


def set_aside(wanted: Booking, room: int, demands: Demands) -> bool:
    """Set aside what bookings of other slots may add to this one, and how long it may be held for the rest of ``room``.

    False where it cannot bear what is booked already.
    """
    weights, slot = demands.weights, wanted.slot
    slots = len(weights)
    steps = wanted.work.steps + slots
    charged = [(1 + steps // n) * weight for weight, n in zip(weights, demands.shortest, strict=True)]
    load = sum(charged) - charged[slot]
    charged[slot] = 0
    wanted.charged = charged
    wanted.single_ns = sum(weights) - weights[slot]
    others = (slots - 1) * wanted.weight_ns  # to come: two of each other slot like this one, and half as many unbooked
    wanted.spare_ns = min(max(0, 2 * others - load) + others // 2, max(0, room - load) * 2 // 3)
    wanted.need_ns += wanted.spare_ns + load
    wanted.hold_ns = max(0, room - load - wanted.spare_ns)
    return room >= load


def added(wanted: Booking, booked: Sequence[Booking], slots: int) -> list[int] | None:
    """What ``wanted`` may add to each of ``booked``, beyond what is set aside; None where one could not bear it."""
    slot, steps, weight = wanted.slot, wanted.work.steps, wanted.weight_ns
    more = [
        (1 + (other.work.steps + slots) // steps) * weight - other.charged[slot] if other.slot != slot else 0
        for other in booked
    ]
    return None if any(other.spare_ns < m for other, m in zip(booked, more, strict=True)) else more


def charge(wanted: Booking, booked: Sequence[Booking], more: Sequence[int]) -> None:
    """Take from ``booked`` what ``added`` said."""
    slot = wanted.slot
    for other, m in zip(booked, more, strict=True):
        if m > 0:
            if not other.charged[slot]:
                other.single_ns += wanted.weight_ns
            other.spare_ns -= m
            other.charged[slot] += m
