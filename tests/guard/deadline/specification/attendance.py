"""Who keeps bookings: for senders that let too many lapse a slot is held only until somebody else needs it.

A held slot that nobody comes for is lost, as a seat is for an airline. The shares fade, and each booking that such a
sender does redeem halves what stands against it, so that a handful makes it believed again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

_TOLERATED: Final = 0.2  # share of bookings that may lapse
_EVIDENCE: Final = 8.0  # bookings before anybody is judged
_FADE: Final = 0.97  # of the past with each new booking
_FORGIVEN: Final = 0.5  # of the lapsed ones with each that is redeemed by who is not trusted
_SENDERS: Final = 4096  # remembered; the one that was not seen for longest is forgotten


class Attendance:
    """Kept and lapsed bookings of each sender, fading."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, tuple[float, float]] = {}  # in the order of the last change
        self.kept = 0
        self.lapsed = 0

    def trusts(self, credential: Hashable) -> bool:
        """Whether a slot may be held for this sender, whoever else comes."""
        kept, lapsed = self._seen.get(credential, (0.0, 0.0))
        return kept + lapsed < _EVIDENCE or lapsed <= _TOLERATED * (kept + lapsed)

    def came(self, credential: Hashable) -> None:
        """A booking was redeemed."""
        self.kept += 1
        fade = _FADE if self.trusts(credential) else _FORGIVEN
        self._enter(credential, 1.0, 0.0, fade)

    def stayed_away(self, credential: Hashable) -> None:
        """A booking lapsed."""
        self.lapsed += 1
        self._enter(credential, 0.0, 1.0, _FADE)

    def _enter(self, credential: Hashable, kept: float, lapsed: float, fade: float) -> None:
        before = self._seen.pop(credential, (0.0, 0.0))
        self._seen[credential] = (before[0] * _FADE + kept, before[1] * fade + lapsed)
        if len(self._seen) > _SENDERS:
            del self._seen[next(iter(self._seen))]
