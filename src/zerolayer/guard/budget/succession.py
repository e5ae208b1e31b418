"""Budgets from one process to the next: where every account stands, and what the old one's requests may still use.

What runs over there is held in the new process's accounts like units lent to another node, and closed request by
request as it ends; so at no moment do both together spend more than the limit. Pure: messages out, messages in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from zerolayer.guard.budget.account import Account, State
from zerolayer.guard.budget.budgets import Budgets, Hold, keep_nothing
from zerolayer.guard.budget.lease import NO_UNITS, Units
from zerolayer.guard.identity import Quota
from zerolayer.guard.spent import Spent


class Legacy(msgspec.Struct, frozen=True):
    """One account: where it stands, and what the old process's requests hold of it."""

    account: bytes
    whose: str
    quota: Quota
    state: State
    held: Units


class Settled(msgspec.Struct, frozen=True, tag="settled"):
    """Of what is held of an account ``given`` is held no more, and ``used`` of it was used."""

    account: bytes
    given: Units
    used: Units


class Bequest:
    """The old process's side, from ``legacies`` on. ``tell`` gets what is settled."""

    def __init__(self, budgets: Budgets, tell: Callable[[Settled], None]) -> None:
        self._budgets = budgets
        self._tell = tell
        self._told: dict[bytes, Units] = {}

    def legacies(self) -> tuple[Legacy, ...]:
        """Every account that is not idle, and whose home is here."""
        budgets, found = self._budgets, []
        now = budgets.clock_us()
        states = budgets.states()
        for account in budgets.accounts():
            if isinstance(account, Account):
                account.advance(now)
                self._told[account.id] = held = _held(account)
                state = states.pop(account.id, None) or account.state()
                if not account.idle:
                    found.append(Legacy(account.id, account.whose, account.quota, state, held))
        # Accounts of the last run that nobody has used since: the new process meets them in the log.
        return tuple(found)

    def begin(self) -> None:
        """From here on the other process is told."""
        self._budgets.keep = self._begun
        self._budgets.heir = self._ended

    def end(self) -> None:
        """There is nobody to tell any more."""
        self._budgets.heir = None
        self._budgets.keep = keep_nothing

    def _begun(self, account: Account) -> None:
        """A request that was held counts from now on."""
        begun = self._told.get(account.id, NO_UNITS).requests - _held(account).requests
        if begun > 0:
            units = Units(requests=begun)
            self._told[account.id] -= units
            self._tell(Settled(account.id, units, units))

    def _ended(self, hold: Hold, spent: Spent) -> None:
        used = Units(0, spent.tokens, spent.compute_us) if hold.begun else NO_UNITS
        for account in hold.accounts:
            if isinstance(account, Account):
                before, now = self._told.get(account.id, NO_UNITS), _held(account)
                self._told[account.id] = now
                self._tell(Settled(account.id, before - now, used))


class Inheritance:
    """The new process's side."""

    def __init__(self, budgets: Budgets, legacies: Sequence[Legacy]) -> None:
        self._budgets = budgets
        self._held: dict[bytes, tuple[Account, Units]] = {}
        for legacy in legacies:
            account = budgets.inherit(legacy.account, legacy.whose, legacy.quota, legacy.state)
            if account is not None:
                account.set_aside(legacy.held)
                self._held[account.id] = (account, legacy.held)
                budgets.keep(account)

    def settled(self, message: Settled) -> None:
        """A request over there has begun, or ended."""
        found = self._held.get(message.account)
        if found is not None:
            account, held = found
            self._held[message.account] = (account, held - message.given)
            account.advance(self._budgets.clock_us())
            account.close(message.given, message.given - message.used)
            self._budgets.keep(account)

    def over(self, *, all_used: bool) -> None:
        """The old process is gone: what is still held was used, as far as anybody knows, unless it said the rest."""
        for account, held in self._held.values():
            account.advance(self._budgets.clock_us())
            account.close(held, NO_UNITS if all_used else held)
            self._budgets.keep(account)
        self._held = {}


def _held(account: Account) -> Units:
    """By requests of this process. How many of those at once are other nodes' is not known; they are counted too."""
    return Units(
        account.held_requests - account.lent_requests,
        account.held_tokens - account.lent_tokens,
        account.held_us - account.lent_us,
        account.running,
    )
