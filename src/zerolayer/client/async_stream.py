"""The answer to one request, as an asynchronous iterator of text."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self

from zerolayer.client.answer import Answer, AnswerReader, Outcome
from zerolayer.client.async_transport import AsyncExchange
from zerolayer.client.errors import BrokenReply, CutStream
from zerolayer.client.retry import NS_PER_MS
from zerolayer.client.service import Going, Service
from zerolayer.client.statistics import Attempts
from zerolayer.client.stream import BROKE_OFF, NO_END


class AsyncTextStream(AsyncIterator[str]):
    """The answer's pieces of text, in order; ``outcome`` is set once the iterator is exhausted.

    The request is sent when the stream is entered (``async with``), iterated or awaited for its ``answer``. Leaving the
    block, ``close`` and the cancellation of the task that reads close the connection, which frees the server's slot.
    Raises what ``TextStream`` and ``Client.chat`` raise.
    """

    def __init__(self, service: Service, start: Callable[[], Awaitable[tuple[Going, AsyncExchange]]]) -> None:
        self._service = service
        self._start = start
        self._going: Going | None = None
        self._exchange: AsyncExchange | None = None
        self._reader = AnswerReader()
        self._first_ns = 0
        self._ended_ns = 0
        self._over = False
        self._left = False
        self._pieces = self._read()

    @property
    def outcome(self) -> Outcome | None:
        """How the answer ended; None before that."""
        return self._reader.outcome if self._ended_ns else None

    @property
    def attempts(self) -> Attempts:
        """The nodes asked, and why; nothing before the reply began."""
        return Attempts() if self._going is None else self._going.call.attempts

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        if self._left:
            raise StopAsyncIteration
        return await anext(self._pieces)

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def answer(self) -> Answer:
        """Read what is left and return the whole. Call it instead of iterating. Raises as iterating does."""
        text = "".join([piece async for piece in self])
        if self._reader.outcome is None:
            raise CutStream("The stream was closed before its end.")
        return Answer(
            text, self._reader.outcome, self.attempts, self._since_ms(self._first_ns), self._since_ms(self._ended_ns)
        )

    async def close(self) -> None:
        """Close the connection. Idempotent."""
        self._left = True
        self._end()

    def _since_ms(self, moment_ns: int) -> float:
        return 0.0 if self._going is None else max(0, moment_ns - self._going.begun_ns) / NS_PER_MS

    async def _open(self) -> tuple[Going, AsyncExchange]:
        if self._going is None or self._exchange is None:
            self._going, self._exchange = await self._start()
        return self._going, self._exchange

    async def _read(self) -> AsyncGenerator[str, None]:
        going, exchange = await self._open()
        patience, clock_ns = self._service.between(going.end_ns), self._service.clocks.monotonic_ns
        try:
            while data := await exchange.read(patience):
                for text in self._reader.push(data):
                    self._first_ns = self._first_ns or clock_ns()
                    yield text
                if self._reader.outcome is not None:
                    self._ended_ns = clock_ns()
                    self._first_ns = self._first_ns or self._ended_ns
                    return
        except OSError as error:
            self._cut(going)
            raise CutStream(BROKE_OFF.format(type(error).__name__)) from None
        except BrokenReply:
            self._cut(going)
            raise CutStream(BROKE_OFF.format("end of connection")) from None
        finally:
            self._end()
        self._cut(going)
        raise CutStream(NO_END)

    def _end(self) -> None:
        if self._exchange is None or self._going is None or self._over:
            return
        self._over = True
        self._exchange.close()
        with self._service.lock:
            self._going.call.ended()

    def _cut(self, going: Going) -> None:
        if self._left:
            return  # whoever closed it knows
        with self._service.lock:
            going.call.cut(self._service.clocks.monotonic_ns())
