"""Several nodes, one limit: units are withdrawn from the account at its home, spent elsewhere, and what is left returns.

Each account has one home node, which alone has its bucket. Another node asks the home for some units of requests,
tokens and compute; the home takes them out of the account as if they had been used, and only then grants them. So
whatever is lost, doubled, late or forgotten on the way, the units that exist on all nodes together are never more than
the limit allowed: a lost grant is spent by nobody, and costs its units, no more. A node never spends what it does not
hold. Units that nobody needed go home before they expire, once: the home gives back to the account what a return
names, and at most what the grant was.

A grant is spent within ``TTL_US`` by the clock of whoever asked, counted from when it asked, so that no two clocks
need agree. Pure: messages in, messages out, times in microseconds of one's own clock.
"""

from __future__ import annotations

from typing import Final

import msgspec

TTL_US: Final = 1_000_000  # a unit that was withdrawn is spent within this time, or never
GRACE_US: Final = 2 * TTL_US  # how long the home remembers a grant, for its return
OUTSTANDING: Final = 4096  # grants that a home remembers


class Units(msgspec.Struct, frozen=True):
    """Amounts of the three kinds."""

    requests: int = 0
    tokens: int = 0
    compute_us: int = 0

    def __add__(self, other: Units) -> Units:
        return Units(self.requests + other.requests, self.tokens + other.tokens, self.compute_us + other.compute_us)

    def __sub__(self, other: Units) -> Units:
        return Units(self.requests - other.requests, self.tokens - other.tokens, self.compute_us - other.compute_us)

    def covers(self, other: Units) -> bool:
        """Whether there is at least as much of each kind."""
        return self.requests >= other.requests and self.tokens >= other.tokens and self.compute_us >= other.compute_us

    def least(self, other: Units) -> Units:
        """Of each kind the smaller amount."""
        return Units(
            min(self.requests, other.requests), min(self.tokens, other.tokens), min(self.compute_us, other.compute_us)
        )

    @property
    def any(self) -> bool:
        """Whether there is something of some kind."""
        return bool(self.requests or self.tokens or self.compute_us)


NO_UNITS: Final = Units()


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """``lease`` is a name that no other ask has, of this run of the node or of any other (128 random bits)."""

    account: bytes
    lease: bytes
    wanted: Units


class Granted(msgspec.Struct, frozen=True, tag="grant"):
    """The answer of the home; ``retry_us`` is when more will have drained, 0 when all that was wanted is there."""

    account: bytes
    lease: bytes
    units: Units
    retry_us: int = 0


class Return(msgspec.Struct, frozen=True, tag="return"):
    """What is left of a lease; the holder has forgotten it before this is sent."""

    account: bytes
    lease: bytes
    units: Units


class Purse:
    """The account at its home, as a lender sees it. ``withdraw`` takes and ``deposit`` gives back."""

    def withdraw(self, wanted: Units, now_us: int) -> tuple[Units, int]:
        """What is there of ``wanted``, taken at once, and microseconds until more is there (0: nothing is missing)."""
        raise NotImplementedError

    def deposit(self, units: Units, now_us: int) -> None:
        """Units of a withdrawal that were not used."""
        raise NotImplementedError


class Lender:
    """The home's side of one account."""

    def __init__(self, account: bytes, purse: Purse) -> None:
        self._account = account
        self._purse = purse
        self._grants: dict[bytes, tuple[Units, int, Granted]] = {}  # lease -> units that may return, until when, answer

    def ask(self, ask: Ask, now_us: int) -> Granted:
        """Grant what is there. The same ask again, a repeated message, gets the same answer and no further units."""
        self._forget(now_us)
        known = self._grants.get(ask.lease)
        if known is not None:
            return known[2]
        wanted = Units(max(0, ask.wanted.requests), max(0, ask.wanted.tokens), max(0, ask.wanted.compute_us))
        if len(self._grants) >= OUTSTANDING:
            return Granted(self._account, ask.lease, NO_UNITS, TTL_US)
        units, retry_us = self._purse.withdraw(wanted, now_us)
        granted = Granted(self._account, ask.lease, units, retry_us)
        self._grants[ask.lease] = (units, now_us + GRACE_US, granted)
        return granted

    def take_back(self, back: Return, now_us: int) -> None:
        """Give the account what is left of a lease; a second return of the same lease finds nothing."""
        self._forget(now_us)
        known = self._grants.get(back.lease)
        if known is None:
            return
        granted, until, answer = known
        units = granted.least(
            Units(max(0, back.units.requests), max(0, back.units.tokens), max(0, back.units.compute_us))
        )
        self._grants[back.lease] = (NO_UNITS, until, answer)
        if units.any:
            self._purse.deposit(units, now_us)

    def _forget(self, now_us: int) -> None:
        for lease, (_, until, _) in list(self._grants.items()):
            if until > now_us:
                return  # the others were granted later
            del self._grants[lease]


class Borrower:
    """A node's side of one account whose home is elsewhere. One ask is on its way at a time.

    ``stock`` is how many times what was used lately it keeps ahead, so that the next request finds it here.
    """

    def __init__(self, account: bytes) -> None:
        self._account = account
        self._asked: tuple[Ask, int] | None = None
        self._leases: dict[bytes, tuple[Units, int]] = {}  # units left, until when
        self.retry_us = 0  # own clock: no use in asking before

    @property
    def held(self) -> Units:
        """All units that are here."""
        return sum((units for units, _ in self._leases.values()), NO_UNITS)

    def ask(self, lease: bytes, wanted: Units, now_us: int) -> Ask | None:
        """The message to send, or None while one is on its way. ``lease`` is 16 fresh random bytes."""
        if self._asked is not None and now_us < self._asked[1] + TTL_US:
            return None
        ask = Ask(self._account, lease, wanted)
        self._asked = (ask, now_us)
        return ask

    def granted(self, granted: Granted, now_us: int) -> None:
        """An answer has come. One that was not waited for, or comes too late, is left alone: nobody spends it."""
        if self._asked is None or self._asked[0].lease != granted.lease:
            return
        asked_us = self._asked[1]
        self._asked = None
        self.retry_us = now_us + granted.retry_us
        if granted.units.any and now_us < asked_us + TTL_US:
            self._leases[granted.lease] = (granted.units, asked_us + TTL_US)

    def spend(self, units: Units, now_us: int) -> bool:
        """Take ``units`` of what is here; False, and nothing is taken, when there is less."""
        self._expire(now_us)
        if not self.held.covers(units):
            return False
        missing = units
        for lease, (left, until) in list(self._leases.items()):
            part = left.least(missing)
            missing -= part
            self._leases[lease] = (left - part, until)
        return True

    def unneeded(self, now_us: int, margin_us: int) -> list[Return]:
        """What is to be sent home because it ends within ``margin_us``; it is here no more."""
        back = []
        for lease, (left, until) in list(self._leases.items()):
            if now_us < until - margin_us:
                continue
            del self._leases[lease]
            if left.any and now_us < until:
                back.append(Return(self._account, lease, left))
        return back

    def _expire(self, now_us: int) -> None:
        for lease, (left, until) in list(self._leases.items()):
            if now_us >= until or not left.any:
                del self._leases[lease]
