"""The answer to one chat request, as an iterator of text."""

from __future__ import annotations

import http.client
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from zerolayer.client.errors import BadReply, CutStream
from zerolayer.client.sse import EventReader
from zerolayer.client.transport import CHECK, Exchange, json_object, refusal

READ_BYTES = 1 << 16
_CUT = "The text so far is not the whole answer; ask again."


@dataclass(frozen=True)
class Outcome:
    """How a stream ended. ``stages_us`` (microseconds a stage) and ``program`` are zerolayer's own, empty elsewhere."""

    model: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stages_us: Mapping[str, int] = field(default_factory=dict)
    program: str = ""


class ChatStream(Iterator[str]):
    """The answer's pieces of text, in order; ``outcome`` is set once the iterator is exhausted.

    Leaving early (``close``, or the end of a ``with`` block) closes the connection, which frees the server's slot.
    Raises ``CutStream`` where the stream ends without its end mark, ``Refused`` for an error sent inside it.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.outcome: Outcome | None = None
        self._exchange = exchange
        self._seen: dict[str, Any] = {}
        self._pieces = self._read()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._pieces.close()
        self._exchange.close()

    def _read(self) -> Generator[str, None, None]:
        reader = EventReader()
        try:
            while data := self._exchange.response.read1(READ_BYTES):
                for event in reader.push(data):
                    if event == b"[DONE]":
                        self.outcome = Outcome(**self._seen)
                        return
                    if text := self._take(json_object(event)):
                        yield text
        except (OSError, http.client.HTTPException) as error:
            raise CutStream(f"The stream broke off ({type(error).__name__}). {_CUT}") from None
        finally:
            self._exchange.close()
        raise CutStream(f"The stream ended without its end mark. {_CUT}")

    def _take(self, chunk: dict[str, Any]) -> str:
        """The text of one chunk; what else it says is kept for ``outcome``."""
        if "error" in chunk:
            raise refusal(chunk, 200, None)
        text: object = ""
        try:
            self._seen["model"] = str(chunk.get("model") or self._seen.get("model", ""))
            if (usage := chunk.get("usage")) is not None:
                self._seen["prompt_tokens"] = int(usage["prompt_tokens"])
                self._seen["completion_tokens"] = int(usage["completion_tokens"])
            for choice in chunk.get("choices", [])[:1]:
                text = choice["delta"].get("content") or ""
                if reason := choice.get("finish_reason"):
                    self._seen["finish_reason"] = str(reason)
                    own = choice.get("zerolayer") or chunk.get("zerolayer") or {}
                    self._seen["stages_us"] = {str(name): int(us) for name, us in own.get("stages_us", {}).items()}
                    self._seen["program"] = str(own.get("program", ""))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise BadReply(f"A chunk of the stream has not the shape of OpenAI's chat API. {CHECK}") from None
        if not isinstance(text, str):
            raise BadReply(f"A chunk of the stream holds text of another type. {CHECK}")
        return text
