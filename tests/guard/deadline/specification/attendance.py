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
        self._counting: set[Hashable] = set()  # have said at least once that they ask again
        self._by_hand: set[Hashable] = set()  # ask again without saying so: each attempt is made as a first one
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

    def stayed_away(self, credential: Hashable, *, doubled: bool = False) -> None:
        """A booking lapsed; ``doubled``: in its time an equal request came that said that it was the first attempt."""
        self.lapsed += 1
        self._enter(credential, 0.0, 1.0, _FADE)
        if doubled and credential not in self._counting:
            self._by_hand.add(credential)

    def by_hand(self, credential: Hashable) -> bool:
        """Whether what this sender says of its attempts means nothing."""
        return credential in self._by_hand

    def asks_again(self, credential: Hashable, *, booked: bool) -> None:
        """It says that it asks again, for what was ``booked`` or else: what it says of its attempts is true."""
        if booked and credential not in self._seen:
            self._enter(credential, 0.0, 0.0, _FADE)
        if credential in self._seen:
            self._counting.add(credential)
            self._by_hand.discard(credential)

    def seen(self) -> list[tuple[Hashable, tuple[float, float]]]:
        """Kept and lapsed bookings by sender, the last that changed at the end."""
        return list(self._seen.items())

    def remember(self, credential: Hashable, kept: float, lapsed: float) -> None:
        """What another process has seen of a sender."""
        self._seen[credential] = (kept, lapsed)

    def _enter(self, credential: Hashable, kept: float, lapsed: float, fade: float) -> None:
        before = self._seen.pop(credential, (0.0, 0.0))
        self._seen[credential] = (before[0] * _FADE + kept, before[1] * fade + lapsed)
        if len(self._seen) > _SENDERS:
            first = next(iter(self._seen))
            del self._seen[first]
            self._counting.discard(first)
            self._by_hand.discard(first)
