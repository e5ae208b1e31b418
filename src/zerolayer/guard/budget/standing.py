"""How far each limit of an account is used, for people who watch."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from zerolayer.guard.budget.account import Account


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """Of ``limit`` (a key of ``[tenants]``) ``used`` of ``most`` are taken, what running requests hold included."""

    name: str  # the tenant, and a key's first hexadecimal digits
    limit: str
    used: int
    most: int


def standings(name: str, account: Account) -> Iterator[Standing]:
    """One for each limit that the account has; it has been brought to the present before."""
    quota = account.quota
    for limit, level in (("requests_per_minute", account.requests()), ("tokens_per_minute", account.tokens())):
        if level is not None:
            yield Standing(name, limit, level.limit - level.left, level.limit)
    if quota.concurrent:
        yield Standing(name, "concurrent", account.running, quota.concurrent)
    if quota.compute_us_per_day:
        yield Standing(name, "compute_us_per_day", account.used_us + account.held_us, quota.compute_us_per_day)
