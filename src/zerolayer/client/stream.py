"""The answer to one request, as an iterator of text for code without an event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from zerolayer.client.answer import Answer, Outcome
from zerolayer.client.async_stream import AsyncTextStream
from zerolayer.client.errors import ClientError
from zerolayer.client.portal import Portal
from zerolayer.client.statistics import Attempts

_End = ClientError | None


class TextStream(Iterator[str]):
    """The answer's pieces of text, in order; ``outcome`` is set once the iterator is exhausted.

    Leaving early (``close``, from any thread, or the end of a ``with`` block) leaves the reply, which frees the
    server's slot. Raises ``CutStream`` where the stream ends without its end mark, ``Refused`` for an error sent inside
    it, ``DeadlinePassed``.
    """

    def __init__(self, portal: Portal, stream: AsyncTextStream) -> None:
        self._portal = portal
        self._stream = stream
        self._reads: SimpleQueue[list[str] | _End] = SimpleQueue()
        self._pieces: deque[str] = deque()
        self._over = False
        self._complete = False
        portal.call(self._start)

    @property
    def outcome(self) -> Outcome | None:
        """How the answer ended; None before that."""
        return self._stream.outcome if self._complete else None

    @property
    def attempts(self) -> Attempts:
        """The nodes asked, and why."""
        return self._stream.attempts

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        if self._over:
            raise StopIteration
        while not self._pieces:
            read = self._reads.get()
            if not isinstance(read, list):
                self._over = True
                if read is not None:
                    raise read
                self._complete = True
                raise StopIteration
            self._pieces.extend(read)
        return self._pieces.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def answer(self) -> Answer:
        """Read what is left and return the whole. Call it instead of iterating. Raises as iterating does."""
        return self._stream.whole("".join(self))

    def close(self) -> None:
        """Leave the reply. Idempotent."""
        if not self._over:
            self._over = True
            self._portal.run(self._stream.close())

    def _start(self) -> None:
        self._pump_task = asyncio.get_running_loop().create_task(self._pump())

    async def _pump(self) -> None:
        """Everything that comes is passed on at once: an answer is as long as ``max_tokens`` at most."""
        end: _End = None
        try:
            while pieces := await self._stream.read():
                self._reads.put(pieces)
        except ClientError as error:
            end = error
        finally:
            self._reads.put(end)
