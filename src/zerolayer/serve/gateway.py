"""Keys and budgets of one server: built from the contract, kept up to date while it runs."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path

from zerolayer.contract import Contract
from zerolayer.guard.auth.authenticator import Authenticator
from zerolayer.guard.auth.key_files import REVOKED, KeyDocuments, KeyFiles

_log = logging.getLogger("zerolayer.serve")


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
