"""Keys and budgets of one server: built from the contract, kept up to date while it runs."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path

from zerolayer.contract import Contract
from zerolayer.contract_tenants import Tenant, Tenants
from zerolayer.errors import StartupError
from zerolayer.guard.auth.authenticator import Authenticator
from zerolayer.guard.auth.key_files import REVOKED, KeyDocuments, KeyFiles
from zerolayer.guard.budget.budgets import Budgets, keep_nothing
from zerolayer.guard.budget.journal import BudgetJournal
from zerolayer.guard.identity import Quota
from zerolayer.serve.fleet import build_fleet

_log = logging.getLogger("zerolayer.serve")

_SYNC_NS = 1_000_000_000


class Keyring:
    """The authenticator and its files, which ``helper`` reads, so that the loop never waits for a disk."""

    def __init__(self, contract: Contract, clock_ns: Callable[[], int], helper: Executor) -> None:
        tenants = contract.tenants
        key_set = Path(tenants.key_set).expanduser()
        revoked = Path(tenants.revocations).expanduser() if tenants.revocations else key_set.with_name(REVOKED)
        self._files = KeyFiles(key_set, revoked, base64.b64decode(tenants.root) if tenants.root else None)
        self._documents = self._files.open()
        self._helper = helper
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self.authenticator = Authenticator(
            self._documents.key_set,
            self._documents.revocations,
            time.time,
            clock_ns,
            tenants.revocations_max_age_s,
        )

    def look(self) -> None:
        """Whether the files have changed; what they say now counts a moment later. Called several times a second."""
        if not self._reading and self._files.changed():
            self._reading = True
            future = self._helper.submit(self._files.newer, self._documents)
            future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._adopt, done))

    def _adopt(self, read: Future[KeyDocuments | None]) -> None:
        self._reading = False
        if read.cancelled() or (found := read.result()) is None:
            return
        self._documents = found
        self.authenticator.adopt(found.key_set, found.revocations)
        _log.info(
            "keys were read again: epoch %d, %d signing keys, %d keys revoked",
            found.key_set.epoch,
            len(found.key_set.keys),
            len(found.revocations.keys),
        )


def build_keyring(contract: Contract, clock_ns: Callable[[], int], helper: Executor) -> Keyring | None:
    """None where the contract names no key set. Raises ``StartupError``."""
    return Keyring(contract, clock_ns, helper) if contract.tenants.key_set else None


class BudgetBook:
    """The budgets of one server and the log that they survive a restart in.

    ``port`` 0, without ``tenants.state``, keeps nothing: a service on another port each time is another service.
    """

    def __init__(self, contract: Contract, clock_ns: Callable[[], int], helper: Executor, port: int) -> None:
        self._helper = helper
        self._fleet = build_fleet(contract.tenants)
        self._synced_ns = 0
        tenants = contract.tenants
        quotas = {tenant.name: _quota(tenant) for tenant in contract.tenant}
        default = _quota(tenants)
        kept = bool(tenants.key_set) or default.limited or any(quota.limited for quota in quotas.values())
        self._path = path = _state_path(tenants.state, port) if kept else None
        self._journal = None if path is None else BudgetJournal(path)
        offset_ns = time.time_ns() - clock_ns()
        self.budgets = Budgets(
            lambda: (clock_ns() + offset_ns) // 1000,
            default,
            quotas,
            self._journal,
            {} if self._journal is None else self._journal.kept,
            *(() if self._fleet is None else (self._fleet.elsewhere,)),
        )
        if self._fleet is not None:
            self._fleet.start(self.budgets)
        if self._journal is not None:
            self._journal.states = self.budgets.states

    def sweep(self, now_ns: int) -> None:
        """Several times a second: leases go home; once a second the log is brought to the disk, off the loop."""
        if self._fleet is not None:
            self._fleet.sweep()
        if self._journal is not None and now_ns - self._synced_ns >= _SYNC_NS:
            self._synced_ns = now_ns
            self._helper.submit(self._journal.sync)

    def move_out(self) -> None:
        """Another process keeps the log from now on."""
        if self._journal is not None:
            self.budgets.keep = keep_nothing
            self._journal.close()
            self._journal = None

    def move_in(self) -> bool:
        """``move_out`` was in vain: what the other process has written counts. False while it still has the log."""
        if self._path is not None and self._journal is None:
            try:
                self._journal = BudgetJournal(self._path)
            except StartupError:
                return False
            self._journal.states = self.budgets.states
            self.budgets.keep = self._journal.write
            self.budgets.take_worse(self._journal.kept)
        return True

    def close(self) -> None:
        """At the end, when no reply is on its way."""
        if self._fleet is not None:
            self._fleet.close()
        if self._journal is not None:
            self._journal.close()


def _quota(limits: Tenant | Tenants) -> Quota:
    return Quota(limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent, limits.compute_us_per_day)


def _state_path(named: str, port: int) -> Path | None:
    if named:
        return Path(named).expanduser()
    if port == 0:
        return None
    folder = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(folder) / "zerolayer" / f"budgets-{port}.log"
