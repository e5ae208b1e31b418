"""The one place for drafts: requests that only fill the prompt cache (``max_tokens`` 0).

It is the engine's own slot, one more than requests have. So a draft takes nobody's slot and stands in no calendar; its
chunks run only in steps that carry nothing else (``model.step_clock``), and whoever walks in waits for one of them at
most. A second draft is refused rather than queued.
"""

from __future__ import annotations

from collections.abc import Callable

from zerolayer.errors import DraftRefused

_NEVER = 1 << 63


class DraftSlot:
    """``number`` is the slot's; ``clock_ns`` is monotonic. One writer: the event loop."""

    def __init__(self, number: int, clock_ns: Callable[[], int]) -> None:
        self.number = number
        self._clock_ns = clock_ns
        self.due_ns = _NEVER  # the deadline of the draft that is in it
        self._taken = False

    @property
    def taken(self) -> bool:
        """Whether a draft is in it."""
        return self._taken

    def claim(self, within_ns: int) -> None:
        """Take it until ``release``, for so long at most. Raises ``DraftRefused``."""
        if self._taken:
            raise DraftRefused("another draft is being read; a draft is never booked, so leave it or send the next one")
        self._taken, self.due_ns = True, self._clock_ns() + within_ns

    def release(self) -> None:
        """Give it back. Idempotent."""
        self._taken, self.due_ns = False, _NEVER
