"""What bookings may add to each other. Refusals must be quick, so that nothing is computed for each pair of bookings.

Bookings of one slot follow each other at least by the steps that the earlier one may take, even if that ends early; so
while a request of ``n`` steps runs, another slot begins at most ``1 + n / m`` bookings of ``m`` steps. Bookings with
about the same ``n`` are kin: they have one sum over all slots, and what each of them can bear is a number that this
sum must not pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from zerolayer.guard.deadline.booking import NEVER, Booking, Kin

_COARSE = 8  # kinds of reach for each doubling: rounding up costs at most an eighth


class Demands:
    """One writer, the calendar. ``chains`` are the calendar's bookings by slot."""

    def __init__(self, chains: Sequence[Sequence[Booking]]) -> None:
        self._chains = chains
        self._slots = len(chains)
        self._kin: dict[int, Kin] = {}
        self._heaviest = [0] * self._slots  # of each slot's bookings
        self._heaviest_sum = 0

    def kin_of(self, steps: int) -> Kin:
        """Those with about ``steps`` steps, in which a slot's lockstep with the others is included."""
        reach = steps + self._slots
        unit = max(1, 1 << max(0, reach.bit_length() - 4)) if reach >= 2 * _COARSE else 1
        reach = -(-reach // unit) * unit
        kin = self._kin.get(reach)
        if kin is None:
            kin = Kin(reach, self._slots)
            kin.parts = [_part(reach, chain) for chain in self._chains]
            kin.used_ns = sum(kin.parts)
        return kin

    def load_ns(self, kin: Kin, slot: int) -> int:
        """What bookings of other slots than ``slot`` may add to one of ``kin``."""
        return sum(kin.parts) - kin.parts[slot]

    def singles_ns(self, slot: int) -> int:
        """Of it what the first booking of each slot adds."""
        return self._heaviest_sum - self._heaviest[slot]

    def bear(self, wanted: Booking) -> bool:
        """Whether all that is booked can bear one more."""
        steps, weight, slot = wanted.steps, wanted.weight_ns, wanted.slot
        for kin in self._kin.values():
            grown = (1 + kin.reach // steps) * weight - kin.parts[slot]
            if grown <= 0 or kin.least_ns - kin.used_ns >= grown:
                continue
            if any(each.slot != slot and each.margin_ns - kin.used_ns < grown for each in kin.members):
                return False
        return True

    def add(self, booking: Booking, kin: Kin, spare_ns: int) -> None:
        """Book it; ``spare_ns`` is what others may add to it beyond what is booked."""
        slot = booking.slot
        self._kin[kin.reach] = kin
        for each in self._kin.values():
            grown = (1 + each.reach // booking.steps) * booking.weight_ns - each.parts[slot]
            if grown > 0:
                self._grow(each, slot, grown)
                each.used_ns += grown
        booking.kin = kin
        booking.margin_ns = kin.used_ns + spare_ns
        kin.members.append(booking)
        kin.least_ns = min(kin.least_ns, booking.margin_ns)
        self._heavier(slot)

    def charge(self, booking: Booking, weight_ns: int) -> None:
        """Somebody who was not booked adds that to it."""
        booking.margin_ns -= weight_ns
        if booking.kin is not None and booking.margin_ns < booking.kin.least_ns:
            booking.kin.least_ns = booking.margin_ns

    def remove(self, booking: Booking, *, begins: bool) -> None:
        """It is out of its chain. What ``begins`` still adds to those who are there, if not to whoever comes."""
        slot, kin = booking.slot, booking.kin
        if kin is not None:
            kin.members.remove(booking)
            if not kin.members:
                del self._kin[kin.reach]
            elif booking.margin_ns <= kin.least_ns:
                kin.least_ns = min([member.margin_ns for member in kin.members])
        chain = self._chains[slot]
        for each in self._kin.values():
            grown = _part(each.reach, chain) - each.parts[slot]
            if grown:
                self._grow(each, slot, 0 if begins else grown)
                each.used_ns += 0 if begins else grown
                each.parts[slot] += grown if begins else 0
        self._heavier(slot)

    def _grow(self, kin: Kin, slot: int, grown: int) -> None:
        """What a slot's bookings may add is another; it concerns nobody in the same slot, as they never run together."""
        kin.parts[slot] += grown
        for member in self._chains[slot]:
            if member.kin is kin:
                member.margin_ns += grown
                kin.least_ns = min(kin.least_ns, member.margin_ns)

    def _heavier(self, slot: int) -> None:
        heaviest = max([booking.weight_ns for booking in self._chains[slot]], default=0)
        self._heaviest_sum += heaviest - self._heaviest[slot]
        self._heaviest[slot] = heaviest


def _part(reach: int, chain: Sequence[Booking]) -> int:
    return max([(1 + reach // booking.steps) * booking.weight_ns for booking in chain], default=0)
