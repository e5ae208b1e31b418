"""One HTTP/2 connection: many requests at once, one write for all of them (RFC 9113).

Bytes that replies produce are collected by ``wire/http2`` and written once: at the end of what arrived, or once in the
turn of the loop after a step, for all streams that the step gave a token. Flow control decides what may leave; what
may not is held up to a limit, beyond which its stream is cancelled. As on HTTP/1.1 every wait has an end, and one sweep
over all connections looks for what has ended.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Final, cast

from zerolayer.errors import RequestTimeout, ZerolayerError
from zerolayer.front.caller import Caller, caller_of
from zerolayer.front.exchange import NEVER, Exchange, Router
from zerolayer.front.http2_limits import http2_limits
from zerolayer.front.http2_patience import Patience
from zerolayer.front.http2_stream import Http2Stream
from zerolayer.front.moving import hold, plain_descriptor
from zerolayer.front.site import Peer, Site
from zerolayer.observe.stages import Stage
from zerolayer.wire.http1_head import Head
from zerolayer.wire.http2 import Code, Http2Protocol
from zerolayer.wire.http2_events import Chunk, Closed, Event, Gone, Message, Opened, Refused

_log = logging.getLogger("zerolayer.front")

_PERIOD_NS: Final = 1_000_000_000
_LAST_S: Final = 0.02
_READ: Final = int(Stage.READ)  # for every request: a member of an enumeration is dearer to name


class Http2Connection(asyncio.Protocol):
    """All methods run on the loop."""

    def __init__(
        self, site: Site, router: Router, registry: set[Peer], loop: AbstractEventLoop, caller: Caller | None = None
    ) -> None:
        self._site = site
        self._router = router
        self._registry = registry
        self._loop = loop
        self._limits = site.limits
        self.common = site.http2
        self.core = Http2Protocol(http2_limits(site.limits))
        self._streams: dict[int, Http2Stream] = {}  # being answered
        self._patience = Patience(site.limits)
        self._now_ns = 0
        self._idle_ns = NEVER
        self._period_ns = 0
        self._stalled_ns = NEVER
        self._linger_ns = NEVER
        self._receiving = False
        self.scheduled = False  # a write in the next turn of the loop
        self._draining = False
        self._closed = False
        if caller is not None:
            self.caller = caller

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._registry.add(self)
        now = self._site.clock_ns()
        self._patience.opened(now)
        self._idle_ns = now + self._limits.idle_ns
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        self._now_ns = now = self._site.clock_ns()
        core = self.core
        self._receiving = True
        whole = core.whole(data)
        if whole is None:
            for event in core.receive(data):
                self._EVENTS[type(event)](self, event)
            self._patience.received(core, now)
        else:
            for request in whole:
                self._on_whole(*request)
        self._receiving = False
        self._flush()

    def eof_received(self) -> None:
        """As on HTTP/1.1, a client that closes its half is taken as gone."""
        self._leave()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._leave()
        self._registry.discard(self)

    def pause_writing(self) -> None:
        self._stalled_ns = self._site.clock_ns() + self._limits.stall_ns
        self.core.sender.free = 0
        self.core.hold(held=True)

    def resume_writing(self) -> None:
        self._stalled_ns = NEVER
        self.core.hold(held=False)
        self._flush()

    # What the streams call.

    @cached_property
    def caller(self) -> Caller:
        """Who is at the other end, for as long as the connection lasts; asked for once, where nobody has told."""
        return caller_of(self._transport)

    def overrun(self, stream: Http2Stream) -> None:
        """More than may be unsent: the stream is cancelled."""
        _log.warning("a stream whose client gives no window was cancelled")
        self.reset(stream, Code.ENHANCE_YOUR_CALM)
        stream.exchange.gone()

    def reset(self, stream: Http2Stream, code: Code) -> None:
        """End the stream without an end."""
        self.core.reset(stream.id, code)
        self.done(stream)

    def done(self, stream: Http2Stream) -> None:
        """Its last frame was collected."""
        self._streams.pop(stream.id, None)
        if not self._streams:
            self._idle_ns = stream.exchange.stages.last_ns + self._limits.idle_ns
        if not (self.scheduled or self._receiving):
            self.wake()

    def wake(self) -> None:
        """Write in the next turn of the loop: until then other streams of the same step add their bytes."""
        if not (self.scheduled or self._receiving):
            self.scheduled = True
            self._site.outbox.add(self, self._loop)

    # What the outbox calls.

    @cached_property
    def descriptor(self) -> int:
        """As ``outbox.Writer``."""
        return plain_descriptor(self._transport)

    def take(self) -> bytes:
        """As ``outbox.Writer``."""
        self.scheduled = False
        if self.free_descriptor() < 0:
            self._flush()
            return b""
        data = self.core.take()
        if self.core.sender.more:
            self.wake()
        return data

    def free_descriptor(self) -> int:
        """As ``lines.Frames``. Whatever may change it sets the sender's ``free`` to 0."""
        waits = self._stalled_ns != NEVER or self._closed or self._draining or self._transport.get_write_buffer_size()
        return -1 if waits else self.descriptor

    def write(self, data: bytes) -> None:
        """As ``outbox.Writer``."""
        self.core.sender.free = 0
        self._transport.write(data)

    # What the listener calls.

    @property
    def busy(self) -> bool:
        """Whether a request is being answered, or its answer is not wholly with the kernel."""
        return bool(self._streams) or self.core.streams > 0 or self._stalled_ns != NEVER

    def expire(self, now_ns: int) -> None:
        """End what has taken too long."""
        if now_ns >= min(self._stalled_ns, self._linger_ns):
            if self._linger_ns == NEVER:
                _log.warning("a client that does not read its replies was cut")
            self.cut()
            return
        if self._closed:
            return
        if now_ns >= self._period_ns:
            self._period_ns = now_ns + _PERIOD_NS
            self.core.new_period()
        frame_ns = self._patience.frame_ns
        if now_ns >= (frame_ns if self.core.streams else min(frame_ns, self._idle_ns)):
            self.close()
            return
        for stream in list(self._streams.values()):
            self._expire_stream(stream, now_ns)
        self._expire_waits(now_ns)
        self._flush()

    def drain(self) -> None:
        """Answer what is running, then ask the client to go elsewhere, and close.

        GOAWAY is not sent ahead of the running replies, though it may be: clients that are built on Python's ``h2``,
        httpx among them, take nothing after it. What they ask for meanwhile is refused as retryable by its route. That
        holds for a moment longer: what is on its way would be reset by a socket that is closed over it.
        """
        self._loop.call_later(_LAST_S, self._end)

    def _end(self) -> None:
        self._draining = True
        self.core.sender.free = 0
        self._flush()

    def hold(self, *, held: bool) -> None:
        """Read nothing."""
        hold(self._transport, held=held)

    def movable(self) -> asyncio.Transport | None:
        """Its tables and windows are of this process."""
        return None

    @property
    def waits_to_move(self) -> bool:
        """As above."""
        return False

    def close(self) -> None:
        """Give the kernel what was written and say goodbye, then close."""
        if self._closed:
            return
        self.core.go_away()
        self._flush()
        self._linger()

    def cut(self) -> None:
        """Reset the connection now; what was not sent is lost."""
        self._leave()
        self._transport.abort()

    # Events.

    def _on_opened(self, event: Opened) -> None:
        stream = Http2Stream(self, event.stream_id, self._now_ns + self._limits.body_ns)
        stream.exchange = exchange = Exchange(stream, self._site, event.head, self._now_ns)
        self._streams[stream.id] = stream
        if event.head is None:
            return
        refusal = self._router.check(exchange)
        if refusal is not None:
            exchange.error(refusal)
            return
        if event.head.expects_continue:
            self.core.open_reply(stream.id, 100, ())
        if exchange.intake is not None:
            stream.deadline_ns = NEVER
            early = self.core.incremental(stream.id)
            if early:
                self._take_in(exchange, early, ended=False)

    def _on_message(self, event: Message) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return  # refused on its head
        stream.deadline_ns = NEVER
        stream.exchange.stages.mark(_READ, self._now_ns)
        self._act(stream.exchange, event.body)

    def _on_whole(self, stream_id: int, head: Head, body: bytes) -> None:
        """As ``_on_opened`` and ``_on_message``, of nearly every request."""
        stream = Http2Stream(self, stream_id, NEVER)
        stream.exchange = exchange = Exchange(stream, self._site, head, self._now_ns)
        self._streams[stream_id] = stream
        refusal = self._router.check(exchange)
        if refusal is not None:
            exchange.error(refusal)
        else:
            self._act(exchange, body)

    def _act(self, exchange: Exchange, body: bytes) -> None:
        """The request is complete."""
        action = exchange.action
        if exchange.intake is not None:
            self._take_in(exchange, body, ended=True)
        elif action is None:
            exchange.error(ZerolayerError("no action for this path; this is a defect of the server"))
        else:
            exchange.body = body
            try:
                action(exchange)
            except Exception as error:  # noqa: BLE001 - a defect costs its own request, nobody else's
                exchange.defect(error)

    def _on_chunk(self, event: Chunk) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            self._take_in(stream.exchange, event.data, ended=event.ended)

    def _on_refused(self, event: Refused) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            stream.exchange.error(event.error)

    def _on_gone(self, event: Gone) -> None:
        self._patience.forget(event.stream_id)
        stream = self._streams.pop(event.stream_id, None)
        if stream is not None:
            stream.exchange.gone()
            if not self._streams:
                self._idle_ns = stream.exchange.stages.last_ns + self._limits.idle_ns

    def _on_closed(self, event: Closed) -> None:
        """The client broke the protocol."""
        _log.info("a connection broke HTTP/2 and was closed (%s)", Code(event.code).name)
        self._flush()
        self._linger()

    def _take_in(self, exchange: Exchange, data: bytes, *, ended: bool) -> None:
        try:
            if exchange.intake is not None:
                exchange.intake(data, ended)
        except Exception as error:  # noqa: BLE001 - as in _on_message
            exchange.defect(error)

    # Ends.

    def _expire_stream(self, stream: Http2Stream, now_ns: int) -> None:
        exchange = stream.exchange
        if now_ns >= stream.deadline_ns:
            limit = self._limits.body_ns / 1e9
            exchange.error(RequestTimeout(f"the request body took longer than {limit:g} s; send it faster"))
        elif now_ns >= exchange.deadline_ns and exchange.expired is not None:
            exchange.expired()

    def _expire_waits(self, now_ns: int) -> None:
        """Reset streams whose client has taken nothing for too long."""
        for stream_id in self._patience.overdue(self.core, now_ns):
            _log.warning("a stream whose client gives no window was cancelled")
            self.core.reset(stream_id, Code.ENHANCE_YOUR_CALM)
            self._on_gone(Gone(stream_id))

    def _flush(self) -> None:
        if self._closed:
            return
        core, sender = self.core, self.core.sender
        if self._stalled_ns != NEVER:
            if sender.out_bytes > self._limits.unsent_bytes:
                _log.warning("a client that does not read its replies was cut")
                self.cut()
            return
        ends = self._draining and not core.streams
        if ends:
            core.go_away()
        if sender.out_bytes or sender.more:
            self.write(sender.take())
            if sender.more:
                self.wake()
        if ends:
            self._linger()

    def _linger(self) -> None:
        """Write no more, and read on for a moment in vain: closing over unread bytes would destroy what was written.

        Whoever takes a last reply in opens the window meanwhile, or asks for something more, which GOAWAY refuses.
        """
        if self._closed:
            return
        self._leave()
        self._linger_ns = self._site.clock_ns() + self._limits.linger_ns
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _leave(self) -> None:
        self._closed = True
        self.core.sender.free = 0
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.exchange.gone()

    _EVENTS: ClassVar[dict[type[Event], Callable[[Http2Connection, Any], None]]] = {
        Opened: _on_opened,
        Message: _on_message,
        Chunk: _on_chunk,
        Refused: _on_refused,
        Gone: _on_gone,
        Closed: _on_closed,
    }
