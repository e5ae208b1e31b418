"""Several nodes, one limit: units of it are lent by the account's home node, and spent elsewhere or returned.

Each account has one home, which alone has its bucket. Another node asks the home for some units of requests, tokens
and compute; the home sets them aside as it does for a request of its own, and only then grants them. A node never
spends what it does not hold. When a lease is over its holder says what is left of it, and the home pours the rest into
the bucket; of whom it hears nothing it takes everything as used. So whatever is lost, doubled, late or forgotten on
the way, all that is used on all nodes, with all that is lent, is never more than the limit.

One kind is not used up: of requests at once a home that hears nothing for ``LENT_US`` supposes that they have ended.

Units are spent within ``SPEND_US`` after they were asked for, by the clock of whoever asked, so that no two clocks
need agree. What a running request was given stays with its lease until the request ends, for ``LENT_US`` at most.
Pure: messages in, messages out, times in microseconds of one's own clock.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from zerolayer.guard.identity import Quota

SPEND_US: Final = 1_000_000
LENT_US: Final = 600_000_000  # after which the home takes a lease as used up
NAME_BYTES: Final = 16  # of an account, and of a lease
OUTSTANDING: Final = 4096  # leases that a home has out for one account


class Units(msgspec.Struct, frozen=True):
    """Amounts of the four kinds; never negative. ``running`` are requests at once: nothing uses them up."""

    requests: int = 0
    tokens: int = 0
    compute_us: int = 0
    running: int = 0

    def __add__(self, other: Units) -> Units:
        return Units(
            self.requests + other.requests,
            self.tokens + other.tokens,
            self.compute_us + other.compute_us,
            self.running + other.running,
        )

    def __sub__(self, other: Units) -> Units:
        return Units(
            self.requests - other.requests,
            self.tokens - other.tokens,
            self.compute_us - other.compute_us,
            self.running - other.running,
        )

    def covers(self, other: Units) -> bool:
        """Whether there is at least as much of each kind."""
        return self.least(other) == other

    def least(self, other: Units) -> Units:
        """Of each kind the smaller amount."""
        return Units(
            min(self.requests, other.requests),
            min(self.tokens, other.tokens),
            min(self.compute_us, other.compute_us),
            min(self.running, other.running),
        )

    def most(self, other: Units) -> Units:
        """Of each kind the larger amount."""
        return self + other - self.least(other)


NO_UNITS: Final = Units()


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """``lease`` is a name that no other ask has, of this run of the node or of any other: 16 random bytes."""

    account: bytes
    lease: bytes
    wanted: Units
    whose: str = "key"  # what the home must know of an account that it has not met yet
    quota: Quota = Quota()


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    """The home's answer: what of it there was, and where not all, the milliseconds until there is more."""

    account: bytes
    lease: bytes
    units: Units
    retry_ms: int = 0


class Return(msgspec.Struct, frozen=True, tag="return"):
    """What is left of a lease that is over; its holder has forgotten it before this is sent."""

    account: bytes
    lease: bytes
    left: Units


class Purse(Protocol):
    """The account at its home."""

    def lend(self, wanted: Units) -> Units:
        """What is there of ``wanted``, set aside at once."""

    def close(self, lent: Units, left: Units) -> None:
        """A loan is over: all of it but ``left`` was used."""


class Lender:
    """The home's side of one account."""

    def __init__(self, account: bytes, purse: Purse) -> None:
        self._account = account
        self._purse = purse
        self._out: dict[bytes, tuple[Units, int]] = {}  # lease -> units, and until when

    def ask(self, ask: Ask, now_us: int) -> Granted:
        """Grant what is there. A repeated ask gets the same answer, and no further units."""
        self.sweep(now_us)
        known = self._out.get(ask.lease)
        if known is None:
            if len(self._out) >= OUTSTANDING:
                return Granted(self._account, ask.lease, NO_UNITS)
            known = (self._purse.lend(ask.wanted.most(NO_UNITS)), now_us + LENT_US)
            self._out[ask.lease] = known
        return Granted(self._account, ask.lease, known[0])

    def take_back(self, back: Return, now_us: int) -> None:
        """A lease is over. One that is not known, or was returned before, changes nothing."""
        self.sweep(now_us)
        known = self._out.pop(back.lease, None)
        if known is not None:
            self._purse.close(known[0], known[0].least(back.left.most(NO_UNITS)))

    def sweep(self, now_us: int) -> None:
        """Take as used what nobody has returned in time."""
        for lease, (units, until) in list(self._out.items()):
            if until > now_us:
                return  # the others were lent later
            del self._out[lease]
            self._purse.close(units, NO_UNITS)


class _Lease:
    __slots__ = ("ends_us", "left", "name", "running")

    def __init__(self, name: bytes, left: Units, ends_us: int) -> None:
        self.name = name
        self.left = left
        self.ends_us = ends_us  # of spending
        self.running = 0  # requests that were given some of it


class Loan:
    """What one running request was given, and of which leases."""

    __slots__ = ("_parts",)

    def __init__(self, parts: list[tuple[_Lease, Units]]) -> None:
        self._parts = parts

    def join(self, other: Loan) -> None:
        """The request was given more."""
        self._parts += other._parts

    def end(self, used: Units) -> None:
        """The request has ended and has used this much; the rest goes back to its leases."""
        parts, self._parts = self._parts, []
        for lease, given in parts:
            part = given.least(used)
            used -= part
            lease.left += given - part
            lease.running -= 1


class Borrower:
    """A node's side of one account whose home is elsewhere. One ask is on its way at a time."""

    def __init__(self, account: bytes) -> None:
        self._account = account
        self._asked: tuple[bytes, int] | None = None
        self._leases: list[_Lease] = []

    def held(self, now_us: int) -> Units:
        """All units that may be spent now."""
        return sum((lease.left for lease in self._leases if now_us < lease.ends_us), NO_UNITS)

    def ask(self, lease: bytes, wanted: Units, now_us: int) -> Ask | None:
        """The message to send, or None while one is on its way."""
        if self._asked is not None and now_us < self._asked[1] + SPEND_US:
            return None
        self._asked = (lease, now_us)
        return Ask(self._account, lease, wanted)

    def granted(self, granted: Granted, now_us: int) -> None:
        """An answer has come. One that is not waited for is left alone: nobody spends it, nobody returns it."""
        if self._asked is None or self._asked[0] != granted.lease:
            return
        ends_us = self._asked[1] + SPEND_US
        self._asked = None
        if granted.units != NO_UNITS:
            self._leases.append(_Lease(granted.lease, granted.units, min(ends_us, now_us + SPEND_US)))

    def spend(self, units: Units, now_us: int) -> Loan | None:
        """Take ``units`` of what is here; None, and nothing is taken, when there is less."""
        if not self.held(now_us).covers(units):
            return None
        parts: list[tuple[_Lease, Units]] = []
        for lease in self._leases:
            part = lease.left.least(units)
            if now_us < lease.ends_us and part != NO_UNITS:
                lease.left -= part
                lease.running += 1
                units -= part
                parts.append((lease, part))
        return Loan(parts)

    @property
    def idle(self) -> bool:
        """Whether nothing is here and nothing is awaited."""
        return not self._leases and self._asked is None

    def over(self, now_us: int) -> list[Return]:
        """The leases that are over, to be sent home; they are here no more."""
        ended = [lease for lease in self._leases if not lease.running and now_us >= lease.ends_us]
        self._leases = [lease for lease in self._leases if lease not in ended]
        return [Return(self._account, lease.name, lease.left) for lease in ended]
