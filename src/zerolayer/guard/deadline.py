"""The table of slots: who may start now, and when the first slot is free for whoever may not.

Pure: the clock is passed in, there is one writer (the event loop), and nothing waits. A slot is free again only when
the step thread has said so, because until then a step may still be writing into it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

_NS_PER_MS = 1_000_000


class Refusal(msgspec.Struct, frozen=True):
    """No slot is free. ``retry_after_ms`` is at least 1, rounded up: an early retry would be refused again."""

    retry_after_ms: int


class SlotTable:
    """``slots`` places, each free or taken until a bound in monotonic nanoseconds."""

    def __init__(self, slots: int, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._free = list(range(slots - 1, -1, -1))  # a stack: the slot that was used last is the warmest in the caches
        self._until: dict[int, int] = {}
        self.slots = slots

    @property
    def free(self) -> int:
        """Slots that can be claimed now."""
        return len(self._free)

    @property
    def taken(self) -> int:
        """Slots that hold a request, or are being released by the step thread."""
        return len(self._until)

    def claim(self, bound_ns: int) -> int | Refusal:
        """Take a slot for at most ``bound_ns`` from now, or learn when the first one ends."""
        if not self._free:
            return Refusal(self.next_free_ms())
        slot = self._free.pop()
        self._until[slot] = self._clock_ns() + bound_ns
        return slot

    def tighten(self, slot: int, bound_ns: int) -> None:
        """Bring a claimed slot's bound forward to ``bound_ns`` from now; it never moves back."""
        if slot in self._until:
            self._until[slot] = min(self._until[slot], self._clock_ns() + bound_ns)

    def release(self, slot: int) -> None:
        """Give a slot back. Idempotent: a slot that is free stays free."""
        if self._until.pop(slot, None) is not None:
            self._free.append(slot)

    def next_free_ms(self) -> int:
        """Milliseconds until the first slot is free: 0 when one is, else at least 1, rounded up.

        A bound that has passed was wrong; the best guess for a run that is late by t is that it needs as long again.
        """
        if self._free:
            return 0
        now = self._clock_ns()
        left = min(abs(until - now) for until in self._until.values())
        return max(1, -(-left // _NS_PER_MS))
