"""The records of one server: ledger, books and compute meter, built from the contract, and their upkeep."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import zerolayer
from zerolayer.contract import Contract
from zerolayer.contract_records import AuditLevel, AuditRules
from zerolayer.errors import LedgerDamaged, LedgerError, Unavailable
from zerolayer.front.receipt import Books
from zerolayer.guard.guard import Guard
from zerolayer.guard.ledger.annex import annexes, join, open_annex, remove
from zerolayer.guard.ledger.audit import Audit, Level, Policy
from zerolayer.guard.ledger.ledger import Ledger, Rules
from zerolayer.guard.ledger.place import ledger_folder
from zerolayer.observe.compute import ComputeMeter

if TYPE_CHECKING:
    from zerolayer.serve.tracing import Traces

_log = logging.getLogger("zerolayer.serve")

_NS_PER_MS: Final = 1_000_000
_FULL: Final = "the server cannot write its ledger; the operator must make room on its disk"


class Records:
    """Owns the ledger. ``helper`` brings it to the disk, so that the loop never waits for one.

    ``name`` is the model's, ``wall_s`` gives Unix seconds; other times are monotonic nanoseconds.
    Raises ``LedgerError``.
    """

    def __init__(
        self,
        contract: Contract,
        name: str,
        meter: ComputeMeter,
        wall_s: Callable[[], float],
        helper: Executor,
        environ: Mapping[str, str],
    ) -> None:
        folder = ledger_folder(contract, environ)
        self._wall_s, self._rules = wall_s, _rules(contract)
        self.ledger = None if folder is None else Ledger(folder, wall_s, self._rules)
        self._annexes = [] if folder is None else annexes(folder)
        self.meter = meter
        self.traces = _traces(contract, environ)
        self.books = Books(
            self.ledger, name, build_audit(contract), meter, access=contract.log.access, traces=self.traces
        )
        self._home = folder
        self._fsync_ns = contract.ledger.fsync_ms * _NS_PER_MS
        self._helper = helper
        self._bringing: Future[None] | None = None
        self._brought_ns = 0

    def sweep(self, now_ns: int, guard: Guard) -> None:
        """Several times a second: what is due for the disk, and what a full one did not take."""
        self.books.meter(now_ns)
        ledger = self.ledger
        if ledger is None:
            return
        if ledger.failed:
            ledger.retry()
        elif self._annexes:
            self._join()
        guard.refuse_unrecorded(Unavailable(_FULL) if ledger.failed else None)
        done = self._bringing is None or self._bringing.done()
        if self._fsync_ns and done and now_ns - self._brought_ns >= self._fsync_ns:
            self._brought_ns = now_ns
            bring = ledger.due()
            self._bringing = None if bring is None else self._helper.submit(bring)

    def move_out(self) -> None:
        """Another process writes the ledger from now on; what is still to be told goes into an annex of it.

        Raises ``LedgerError``, and then nothing has changed.
        """
        if self.ledger is not None:
            annex = open_annex(self.ledger, self._wall_s, self._rules)
            self.ledger.close(later=self._helper.submit)
            self.ledger, self._annexes = annex, []
            self.books.write_to(annex)

    def move_in(self) -> bool:
        """``move_out`` was in vain. False while the other process still has the ledger; then later again."""
        if self.ledger is None or self._home is None or self.ledger.folder == self._home:
            return True
        try:
            ledger = Ledger(self._home, self._wall_s, self._rules)
        except LedgerError:
            return False
        self.ledger.close()
        self.ledger, self._annexes = ledger, annexes(ledger.folder)
        self.books.write_to(ledger)
        return True

    def _join(self, *, at_once: bool = False) -> None:
        """Copy the annexes that nobody writes any more, and remove them once the copy is on the disk."""
        ledger = self.ledger
        if ledger is None or ledger.failed:
            return
        for annex in tuple(self._annexes):
            try:
                if not join(ledger, annex):
                    continue
            except LedgerDamaged as error:
                _log.error("a part of the ledger was left where it is: %s", error.message)
                self._annexes.remove(annex)
                continue
            self._annexes.remove(annex)
            settle = partial(_settle, ledger.due(), annex)
            if at_once:
                settle()
            else:
                self._helper.submit(settle)

    def spans(self) -> dict[str, int]:
        """Spans by what became of them; empty without a collector."""
        traces = self.traces
        return {} if traces is None else {"sent": traces.sent, "dropped": traces.dropped}

    def close(self, now_ns: int) -> None:
        """After the last request: what is charged to nobody's record, and everything on the disk."""
        self.meter.rest(now_ns)
        self.books.meter(now_ns, last=True)
        if self.ledger is not None:
            if self.ledger.folder != self._home:
                self.move_in()  # nobody else may be there to join what was written last
            self._join(at_once=True)
            self.ledger.close()
        if self.traces is not None:
            self.traces.close()


def _settle(bring: Callable[[], None] | None, annex: Path) -> None:
    """What was copied is on the disk before the annex is gone."""
    if bring is not None:
        bring()
    remove(annex)


def _traces(contract: Contract, environ: Mapping[str, str]) -> Traces | None:
    """None where the contract names no collector; an HTTP client is loaded only where it does."""
    if not contract.traces.endpoint:
        return None
    from zerolayer.serve.tracing import build_traces

    return build_traces(contract, environ)


def build_audit(contract: Contract) -> Audit:
    """How much is kept of whom, as the contract has it."""
    tenants = {tenant.name: _policy(tenant.audit, tenant.audit_rules) for tenant in contract.tenant}
    return Audit(_policy(contract.ledger.audit, contract.ledger.audit_rules), tenants)


def _policy(level: AuditLevel, rules: AuditRules) -> Policy:
    return Policy(Level(level), rules)


def _rules(contract: Contract) -> Rules:
    return Rules(
        segment_bytes=contract.ledger.segment_mb << 20,
        keep=contract.ledger.keep,
        node=f"{socket.gethostname()}:{contract.listen.port}",
        server=zerolayer.__version__,
    )
