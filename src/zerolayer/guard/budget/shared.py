"""An account whose home is another node: requests spend what the home has lent, and are refused beyond it.

A refusal asks the home for more at once, so that whoever comes back when told finds it here; so does a stock that has
become small. Nothing ever waits for the network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from zerolayer.errors import BudgetSpent, RateLimited, ZerolayerError
from zerolayer.guard.budget.account import Level
from zerolayer.guard.budget.lease import NO_UNITS, Borrower, Granted, Loan, Units
from zerolayer.guard.identity import Quota

AHEAD: Final = 4  # requests like the last one that are asked for at once
_ANSWER_MS: Final = 50  # until when the home has usually answered

Want = Callable[["SharedAccount", Units], None]
"""Asks the home of an account for units, some time soon."""


class SharedAccount:
    """Used as ``account.Account`` is. ``want`` must not call back at once."""

    shared: ClassVar[bool] = True

    def __init__(self, account_id: bytes, whose: str, quota: Quota, want: Want) -> None:
        self.id = account_id
        self.whose = whose
        self.quota = quota
        self.borrower = Borrower(account_id)
        self._want = want
        self._retry_us = 0
        self.now_us = 0

    def advance(self, now_us: int) -> None:
        """The time has come to ``now_us``."""
        self.now_us = now_us

    def refusal(self, tokens: int, compute_us: int, *, fresh: bool = True) -> ZerolayerError | None:
        """Why one request of this size may not start now, or None."""
        quota = self.quota
        if quota.tokens_per_minute and tokens > quota.tokens_per_minute:
            return BudgetSpent(
                f"prompt and answer may need {tokens} tokens, and the {self.whose} has {quota.tokens_per_minute} "
                "a minute; shorten the prompt or lower max_tokens",
                limit="tokens_per_minute",
            )
        need = self.need(tokens, compute_us, fresh=fresh)
        if self.borrower.held(self.now_us).covers(need):
            return None
        self._want(self, need)
        wait_ms = max(_ANSWER_MS, -(-(self._retry_us - self.now_us) // 1000))
        return RateLimited(
            f"this node holds no share of the {self.whose}'s limit now; ask again in {{ms}} ms",
            retry_after_ms=wait_ms,
            limit="lease",
        )

    def take(self, tokens: int, compute_us: int) -> Claim:
        """Give one request what it may use; what was judged before is there."""
        need = self.need(tokens, compute_us, fresh=True)
        loan = self.borrower.spend(need, self.now_us)
        if not self.borrower.held(self.now_us).covers(need):
            self._want(self, need)
        return Claim(self, loan or Loan([]), tokens, compute_us)

    def need(self, tokens: int, compute_us: int, *, fresh: bool) -> Units:
        """What a request of this size takes of the limits that there are."""
        quota = self.quota
        return Units(
            int(fresh and quota.requests_per_minute > 0),
            tokens if quota.tokens_per_minute else 0,
            compute_us if quota.compute_us_per_day else 0,
            int(fresh and quota.concurrent > 0),
        )

    def granted(self, granted: Granted, now_us: int) -> None:
        """The home has answered."""
        self.borrower.granted(granted, now_us)
        self._retry_us = now_us + 1000 * granted.retry_ms

    def requests(self) -> Level | None:
        """Only the home knows."""
        return None

    tokens = requests

    @property
    def idle(self) -> bool:
        """Whether forgetting this account would change nothing."""
        return self.borrower.idle


class Claim:
    """One request's part of a shared account, told of its way as an ``Account`` is."""

    def __init__(self, account: SharedAccount, loan: Loan, tokens: int, compute_us: int) -> None:
        self.id = account.id
        self._account = account
        self._loan = loan
        self._given = account.need(tokens, compute_us, fresh=True)

    def advance(self, now_us: int) -> None:
        """The time has come to ``now_us``."""
        self._account.advance(now_us)

    def resize(self, tokens: int, compute_us: int) -> None:
        """What is not needed goes back when the request ends; what more is needed, ``refusal`` takes."""

    def refusal(self, tokens: int, compute_us: int, *, fresh: bool = False) -> ZerolayerError | None:
        """The true size: take what is missing, or say why not."""
        need = self._account.need(tokens, compute_us, fresh=fresh)
        missing = need.most(self._given) - self._given
        if missing == NO_UNITS:
            return None
        refusal = self._account.refusal(missing.tokens, missing.compute_us, fresh=False)
        more = None if refusal is not None else self._account.borrower.spend(missing, self._account.now_us)
        if more is not None:
            self._loan.join(more)
            self._given += missing
        return refusal

    def begin(self) -> None:
        """It counts as a request from here on; the home keeps what must be kept."""

    def finish(self, _held_tokens: int, _held_us: int, tokens: int, compute_us: int, now_us: int) -> None:
        """It has ended, and used this much."""
        self._account.advance(now_us)
        given = self._given
        used = Units(given.requests, min(tokens, given.tokens), min(compute_us, given.compute_us))
        self._loan.end(used)

    def forget(self, _held_tokens: int, _held_us: int) -> None:
        """It never started."""
        self._loan.end(NO_UNITS)

    def requests(self) -> Level | None:
        """Only the home knows."""
        return None

    tokens = requests
