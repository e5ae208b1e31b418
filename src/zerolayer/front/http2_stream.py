"""One HTTP/2 stream as the way back of one request."""

from __future__ import annotations

from typing import Final, Protocol

from zerolayer.front.caller import Caller
from zerolayer.front.common_headers import CommonHeaders
from zerolayer.front.exchange import Exchange, Headers
from zerolayer.front.lines import FrameOutlet, Outlet
from zerolayer.wire.http2 import Code, Http2Protocol
from zerolayer.wire.http2_reply import later_block, length_field

_WITHOUT_LENGTH: Final = frozenset({204, 304})


class StreamCarrier(Protocol):
    """The connection, as a stream needs it."""

    core: Http2Protocol
    common: CommonHeaders
    scheduled: bool  # a write in the next turn of the loop

    @property
    def caller(self) -> Caller:
        """Who is at the other end."""

    def wake(self) -> None:
        """Write in the next turn of the loop."""

    def done(self, stream: Http2Stream) -> None:
        """Its last frame was collected."""

    def reset(self, stream: Http2Stream, code: Code) -> None:
        """End the stream without an end."""

    def overrun(self, stream: Http2Stream) -> None:
        """More than may be unsent: the stream is cancelled."""


class Http2Stream:
    """One request's way back. It knows the exchange until the reply is complete, and the exchange knows it."""

    __slots__ = ("_connection", "common", "deadline_ns", "exchange", "id")

    draining = False  # the connection says it, once for all its streams
    later = staticmethod(later_block)

    def __init__(self, connection: StreamCarrier, stream_id: int, deadline_ns: int) -> None:
        self._connection = connection
        self.common = connection.common
        self.id = stream_id
        self.deadline_ns = deadline_ns  # of the request's body
        self.exchange: Exchange

    @property
    def caller(self) -> Caller:
        """Who is at the other end."""
        return self._connection.caller

    def reply(
        self,
        status: int,
        common: bytes,
        headers: Headers,
        body: bytes,
        *,
        keep_alive: bool,  # noqa: ARG002 - HTTP/2 has no such choice
        head_only: bool,
    ) -> None:
        """A complete reply. Without a body it has no length either: the gRPC trailers-only form is such a reply."""
        if body and status not in _WITHOUT_LENGTH:
            common += length_field(len(body))
        connection = self._connection
        connection.core.reply(self.id, status, headers, b"" if head_only else body, common=common)
        connection.done(self)
        del self.exchange

    def open_stream(self, common: bytes, headers: Headers, data: bytes, *, keep_alive: bool) -> None:  # noqa: ARG002
        """The head of a streamed reply, and its first piece."""
        connection = self._connection
        connection.core.open_reply(self.id, 200, headers, common=common)
        if data:
            self.send(data)
        else:
            connection.wake()

    def send(self, data: bytes) -> None:
        """A further piece."""
        connection = self._connection
        if not connection.core.send(self.id, data):
            connection.overrun(self)
        elif not connection.scheduled:
            connection.wake()

    def outlet(self) -> Outlet | None:
        """As ``exchange.Carrier``."""
        sending = self._connection.core.sending(self.id)
        return None if sending is None else FrameOutlet(self._connection, *sending)

    def end_stream(self, data: bytes, trailers: Headers, *, keep_alive: bool) -> None:  # noqa: ARG002
        """The last piece."""
        connection = self._connection
        connection.core.end(self.id, data, trailers)
        connection.done(self)
        del self.exchange

    def whole_stream(
        self,
        common: bytes,
        headers: Headers,
        data: bytes,
        trailers: Headers,
        *,
        keep_alive: bool,  # noqa: ARG002
    ) -> None:
        """Head, only piece and end of a streamed reply."""
        connection = self._connection
        connection.core.reply(self.id, 200, headers, data, trailers, common=common)
        connection.done(self)
        del self.exchange

    def break_stream(self, data: bytes) -> None:
        """The last piece of a stream that failed: the reset after it says so."""
        self.send(data)
        self._connection.reset(self, Code.INTERNAL_ERROR)

    def cut(self) -> None:
        """Reset the stream."""
        self._connection.reset(self, Code.INTERNAL_ERROR)
        self.exchange.gone()
