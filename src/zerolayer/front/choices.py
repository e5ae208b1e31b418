"""A request with several answers: each has a slot and a transcript of its own, and all leave in one reply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.front.exchange import Exchange
from zerolayer.front.openai_form import BodyForm, BodyParts, EventForm, EventParts, OpenAiAnswers
from zerolayer.front.stream import Form
from zerolayer.front.transcript import Transcript
from zerolayer.guard.prompts.prompt import Prompt
from zerolayer.wire.openai_stream import StreamWriter, error_event
from zerolayer.wire.schema import Account, FinishReason, Request, Usage


class Choices:
    """The answers of one reply as they grow. ``give_up`` ends those that still run, when one of them has failed.

    ``per_prompt`` answers share a prompt, which is counted once.
    """

    def __init__(self, exchange: Exchange, answers: int, per_prompt: int, give_up: Callable[[], None]) -> None:
        self._exchange = exchange
        self._usages: list[Usage | None] = [None] * answers
        self._per_prompt = per_prompt
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._events: list[bytes] = []
        self._choices: dict[int, msgspec.Raw] = {}
        self._over = False

    def send(self, events: bytes) -> None:
        """Events of one answer. All that a step brings leave in one write, once its tokens are handed out."""
        if not self._events:
            self._loop.call_soon(self._flush)
        self._events.append(events)

    def end(self, index: int, events: bytes, usage: Usage, writer: StreamWriter) -> None:
        """An answer of a stream is complete; with the last one the stream is."""
        self._usages[index] = usage
        if None in self._usages:
            self.send(events)
            return
        self._over = True
        self._exchange.end_stream(self._taken() + events + writer.usage(self._total()) + writer.done())

    def collect(self, index: int, choice: msgspec.Raw, usage: Usage, account: Account, body: BodyForm) -> None:
        """An answer of a body is complete; with the last one the body leaves."""
        self._usages[index] = usage
        self._choices[index] = choice
        if None not in self._usages:
            self._over = True
            body.reply([self._choices[i] for i in range(len(self._usages))], account, self._total())

    def fail(self, error: ZerolayerError) -> None:
        """One answer failed, and with it the reply."""
        if self._over:
            return
        self._over = True
        if self._exchange.streaming:
            self._exchange.break_stream(self._taken() + error_event(error))
        else:
            self._exchange.error(error)
        self._give_up()

    def _flush(self) -> None:
        if self._events and not self._over:
            self._exchange.stream(self._taken())

    def _taken(self) -> bytes:
        events, self._events = self._events, []
        return b"".join(events)

    def _total(self) -> Usage:
        usages = [usage for usage in self._usages if usage is not None]
        prompts = usages[:: self._per_prompt]
        return Usage(
            sum(usage.prompt_tokens for usage in prompts),
            sum(usage.completion_tokens for usage in usages),
            sum(usage.cached_tokens for usage in prompts),
        )


class _ChoiceEvents(EventForm):
    """One answer of a stream, as ``EventForm`` but for its end."""

    def __init__(self, choices: Choices, index: int, parts: EventParts) -> None:
        super().__init__(*parts)
        self._send = choices.send
        self._choices = choices
        self._index = index

    def finish(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> None:
        self._choices.end(self._index, self._last(text, reason, account, usage), usage, self._writer)

    def fail(self, error: ZerolayerError) -> None:
        self._choices.fail(error)


class _ChoiceBody(BodyForm):
    """One answer of a body, as ``BodyForm`` but for its end."""

    def __init__(self, choices: Choices, index: int, parts: BodyParts) -> None:
        super().__init__(*parts)
        self._choices = choices
        self._index = index

    def finish(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> None:
        self._choices.collect(self._index, self.choice(text, reason, self._index), usage, account, self)

    def fail(self, error: ZerolayerError) -> None:
        self._choices.fail(error)


def several(
    answers: OpenAiAnswers, exchange: Exchange, request: Request, prompts: Sequence[Prompt], give_up: Callable[[], None]
) -> list[tuple[Transcript, Form]]:
    """Transcript and form of each answer to ``request``, in the order of ``request.each()``."""
    choices = Choices(exchange, request.answers, request.n, give_up)
    made: list[tuple[Transcript, Form]] = []
    for index, part in enumerate(request.each()):
        prompt = prompts[index // request.n]
        if request.stream:
            events = answers.events(exchange, part, prompt, index)
            made.append((events[1], _ChoiceEvents(choices, index, events)))
        else:
            body = answers.body(exchange, part, prompt)
            made.append((body[1], _ChoiceBody(choices, index, body)))
    return made
