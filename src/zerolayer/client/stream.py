"""The answer to one request, as an iterator of text for code without an event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from zerolayer.client.answer import Answer, Outcome
from zerolayer.client.async_stream import AsyncTextStream
from zerolayer.client.errors import ClientError, CutStream
from zerolayer.client.portal import Portal
from zerolayer.client.reception import CLOSED
from zerolayer.client.statistics import Attempts

_End = ClientError | None
_Reads = SimpleQueue[list[str] | _End]


class TextStream(Iterator[str]):
    """The answer's pieces of text, in order; ``outcome`` is set once the iterator is exhausted.

    Leaving early (``close``, from any thread, or the end of a ``with`` block) leaves the reply, which frees the
    server's slot. Raises ``CutStream`` where the stream ends without its end mark, ``Refused`` for an error sent inside
    it, ``DeadlinePassed``.
    """

    def __init__(self, portal: Portal, stream: AsyncTextStream) -> None:
        self._portal = portal
        self._stream = stream
        self._reads: _Reads = SimpleQueue()
        self._pieces: deque[str] = deque()
        self._over = False
        self._complete = False
        self._pumping = portal.begin(_pump(stream, self._reads))

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

    def __del__(self) -> None:
        """Whoever throws it away unread leaves the reply, too."""
        if not self._over:
            self._portal.tell(self._stream.leave)


async def _pump(stream: AsyncTextStream, reads: _Reads) -> None:
    """Everything that comes is passed on at once: an answer is as long as ``max_tokens`` at most.

    It does not refer to the ``TextStream``, which may be thrown away.
    """
    end: _End = CutStream(CLOSED)  # until it is known how it ended
    try:
        while pieces := await stream.read():
            reads.put(pieces)
        end = None
    except ClientError as error:
        end = error
    finally:
        reads.put(end)
