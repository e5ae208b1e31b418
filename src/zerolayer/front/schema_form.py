"""Replies in the fixed schema: the messages are made here, a ``Framing`` says how they reach the client."""

from __future__ import annotations

from typing import Final, Protocol

from zerolayer.errors import ZerolayerError
from zerolayer.front.exchange import ErrorReply, Exchange, Headers
from zerolayer.front.gate import PROTOBUF_MEDIA
from zerolayer.front.lines import Around, Words
from zerolayer.front.site import Header
from zerolayer.front.stream import Form
from zerolayer.front.transcript import Transcript
from zerolayer.guard.prompts.prompt import Prompt
from zerolayer.text.decode import Decoder
from zerolayer.text.vocabulary import Vocabulary
from zerolayer.wire.protobuf import delimited
from zerolayer.wire.protobuf_reply import error_message, failed, last, piece
from zerolayer.wire.schema import Account, FinishReason, Request, Usage

PROTOBUF: Final[Header] = (b"content-type", PROTOBUF_MEDIA)
_STREAM: Final[Headers] = (
    (b"content-type", PROTOBUF_MEDIA + b"; delimited=true"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the stream otherwise
)


Values = dict[bytes, bytes]
"""Headers by the names that HTTP has for them; of one that is repeated the first value."""


class Framing(Protocol):
    """A protocol that carries messages. Each call with an exchange is one write at most."""

    always_streams: bool  # whatever the request says

    def prepare(self, exchange: Exchange) -> Values:
        """Before anything is decoded: what an error of this exchange looks like. Returns what its headers say."""

    def wrap(self, message: bytes) -> bytes:
        """A message as it stands in a stream."""

    def end(self, exchange: Exchange, message: bytes) -> None:
        """The last message of a stream that is complete."""

    def fail(self, exchange: Exchange, error: ZerolayerError) -> None:
        """The end of a stream that nobody takes for complete."""

    def reply(self, exchange: Exchange, message: bytes) -> None:
        """The only message of a reply that is no stream."""


class HttpFraming:
    """Bodies of the type ``application/x-protobuf``; in a stream each message has its length, a varint, before it."""

    always_streams = False

    def prepare(self, exchange: Exchange) -> Values:
        """Errors are messages too, unless the client accepts JSON and says so."""
        exchange.media = _STREAM
        values = exchange.head.values
        accepted = values.get(b"accept")
        if accepted is None or b"application/json" not in accepted.lower():
            exchange.explain = _explain
        return values

    def wrap(self, message: bytes) -> bytes:
        return delimited(message)

    def end(self, exchange: Exchange, message: bytes) -> None:
        exchange.end_stream(self.wrap(message))

    def fail(self, exchange: Exchange, error: ZerolayerError) -> None:
        exchange.break_stream(delimited(failed(error)))

    def reply(self, exchange: Exchange, message: bytes) -> None:
        exchange.reply(200, (PROTOBUF,), message)


def _explain(error: ZerolayerError) -> ErrorReply:
    return error.status, (PROTOBUF,), error_message(error)


class SchemaAnswers:
    """Makes the form of one reply; a ``generate.Answer``."""

    def __init__(self, framing: Framing, vocabulary: Vocabulary) -> None:
        self._framing = framing
        self._vocabulary = vocabulary
        self._words = Words(vocabulary.texts, lambda token_id, text: framing.wrap(piece((token_id,), text.encode())))

    def __call__(self, exchange: Exchange, request: Request, _prompt: Prompt) -> tuple[Transcript, Form]:
        """Of one request that is about to run."""
        transcript = Transcript(Decoder(self._vocabulary), request.stop)
        if not (request.stream or self._framing.always_streams):
            return transcript, WholeForm(exchange, transcript, self._framing)
        words = self._words if request.sampling.top_logprobs is None else None
        return transcript, StreamForm(exchange, transcript, self._framing, words)


class StreamForm(Form):
    """One ``GenerateReply`` for each step.

    ``words`` are framed messages of one token and its text each; None: log probabilities were asked for.
    """

    def __init__(
        self,
        exchange: Exchange,
        transcript: Transcript,
        framing: Framing,
        words: Words | None,
    ) -> None:
        self._exchange = exchange
        self._transcript = transcript
        self._framing = framing
        self._words = words

    def grow(self, text: str) -> None:
        """A message of the step's token, whose text may come later."""
        if self._words is not None:
            self._exchange.stream(self._words.showing(self._transcript.token_id, text))
            return
        # A token's log probabilities wait for the text that it completes; so they do where it completes none.
        logprobs = self._transcript.take_logprobs() if text else ()
        self._exchange.stream(self._framing.wrap(piece((self._transcript.token_id,), text.encode(), logprobs)))

    def around(self) -> Around | None:
        """Messages have nothing in common but their form."""
        return None if self._words is None else Around(self._words)

    def finish(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> None:
        """The last message."""
        transcript = self._transcript
        message = piece((transcript.token_id,), text.encode(), transcript.take_logprobs())
        message += last(reason, usage, account)
        self._framing.end(self._exchange, message)

    def fail(self, error: ZerolayerError) -> None:
        """Before the first message an error reply; after it the framing's end of a failed stream."""
        if self._exchange.streaming:
            self._framing.fail(self._exchange, error)
        else:
            self._exchange.error(error)


class WholeForm(Form):
    """One ``GenerateReply`` with everything, when the last token is there."""

    def __init__(self, exchange: Exchange, transcript: Transcript, framing: Framing) -> None:
        self._exchange = exchange
        self._transcript = transcript
        self._framing = framing
        self._ids: list[int] = []
        self._text: list[str] = []

    def grow(self, text: str) -> None:
        """Keep both."""
        self._ids.append(self._transcript.token_id)
        self._text.append(text)

    def finish(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> None:
        """The only message."""
        self.grow(text)
        shown = "".join(self._text).encode()
        message = piece(self._ids, shown, self._transcript.take_logprobs()) + last(reason, usage, account)
        self._framing.reply(self._exchange, message)

    def fail(self, error: ZerolayerError) -> None:
        """An error reply with its own status."""
        self._exchange.error(error)
