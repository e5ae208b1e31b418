"""One request and its reply on a connection, whatever the reply is: complete, streamed, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from zerolayer.errors import (
    BeyondHorizon,
    BudgetSpent,
    DeadlineExpired,
    DeadlineMissed,
    Infeasible,
    InvalidRequest,
    MethodNotAllowed,
    PermissionRefused,
    RetryLater,
    SlotsBusy,
    StaleInput,
    Unauthenticated,
    Unavailable,
    UnsupportedEncoding,
    ZerolayerError,
)
from zerolayer.front._native import CommonHeadersBase, ExchangeBase, RequestIds
from zerolayer.front.caller import Caller
from zerolayer.front.common_headers import CommonHeaders
from zerolayer.front.defect import log_defect
from zerolayer.front.dialect import OPENAI, Dialect
from zerolayer.front.lines import Outlet
from zerolayer.front.receipt import RECORDED, Receipt
from zerolayer.front.site import Header, Site
from zerolayer.guard.identity import ANYONE
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.stages import Stage, StageClock
from zerolayer.wire.http1 import Head
from zerolayer.wire.http1_reply import retry_headers

JSON: Final[Header] = (b"content-type", b"application/json")
_EVENT_STREAM: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the stream otherwise
)
_JSON_ALONE: Final[tuple[Header, ...]] = (JSON,)
_FINAL: Final[tuple[Header, ...]] = ((b"x-should-retry", b"false"),)
_NO_RETRY: Final = (
    InvalidRequest, Infeasible, BeyondHorizon, BudgetSpent, DeadlineExpired, DeadlineMissed, StaleInput,
    Unauthenticated, PermissionRefused,
)  # fmt: skip
# RFC 9110 section 11.6.1: a 401 says how to come in.
_CHALLENGE: Final[tuple[Header, ...]] = ((b"www-authenticate", b'Bearer realm="zerolayer"'),)
_TAKES: Final[tuple[Header, ...]] = ((b"accept-encoding", b"identity"),)  # RFC 9110 section 15.5.16

# For every request: a member of an enumeration is dearer to name.
_WAIT: Final = int(Stage.WAIT)
_WRITE: Final = int(Stage.WRITE)
_OK: Final = 200
_LACK_OF_SLOTS: Final = (SlotsBusy, BeyondHorizon)

NEVER: Final = 1 << 63
Action = Callable[["Exchange"], None]
Headers = tuple[Header, ...]
ErrorReply = tuple[int, Headers, bytes]
_UNREADABLE: Final = Head("", "", "", (), 1, False, False, 0, {})


class Carrier(Protocol):
    """What an exchange needs of its connection, or of its stream of one. Each call is one write at most."""

    draining: bool
    common: CommonHeaders  # in its protocol; what ``of`` gives is handed to the calls below

    @property
    def caller(self) -> Caller:
        """Who is at the other end."""

    def later(self, ms: int, ticket: str, /) -> bytes:
        """When to come back, and for which booking if there is one, in the spelling of ``common``."""

    def reply(
        self, status: int, common: bytes, headers: Headers, body: bytes, *, keep_alive: bool, head_only: bool
    ) -> None:
        """A complete reply."""

    def open_stream(self, common: bytes, headers: Headers, data: bytes, *, keep_alive: bool) -> None:
        """The head of a 200 whose body comes in pieces, and the first of them."""

    def send(self, data: bytes) -> None:
        """A further piece."""

    def outlet(self) -> Outlet | None:
        """Where ``lines.Lines`` may put further pieces of the open stream; None: only ``send`` takes them."""

    def end_stream(self, data: bytes, trailers: Headers, *, keep_alive: bool) -> None:
        """The last piece; trailers exist on HTTP/2 only."""

    def whole_stream(
        self, common: bytes, headers: Headers, data: bytes, trailers: Headers, *, keep_alive: bool
    ) -> None:
        """Head, only piece and end of a streamed reply."""

    def break_stream(self, data: bytes) -> None:
        """The last piece of a body that nobody must take for complete."""

    def cut(self) -> None:
        """Reset the connection, or the stream."""


class Exchange(ExchangeBase):
    """``head`` is None when it was unreadable. ``on_gone`` is called once if the client leaves before the end.

    ``dialect`` follows from the head, and the router sets it. A route may set, before the body is read: ``media``, the
    headers of a streamed reply; ``explain``, the form of an error, whatever the dialect, and ``tells_when``, its
    headers that say when to come back, as the carrier writes them; ``intake``, who takes the body piece by piece, with
    True at its end (HTTP/2 only); ``expired``, who is called when ``deadline_ns`` (monotonic) has passed (HTTP/2 only).
    ``receipt`` is what is written down of the request, ``identity`` is set on the head, before anything else is looked
    at, and ``more_headers`` are those of this reply, whatever it becomes.
    """

    __slots__ = ()

    @property
    def request_id(self) -> str:
        """The client's own name for the request, or one that we made; visible ASCII."""
        return self.id.decode("ascii")

    @property
    def credential(self) -> str | bytes:
        """Whom bookings belong to: a key, else who calls."""
        return self.identity.key_id or self._connection.caller.name

    def record(self) -> None:
        """From here on the ledger will tell of this request, however it ends."""
        books = self._site.books
        if self.receipt is None and books is not None and books.open:
            self.receipt = Receipt(RECORDED.get(self.head.path) or self.head.path.encode("latin-1", "replace"))

    def error(self, error: ZerolayerError, *, keep_alive: bool = True) -> None:
        """A complete reply that says what was wrong."""
        metrics = self._site.metrics
        metrics.refused(error.code)
        if error.limit:
            metrics.limited(error.limit, "refused")
        if self.receipt is not None:
            self.receipt.failed(error)
        spelled = b""
        if isinstance(error, RetryLater):  # under load most of all
            if self.tells_when is None:
                spelled = self._connection.later(error.retry_after_ms, error.ticket or "")
            else:
                spelled = self.tells_when(error)
            if self.explain is None:
                status, body = self.dialect.error(error, self.id)
                headers = _JSON_ALONE
            else:
                status, headers, body = self.explain(error)
        elif self.explain is None:
            status, headers, body = self._explain(error)
        else:
            status, headers, body = self.explain(error)
        self.reply(status, headers, body, keep_alive=keep_alive, spelled=spelled)
        if isinstance(error, _LACK_OF_SLOTS):
            stages = self.stages
            metrics.promises.refused(stages.last_ns - stages.started_ns)

    def defect(self, error: Exception) -> None:
        """The server's own code failed on this request: it costs this request, and nobody else's."""
        log_defect("a request failed", error)
        told = ZerolayerError("the server failed on this request; this is a defect of the server")
        if self.streaming:
            if self.receipt is not None:
                self.receipt.failed(told)
            self._connection.cut()
        else:
            self.error(told)

    def stream(self, events: bytes) -> None:
        """Events of one step, in one write; the first call brings the head."""
        if self._left:
            return
        if self.streaming:
            self._connection.send(events)
        else:
            self._open(events)

    def outlet(self) -> Outlet | None:
        """As ``Carrier.outlet``, while the stream is open."""
        return self._connection.outlet() if self.streaming and not self._left else None

    def break_stream(self, events: bytes) -> None:
        """The last events of a stream that failed: nobody takes it for complete."""
        if self._left:
            return
        self._finish(_OK)
        self._connection.break_stream(events)
        self._leave(_WRITE)

    def park(self) -> None:
        """The reply stays open and waits for news: from here on it is no work, and no glue."""
        if not (self._left or self._parked):
            self._parked = True
            self._site.glue.leave(self._site.clock_ns())

    @property
    def caller(self) -> Caller:
        """Who asks: the process behind a Unix socket, the certificate behind TLS."""
        return self._connection.caller

    def wall_s(self) -> float:
        """The wall clock, in Unix seconds."""
        return self._site.wall_s()

    def gone(self) -> None:
        """The client is away: nothing more can be written."""
        on_gone, self.on_gone = self.on_gone, None
        self._leave(_WAIT)
        self._file(_OK if self.streaming else 0)
        if on_gone is not None:
            if not self._parked:
                self._site.metrics.abandoned(self.stages)
            on_gone()

    def _open(self, events: bytes) -> None:
        self.streaming = True
        head, connection = self.head, self._connection
        common = connection.common.of(self.id, self.dialect.id_header, head.values.get(b"origin"))
        keep_alive = head.keep_alive and not connection.draining
        connection.open_stream(common, self.media + self.more_headers, events, keep_alive=keep_alive)

    def _explain(self, error: ZerolayerError) -> ErrorReply:
        extra: tuple[Header, ...] = ()
        if isinstance(error, Unavailable):
            extra = retry_headers(error)
        elif isinstance(error, MethodNotAllowed):
            extra = ((b"allow", self.allow),)
        elif isinstance(error, UnsupportedEncoding):
            extra = _TAKES
        elif isinstance(error, _NO_RETRY):
            extra = (*_CHALLENGE, *_FINAL) if isinstance(error, Unauthenticated) else _FINAL
        status, body = self.dialect.error(error, self.id)
        return status, (JSON, *extra), body

    def _file(self, status: int) -> None:
        receipt, self.receipt = self.receipt, None
        if receipt is not None and self._site.books is not None:
            self._site.books.file(
                receipt, self.identity, self.request_id, status, self.stages, self.streaming, self.head
            )


ExchangeBase.begin_with(
    {
        "Site": Site, "Head": Head, "Dialect": Dialect, "StageClock": StageClock, "GlueMeter": GlueMeter,
        "RequestIds": RequestIds, "CommonHeaders": CommonHeadersBase, "unreadable": _UNREADABLE, "identity": ANYONE,
        "dialect": OPENAI, "media": _EVENT_STREAM, "never": NEVER,
    }
)  # fmt: skip


class Router(Protocol):
    """Decides what a request is for."""

    def check(self, exchange: Exchange) -> ZerolayerError | None:
        """Decide on the head alone; sets ``exchange.action`` or returns the refusal."""
