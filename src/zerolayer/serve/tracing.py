"""OpenTelemetry spans of requests, made from the records that the ledger gets too, and sent by a thread of their own.

On the loop a request costs one entry of a bounded deque. Names are those of OpenTelemetry's semantic conventions for
generative AI (Development status); what they have no name for is ``zerolayer.*``. Nothing of any text is in a span.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

import zerolayer
from zerolayer.contract import Contract
from zerolayer.guard.ledger.record import Entry, Flag, Outcome
from zerolayer.observe.otlp import MEDIA, PATH, Event, Parent, Span, Value, export_request, parent_of
from zerolayer.observe.stages import STAGE_NAMES

_log = logging.getLogger("zerolayer.traces")

_WAITING: Final = 4096  # records that are not sent yet; beyond that they are dropped and counted
_AT_ONCE: Final = 512
_EVERY_S: Final = 2.0
_PATIENCE_S: Final = 5.0
_LAST_S: Final = 2.0  # for what is left when the server ends
_TELL_S: Final = 60.0  # between two warnings
_US: Final = 1000
_PLAIN: Final = "text_completion"
_OPERATIONS: Final = {b"completions": _PLAIN}
_CHAT: Final = "chat"
_UNNAMED: Final = int(Flag.UNNAMED)  # a plain number: this is looked at on the loop


class _Taken(msgspec.Struct, frozen=True):
    """A record, its end in Unix nanoseconds, whose span it belongs to, and the conversation's name."""

    entry: Entry
    ended_ns: int
    parent: Parent | None
    session: str = ""


class Traces:
    """``take`` on the loop, ``close`` at the end; all else happens on the thread.

    ``share`` is of the requests whose client does not say, ``post`` sends a body or raises OSError.
    """

    def __init__(
        self,
        share: float,
        resource: Mapping[str, Value],
        post: Callable[[bytes], None],
        *,
        every_s: float,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.sent = 0
        self._not_taken = self._not_sent = 0  # counted on the loop, and on the thread
        self._share = share
        self._resource = resource
        self._post = post
        self._wall_ns = wall_ns
        self._every_s = every_s
        self._due = 0.0
        self._waiting: deque[_Taken] = deque()
        self._over = threading.Event()
        self._told_s = float("-inf")
        self._thread = threading.Thread(target=self._run, name="zerolayer-traces", daemon=True)
        self._thread.start()

    def take(self, entry: Entry, traceparent: bytes | None, session: str = "") -> None:
        """A request ends now. Whether it is traced its client says, where its ``traceparent`` does, else the share."""
        if entry.flags & _UNNAMED:
            return
        parent = parent_of(traceparent)
        if parent is None:
            self._due += self._share
            if self._due < 1:
                return
            self._due -= 1
        elif not parent.sampled:
            return
        if len(self._waiting) >= _WAITING:
            self._not_taken += 1
            return
        self._waiting.append(_Taken(entry, self._wall_ns(), parent, session))

    @property
    def dropped(self) -> int:
        """Spans that nobody will see: the collector did not take them, or too many waited for it."""
        return self._not_taken + self._not_sent

    def close(self) -> None:
        """Send what is left, within two seconds."""
        self._over.set()
        self._thread.join(_LAST_S)

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            self._send_all()
        self._send_all()

    def _send_all(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
            body = export_request(
                self._resource, ("zerolayer", zerolayer.__version__), [span_of(each) for each in batch]
            )
            try:
                self._post(body)
            except (OSError, ValueError, HTTPException):
                self._not_sent += len(batch)
                self._tell()
                return
            self.sent += len(batch)

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told_s >= _TELL_S:
            self._told_s = now
            _log.warning("traces are not taken by traces.endpoint; %d spans were dropped so far", self.dropped)


def span_of(taken: _Taken) -> Span:
    """The span of a record."""
    entry, parent = taken.entry, taken.parent
    model = entry.model.decode()
    operation = _OPERATIONS.get(entry.route, _CHAT)
    started_ns = taken.ended_ns - sum(entry.stages_us) * _US
    failed = entry.outcome != Outcome.FINISHED
    code = "aborted" if entry.outcome == Outcome.ABORTED else entry.code.decode()
    first = entry.first_token_us
    return Span(
        trace_id=secrets.token_bytes(16) if parent is None else parent.trace_id,
        span_id=secrets.token_bytes(8),
        parent_id=b"" if parent is None else parent.span_id,
        name=f"{operation} {model}",
        started_ns=started_ns,
        ended_ns=taken.ended_ns,
        attributes={
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "zerolayer",
            **({"gen_ai.conversation.id": taken.session} if taken.session else {}),
            "gen_ai.request.model": model,
            "gen_ai.response.model": model,
            "gen_ai.request.max_tokens": entry.max_tokens,
            "gen_ai.request.stream": bool(entry.flags & Flag.STREAMED),
            "gen_ai.usage.input_tokens": entry.prompt_tokens,
            "gen_ai.usage.output_tokens": entry.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": entry.cached_tokens,
            **({"error.type": code} if failed else {"gen_ai.response.finish_reasons": (code,)}),
            "http.response.status_code": entry.status,
            "zerolayer.request_id": entry.request_id.decode(),
            "zerolayer.tenant": entry.tenant.decode(),
            "zerolayer.route": entry.route.decode(),
            "zerolayer.deadline_ms": entry.deadline_ms,
            "zerolayer.compute_us": entry.core_ns // _US,
            **{f"zerolayer.stage.{name}_us": us for name, us in zip(STAGE_NAMES, entry.stages_us, strict=True)},
        },
        events=(Event("first token", started_ns + first * _US),) if first else (),
        error=code if failed and entry.outcome != Outcome.ABORTED else "",
    )


class Collector:
    """Where spans go: ``endpoint`` is ``traces.endpoint`` of the contract, ``headers`` are sent along."""

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(endpoint)
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._path = parts.path if parts.path not in ("", "/") else PATH
        self._headers = {**headers, "content-type": MEDIA, "user-agent": f"zerolayer/{zerolayer.__version__}"}

    def post(self, body: bytes) -> None:
        """Send a body. Raises OSError, for an answer that is no 2xx too, HTTPException, and ValueError for headers."""
        kind = HTTPSConnection if self._secure else HTTPConnection
        connection = kind(self._host, self._port, timeout=_PATIENCE_S)
        try:
            connection.request("POST", self._path, body, self._headers)
            answer = connection.getresponse()
            answer.read()
            if not 200 <= answer.status < 300:
                raise OSError(answer.status)
        finally:
            connection.close()


def build_traces(contract: Contract, environ: Mapping[str, str]) -> Traces:
    """What sends to the contract's collector.

    ``OTEL_SERVICE_NAME`` and ``OTEL_EXPORTER_OTLP_HEADERS`` count as everywhere (OpenTelemetry specification,
    configuration of exporters); the latter holds secrets, so it is no part of the contract.
    """
    resource: dict[str, Value] = {
        "service.name": environ.get("OTEL_SERVICE_NAME") or "zerolayer",
        "service.version": zerolayer.__version__,
        "service.instance.id": f"{socket.gethostname()}:{contract.listen.port}",
    }
    collector = Collector(contract.traces.endpoint, headers_of(environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")))
    return Traces(contract.traces.share, resource, collector.post, every_s=_EVERY_S)


def headers_of(text: str) -> dict[str, str]:
    """``a=1,b=2`` as headers; what has no ``=`` is left out."""
    pairs = (pair.partition("=") for pair in text.split(","))
    return {name.strip(): unquote(value.strip()) for name, equals, value in pairs if equals and name.strip()}
