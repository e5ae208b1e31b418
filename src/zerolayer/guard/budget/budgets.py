"""All budgets of one server: a request is held against its key and its tenant at once, or against neither.

One writer, the event loop, so that between two lines nothing else is decided. A ``Hold`` is given back on every way
out: ``settle`` with what ran, or ``release`` when nothing did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Final, Protocol

import msgspec

from zerolayer.errors import RateLimited, ZerolayerError
from zerolayer.guard.budget.account import Account, Level, State
from zerolayer.guard.budget.lease import NO_UNITS, Ask, Granted, Lender, Return
from zerolayer.guard.budget.shared import Claim, SharedAccount
from zerolayer.guard.budget.standing import Standing, standings
from zerolayer.guard.identity import KEY_ID_BYTES, Identity, Quota
from zerolayer.guard.spent import NOTHING, Spent

_NOT_HOME_MS: Final = 1000  # two nodes name different nodes: nobody lends until they agree
_LATER_MS: Final = 1000
_LOOKED_AT: Final = 512  # accounts, the newest, when somebody watches
_IDLE_SWEEP: Final = 65_536  # keys, before those that hold nothing are forgotten


class Journal(Protocol):
    """Where states are kept (``journal.py``)."""

    def write(self, account: Account) -> None:
        """From now on this account goes on from here after a restart."""


class Size(msgspec.Struct, frozen=True):
    """What one request may use: tokens of prompt and answer, and microseconds of compute."""

    tokens: int
    compute_us: int = 0


AnyAccount = Account | SharedAccount
Elsewhere = Callable[[bytes, str, Quota], SharedAccount | None]
"""The account of this id if another node is its home."""


class Hold(msgspec.Struct, eq=False):
    """One request's claim on its accounts. ``begin`` after the last decision, then ``settle``; or ``release``.

    ``roomy``: all that is held was there, so that any smaller size fits without a further look.
    """

    budgets: Budgets
    accounts: tuple[Account | Claim, ...]
    size: Size
    roomy: bool
    settled: bool = False
    begun: bool = False

    def tighten(self, size: Size) -> ZerolayerError | None:
        """The true size is known. The refusal when that does not fit, and then the hold is released."""
        before, self.size = self.size, size
        more_tokens, more_us = size.tokens - before.tokens, size.compute_us - before.compute_us
        for account in self.accounts:
            account.resize(more_tokens, more_us)
        if self.roomy and more_tokens <= 0 and more_us <= 0:
            return None
        refusal = self._judge()
        if refusal is not None:
            self.release()
        return refusal

    def begin(self) -> None:
        """The engine gets it: it counts as a request."""
        self.begun = True
        for account in self.accounts:
            if account.begin():
                # It counts although the process may die before its end. A claim is kept by its home.
                self.budgets.keep(account)  # type: ignore[arg-type]

    def release(self) -> None:
        """Nothing ran. Void once the hold is settled."""
        self.settle(NOTHING)

    def settle(self, spent: Spent) -> None:
        """The end, whatever it was; only the first call counts."""
        if self.settled:
            return
        self.settled = True
        accounts, size = self.accounts, self.size
        heir = self.budgets.heir
        if not self.begun:
            for account in accounts:
                account.forget(size.tokens, size.compute_us)
        elif accounts:
            budgets = self.budgets
            now, tokens = budgets.clock_us(), spent.prompt_tokens + spent.output_tokens
            for account in accounts:
                if account.finish(size.tokens, size.compute_us, tokens, spent.compute_us, now):
                    budgets.keep(account)  # type: ignore[arg-type] # as above
        if heir is not None:
            heir(self, spent)

    def _judge(self) -> ZerolayerError | None:
        """Whether what is held fits beside all else; its own part does not count twice."""
        size, now = self.size, self.budgets.clock_us()
        for account in self.accounts:
            account.advance(now)
            account.resize(-size.tokens, -size.compute_us)
            refusal = account.refusal(size.tokens, size.compute_us, fresh=False)
            account.resize(size.tokens, size.compute_us)
            if refusal is not None:
                return refusal
        return None

    @property
    def levels(self) -> tuple[Level | None, Level | None]:
        """Requests and tokens, each of the account that has less left."""
        return _levels(self.accounts)


def _nowhere(_account_id: bytes, _whose: str, _quota: Quota) -> SharedAccount | None:
    """No account: there is one node only."""


class Budgets:
    """``clock_us`` gives Unix microseconds that never run backwards. ``tenants`` have limits of their own."""

    def __init__(
        self,
        clock_us: Callable[[], int],
        default: Quota = Quota(),  # noqa: B008 - frozen
        tenants: Mapping[str, Quota] = {},
        journal: Journal | None = None,
        kept: Mapping[bytes, State] = {},
        elsewhere: Elsewhere = _nowhere,
    ) -> None:
        self.clock_us = clock_us
        self._default = default
        self._tenants = tenants
        self.keep = keep_nothing if journal is None else journal.write
        self._kept = dict(kept)
        self.heir: Callable[[Hold, Spent], None] | None = None  # is told what is settled, once another process decides
        self._elsewhere = elsewhere
        self._accounts: dict[bytes, AnyAccount] = {}
        self._lenders: dict[bytes, Lender] = {}
        self._of: dict[bytes | str, tuple[AnyAccount, ...]] = {}
        self._names: dict[bytes, str] = {}

    def bind(self, identity: Identity) -> bool:
        """Whether anything that ``identity`` asks for is held against an account, so that its size matters."""
        accounts = self._of.get(identity.key_id or identity.tenant)
        return bool(self._open(identity) if accounts is None else accounts)

    def reserve(self, identity: Identity, least: Size, most: Size) -> Hold:
        """Hold ``most``, judged on ``least``: between the two only the true size decides.

        Raises ``RateLimited`` and ``BudgetSpent``, both 429.
        """
        accounts = self._of.get(identity.key_id or identity.tenant)
        if accounts is None:
            accounts = self._open(identity)
        if not accounts:
            return Hold(self, (), most, True)
        now = self.clock_us()
        account = accounts[0]
        alone = len(accounts) == 1 and isinstance(account, Account)
        if alone and account.claim(most.tokens, most.compute_us, now):  # type: ignore[union-attr]
            return Hold(self, accounts, most, True)  # type: ignore[arg-type] # it was just looked at
        return self._reserve(accounts, least, most, now)

    def _reserve(self, accounts: tuple[AnyAccount, ...], least: Size, most: Size, now: int) -> Hold:
        """All accounts, or none; whatever they are."""
        roomy, size = True, most
        for account in accounts:
            account.advance(now)
            if account.refusal(most.tokens, most.compute_us) is None:
                continue
            roomy = False
            if account.shared:
                size = least  # a node never spends what it does not hold
            refusal = account.refusal(least.tokens, least.compute_us)
            if refusal is not None:
                raise refusal
        claims = [account.take(size.tokens, size.compute_us) for account in accounts]
        return Hold(self, tuple(claims), size, roomy)

    def levels(self, identity: Identity) -> tuple[Level | None, Level | None]:
        """Requests and tokens of whoever asks, each of the account that has less left."""
        accounts = self._of.get(identity.key_id or identity.tenant)
        if not accounts:
            return None, None
        now = self.clock_us()
        for account in accounts:
            account.advance(now)
        return _levels(accounts)

    def accounts(self) -> list[Account | SharedAccount]:
        """Everybody's, as they are."""
        return list(self._accounts.values())

    def fullest(self, most: int) -> list[Standing]:
        """The limits that are used most, of the newest 512 accounts whose home is here."""
        now, found = self.clock_us(), list[Standing]()
        for account in islice(reversed(self._accounts.values()), _LOOKED_AT):
            if isinstance(account, Account):
                account.advance(now)
                found.extend(standings(self._names.get(account.id, account.whose), account))
        return sorted(found, key=lambda each: each.used / each.most, reverse=True)[:most]

    def lend(self, ask: Ask) -> Granted:
        """Answer another node, as the home of the account that it asks for."""
        account, now = self._account(ask.account, ask.whose, ask.quota), self.clock_us()
        if isinstance(account, SharedAccount):
            return Granted(ask.account, ask.lease, NO_UNITS, _NOT_HOME_MS)
        account.advance(now)
        granted = self._lender(account).ask(ask, now)
        missing = ask.wanted - granted.units
        if missing.most(NO_UNITS) != NO_UNITS:
            refusal = account.refusal(ask.wanted.tokens, ask.wanted.compute_us)
            wait_ms = refusal.retry_after_ms if isinstance(refusal, RateLimited) else _LATER_MS
            granted = msgspec.structs.replace(granted, retry_ms=wait_ms)
        self.keep(account)
        return granted

    def take_back(self, back: Return) -> None:
        """Another node's lease is over."""
        account = self._accounts.get(back.account)
        if isinstance(account, Account):
            account.advance(self.clock_us())
            self._lender(account).take_back(back, self.clock_us())
            self.keep(account)

    def granted(self, granted: Granted) -> None:
        """A home has answered."""
        account = self._accounts.get(granted.account)
        if isinstance(account, SharedAccount):
            account.granted(granted, self.clock_us())

    def over(self) -> list[Return]:
        """What is to be sent home now, and time for what was lent. Called several times a second."""
        now = self.clock_us()
        for lender in self._lenders.values():
            lender.sweep(now)
        shared = [account for account in self._accounts.values() if isinstance(account, SharedAccount)]
        return [back for account in shared for back in account.borrower.over(now)]

    def states(self) -> dict[bytes, State]:
        """Of every account that is not idle, those of the last run included that nobody has used since."""
        now = self.clock_us()
        states = dict(self._kept)
        for account in self._accounts.values():
            account.advance(now)
            if isinstance(account, Account) and not account.idle:
                states[account.id] = account.state()
        return states

    def inherit(self, account_id: bytes, whose: str, quota: Quota, state: State) -> Account | None:
        """An account as another process leaves it; None if its home is on another node, or it has no limit here."""
        if whose == "tenant":
            quota = next((own for name, own in self._tenants.items() if tenant_id(name) == account_id), self._default)
        if not quota.limited:
            return None
        self._kept[account_id] = state
        account = self._account(account_id, whose, quota)
        return account if isinstance(account, Account) else None

    def take_worse(self, kept: Mapping[bytes, State]) -> None:
        """Another process decided for a while and is gone: of its figures and ours the larger ones count."""
        for account_id, state in kept.items():
            account = self._accounts.get(account_id)
            if account is None:
                self._kept[account_id] = state
            elif isinstance(account, Account):
                account.take_worse(state, self.clock_us())
                self.keep(account)

    def _open(self, identity: Identity) -> tuple[AnyAccount, ...]:
        if max(len(self._accounts), len(self._of)) >= _IDLE_SWEEP:
            self._forget_idle()
        tenant = self._tenants.get(identity.tenant, self._default)
        found: list[AnyAccount] = []
        if identity.keyed and identity.quota.limited:
            self._names[identity.key_id] = f"{identity.tenant} {identity.key_id.hex()[:8]}"
            found.append(self._account(identity.key_id, "key", identity.quota))
        if tenant.limited:
            own = tenant_id(identity.tenant)
            self._names[own] = identity.tenant
            found.append(self._account(own, "tenant", tenant))
        accounts = tuple(found)
        self._of[identity.key_id or identity.tenant] = accounts
        return accounts

    def _account(self, account_id: bytes, whose: str, quota: Quota) -> AnyAccount:
        account = self._accounts.get(account_id)
        if account is None:
            account = self._elsewhere(account_id, whose, quota) or self._at_home(account_id, whose, quota)
            self._accounts[account_id] = account
        return account

    def _at_home(self, account_id: bytes, whose: str, quota: Quota) -> Account:
        account = Account(account_id, whose, quota, self.clock_us())
        state = self._kept.pop(account_id, None)
        if state is not None:
            account.restore(state)
        return account

    def _lender(self, account: Account) -> Lender:
        lender = self._lenders.get(account.id)
        if lender is None:
            lender = self._lenders[account.id] = Lender(account.id, account)
        return lender

    def _forget_idle(self) -> None:
        now = self.clock_us()
        for account in self._accounts.values():
            account.advance(now)
        self._accounts = {name: account for name, account in self._accounts.items() if not account.idle}
        self._lenders = {name: lender for name, lender in self._lenders.items() if name in self._accounts}
        self._names = {name: told for name, told in self._names.items() if name in self._accounts}
        self._of.clear()


def keep_nothing(account: Account) -> None:
    """Without a log nothing outlives the process."""


def tenant_id(name: str) -> bytes:
    """The account of a tenant, beside the ids of keys, which are random."""
    return blake2b(name.encode(), digest_size=KEY_ID_BYTES, person=b"zl tenant").digest()


def _levels(accounts: tuple[AnyAccount | Claim, ...]) -> tuple[Level | None, Level | None]:
    requests = [level for account in accounts if (level := account.requests()) is not None]
    tokens = [level for account in accounts if (level := account.tokens()) is not None]
    return min(requests, key=_left, default=None), min(tokens, key=_left, default=None)


def _left(level: Level) -> int:
    return level.left
