"""The answer to one request, as an asynchronous iterator of text."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from zerolayer.client.address import network_reason
from zerolayer.client.answer import Answer, Outcome
from zerolayer.client.asking import Opened
from zerolayer.client.errors import BadReply, BrokenReply, ClientError, CutStream
from zerolayer.client.reception import BROKE_OFF, CLOSED, Reception
from zerolayer.client.service import Going, Service
from zerolayer.client.statistics import Attempts


@dataclass(frozen=True)
class _Begun:
    """A call whose reply has begun."""

    opened: Opened
    reception: Reception
    loop: asyncio.AbstractEventLoop

    def end(self) -> None:
        """Leave the reply. Idempotent."""
        self.opened.close()
        self.reception.over()

    def leave(self) -> None:
        """The same before the answer's end, which nobody waits for. Idempotent."""
        self.reception.left = True
        self.end()


class AsyncTextStream(AsyncIterator[str]):
    """The answer's pieces of text, in order; ``outcome`` is set once the iterator is exhausted.

    The request is sent when the stream is entered (``async with``), iterated or awaited for its ``answer``. Leaving the
    block, ``close`` and the cancellation of the task that reads leave the reply, which frees the server's slot.
    Raises what ``TextStream`` and ``Client.chat`` raise.
    """

    def __init__(self, service: Service, start: Callable[[], Awaitable[tuple[Going, Opened]]]) -> None:
        self._service = service
        self._start = start
        self._begun: _Begun | None = None
        self._left = False
        self._over = False  # nothing more is to be read
        self._pieces: deque[str] = deque()
        self._failure: ClientError | None = None  # what came behind the last pieces

    @property
    def outcome(self) -> Outcome | None:
        """How the answer ended; None before that."""
        return None if self._begun is None or self._pieces else self._begun.reception.outcome

    @property
    def attempts(self) -> Attempts:
        """The nodes asked, and why; nothing before the reply began."""
        return Attempts() if self._begun is None else self._begun.reception.attempts

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        if self._left:
            raise StopAsyncIteration
        if not self._pieces:
            self._pieces.extend(await self.read())
        if not self._pieces:
            raise StopAsyncIteration
        return self._pieces.popleft()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def answer(self) -> Answer:
        """Read what is left and return the whole. Call it instead of iterating. Raises as iterating does."""
        return self.whole("".join([piece async for piece in self]))

    def whole(self, text: str) -> Answer:
        """``text``, which is all that was read, with what is known of it. Raises ``CutStream`` before the end."""
        if self._begun is None:
            raise CutStream(CLOSED)
        return self._begun.reception.answer(text)

    async def close(self) -> None:
        """Leave the reply. Idempotent."""
        self.leave()

    def leave(self) -> None:
        """What ``close`` does; to be called on the event loop."""
        self._left = True
        if self._begun is not None:
            self._begun.leave()

    def __del__(self) -> None:
        """Whoever throws it away unread leaves the reply, too; perhaps on another thread."""
        if self._begun is not None and not (self._over or self._left):
            with suppress(RuntimeError):  # the loop is closed, and its connections with it
                self._begun.loop.call_soon_threadsafe(self._begun.leave)

    async def open(self) -> None:
        """Send the request, unless that was done; return when the answer begins. Raises as ``Client.chat`` does."""
        await self._open()

    async def read(self) -> list[str]:
        """The pieces that have come since the last call, or the next ones; none at the answer's end."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._over:
            return []
        begun = await self._open()
        pieces: list[str] = []
        try:
            while not (pieces or self._over):
                await self._take(begun, pieces)
        except ClientError as failure:
            self._over = True
            begun.end()
            if not pieces:
                raise
            self._failure = failure  # after what came before it
        except BaseException:
            self._over = True
            begun.end()
            raise
        return pieces

    async def _open(self) -> _Begun:
        if self._begun is None:
            going, opened = await self._start()
            self._begun = _Begun(opened, Reception(self._service, going), asyncio.get_running_loop())
            self._begun.reception.left = self._left
        return self._begun

    async def _take(self, begun: _Begun, pieces: list[str]) -> None:
        """One read, to ``pieces``; what the transport raises is told in the words of a stream."""
        reception = begun.reception
        try:
            data = await begun.opened.read(reception.patience)
            if not data:
                reception.ended(begun.opened.exchange.trailers)
            for text in reception.push(data):
                pieces.append(text)  # noqa: PERF402 - what comes before an error counts
            if reception.outcome is not None:
                self._over = True
                begun.end()
        except OSError as error:
            raise reception.cut(BROKE_OFF.format(network_reason(error))) from None
        except BrokenReply:
            raise reception.cut(BROKE_OFF.format("end of connection")) from None
        except BadReply as error:
            cut = reception.cut(BROKE_OFF.format("damaged bytes"))
            raise (cut if reception.began else error) from None
