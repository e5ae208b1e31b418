"""The answer to one request, as an iterator of text."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Final, Self

from zerolayer.client.answer import Answer, AnswerReader, Outcome
from zerolayer.client.errors import BrokenReply, CutStream
from zerolayer.client.retry import NS_PER_MS
from zerolayer.client.service import Going, Service
from zerolayer.client.statistics import Attempts
from zerolayer.client.transport import Exchange

BROKE_OFF: Final = "The stream broke off ({}). The text so far is not the whole answer; ask again."
NO_END: Final = "The stream ended without its end mark. The text so far is not the whole answer; ask again."


class TextStream(Iterator[str]):
    """The answer's pieces of text, in order; ``outcome`` is set once the iterator is exhausted.

    Leaving early (``close``, from any thread, or the end of a ``with`` block) closes the connection, which frees the
    server's slot. Raises ``CutStream`` where the stream ends without its end mark, ``Refused`` for an error sent inside
    it, ``DeadlinePassed``.
    """

    def __init__(self, service: Service, going: Going, exchange: Exchange) -> None:
        self._service = service
        self._going = going
        self._exchange = exchange
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
        """The nodes asked, and why."""
        return self._going.call.attempts

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        if self._left:
            raise StopIteration
        return next(self._pieces)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def answer(self) -> Answer:
        """Read what is left and return the whole. Call it instead of iterating. Raises as iterating does."""
        text = "".join(self)
        if self._reader.outcome is None:
            raise CutStream("The stream was closed before its end.")
        return Answer(
            text, self._reader.outcome, self.attempts, self._since_ms(self._first_ns), self._since_ms(self._ended_ns)
        )

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._left = True
        self._end()

    def _end(self) -> None:
        self._exchange.close()
        with self._service.lock:
            if not self._over:
                self._over = True
                self._going.call.ended()

    def _since_ms(self, moment_ns: int) -> float:
        return max(0, moment_ns - self._going.begun_ns) / NS_PER_MS

    def _read(self) -> Generator[str, None, None]:
        patience, clock_ns = self._service.between(self._going.end_ns), self._service.clocks.monotonic_ns
        try:
            while data := self._exchange.read(patience):
                for text in self._reader.push(data):
                    self._first_ns = self._first_ns or clock_ns()
                    yield text
                if self._reader.outcome is not None:
                    self._ended_ns = clock_ns()
                    self._first_ns = self._first_ns or self._ended_ns
                    return
        except OSError as error:
            self._cut()
            raise CutStream(BROKE_OFF.format(type(error).__name__)) from None
        except BrokenReply:
            self._cut()
            raise CutStream(BROKE_OFF.format("end of connection")) from None
        finally:
            self._end()
        self._cut()
        raise CutStream(NO_END)

    def _cut(self) -> None:
        if self._left:
            return  # whoever closed it knows
        with self._service.lock:
            self._going.call.cut(self._service.clocks.monotonic_ns())
