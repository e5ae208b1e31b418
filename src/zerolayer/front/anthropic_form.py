"""Replies in Anthropic's shape: events of a message, or the whole message."""

from __future__ import annotations

from typing import Final

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.front.exchange import JSON, Exchange
from zerolayer.front.stream import Form
from zerolayer.front.transcript import Transcript, Transcripts
from zerolayer.guard.prompts.prompt import Prompt
from zerolayer.wire.anthropic_reply import TextBlock, ToolUseBlock, message_body
from zerolayer.wire.anthropic_stream import MessageWriter
from zerolayer.wire.http1_reply import server_timing
from zerolayer.wire.schema import Account, FinishReason, Request, Usage

_CALL_PREFIX: Final = "toolu_"
_EMPTY: Final = msgspec.Raw(b"{}")

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


class MessageAnswers:
    """Makes the forms of messages; a ``generate.Answer``. ``model`` is the name that replies tell."""

    def __init__(self, model: str, transcripts: Transcripts, slot_tokens: int) -> None:
        self._model = model
        self._transcripts = transcripts
        self._slot_tokens = slot_tokens

    def __call__(self, exchange: Exchange, request: Request, prompt: Prompt) -> tuple[Transcript, Form]:
        """Of one request that is about to run."""
        transcript = self._transcripts.of(request, _CALL_PREFIX)
        stop = _Stop(request, transcript, room=self._slot_tokens - len(prompt.ids))
        if request.stream:
            writer = MessageWriter(exchange.request_id, self._model, len(prompt.ids))
            return transcript, MessageEvents(exchange, transcript, stop, writer)
        return transcript, MessageBody(exchange, transcript, stop, self._model)


class MessageEvents(Form):
    """Server-sent events. The first token's write carries the HTTP head: what fails before has its own status."""

    def __init__(self, exchange: Exchange, transcript: Transcript, stop: _Stop, writer: MessageWriter) -> None:
        self._exchange = exchange
        self._transcript = transcript
        self._stop = stop
        self._writer = writer

    def grow(self, text: str) -> None:
        """The step's text and calls; ``message_start`` with the first token, whether there is text or not."""
        events = self._news(text)
        if events:
            self._exchange.stream(events)

    def finish(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> None:
        """What is left, then the stop reason with usage and account, and the end mark."""
        stop = self._stop.of(reason, account)
        self._exchange.end_stream(self._news(text) + self._writer.finish(*stop, usage, account))

    def fail(self, error: ZerolayerError) -> None:
        """Before the head an error reply; after it an error event and a broken end."""
        if self._exchange.streaming:
            self._exchange.break_stream(self._writer.error(error))
        else:
            self._exchange.error(error)

    def _news(self, text: str) -> bytes:
        writer, pieces = self._writer, self._transcript.take_calls()
        events = writer.text(text)
        if pieces:
            events += writer.calls(pieces)
        return events if self._exchange.streaming else writer.open() + events


class MessageBody(Form):
    """One JSON body, rendered when the last token is there."""

    def __init__(self, exchange: Exchange, transcript: Transcript, stop: _Stop, model: str) -> None:
        self._exchange = exchange
        self._transcript = transcript
        self._stop = stop
        self._model = model
        self._text: list[str] = []
        self._calls: list[tuple[str, str, list[str]]] = []  # id, name, pieces of the input

    def grow(self, text: str) -> None:
        """Keep the text and the calls."""
        self._text.append(text)
        for piece in self._transcript.take_calls():
            if piece.name:
                self._calls.append((piece.id, piece.name, []))
            self._calls[-1][2].append(piece.arguments)

    def finish(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> None:
        """The whole message in one write, with the stages in ``server-timing``."""
        self.grow(text)
        said = "".join(self._text)
        content: list[TextBlock | ToolUseBlock] = [TextBlock(said)] if said else []
        content += [ToolUseBlock(call_id, name, _input("".join(parts))) for call_id, name, parts in self._calls]
        stop_reason, stop_sequence = self._stop.of(reason, account)
        body = message_body(
            self._exchange.request_id,
            self._model,
            content,
            stop_reason=stop_reason,
            stop_sequence=stop_sequence,
            usage=usage,
            account=account,
        )
        self._exchange.reply(200, (JSON, (b"server-timing", server_timing(account.stages_us))), body)

    def fail(self, error: ZerolayerError) -> None:
        """An error reply with its own status."""
        self._exchange.error(error)


class _Stop:
    """Why an answer ended. ``room``: tokens that its slot had for it."""

    def __init__(self, request: Request, transcript: Transcript, room: int) -> None:
        self._most = request.max_tokens
        self._transcript = transcript
        self._room = room

    def of(self, reason: FinishReason, account: Account) -> tuple[str, str | None]:
        """``stop_reason`` and ``stop_sequence``."""
        if reason is FinishReason.TOOL_CALLS:
            return "tool_use", None
        if reason is FinishReason.LENGTH:
            filled = self._most is not None and account.max_tokens == self._room < self._most
            return "model_context_window_exceeded" if filled else "max_tokens", None
        stopped_by = self._transcript.stopped_by
        return ("stop_sequence", stopped_by) if stopped_by else ("end_turn", None)


def _input(arguments: str) -> msgspec.Raw:
    """The arguments as the object that they must be; what is no object is wrapped, as Anthropic advises clients to."""
    if not arguments:
        return _EMPTY
    raw = arguments.encode()
    try:
        _object.decode(raw)
    except (ValueError, RecursionError):
        return msgspec.Raw(msgspec.json.encode({"INVALID_JSON": arguments}))
    return msgspec.Raw(raw)
