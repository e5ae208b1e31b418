"""How long a text will turn out to be, by experience, where it must not be tokenised yet. Pure.

No text has more tokens than bytes, but nearly all have far fewer, and who books slots for bytes promises too little.
What is booked rests on the most tokens that texts of about the same size had of late, as Clockwork (OSDI 2020) takes
the largest of its last measurements; where too few of that size were seen, on the largest share of tokens in bytes,
with a margin. Whoever comes with more is judged on the true length, as everybody is.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

_WINDOW: Final = 64
_EVIDENCE: Final = 8
_MARGIN: Final = 1.2
_DIGITS: Final = 4  # binary ones of a size: sizes within an eighth of each other are about the same
_OF_A_SIZE: Final = 128  # texts that are remembered, and
_ENOUGH: Final = 32  # from how many on they say what one more will have
_SIZES: Final = 64  # that are told apart, and
_TENANTS: Final = 256  # whose texts are remembered: what there is no room for begins anew


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
    """Texts of one tenant and what they turned out to be."""

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=_WINDOW)
        self._largest: float | None = None  # None: too few were seen
        self._sizes: dict[int, _Lengths] = {}

    def observe(self, size: int, tokens: int) -> None:
        """A text of ``size`` bytes, what a template adds included, has ``tokens``."""
        self._shares.append(tokens / size)
        if len(self._shares) >= _EVIDENCE:
            self._largest = max(self._shares) * _MARGIN
        kind = _class(size)
        alike = self._sizes.get(kind)
        if alike is None:
            _make_room(self._sizes, _SIZES)
            alike = self._sizes[kind] = _Lengths()
        alike.append(tokens)

    def bound(self, size: int, upper: int) -> int:
        """What a text of ``size`` bytes, and at most ``upper`` tokens, hardly ever exceeds."""
        alike = self._sizes.get(_class(size))
        if alike is not None and len(alike) >= _ENOUGH:
            return min(upper, alike.longest())
        return upper if self._largest is None else min(upper, -int(-size * self._largest // 1))


class TokenShares:
    """Each tenant's own: what the texts of one are like says nothing of another's.

    A tenant that sends texts of few tokens by the hundred would else change what all others are promised.
    """

    def __init__(self) -> None:
        self._of: dict[str, TokenShare] = {}

    def of(self, tenant: str) -> TokenShare:
        """What is known of the texts of ``tenant``."""
        share = self._of.get(tenant)
        if share is None:
            _make_room(self._of, _TENANTS)
            share = self._of[tenant] = TokenShare()
        return share


def _make_room(known: dict[Any, Any], most: int) -> None:
    """For one more: what was there first leaves."""
    if len(known) >= most:
        del known[next(iter(known))]


def _class(size: int) -> int:
    """One number for all sizes that are about the same."""
    shift = max(0, size.bit_length() - _DIGITS)
    return (shift << _DIGITS) | (size >> shift)
