"""How one answer comes in: its text, when it began and ended, and what the call is told of it. No sockets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from zerolayer.client.answer import Answer, Outcome
from zerolayer.client.errors import CutStream
from zerolayer.client.retry import NS_PER_MS
from zerolayer.client.service import Going, Service
from zerolayer.client.statistics import Attempts

BROKE_OFF: Final = "The stream broke off ({}). The text so far is not the whole answer; ask again."
NO_END: Final = "The stream ended without its end mark. The text so far is not the whole answer; ask again."
CLOSED: Final = "The stream was closed before its end."


class Reception:
    """What a stream keeps of an answer.

    ``left`` is set by whoever closes the stream before its end; ``patience`` is for each wait for bytes.
    """

    def __init__(self, service: Service, going: Going) -> None:
        self.left = False
        self.patience = service.between(going.end_ns)
        self._service = service
        self._going = going
        self._reader = going.ask.form.reader(going.ask.model)
        self._first_ns = 0
        self._ended_ns = 0
        self._over = False

    @property
    def outcome(self) -> Outcome | None:
        """How the answer ended; None before that."""
        return self._reader.outcome if self._ended_ns else None

    @property
    def began(self) -> bool:
        """Whether any text has come."""
        return self._first_ns > 0

    @property
    def attempts(self) -> Attempts:
        """The nodes asked, and why."""
        return self._going.call.attempts

    def push(self, data: bytes) -> Iterator[str]:
        """The pieces of text in the next bytes of the body. Raises ``Refused`` for an error sent inside the stream."""
        clock_ns = self._service.clocks.monotonic_ns
        for text in self._reader.push(data):
            self._first_ns = self._first_ns or clock_ns()
            yield text
        if self._reader.outcome is not None:
            self._ended_ns = clock_ns()
            self._first_ns = self._first_ns or self._ended_ns

    def ended(self, trailers: Mapping[str, str]) -> None:
        """The body is over without the answer's end. Raises ``Refused`` (the trailers say why), else ``CutStream``."""
        self._reader.end(trailers)
        raise self.cut(NO_END)

    def answer(self, text: str) -> Answer:
        """The whole. Raises ``CutStream`` when the end never came."""
        if self._reader.outcome is None:
            raise CutStream(CLOSED)
        return Answer(
            text, self._reader.outcome, self.attempts, self._since_ms(self._first_ns), self._since_ms(self._ended_ns)
        )

    def over(self) -> None:
        """Nothing more is read. Idempotent."""
        if not self._over:
            self._over = True
            self._going.call.ended()

    def cut(self, why: str) -> CutStream:
        """The error for a stream that broke off; the call is told, unless somebody closed the stream and knows."""
        if not self.left:
            self._going.call.cut(self._service.clocks.monotonic_ns())
        return CutStream(why)

    def _since_ms(self, moment_ns: int) -> float:
        return max(0, moment_ns - self._going.begun_ns) / NS_PER_MS
