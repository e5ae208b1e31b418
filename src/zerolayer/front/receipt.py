"""What is written down of a request: collected while it runs, filed once, just before its last bytes leave."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from zerolayer.errors import RetryLater, Unavailable, ZerolayerError
from zerolayer.guard.identity import Identity
from zerolayer.guard.ledger.audit import Audit, Level
from zerolayer.guard.ledger.ledger import Ledger
from zerolayer.guard.ledger.record import MODEL_BYTES, STAGES, Entry, Flag, Match, Meter, Outcome, Told, entry_of, fit
from zerolayer.guard.spent import Spent
from zerolayer.observe.compute import IDLE, ComputeMeter
from zerolayer.observe.stages import StageClock
from zerolayer.wire.http1 import Head

_access = logging.getLogger("zerolayer.access")

RECORDED: Final[Mapping[str, bytes]] = {
    "/v1/chat/completions": b"chat.completions",
    "/v1/completions": b"completions",
    "/v1/messages": b"messages",
    "/v1/responses": b"responses",
    "/v1/generate": b"generate",
    "/zerolayer.v1.Inference/Generate": b"grpc.generate",
}
"""The paths whose requests the ledger tells of, and their names in it."""

# A refusal that says when to come back is no end; the request is recorded when it comes again.
_NOT_FOR_GOOD: Final = (RetryLater, Unavailable)
_US: Final = 1000  # nanoseconds
# Plain numbers: this runs once a request.
_FINISHED: Final = int(Outcome.FINISHED)
_STREAMED, _ANSWER_CACHED, _UNNAMED = int(Flag.STREAMED), int(Flag.ANSWER_CACHED), int(Flag.UNNAMED)
_NO_STAGES: Final = (0,) * STAGES
_METER_NS: Final = 60_000_000_000  # between two records of compute that is in no request's


class Work(Protocol):
    """One answer that runs for a request."""

    @property
    def compute_ns(self) -> int:
        """What it cost so far, nanoseconds of one core."""

    def spent(self) -> Spent:
        """What ran so far."""


class Watch(Protocol):
    """Looks at the tokens of an answer as they come."""

    def matches(self) -> Sequence[Match]:
        """What is to be kept of them."""


class Traces(Protocol):
    """Makes spans of records."""

    def take(self, entry: Entry, traceparent: bytes | None, session: str = "") -> None:
        """A request of the conversation ``session`` ends now; ``traceparent`` is the header of that name."""


class Receipt(msgspec.Struct, eq=False):
    """Mutable, one a request. ``works`` are its answers, ``sharing`` those whose prompt another one counts."""

    route: bytes
    model: bytes = b""  # that answers; empty: the one that is served when the request ends
    code: str = ""
    outcome: int = int(Outcome.ABORTED)  # unless something else is said before the end
    works: list[Work] = []
    sharing: list[Work] = []
    watches: list[Watch] = []
    max_tokens: int = 0
    deadline_ms: int = 0
    first_token_ns: int = 0
    answer_cached: bool = False
    session: str = ""  # the conversation that the client says it belongs to

    def began(self, work: Work, max_tokens: int, deadline_ms: int, *, counts: bool = True) -> None:
        """An answer has its slot. ``counts``: its prompt is not the one of an answer before it."""
        self.works.append(work)
        if not counts:
            self.sharing.append(work)
        if max_tokens > self.max_tokens:
            self.max_tokens = max_tokens
        self.deadline_ms = deadline_ms

    def finished(self, reason: str) -> None:
        """The reply will be complete."""
        self.outcome, self.code = _FINISHED, reason

    def failed(self, error: ZerolayerError) -> None:
        """The reply will be an error, or be cut by one."""
        self.outcome, self.code = (Outcome.FAILED if self.works else Outcome.REFUSED), error.code
        if not self.works and isinstance(error, _NOT_FOR_GOOD):
            self.route = b""


class Books:
    """Where receipts go: the ledger, the access log and traces, each if there is one. On the loop."""

    def __init__(
        self,
        ledger: Ledger | None,
        model: str,
        audit: Audit,
        meter: ComputeMeter,
        *,
        access: bool = False,
        traces: Traces | None = None,
    ) -> None:
        self._ledger = ledger
        self._model = model_bytes(model)
        self._audit = audit
        self._meter = meter
        self._access = access
        self._traces = traces
        self.open = ledger is not None or traces is not None or access  # else nobody reads what is written down
        self._tenants: dict[str, tuple[bytes, bool]] = {}  # the name, and whether more is told
        self._metered_ns = meter.started_ns
        self._idle_ns = 0

    @property
    def audit(self) -> Audit:
        """How much is kept of whom."""
        return self._audit

    def serve(self, model: str) -> None:
        """From now on another model is served."""
        self._model = model_bytes(model)

    @property
    def ledger(self) -> Ledger | None:
        """Where records go, if anywhere."""
        return self._ledger

    def write_to(self, ledger: Ledger) -> None:
        """Records go there from now on."""
        self._ledger = ledger

    def file(
        self,
        receipt: Receipt,
        identity: Identity,
        request_id: str,
        status: int,
        stages: StageClock,
        streamed: bool,
        head: Head,
    ) -> None:
        """Write down a request that ends now."""
        if not receipt.route:
            return
        known = self._tenants.get(identity.tenant)
        if known is None:
            named = self._audit.level(identity.tenant) is not Level.OFF
            known = self._tenants[identity.tenant] = (identity.tenant.encode(), named)
        tenant, named = known
        prompt = cached = output = core_ns = 0
        for work in receipt.works:
            spent = work.spent()
            output += spent.output_tokens
            core_ns += work.compute_ns
            if work not in receipt.sharing:
                prompt += spent.prompt_tokens
                cached += spent.cached_tokens
        flags = (_STREAMED if streamed else 0) | (_ANSWER_CACHED if receipt.answer_cached else 0)
        model = receipt.model or self._model
        told: Told
        if named:
            first_us = (receipt.first_token_ns - stages.started_ns) // _US if receipt.first_token_ns else 0
            told = (
                receipt.outcome, status, flags, identity.key_id, tenant, model, request_id, receipt.route,
                receipt.code, prompt, cached, output, receipt.max_tokens, core_ns, first_us, receipt.deadline_ms,
                stages.spent_ns(),
            )  # fmt: skip
        else:
            told = (
                receipt.outcome, status, flags | _UNNAMED, identity.key_id, tenant, model, "", b"", "",
                prompt, cached, output, receipt.max_tokens, core_ns, 0, receipt.deadline_ms, _NO_STAGES,
            )  # fmt: skip
        if self._ledger is not None:
            for watch in receipt.watches:
                for match in watch.matches():
                    self._ledger.append(match)
            self._ledger.request(told)
        if self._traces is not None:
            self._traces.take(entry_of(told), head.get(b"traceparent"), receipt.session)
        if self._access:
            _log_access(entry_of(told), receipt.session if named else "")

    def meter(self, now_ns: int, *, last: bool = False) -> None:
        """Once a minute, and with ``last`` now: compute that no request's record holds, so that all records sum up."""
        span = now_ns - self._metered_ns
        if self._ledger is None or (span < _METER_NS and not last):
            return
        meter = self._meter
        for tenant, core_ns in meter.take_unrecorded().items():
            if tenant != IDLE:
                self._ledger.append(Meter(tenant.encode(), core_ns, model=self._model))
        idle = meter.totals[IDLE]
        wall_ns = meter.started_ns + meter.wall_ns - self._metered_ns
        idle_ns, self._idle_ns = idle - self._idle_ns, idle
        self._ledger.append(Meter(IDLE.encode(), idle_ns, wall_ns // _US, meter.cores, self._model))
        self._metered_ns += wall_ns


def model_bytes(name: str) -> bytes:
    """A model's name as records have it."""
    return fit(name, MODEL_BYTES)


def _log_access(entry: Entry, session: str) -> None:
    _access.info(
        "request",
        extra={
            "tenant": entry.tenant.decode(),
            "request_id": entry.request_id.decode(),
            "session": session,
            "route": entry.route.decode(),
            "status": entry.status,
            "outcome": Outcome(entry.outcome).name.lower(),
            "code": entry.code.decode(),
            "prompt_tokens": entry.prompt_tokens,
            "completion_tokens": entry.completion_tokens,
            "compute_us": entry.core_ns // _US,
            "took_us": sum(entry.stages_us),
        },
    )
