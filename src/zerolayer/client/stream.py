"""The answer to one request, as an iterator of text."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Self

from zerolayer.client.answer import Answer, Outcome
from zerolayer.client.errors import BrokenReply
from zerolayer.client.reception import BROKE_OFF, NO_END, Reception
from zerolayer.client.service import Going, Service
from zerolayer.client.statistics import Attempts
from zerolayer.client.transport import Exchange


class TextStream(Iterator[str]):
    """The answer's pieces of text, in order; ``outcome`` is set once the iterator is exhausted.

    Leaving early (``close``, from any thread, or the end of a ``with`` block) closes the connection, which frees the
    server's slot. Raises ``CutStream`` where the stream ends without its end mark, ``Refused`` for an error sent inside
    it, ``DeadlinePassed``.
    """

    def __init__(self, service: Service, going: Going, exchange: Exchange) -> None:
        self._exchange = exchange
        self._reception = Reception(service, going)
        self._pieces = self._read()

    @property
    def outcome(self) -> Outcome | None:
        """How the answer ended; None before that."""
        return self._reception.outcome

    @property
    def attempts(self) -> Attempts:
        """The nodes asked, and why."""
        return self._reception.attempts

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        if self._reception.left:
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
        return self._reception.answer("".join(self))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._reception.left = True
        self._end()

    def _end(self) -> None:
        self._exchange.close()
        self._reception.over()

    def _read(self) -> Generator[str, None, None]:
        reception = self._reception
        try:
            while data := self._exchange.read(reception.patience):
                yield from reception.push(data)
                if reception.outcome is not None:
                    return
        except OSError as error:
            raise reception.cut(BROKE_OFF.format(type(error).__name__)) from None
        except BrokenReply:
            raise reception.cut(BROKE_OFF.format("end of connection")) from None
        finally:
            self._end()
        raise reception.cut(NO_END)
