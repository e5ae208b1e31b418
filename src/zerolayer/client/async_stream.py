"""The answer to one request, as an asynchronous iterator of text."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from zerolayer.client.answer import Answer, Outcome
from zerolayer.client.asking import Opened
from zerolayer.client.errors import BadReply, BrokenReply, CutStream
from zerolayer.client.reception import BROKE_OFF, CLOSED, Reception
from zerolayer.client.service import Going, Service
from zerolayer.client.statistics import Attempts


@dataclass(frozen=True)
class _Begun:
    """A call whose reply has begun."""

    opened: Opened
    reception: Reception

    def end(self) -> None:
        """Leave the reply. Idempotent."""
        self.opened.close()
        self.reception.over()


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
        self._left = True
        if self._begun is not None:
            self._begun.reception.left = True
            self._begun.end()

    async def open(self) -> None:
        """Send the request, unless that was done; return when the answer begins. Raises as ``Client.chat`` does."""
        await self._open()

    async def _open(self) -> _Begun:
        if self._begun is None:
            going, opened = await self._start()
            self._begun = _Begun(opened, Reception(self._service, going))
            self._begun.reception.left = self._left
        return self._begun

    async def _read(self) -> AsyncGenerator[str, None]:
        begun = await self._open()
        reception = begun.reception
        try:
            while data := await begun.opened.read(reception.patience):
                for text in reception.push(data):
                    yield text
                if reception.outcome is not None:
                    return
            reception.ended(begun.opened.exchange.trailers)
        except OSError as error:
            raise reception.cut(BROKE_OFF.format(type(error).__name__)) from None
        except BrokenReply:
            raise reception.cut(BROKE_OFF.format("end of connection")) from None
        except BadReply as error:
            cut = reception.cut(BROKE_OFF.format("damaged bytes"))
            raise (cut if reception.began else error) from None
        finally:
            begun.end()
