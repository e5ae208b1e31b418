"""The answer to one request: the events of its stream read into text, and how it ended. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from zerolayer.client.errors import BadReply
from zerolayer.client.head import json_object, refusal
from zerolayer.client.http1 import CHECK
from zerolayer.client.sse import EventReader
from zerolayer.client.statistics import Attempts


@dataclass(frozen=True)
class Outcome:
    """How a stream ended. ``stages_us`` (microseconds a stage) and ``program`` are zerolayer's own, empty elsewhere."""

    model: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stages_us: Mapping[str, int] = field(default_factory=dict)
    program: str = ""


@dataclass(frozen=True)
class Answer:
    """A complete answer. Times are in milliseconds from the call on, waits and retries included."""

    text: str
    outcome: Outcome
    attempts: Attempts
    first_text_ms: float
    total_ms: float

    @property
    def node(self) -> str:
        """Who answered."""
        return self.attempts.nodes[-1]


class AnswerReader:
    """Pieces of a reply's body -> pieces of text; ``outcome`` is set when the stream's end mark was read."""

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        self._events = EventReader()
        self._seen: dict[str, Any] = {}

    def push(self, data: bytes) -> Iterator[str]:
        """Take in ``data``; give its text. Raises ``BadReply``, and ``Refused`` for an error sent in the stream."""
        for event in self._events.push(data):
            if self.outcome is not None:
                break
            if event == b"[DONE]":
                self.outcome = Outcome(**self._seen)
            elif text := self._take(json_object(event)):
                yield text

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
                text = (choice["text"] if "text" in choice else choice["delta"].get("content")) or ""
                if reason := choice.get("finish_reason"):
                    self._seen["finish_reason"] = str(reason)
                    own = choice.get("zerolayer") or chunk.get("zerolayer") or {}
                    self._seen["stages_us"] = {str(name): int(us) for name, us in own.get("stages_us", {}).items()}
                    self._seen["program"] = str(own.get("program", ""))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise BadReply(f"A chunk of the stream has not the shape of OpenAI's API. {CHECK}") from None
        if not isinstance(text, str):
            raise BadReply(f"A chunk of the stream holds text of another type. {CHECK}")
        return text
