"""How long a text will turn out to be, by experience, where it must not be tokenised yet. Pure.

No text has more tokens than bytes, but nearly all have far fewer, and who books slots for bytes promises too little.
What is booked rests on the largest share of tokens in bytes that was seen of late, with a margin, as Clockwork (OSDI
2020) takes the largest of its last measurements; whoever comes with more is judged on the true length, as everybody is.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_WINDOW: Final = 64
_EVIDENCE: Final = 8
_MARGIN: Final = 1.2


class TokenShare:
    """Shares of the upper bound that texts turned out to have."""

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=_WINDOW)
        self._largest = 1.0

    def observe(self, upper: int, tokens: int) -> None:
        """A text of at most ``upper`` tokens has ``tokens``."""
        self._shares.append(tokens / upper)
        if len(self._shares) >= _EVIDENCE:
            self._largest = min(1.0, max(self._shares) * _MARGIN)

    def bound(self, upper: int) -> int:
        """What a text of at most ``upper`` tokens hardly ever exceeds."""
        return -int(-upper * self._largest // 1)
