"""One connection of HTTP/2 on asyncio: many exchanges at once, each with an inbox of its own."""

from __future__ import annotations

import asyncio
import importlib
from collections import deque
from collections.abc import Callable, Mapping
from importlib.util import find_spec

from zerolayer.client.address import Address, Patience
from zerolayer.client.errors import BadReply, BrokenReply, ClientError, NotReachable
from zerolayer.client.http2 import Broken, Data, Done, Event, Fields, Head, Http2Client


def speaks_http2() -> bool:
    """Whether the package ``hpack`` is there, which reads the heads of replies."""
    return find_spec("hpack") is not None


class Http2Connection(asyncio.Protocol):
    """``on_room`` is called when an exchange has ended, or the connection.

    Where nothing was heard for half of ``dead_after_s`` seconds though somebody waits, the server is asked for a sign
    of life (PING); without one in the other half the connection is given up. None: never.
    """

    def __init__(self, on_room: Callable[[], None], dead_after_s: float | None) -> None:
        self._half_s = None if dead_after_s is None else dead_after_s / 2
        self._look_again: asyncio.TimerHandle | None = None
        self._heard_before = 0
        self._asked = False  # for a sign of life
        self._http2 = Http2Client(importlib.import_module("hpack").Decoder())
        self._on_room = on_room
        self._inboxes: dict[int, _Inbox] = {}
        self._transport: asyncio.Transport | None = None
        self._heard = 0  # reads so far

    @property
    def streams(self) -> int:
        """Exchanges under way."""
        return self._http2.streams

    @property
    def open(self) -> bool:
        """Whether it takes more exchanges in its time."""
        return self._http2.open and self._transport is not None

    @property
    def has_room(self) -> bool:
        """Whether it takes one more now."""
        return self.open and self._http2.streams < self._http2.most

    async def exchange(self, address: Address, fields: Fields, body: bytes, patience: Patience) -> Http2Exchange:
        """Ask; return when the reply's head is there. Raises as ``http1_connection.send`` does."""
        inbox = _Inbox()
        stream_id = self._http2.request(fields, body)
        self._inboxes[stream_id] = inbox
        exchange = Http2Exchange(self, stream_id, inbox)
        heard = self._heard
        self.flush()
        try:
            while not inbox.status:
                if inbox.failure is not None:
                    raise _failed(address, inbox.failure)
                await inbox.changed(patience)
        except TimeoutError as error:
            exchange.close()
            if self._heard == heard:
                self.retire()  # whoever comes next had better not wait behind a connection that is dead
            raise address.silent(error) from None
        except BaseException:
            exchange.close()
            raise
        return exchange

    def consumed(self, stream_id: int, size: int) -> None:
        """Bytes of a reply were read."""
        self._http2.consumed(stream_id, size)
        self.flush()

    def leave(self, stream_id: int) -> None:
        """Nobody waits for this reply any more."""
        if self._inboxes.pop(stream_id, None) is not None:
            self._http2.cancel(stream_id)
            self.flush()
            self._on_room()

    def retire(self) -> None:
        """Take no more exchanges; close when the last one has ended."""
        self._http2.open = False
        self._close_if_over()

    def close(self) -> None:
        """Close the connection now."""
        if self._transport is not None:
            self._transport.close()

    def flush(self) -> None:
        """Write what the protocol has to say."""
        if self._transport is not None and (data := self._http2.take()):
            self._transport.write(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
            self.flush()
            self._look()

    def data_received(self, data: bytes) -> None:
        self._heard += 1
        try:
            events = self._http2.receive(data)
        except BadReply as error:
            self.flush()
            self._fail_all(error)
            self.close()
            return
        for event in events:
            self._dispatch(event)
        self.flush()
        self._close_if_over()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - that it is gone says all
        self._transport = None
        if self._look_again is not None:
            self._look_again.cancel()
        for event in self._http2.lost():
            self._dispatch(event)
        self._on_room()

    def _look(self) -> None:
        """Twice in ``dead_after_s``: whether the server lives."""
        if self._transport is None or self._half_s is None:
            return
        silent = self._http2.streams > 0 and self._heard == self._heard_before
        if silent and self._asked:
            self._transport.abort()
            return
        if silent:
            self._http2.ping()
            self.flush()
        self._asked, self._heard_before = silent, self._heard
        self._look_again = asyncio.get_running_loop().call_later(self._half_s, self._look)

    def _dispatch(self, event: Event) -> None:
        inbox = self._inboxes.get(event.stream_id)
        if isinstance(event, Done | Broken):
            self._inboxes.pop(event.stream_id, None)
            self._on_room()
        if inbox is not None:
            inbox.take(event)

    def _fail_all(self, error: ClientError) -> None:
        inboxes, self._inboxes = self._inboxes, {}
        for inbox in inboxes.values():
            inbox.fail(error)
        self._on_room()

    def _close_if_over(self) -> None:
        if not (self._http2.open or self._inboxes):
            self.close()


class _Inbox:
    """What has come of one reply. ``failure`` is a ``Broken`` of the protocol, or why the connection ended."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.trailers: Mapping[str, str] = {}
        self.pieces: deque[bytes] = deque()
        self.complete = False
        self.failure: Broken | ClientError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def take(self, event: Event) -> None:
        """Something came."""
        match event:
            case Head():
                self.status, self.headers = event.status, event.headers
            case Data():
                self.pieces.append(event.data)
            case Done():
                self.trailers, self.complete = event.trailers, True
            case Broken():
                self.failure = event
        self._wake()

    def fail(self, error: ClientError) -> None:
        """Nothing more will come."""
        self.failure = error
        self._wake()

    async def changed(self, patience: Patience) -> None:
        """Until something came. Raises ``TimeoutError``, ``DeadlinePassed``."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(patience.left_s()):
                await self._waiter
        except TimeoutError:
            patience.left_s()  # says so where it was the deadline
            raise
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Http2Exchange:
    """A reply whose body is still to be read. An ``exchange.Exchange``."""

    def __init__(self, connection: Http2Connection, stream_id: int, inbox: _Inbox) -> None:
        self._connection = connection
        self._stream_id = stream_id
        self._inbox = inbox
        self._left = False

    @property
    def status(self) -> int:
        return self._inbox.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._inbox.headers

    @property
    def trailers(self) -> Mapping[str, str]:
        return self._inbox.trailers

    async def read(self, patience: Patience) -> bytes:
        inbox = self._inbox
        while not inbox.pieces and not self._left:
            if inbox.failure is not None:
                if isinstance(inbox.failure, ClientError):
                    raise inbox.failure
                raise BrokenReply("The reply was broken off by the server, or its connection ended.")
            if inbox.complete:
                return b""
            await inbox.changed(patience)
        if self._left:
            raise BrokenReply("The reply was left.")
        piece = b"".join(inbox.pieces)
        inbox.pieces.clear()
        self._connection.consumed(self._stream_id, len(piece))
        return piece

    def close(self) -> None:
        if not self._left:
            self._left = True
            self._connection.leave(self._stream_id)
            self._inbox.fail(BrokenReply("The reply was left."))


def _failed(address: Address, failure: Broken | ClientError) -> ClientError:
    if isinstance(failure, ClientError):
        return failure
    if failure.unseen:
        return NotReachable(f"{address} takes no more requests on this connection.")
    return address.silent()
