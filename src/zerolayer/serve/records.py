"""The records of one server: ledger, books and compute meter, built from the contract, and their upkeep."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Final

import zerolayer
from zerolayer.contract import Contract
from zerolayer.contract_records import AuditLevel, AuditRules
from zerolayer.errors import Unavailable
from zerolayer.front.receipt import Books
from zerolayer.guard.guard import Guard
from zerolayer.guard.ledger.audit import Audit, Level, Policy
from zerolayer.guard.ledger.ledger import Ledger, Rules
from zerolayer.guard.ledger.place import ledger_folder
from zerolayer.observe.compute import ComputeMeter

if TYPE_CHECKING:
    from zerolayer.serve.tracing import Traces

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
        self.ledger = None if folder is None else Ledger(folder, wall_s, _rules(contract))
        self.meter = meter
        self.traces = _traces(contract, environ)
        self.books = Books(
            self.ledger, name, build_audit(contract), meter, access=contract.log.access, traces=self.traces
        )
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
        guard.refuse_unrecorded(Unavailable(_FULL) if ledger.failed else None)
        done = self._bringing is None or self._bringing.done()
        if self._fsync_ns and done and now_ns - self._brought_ns >= self._fsync_ns:
            self._brought_ns = now_ns
            bring = ledger.due()
            self._bringing = None if bring is None else self._helper.submit(bring)

    def spans(self) -> dict[str, int]:
        """Spans by what became of them; empty without a collector."""
        traces = self.traces
        return {} if traces is None else {"sent": traces.sent, "dropped": traces.dropped}

    def close(self, now_ns: int) -> None:
        """After the last request: what is charged to nobody's record, and everything on the disk."""
        self.meter.rest(now_ns)
        self.books.meter(now_ns, last=True)
        if self.ledger is not None:
            self.ledger.close()
        if self.traces is not None:
            self.traces.close()


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
