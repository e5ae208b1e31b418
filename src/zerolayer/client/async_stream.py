"""The answer to one request, as an asynchronous iterator of text."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from zerolayer.client.answer import Answer, Outcome
from zerolayer.client.async_transport import AsyncExchange
from zerolayer.client.errors import BrokenReply, CutStream
from zerolayer.client.reception import BROKE_OFF, CLOSED, NO_END, Reception
from zerolayer.client.service import Going, Service
from zerolayer.client.statistics import Attempts


@dataclass(frozen=True)
class _Begun:
    """A call whose reply has begun."""

    exchange: AsyncExchange
    reception: Reception

    def end(self) -> None:
        """Close the connection. Idempotent."""
        self.exchange.close()
        self.reception.over()


class AsyncTextStream(AsyncIterator[str]):
    """The answer's pieces of text, in order; ``outcome`` is set once the iterator is exhausted.

    The request is sent when the stream is entered (``async with``), iterated or awaited for its ``answer``. Leaving the
    block, ``close`` and the cancellation of the task that reads close the connection, which frees the server's slot.
    Raises what ``TextStream`` and ``Client.chat`` raise.
    """

    def __init__(self, service: Service, start: Callable[[], Awaitable[tuple[Going, AsyncExchange]]]) -> None:
        self._service = service
        self._start = start
        self._begun: _Begun | None = None
        self._left = False
        self._pieces = self._read()

    @property
    def outcome(self) -> Outcome | None:
        """How the answer ended; None before that."""
        return None if self._begun is None else self._begun.reception.outcome

    @property
    def attempts(self) -> Attempts:
        """The nodes asked, and why; nothing before the reply began."""
        return Attempts() if self._begun is None else self._begun.reception.attempts

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
        if self._begun is None:
            raise CutStream(CLOSED)
        return self._begun.reception.answer(text)

    async def close(self) -> None:
        """Close the connection. Idempotent."""
        self._left = True
        if self._begun is not None:
            self._begun.reception.left = True
            self._begun.end()

    async def _open(self) -> _Begun:
        if self._begun is None:
            going, exchange = await self._start()
            self._begun = _Begun(exchange, Reception(self._service, going))
            self._begun.reception.left = self._left
        return self._begun

    async def _read(self) -> AsyncGenerator[str, None]:
        begun = await self._open()
        reception = begun.reception
        try:
            while data := await begun.exchange.read(reception.patience):
                for text in reception.push(data):
                    yield text
                if reception.outcome is not None:
                    return
        except OSError as error:
            raise reception.cut(BROKE_OFF.format(type(error).__name__)) from None
        except BrokenReply:
            raise reception.cut(BROKE_OFF.format("end of connection")) from None
        finally:
            begun.end()
        raise reception.cut(NO_END)
