"""One request and its reply on a connection, whatever the reply is: complete, streamed, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from zerolayer.errors import Infeasible, InvalidRequest, MethodNotAllowed, SlotsBusy, Unavailable, ZerolayerError
from zerolayer.front.defect import log_defect
from zerolayer.front.site import Header, Site
from zerolayer.observe.stages import Stage, StageClock
from zerolayer.wire.http1 import Head
from zerolayer.wire.http1_reply import LAST_CHUNK, chunk, response, retry_headers, stream_head
from zerolayer.wire.openai_reply import error_body

JSON: Final[Header] = (b"content-type", b"application/json")
_EVENT_STREAM: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the stream otherwise
)
# A server that drains comes back as another process; a second is about what that takes.
_AWAY: Final[tuple[Header, ...]] = ((b"retry-after-ms", b"1000"), (b"retry-after", b"1"), (b"x-should-retry", b"true"))
_FINAL: Final[tuple[Header, ...]] = ((b"x-should-retry", b"false"),)

Action = Callable[["Exchange"], None]
Headers = tuple[Header, ...]
ErrorReply = tuple[int, Headers, bytes]
_UNREADABLE: Final = Head("", "", "", (), 1, False, False, 0)


class Carrier(Protocol):
    """What an exchange needs of its connection."""

    draining: bool

    def write(self, data: bytes) -> None:
        """Hand bytes to the kernel."""

    def replied(self, *, keep_alive: bool) -> None:
        """The reply is written."""

    def cut(self) -> None:
        """Reset the connection."""


class Exchange:
    """``head`` is None when it was unreadable. ``on_gone`` is called once if the client leaves before the end.

    A route may set ``media``, the headers of a streamed reply, and ``explain``, the form of an error.
    """

    __slots__ = (
        "_connection", "_left", "_site", "action", "allow", "body", "explain", "head", "media", "more_headers",
        "on_gone", "request_id", "stages", "streaming",
    )  # fmt: skip

    def __init__(self, connection: Carrier, site: Site, head: Head | None, first_byte_ns: int) -> None:
        self._connection = connection
        self._site = site
        self.head = head or _UNREADABLE
        self.body = b""
        self.request_id = site.ids.of(self.head)
        self.stages = StageClock(first_byte_ns)
        self.action: Action | None = None
        self.allow = b""
        self.on_gone: Callable[[], None] | None = None
        self.streaming = False
        self.more_headers: tuple[Header, ...] = ()  # of this reply, whatever it becomes
        self.media: tuple[Header, ...] = _EVENT_STREAM
        self.explain: Callable[[ZerolayerError], ErrorReply] | None = None
        self._left = False
        site.glue.enter(first_byte_ns)

    def mark(self, stage: Stage) -> None:
        """Close the span since the last mark."""
        self.stages.mark(stage, self._site.clock_ns())

    def reply(self, status: int, headers: tuple[Header, ...], body: bytes, *, keep_alive: bool = True) -> None:
        """A complete reply, in one write. After the end of a reply every further one is void."""
        if self._left:
            return
        keep_alive = keep_alive and self._keep_alive
        head_only = self.head.method == "HEAD"
        common = (*self._site.headers(self.request_id, self.head.get(b"origin")), *self.more_headers)
        data = response(status, (*common, *headers), body, keep_alive=keep_alive, head_only=head_only)
        self._last_write(data)
        self._connection.replied(keep_alive=keep_alive)

    def error(self, error: ZerolayerError, *, keep_alive: bool = True) -> None:
        """A complete reply that says what was wrong."""
        self._site.metrics.refused(error.code)
        explain = self.explain or self._explain
        self.reply(*explain(error), keep_alive=keep_alive)

    def defect(self, error: Exception) -> None:
        """The server's own code failed on this request: it costs this request, and nobody else's."""
        log_defect("a request failed", error)
        if self.streaming:
            self._connection.cut()
        else:
            self.error(ZerolayerError("the server failed on this request; this is a defect of the server"))

    def stream(self, events: bytes) -> None:
        """Events of one step, in one write; the first call brings the head."""
        if not self._left:
            framed = chunk(events) if self._chunked else events
            self._connection.write(self._opened(framed))

    def end_stream(self, events: bytes) -> None:
        """The last events; the stream ends as complete."""
        if self._left:
            return
        framed = chunk(events) + LAST_CHUNK if self._chunked else events
        keep_alive = self._keep_alive and self._chunked
        self._last_write(self._opened(framed))
        self._connection.replied(keep_alive=keep_alive)

    def break_stream(self, events: bytes) -> None:
        """The last events of a stream that failed: without a last chunk nobody takes it for complete."""
        if self._left:
            return
        self._last_write(chunk(events) if self._chunked else events)
        if self._chunked:
            self._connection.replied(keep_alive=False)
        else:
            self._connection.cut()

    def gone(self) -> None:
        """The client is away: nothing more can be written."""
        on_gone, self.on_gone = self.on_gone, None
        self._leave(Stage.WAIT)
        if on_gone is not None:
            on_gone()

    @property
    def _chunked(self) -> bool:
        return self.head.minor == 1  # HTTP/1.0 knows no chunks: there the end of the connection ends the body

    @property
    def _keep_alive(self) -> bool:
        return self.head.keep_alive and not self._connection.draining

    def _opened(self, framed: bytes) -> bytes:
        if self.streaming:
            return framed
        self.streaming = True
        headers = (*self._site.headers(self.request_id, self.head.get(b"origin")), *self.media, *self.more_headers)
        return stream_head(headers, keep_alive=self._keep_alive, chunked=self._chunked) + framed

    def _explain(self, error: ZerolayerError) -> ErrorReply:
        extra: tuple[Header, ...] = ()
        if isinstance(error, SlotsBusy):
            extra = retry_headers(error)
        elif isinstance(error, Unavailable):
            extra = _AWAY
        elif isinstance(error, MethodNotAllowed):
            extra = ((b"allow", self.allow),)
        elif isinstance(error, InvalidRequest | Infeasible):
            extra = _FINAL
        return error.status, (JSON, *extra), error_body(error)

    def _last_write(self, data: bytes) -> None:
        self.on_gone = None
        self.mark(Stage.FRAME)
        self._connection.write(data)
        self._leave(Stage.WRITE)

    def _leave(self, last: Stage) -> None:
        """Close the account, once: a client that is cut by its own last write has left already."""
        if not self._left:
            self._left = True
            now = self._site.clock_ns()
            self.stages.mark(last, now)
            self._site.glue.leave(now)
