"""The budget of one key, or of one tenant with all its keys. Pure integers; the clock's reading is passed in.

Rates follow the generic cell rate algorithm in its form as a continuous-state leaky bucket (ITU-T I.371, annex A): a
limit of ``n`` a minute is a bucket of ``n`` that drains ``n`` a minute. What a request may yet use is *held* beside the
bucket and does not drain; what it did use is poured into the bucket when it ends. So a bucket and what is held beside
it never exceed the limit together, and giving a hold back leaves no trace.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from zerolayer.errors import BudgetSpent, RateLimited, ZerolayerError
from zerolayer.guard import _native
from zerolayer.guard.budget.lease import Units
from zerolayer.guard.identity import Quota

UNIT: Final = (
    60_000_000  # of debt for one request or token: what a limit of one a minute drains in as many microseconds
)
DAY_US: Final = 86_400_000_000
_MOST: Final = 1 << 40  # that is lent at once where there is no limit: the compiled integers have 64 bits
_MOST_US: Final = 1 << 62  # a limit beyond that is as good as none
_US_PER_MS: Final = 1000
_BUSY_MS: Final = 1000  # when all of a key's requests at once are running, nobody knows which ends first


class Level(msgspec.Struct, frozen=True):
    """One limit as a client may know it: ``limit``, what is left of it, and microseconds until all of it is."""

    limit: int
    left: int
    reset_us: int


class State(msgspec.Struct, frozen=True):
    """What must survive a restart. Debts in ``UNIT``s at ``at_us``; compute used on the UTC day ``day``."""

    requests_debt: int
    tokens_debt: int
    at_us: int
    day: int
    used_us: int


class Account(_native.Account):
    """``whose`` stands in refusals: "key" or "tenant". Times in Unix microseconds that never run backwards.

    What every request does is compiled (``_native.pyi``); here is what is rare, and what is told.
    """

    shared: ClassVar[bool] = False

    __slots__ = ("id", "quota", "whose")

    def __init__(self, account_id: bytes, whose: str, quota: Quota, now_us: int) -> None:
        super().__init__(
            account_id,
            quota.requests_per_minute,
            quota.tokens_per_minute,
            quota.concurrent,
            min(quota.compute_us_per_day, _MOST_US),
            now_us,
        )
        self.id = account_id
        self.whose = whose
        self.quota = quota

    def refusal(self, tokens: int, compute_us: int, *, fresh: bool = True) -> ZerolayerError | None:
        """Why one request of this size may not start now, or None. ``fresh``: it is not counted here yet."""
        quota = self.quota
        if fresh:
            limit = quota.requests_per_minute
            if limit:
                over = self.requests_debt + (self.held_requests + 1 - limit) * UNIT
                if over > 0:
                    return self._rate("requests", limit, over)
            if quota.concurrent and self.running >= quota.concurrent:
                return RateLimited(
                    f"the {self.whose} may have {quota.concurrent} requests at once; wait until one ends",
                    retry_after_ms=_BUSY_MS,
                    limit="concurrent",
                )
        limit = quota.tokens_per_minute
        if limit:
            if tokens > limit:
                return BudgetSpent(
                    f"prompt and answer may need {tokens} tokens, and the {self.whose} has {limit} a minute; "
                    "shorten the prompt or lower max_tokens",
                    limit="tokens_per_minute",
                )
            over = self.tokens_debt + (self.held_tokens + tokens - limit) * UNIT
            if over > 0:
                return self._rate("tokens", limit, over)
        daily = quota.compute_us_per_day
        if daily and self.used_us + self.held_us + compute_us > daily:
            return BudgetSpent(
                f"the request may need {compute_us} microseconds of compute, and the {self.whose} has "
                f"{max(0, daily - self.used_us - self.held_us)} left of {daily} until midnight UTC",
                limit="compute_us_per_day",
            )
        return None

    def take(self, tokens: int, compute_us: int) -> Account:
        """Hold one request of this size; what is to be told of its way."""
        self.hold(tokens, compute_us)
        return self

    def requests(self) -> Level | None:
        """Where the limit of requests stands; None without one."""
        limit = self.quota.requests_per_minute
        return _level(limit, self.requests_debt + self.held_requests * UNIT) if limit else None

    def tokens(self) -> Level | None:
        """Where the limit of tokens stands; None without one."""
        limit = self.quota.tokens_per_minute
        return _level(limit, self.tokens_debt + self.held_tokens * UNIT) if limit else None

    def lend(self, wanted: Units) -> Units:
        """What is there of ``wanted``, held for another node from now on."""
        quota = self.quota
        daily, at_once = quota.compute_us_per_day, quota.concurrent
        most_us, most_running = min(wanted.compute_us, _MOST), min(wanted.running, _MOST)
        units = Units(
            _there(wanted.requests, quota.requests_per_minute, self.requests_debt, self.held_requests),
            _there(wanted.tokens, quota.tokens_per_minute, self.tokens_debt, self.held_tokens),
            max(0, min(most_us, daily - self.used_us - self.held_us)) if daily else most_us,
            max(0, min(most_running, at_once - self.running)) if at_once else most_running,
        )
        self._hold_lent(units, 1)
        return units

    def set_aside(self, units: Units) -> None:
        """Hold what a process that ends has promised already, whether it is there or not."""
        self._hold_lent(units, 1)

    def close(self, lent: Units, left: Units) -> None:
        """Another node's loan is over: all of it but ``left`` was used."""
        self._hold_lent(lent, -1)
        used = lent - left
        if self.quota.requests_per_minute:
            self.requests_debt += used.requests * UNIT
        if self.quota.tokens_per_minute:
            self.tokens_debt += used.tokens * UNIT
        self.used_us += used.compute_us

    def _hold_lent(self, units: Units, sign: int) -> None:
        self.held_requests += sign * units.requests
        self.held_tokens += sign * units.tokens
        self.held_us += sign * units.compute_us
        self.lent_requests += sign * units.requests
        self.lent_tokens += sign * units.tokens
        self.lent_us += sign * units.compute_us
        self.running += sign * units.running

    @property
    def idle(self) -> bool:
        """Whether forgetting this account would change nothing."""
        lent = self.lent_requests or self.lent_tokens or self.lent_us
        return not (self.requests_debt or self.tokens_debt or self.used_us or self.running or lent)

    def state(self) -> State:
        """What must survive. What is lent counts as used: whether it was, only the other node could tell."""
        quota = self.quota
        return State(
            self.requests_debt + (self.lent_requests * UNIT if quota.requests_per_minute else 0),
            self.tokens_debt + (self.lent_tokens * UNIT if quota.tokens_per_minute else 0),
            self.at_us,
            self.day,
            self.used_us + self.lent_us,
        )

    def restore(self, state: State) -> None:
        """Go on from ``state``; a clock that was set back in between drains nothing."""
        self.requests_debt = state.requests_debt if self.quota.requests_per_minute else 0
        self.tokens_debt = state.tokens_debt if self.quota.tokens_per_minute else 0
        now = self.at_us
        self.at_us = min(state.at_us, now)
        if state.day == self.day:
            self.used_us = state.used_us
        self.advance(now)

    def take_worse(self, state: State, now_us: int) -> None:
        """Of what was used here and there the larger figures count."""
        self.advance(now_us)
        other = Account(self.id, self.whose, self.quota, now_us)
        other.restore(state)
        self.requests_debt = max(self.requests_debt, other.requests_debt)
        self.tokens_debt = max(self.tokens_debt, other.tokens_debt)
        self.used_us = max(self.used_us, other.used_us)

    def _rate(self, what: str, limit: int, over: int) -> RateLimited:
        wait_ms = -(-over // (limit * _US_PER_MS))
        return RateLimited(
            f"the {self.whose} has used its {limit} {what} a minute; ask again in {{ms}} ms",
            retry_after_ms=wait_ms,
            limit=f"{what}_per_minute",
        )


def _there(wanted: int, limit: int, debt: int, held: int) -> int:
    return max(0, min(wanted, (limit * UNIT - debt) // UNIT - held)) if limit else min(wanted, _MOST)


def _level(limit: int, used: int) -> Level:
    return Level(limit, max(0, limit * UNIT - used) // UNIT, -(-used // limit))
