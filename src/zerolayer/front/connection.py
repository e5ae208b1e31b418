"""One TCP connection: bytes to requests, one request at a time, replies in order (HTTP/1.1, RFC 9112).

How what is written reaches the client, ``http1_output`` says.

Every wait has an end. A deadline in monotonic nanoseconds belongs to each phase, and one sweep over all connections
calls ``expire`` with the time, so no request costs a timer. What a client can make the server hold is bounded in each
direction.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections import deque
from functools import cached_property
from typing import Final, cast

from zerolayer.errors import RequestTimeout, ZerolayerError
from zerolayer.front.caller import Caller, caller_of
from zerolayer.front.exchange import NEVER, Exchange, Headers, Router
from zerolayer.front.http1_output import Output
from zerolayer.front.moving import hold, is_plain
from zerolayer.front.phase import BUSY, CLOSED, IDLE, READING, Phase
from zerolayer.front.site import Peer, Site
from zerolayer.observe.stages import Stage
from zerolayer.wire.http1 import Event, Fault, Head, Http1Protocol, Message
from zerolayer.wire.http1_reply import CONTINUE, LAST_CHUNK, chunk, later_lines, render, stream_head

_log = logging.getLogger("zerolayer.front")
_LONG_BYTES: Final = 65_536


class Connection(Output):
    """All methods run on the loop."""

    # What most connections never change, or not before their first request: many begin at once.
    _events: deque[Event] | None = None
    _first_byte_ns = 0
    _deadline_ns = NEVER
    _dropped = 0
    _exchange: Exchange | None = None
    _refusal: ZerolayerError | None = None
    draining = False

    def __init__(
        self, site: Site, router: Router, registry: set[Peer], loop: AbstractEventLoop, caller: Caller | None = None
    ) -> None:
        super().__init__(site, loop)
        self._router = router
        self._registry = registry
        self.common = site.http1
        self._http = Http1Protocol(site.limits.head_bytes, site.limits.body_bytes, memory=site.heads)
        self._early = bytearray()  # bytes that wait for their turn, or for a client that does not read; not parsed
        if caller is not None:
            self.caller = caller

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._registry.add(self)
        self._rest()

    def data_received(self, data: bytes) -> None:
        if self._phase is IDLE and self._stalled_ns == NEVER:
            message = self._http.whole(data)
            if message is not None:
                self._first_byte_ns = now = self._site.clock_ns()
                self._exchange = exchange = Exchange(self, self._site, message.head, now)
                self._refusal = self._router.check(exchange)
                self._act(exchange, message.body)
                return
        if self._phase in READING and self._stalled_ns == NEVER:
            self._feed(data)
        elif self._phase is Phase.LINGER:
            self._dropped += len(data)
            if self._dropped > self._limits.head_bytes + self._limits.body_bytes:
                self.cut()
        elif self._phase is not CLOSED:
            self._early += data
            # One whole further request may wait. To stop reading instead would hide that a client leaves.
            if len(self._early) > self._limits.head_bytes + self._limits.body_bytes:
                self.cut()

    def eof_received(self) -> None:
        """A client that closes its half is taken as gone: TCP cannot tell it from one that closed both."""
        self._leave()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._leave()
        self._registry.discard(self)

    def reads_again(self) -> None:
        """As ``Output``."""
        if self._phase is Phase.LINGER:
            self._linger()
        else:
            self._advance()
            self._catch_up()

    # What the exchange calls.

    @cached_property
    def caller(self) -> Caller:
        """Who is at the other end, for as long as the connection lasts; asked for once, where nobody has told."""
        return caller_of(self._transport)

    later = staticmethod(later_lines)

    def reply(
        self, status: int, common: bytes, headers: Headers, body: bytes, *, keep_alive: bool, head_only: bool
    ) -> None:
        """A complete reply, in one write; a long body, which replies may share, is not copied behind its head."""
        apart = len(body) >= _LONG_BYTES and not head_only
        data = render(status, common, headers, body, keep_alive, head_only or apart)
        if self._behind or self._stalled_ns != NEVER:
            self.write(data)
        elif self._phase is not CLOSED:
            self._transport.write(data)
        if apart:
            self.write(body)
        self._replied(keep_alive=keep_alive)

    def open_stream(self, common: bytes, headers: Headers, data: bytes, *, keep_alive: bool) -> None:
        """The head of a streamed reply, and its first piece."""
        self._streams_chunks = chunked = self._chunked
        head = stream_head(headers, keep_alive=keep_alive, chunked=chunked, common=common)
        self.write(head + (chunk(data) if chunked else data))

    def end_stream(self, data: bytes, _trailers: Headers, *, keep_alive: bool) -> None:
        """The last piece; what has no chunks ends with the connection."""
        chunked = self._chunked
        self.write(chunk(data) + LAST_CHUNK if chunked else data)
        self._replied(keep_alive=keep_alive and chunked)

    def whole_stream(
        self, common: bytes, headers: Headers, data: bytes, _trailers: Headers, *, keep_alive: bool
    ) -> None:
        """Head, only piece and end of a streamed reply, in one write."""
        chunked = self._chunked
        head = stream_head(headers, keep_alive=keep_alive, chunked=chunked, common=common)
        self.write(head + (chunk(data) + LAST_CHUNK if chunked else data))
        self._replied(keep_alive=keep_alive and chunked)

    def break_stream(self, data: bytes) -> None:
        """The last piece of a stream that failed: without a last chunk nobody takes it for complete."""
        chunked = self._chunked
        self.write(chunk(data) if chunked else data)
        if chunked:
            self._replied(keep_alive=False)
        else:
            self.cut()

    # What the listener calls.

    def expire(self, now_ns: int) -> None:
        """End what has taken too long."""
        if now_ns >= self._stalled_ns:
            _log.warning("a client that does not read its reply was cut")
            self.cut()
        elif now_ns < self._deadline_ns:
            return
        elif self._phase is Phase.IDLE:
            self.close()
        elif self._phase is Phase.LINGER:
            self.cut()
        elif self._phase in (Phase.HEAD, Phase.BODY):
            limits = self._limits
            part, limit = ("head", limits.head_ns) if self._phase is Phase.HEAD else ("body", limits.body_ns)
            self._fail(RequestTimeout(f"the request {part} took longer than {limit / 1e9:g} s; send it faster"))

    def drain(self) -> None:
        """Close after the reply that is being written, if there is one."""
        self.draining = True

    def hold(self, *, held: bool) -> None:
        """Read nothing."""
        hold(self._transport, held=held)

    def movable(self) -> asyncio.Transport | None:
        """Between two requests another process can go on."""
        rests = self._phase is IDLE and self._http.idle and not (self._events or self._unsent or self._early)
        return self._transport if rests and not self.draining and is_plain(self._transport) else None

    @property
    def waits_to_move(self) -> bool:
        """Whether nothing of a next request was read."""
        whole = self._phase in (IDLE, BUSY) and not (self._early or self._events or self.draining)
        return whole and self.descriptor >= 0

    @property
    def busy(self) -> bool:
        """Whether a request is being answered, or its answer is not wholly with the kernel."""
        return self._phase is Phase.BUSY or bool(self._unsent)

    def close(self) -> None:
        """Give the kernel what was written, then close."""
        if self._phase is not Phase.CLOSED:
            self.flush()
            self._leave()
            self._transport.close()

    def cut(self) -> None:
        """Reset the connection now; what was not sent is lost."""
        self._leave()
        super().cut()

    @property
    def _chunked(self) -> bool:
        # HTTP/1.0 knows no chunks: there the end of the connection ends the body.
        return self._exchange is not None and self._exchange.head.minor > 0

    def _replied(self, *, keep_alive: bool) -> None:
        """The reply to the current request is written."""
        read_whole = self._phase is BUSY
        exchange, self._exchange = self._exchange, None
        if self._phase is CLOSED:
            return
        if keep_alive and exchange is not None:
            if self._early or self._events:
                self._loop.call_soon(self._next)  # not here: other slots of this step wait for their bytes
            else:
                self._phase = IDLE
                self._deadline_ns = exchange.stages.last_ns + self._limits.idle_ns
        elif read_whole and not self._unsent:
            self._phase = Phase.CLOSED
            self._transport.close()
        else:
            self._linger()

    def _feed(self, data: bytes | bytearray) -> None:
        if self._phase is Phase.IDLE:
            self._begin()
        if self._events is None:
            self._events = deque()
        self._events.extend(self._http.receive(data))
        self._advance()

    def _begin(self) -> None:
        self._first_byte_ns = self._site.clock_ns()
        self._phase = Phase.HEAD
        self._deadline_ns = self._first_byte_ns + self._limits.head_ns

    def _advance(self) -> None:
        while self._events and self._phase in READING and self._stalled_ns == NEVER:
            event = self._events.popleft()
            if isinstance(event, Message):
                self._on_message(event)
            elif isinstance(event, Head):
                self._on_head(event)
            elif isinstance(event, Fault):
                self._fail(event.error)
        if self._phase is Phase.HEAD and self._http.idle and not self._events:
            self._rest()  # an empty line between two requests

    def _next(self) -> None:
        """The turn of what arrived while the last request was answered."""
        if self._phase is not Phase.BUSY:
            return
        self._rest()
        if self._events:
            self._begin()
            self._advance()
        self._catch_up()

    def _catch_up(self) -> None:
        if self._early and self._phase in READING and self._stalled_ns == NEVER:
            early, self._early = self._early, bytearray()
            self._feed(early)

    def _on_head(self, head: Head) -> None:
        self._phase = Phase.BODY
        self._deadline_ns = self._site.clock_ns() + self._limits.body_ns
        exchange = self._open(head)
        self._refusal = self._router.check(exchange)
        if self._events:
            return  # the body came along: it is read anyway, and the connection can be kept
        if self._refusal is not None:
            exchange.error(self._refusal, keep_alive=False)
        elif head.expects_continue:
            self._transport.write(CONTINUE)

    def _on_message(self, message: Message) -> None:
        exchange = self._exchange or self._open(message.head)
        exchange.mark(Stage.READ)
        self._act(exchange, message.body)

    def _act(self, exchange: Exchange, body: bytes) -> None:
        """The request is complete."""
        exchange.body = body
        self._phase = BUSY
        self._deadline_ns = NEVER
        action = exchange.action
        if self._refusal is not None or action is None:
            exchange.error(self._refusal or ZerolayerError("no action for this path; this is a defect of the server"))
            return
        try:
            action(exchange)
        except Exception as error:  # noqa: BLE001 - a defect costs its own request, nobody else's
            exchange.defect(error)

    def _open(self, head: Head | None) -> Exchange:
        self._exchange = exchange = Exchange(self, self._site, head, self._first_byte_ns)
        return exchange

    def _fail(self, error: ZerolayerError) -> None:
        """Answer with an error and read no further request."""
        exchange = self._exchange or self._open(None)
        self._events = None
        exchange.error(error, keep_alive=False)

    def _rest(self) -> None:
        self._phase = Phase.IDLE
        self._deadline_ns = self._site.clock_ns() + self._limits.idle_ns

    def _linger(self) -> None:
        """Closing over unread bytes would reset the connection and destroy the reply, so read and drop for a while."""
        self._phase = Phase.LINGER
        self._early.clear()
        if self._unsent:
            self._deadline_ns = NEVER  # the stall limit holds
            return
        self._deadline_ns = self._site.clock_ns() + self._limits.linger_ns
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _leave(self) -> None:
        self._phase = Phase.CLOSED
        self.forget()
        self._early.clear()
        self._events = None
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.gone()
