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
from zerolayer.guard.budget.lease import Units
from zerolayer.guard.identity import Quota

UNIT: Final = (
    60_000_000  # of debt for one request or token: what a limit of one a minute drains in as many microseconds
)
DAY_US: Final = 86_400_000_000
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


class Account:
    """``whose`` stands in refusals: "key" or "tenant". Times in Unix microseconds that never run backwards."""

    shared: ClassVar[bool] = False

    __slots__ = (
        "_midnight_us", "at_us", "day", "held_requests", "held_tokens", "held_us", "id", "lent_requests", "lent_tokens",
        "lent_us", "quota", "requests_debt", "running", "tokens_debt", "used_us", "whose",
    )  # fmt: skip

    def __init__(self, account_id: bytes, whose: str, quota: Quota, now_us: int) -> None:
        self.id = account_id
        self.whose = whose
        self.quota = quota
        self.at_us = now_us
        self.day = now_us // DAY_US
        self._midnight_us = (self.day + 1) * DAY_US
        self.requests_debt = self.tokens_debt = self.used_us = 0
        self.held_requests = self.held_tokens = self.held_us = self.running = 0
        self.lent_requests = self.lent_tokens = self.lent_us = 0  # of what is held: by other nodes

    def advance(self, now_us: int) -> None:
        """Drain the buckets up to now, and begin a new day when there is one."""
        elapsed = now_us - self.at_us
        if elapsed <= 0:
            return
        self.at_us = now_us
        quota = self.quota
        debt = self.requests_debt
        if debt:
            debt -= quota.requests_per_minute * elapsed
            self.requests_debt = debt if debt > 0 else 0  # noqa: FURB136 - a call is dearer than all of this
        debt = self.tokens_debt
        if debt:
            debt -= quota.tokens_per_minute * elapsed
            self.tokens_debt = debt if debt > 0 else 0  # noqa: FURB136
        if now_us >= self._midnight_us:
            self.day = now_us // DAY_US
            self._midnight_us = (self.day + 1) * DAY_US
            self.used_us = 0

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

    def claim(self, tokens: int, compute_us: int, now_us: int) -> bool:
        """``advance``, ``refusal`` and ``take`` in one, for the common path. False, and nothing taken, if it lacks."""
        if now_us > self.at_us:
            self.advance(now_us)
        quota = self.quota
        requests, held, held_us = self.held_requests + 1, self.held_tokens + tokens, self.held_us + compute_us
        limit = quota.requests_per_minute
        if limit and self.requests_debt > (limit - requests) * UNIT:
            return False
        limit = quota.tokens_per_minute
        if limit and self.tokens_debt > (limit - held) * UNIT:
            return False
        limit = quota.concurrent
        if limit and self.running >= limit:
            return False
        limit = quota.compute_us_per_day
        if limit and self.used_us + held_us > limit:
            return False
        self.held_requests, self.held_tokens, self.held_us = requests, held, held_us
        self.running += 1
        return True

    def take(self, tokens: int, compute_us: int) -> Account:
        """Hold one request of this size; what is to be told of its way."""
        self.held_requests += 1
        self.running += 1
        self.held_tokens += tokens
        self.held_us += compute_us
        return self

    def begin(self) -> Account | None:
        """A held request has started: from here on it counts, whatever becomes of it. Who is to be kept, if anybody."""
        self.held_requests -= 1
        if not self.quota.requests_per_minute:
            return None
        self.requests_debt += UNIT
        return self

    def resize(self, tokens: int, compute_us: int) -> None:
        """Change what is held by these differences."""
        self.held_tokens += tokens
        self.held_us += compute_us

    def finish(self, held_tokens: int, held_us: int, tokens: int, compute_us: int, now_us: int) -> Account:
        """A started request has ended: what it held is given back, what it used poured in. Who is to be kept."""
        if now_us > self.at_us:
            self.advance(now_us)
        self.running -= 1
        self.held_tokens -= held_tokens
        self.held_us -= held_us
        if self.quota.tokens_per_minute:
            self.tokens_debt += tokens * UNIT
        self.used_us += compute_us
        return self

    def forget(self, held_tokens: int, held_us: int) -> None:
        """A request that never started has gone."""
        self.running -= 1
        self.held_requests -= 1
        self.held_tokens -= held_tokens
        self.held_us -= held_us

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
        units = Units(
            _there(wanted.requests, quota.requests_per_minute, self.requests_debt, self.held_requests),
            _there(wanted.tokens, quota.tokens_per_minute, self.tokens_debt, self.held_tokens),
            max(0, min(wanted.compute_us, daily - self.used_us - self.held_us)) if daily else wanted.compute_us,
            max(0, min(wanted.running, at_once - self.running)) if at_once else wanted.running,
        )
        self._hold_lent(units, 1)
        return units

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

    def _rate(self, what: str, limit: int, over: int) -> RateLimited:
        wait_ms = -(-over // (limit * _US_PER_MS))
        return RateLimited(
            f"the {self.whose} has used its {limit} {what} a minute; ask again in {{ms}} ms",
            retry_after_ms=wait_ms,
            limit=f"{what}_per_minute",
        )


def _there(wanted: int, limit: int, debt: int, held: int) -> int:
    return max(0, min(wanted, (limit * UNIT - debt) // UNIT - held)) if limit else wanted


def _level(limit: int, used: int) -> Level:
    return Level(limit, max(0, limit * UNIT - used) // UNIT, -(-used // limit))
