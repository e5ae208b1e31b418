"""Questions as OpenAI's API has them, for any server that speaks it: JSON there, server-sent events back. Sans-IO."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from zerolayer.client.answer import Outcome
from zerolayer.client.attempt import Head
from zerolayer.client.errors import BadReply, Refused
from zerolayer.client.forms import Ask
from zerolayer.client.head import json_object, read_head, refusal, refused
from zerolayer.client.http1 import CHECK
from zerolayer.client.request import Question
from zerolayer.client.sse import EventReader

CHATS: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"


class JsonForm:
    """A ``forms.Form``."""

    late_status = False

    def ask(self, question: Question) -> Ask:
        """The request."""
        options = question.options
        what: dict[str, object] = (
            {"messages": question.messages} if question.prompt is None else {"prompt": question.prompt}
        )
        given = {
            "max_tokens": 0 if options.fills_cache else options.max_tokens,
            "temperature": options.temperature,
            "seed": options.seed,
            "stop": list(options.stop) if isinstance(options.stop, tuple) else options.stop,
        }
        body: dict[str, object] = {"model": options.model, **what}
        if not options.fills_cache:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= {name: value for name, value in given.items() if value is not None}
        path = CHATS if question.prompt is None else COMPLETIONS
        return Ask(self, path, json.dumps(body).encode(), question.prefix, options.model, question.headers)

    def head(self, status: int, headers: Mapping[str, str], _trailers: Mapping[str, str]) -> Head:
        return read_head(status, headers)

    def refused(self, head: Head, body: bytes, _headers: Mapping[str, str], _trailers: Mapping[str, str]) -> Refused:
        return refused(head, body)

    def reader(self, _model: str) -> AnswerReader:
        return AnswerReader()


class AnswerReader:
    """A ``forms.Reader``; the stream's end mark is ``[DONE]``."""

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        self._events = EventReader(strict=True)
        self._seen: dict[str, Any] = {}

    def push(self, data: bytes) -> Iterator[str]:
        for event in self._events.push(data):
            if self.outcome is not None:
                break
            if event == b"[DONE]":
                self.outcome = Outcome(**self._seen)
            elif text := self._take(json_object(event)):
                yield text

    def end(self, _trailers: Mapping[str, str]) -> None:
        pass

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
                details = usage.get("prompt_tokens_details") or {}
                self._seen["cached_tokens"] = int(details.get("cached_tokens") or 0)
            choices = chunk["choices"] if usage is None else chunk.get("choices", [])  # text under no name is lost
            for choice in choices[:1]:
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
