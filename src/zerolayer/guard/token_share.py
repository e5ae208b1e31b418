"""How long a text will turn out to be, by experience, where it must not be tokenised yet. Pure.

No text has more tokens than bytes, but nearly all have far fewer, and who books slots for bytes promises too little.
What is booked rests on the most tokens that texts of about the same size had of late, as Clockwork (OSDI 2020) takes
the largest of its last measurements; where too few of that size were seen, on the largest share of tokens in bytes,
with a margin. Whoever comes with more is judged on the true length, as everybody is.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_WINDOW: Final = 64
_EVIDENCE: Final = 8
_MARGIN: Final = 1.2
_DIGITS: Final = 4  # binary ones of a size: sizes within an eighth of each other are about the same
_OF_A_SIZE: Final = 128  # texts that are remembered, and
_ENOUGH: Final = 32  # from how many on they say what one more will have


class _Lengths(deque[int]):
    """Of the last texts of one size, in tokens. Far more texts are asked about than are seen."""

    def __init__(self) -> None:
        super().__init__(maxlen=_OF_A_SIZE)
        self._longest = 0  # 0: not known

    def append(self, tokens: int) -> None:
        super().append(tokens)
        self._longest = 0

    def longest(self) -> int:
        """The most of them."""
        if not self._longest:
            self._longest = max(self)
        return self._longest


class TokenShare:
    """Texts and what they turned out to be."""

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=_WINDOW)
        self._largest: float | None = None  # None: too few were seen
        self._sizes: dict[int, _Lengths] = {}

    def observe(self, size: int, tokens: int) -> None:
        """A text of ``size`` bytes, what a template adds included, has ``tokens``."""
        self._shares.append(tokens / size)
        if len(self._shares) >= _EVIDENCE:
            self._largest = max(self._shares) * _MARGIN
        self._sizes.setdefault(_class(size), _Lengths()).append(tokens)

    def bound(self, size: int, upper: int) -> int:
        """What a text of ``size`` bytes, and at most ``upper`` tokens, hardly ever exceeds."""
        alike = self._sizes.get(_class(size))
        if alike is not None and len(alike) >= _ENOUGH:
            return min(upper, alike.longest())
        return upper if self._largest is None else min(upper, -int(-size * self._largest // 1))


def _class(size: int) -> int:
    """One number for all sizes that are about the same."""
    shift = max(0, size.bit_length() - _DIGITS)
    return (shift << _DIGITS) | (size >> shift)
