"""What a request needs, on which terms; a ``Booking``, a promised start, is ``native/deadline_booking.hpp``."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from zerolayer.guard.deadline._native import Booking
from zerolayer.model.cost import Prices

__all__ = ["EARLY_NS", "JOIN_STEPS", "NEVER", "Booking", "Room", "Terms", "Work"]

NEVER: Final = 1 << 62  # nanoseconds
EARLY_NS: Final = 5_000_000  # a booked client may come this much early; it is held until its start
JOIN_STEPS: Final = 3  # one in flight, one whose report is still on its way to the loop, and a heartbeat's chunk


class Room(IntEnum):
    """What a booking leaves to who comes without one.

    Nothing; its slot, which is lent while others come free for it in time; or before its start, besides, as much time
    as it takes itself. ``Room`` in native/deadline_booking.hpp.
    """

    NONE = 0
    LENT = 1
    GAP = 2


class Work(msgspec.Struct, frozen=True):
    """What a request needs of the engine: steps that carry its prompt, what those add, and tokens at most."""

    chunks: int
    chunk_ns: int
    full_ns: int  # what each chunk but the last one adds
    tokens: int

    @property
    def steps(self) -> int:
        """Steps from its first chunk to its last token."""
        return self.chunks + max(0, self.tokens - 1)

    def first_ns(self, prices: Prices) -> int:
        """Bound of its first token on an engine that does nothing else."""
        return prices.reserve_ns + (JOIN_STEPS + self.chunks) * prices.step_ns + self.chunk_ns

    def need_ns(self, prices: Prices) -> int:
        """Bound of its end on an engine that does nothing else."""
        return prices.reserve_ns + (JOIN_STEPS + self.steps) * prices.step_ns + self.chunk_ns


class Terms(msgspec.Struct, frozen=True):
    """What must hold for a request, counted from ``from_ns``, its arrival; ``patience_ns`` is a point in time."""

    from_ns: int
    first_token_ns: int
    per_token_ns: int
    end_ns: int
    patience_ns: int = NEVER
    urgent: bool = False  # may use the reserved slots
