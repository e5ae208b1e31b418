"""What bookings may add to each other. Refusals must be quick, so that nothing is computed for each pair of bookings.

Bookings of one slot follow each other at least by the steps that the earlier one may take, so that within ``n`` steps
another slot begins a known part of its chain at most (``chains.run_ns``). Bookings with about the same ``n`` are kin:
they have one sum over all slots, and what each of them can bear is a number that this sum must not pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from specification.booking import NEVER, Booking, Kin, Margin
from specification.chains import grown_run_ns, run_ns

_UNBOOKED_SHARE = 8
_DIGITS = 4  # binary ones of a reach: rounding up costs at most an eighth

Spares = tuple[tuple[Kin, int], tuple[Kin, int]]  # until the end, and until the first token


class Demands:
    """One writer, the calendar. ``chains`` are the calendar's bookings by slot."""

    def __init__(self, chains: Sequence[Sequence[Booking]]) -> None:
        self._chains = chains
        self._slots = len(chains)
        self._read: list[list[Booking]] = [[] for _ in chains]  # have begun, and their prompts are being read
        # Prompts are read in the order of admission: before its first token, each slot has one before it at most.
        self.firsts = Kin(0, [0] * self._slots)
        self._kin: dict[int, Kin] = {0: self.firsts}

    def kin_of(self, steps: int) -> Kin:
        """Those with about ``steps`` steps, in which a slot's lockstep with the others is included."""
        reach = steps + self._slots
        unit = max(1, 1 << max(0, reach.bit_length() - _DIGITS))
        reach = -(-reach // unit) * unit
        return self._kin.get(reach) or Kin(reach, [self._part(reach, slot) for slot in range(self._slots)])

    def load_ns(self, kin: Kin, slot: int) -> int:
        """What bookings of other slots than ``slot`` may add to one of ``kin``."""
        return sum(kin.parts) - kin.parts[slot]

    def bear(self, wanted: Booking, *, waited: bool) -> bool:
        """Whether all that is booked can bear one more, and somebody like it who is not booked.

        Of those was one who ``waited``: the room is for it.
        """
        slot, before, unbooked = wanted.slot, self._sequence(wanted.slot), 0 if waited else wanted.weight_ns
        for kin in self._kin.values():
            grown = grown_run_ns(before, wanted, kin.reach) - kin.parts[slot]
            if grown <= 0 or kin.least_ns - kin.used_ns >= grown + unbooked:
                continue
            if any(each.slot != slot and each.spare_ns < grown + unbooked for each in kin.members):
                return False
        return True

    def set_aside(self, booking: Booking, room_ns: int, first_room_ns: int) -> Spares | None:
        """How much others may add, and how long the client may be held, of what its limits leave; sets both.

        None where it cannot bear what is booked already.
        """
        slot, steps, others = booking.slot, booking.steps, (self._slots - 1) * booking.weight_ns
        kin, firsts = self.kin_of(steps), self.firsts
        load, singles = self.load_ns(kin, slot), self.load_ns(firsts, slot)
        room, first_room = room_ns - load, first_room_ns - singles
        if min(room, first_room) < 0:
            return None
        # To come: of each other slot one before the first token, before the end as many as it can begin, and a few
        # unbooked. Whoever follows in the slot starts later by that; where prompts take much of the time, one must do.
        some, most = (
            others // _UNBOOKED_SHARE,
            others + (self._slots - 1) * booking.work.chunk_ns * (kin.reach // max(1, steps)),
        )
        expected = min(most, max(others, booking.typical_ns))
        spare = min(max(0, expected - load) + some, room * 2 // 3)
        first_spare = min(max(0, others - singles) + some, first_room * 2 // 3)
        booking.single_ns = singles
        booking.need_ns += spare + load
        booking.first_ns += first_spare + singles
        booking.hold_ns = min(room - spare, first_room - first_spare)
        return (kin, spare), (firsts, first_spare)

    def add(self, booking: Booking, spares: Spares) -> None:
        """Book it; ``spares`` are what others may add to it beyond what is booked."""
        slot = booking.slot
        for kin, _ in spares:
            self._kin[kin.reach] = kin
        before = self._sequence(slot)[:-1]
        for kin in self._kin.values():
            grown = grown_run_ns(before, booking, kin.reach) - kin.parts[slot]
            if grown > 0:
                self._grow(kin, slot, grown)
                kin.used_ns += grown
        booking.margins = tuple([Margin(kin, slot, kin.used_ns + spare) for kin, spare in spares])
        for margin in booking.margins:
            margin.kin.members.append(margin)
            margin.kin.least_ns = min(margin.kin.least_ns, margin.margin_ns)

    def charge(self, booking: Booking, weight_ns: int) -> None:
        """Somebody who was not booked adds that to it."""
        for margin in booking.margins:
            margin.margin_ns -= weight_ns
            margin.kin.least_ns = min(margin.kin.least_ns, margin.margin_ns)

    def begin(self, booking: Booking) -> None:
        """It is out of its chain and runs; its prompt holds others up until it is ``read``."""
        self._read[booking.slot].append(booking)
        self._forget(booking)

    def read(self, booking: Booking) -> None:
        """Its prompt is read, or will not be."""
        self._read[booking.slot].remove(booking)
        self._shrink(booking.slot)

    def remove(self, booking: Booking) -> None:
        """It is out of its chain, and nobody comes for it."""
        self._forget(booking)
        self._shrink(booking.slot)

    def _forget(self, booking: Booking) -> None:
        for margin in booking.margins:
            kin = margin.kin
            kin.members.remove(margin)
            if not kin.members and kin.reach:
                del self._kin[kin.reach]
            elif margin.margin_ns <= kin.least_ns:
                kin.least_ns = min([member.margin_ns for member in kin.members], default=NEVER)

    def _shrink(self, slot: int) -> None:
        for kin in self._kin.values():
            grown = self._part(kin.reach, slot) - kin.parts[slot]
            if grown:
                self._grow(kin, slot, grown)
                kin.used_ns += grown

    def _sequence(self, slot: int) -> Sequence[Booking]:
        reading = self._read[slot]
        return [*reading, *self._chains[slot]] if reading else self._chains[slot]

    def _part(self, reach: int, slot: int) -> int:
        return run_ns(self._sequence(slot), reach)

    def _grow(self, kin: Kin, slot: int, grown: int) -> None:
        """A slot's bookings may add more, or less; it is nothing to those of the slot, as they never run together."""
        kin.parts[slot] += grown
        for booking in self._chains[slot]:
            for margin in booking.margins:
                if margin.kin is kin:
                    margin.margin_ns += grown
                    kin.least_ns = min(kin.least_ns, margin.margin_ns)
