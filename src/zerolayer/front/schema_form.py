"""Replies in the fixed schema: the messages are made here, a ``Framing`` says how they reach the client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from zerolayer.errors import RetryLater, ZerolayerError
from zerolayer.front.exchange import ErrorReply, Exchange, Headers
from zerolayer.front.gate import PROTOBUF_MEDIA
from zerolayer.front.site import Header
from zerolayer.front.stream import Form
from zerolayer.front.transcript import Transcript
from zerolayer.guard.prompt import Prompt
from zerolayer.model.engine import SampledToken
from zerolayer.text.decode import Decoder
from zerolayer.text.vocabulary import Vocabulary
from zerolayer.wire.http1_reply import retry_headers
from zerolayer.wire.protobuf import delimited
from zerolayer.wire.protobuf_reply import error_message, failed, last, piece
from zerolayer.wire.schema import Account, FinishReason, Request, Usage

PROTOBUF: Final[Header] = (b"content-type", PROTOBUF_MEDIA)
_STREAM: Final[Headers] = (
    (b"content-type", PROTOBUF_MEDIA + b"; delimited=true"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the stream otherwise
)


class Framing(Protocol):
    """A protocol that carries messages. Each call is one write at most."""

    always_streams: bool  # whatever the request says

    def prepare(self, exchange: Exchange) -> None:
        """Before anything is decoded: what an error of this exchange looks like."""

    def send(self, exchange: Exchange, message: bytes) -> None:
        """A message of a stream; the first one brings the head."""

    def end(self, exchange: Exchange, message: bytes) -> None:
        """The last message of a stream that is complete."""

    def fail(self, exchange: Exchange, error: ZerolayerError) -> None:
        """The end of a stream that nobody takes for complete."""

    def reply(self, exchange: Exchange, message: bytes) -> None:
        """The only message of a reply that is no stream."""


class HttpFraming:
    """Bodies of the type ``application/x-protobuf``; in a stream each message has its length, a varint, before it."""

    always_streams = False

    def prepare(self, exchange: Exchange) -> None:
        """Errors are messages too, unless the client accepts JSON and says so."""
        exchange.media = _STREAM
        if b"application/json" not in (exchange.head.get(b"accept") or b"").lower():
            exchange.explain = _explain

    def send(self, exchange: Exchange, message: bytes) -> None:
        exchange.stream(delimited(message))

    def end(self, exchange: Exchange, message: bytes) -> None:
        exchange.end_stream(delimited(message))

    def fail(self, exchange: Exchange, error: ZerolayerError) -> None:
        exchange.break_stream(delimited(failed(error)))

    def reply(self, exchange: Exchange, message: bytes) -> None:
        exchange.reply(200, (PROTOBUF,), message)


def _explain(error: ZerolayerError) -> ErrorReply:
    retry = retry_headers(error) if isinstance(error, RetryLater) else ()
    return error.status, (PROTOBUF, *retry), error_message(error)


class TokenTranscript(Transcript):
    """A transcript that keeps the ids too: they leave with their step, whatever becomes of their text."""

    __slots__ = ("_ids",)

    def __init__(self, decoder: Decoder, stops: Sequence[str]) -> None:
        super().__init__(decoder, stops)
        self._ids: list[int] = []

    def push(self, token: SampledToken) -> str:
        """As ``Transcript.push``."""
        self._ids.append(token.token_id)
        return super().push(token)

    def take_ids(self) -> list[int]:
        """Ids since the last call."""
        taken, self._ids = self._ids, []
        return taken


class SchemaAnswers:
    """Makes the form of one reply; a ``generate.Answer``."""

    def __init__(self, framing: Framing, vocabulary: Vocabulary) -> None:
        self._framing = framing
        self._vocabulary = vocabulary

    def __call__(self, exchange: Exchange, request: Request, _prompt: Prompt) -> tuple[Transcript, Form]:
        """Of one request that is about to run."""
        transcript = TokenTranscript(Decoder(self._vocabulary), request.stop)
        stream = request.stream or self._framing.always_streams
        return transcript, SchemaForm(exchange, transcript, self._framing, stream=stream)


class SchemaForm:
    """One ``GenerateReply`` for each step (``stream``), or one with everything."""

    def __init__(self, exchange: Exchange, transcript: TokenTranscript, framing: Framing, *, stream: bool) -> None:
        self._exchange = exchange
        self._transcript = transcript
        self._framing = framing
        self._stream = stream
        self._text: list[str] = []

    def grow(self, text: str) -> None:
        """A message of the step's token, or nothing yet."""
        if not self._stream:
            self._text.append(text)
            return
        transcript = self._transcript
        # A token's log probabilities wait for the text that it completes; so they do where it completes none.
        logprobs = transcript.take_logprobs() if text else ()
        self._framing.send(self._exchange, piece(transcript.take_ids(), text.encode(), logprobs))

    def finish(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> None:
        """The last message."""
        transcript = self._transcript
        shown = "".join((*self._text, text)).encode()
        message = piece(transcript.take_ids(), shown, transcript.take_logprobs()) + last(reason, usage, account)
        if self._stream:
            self._framing.end(self._exchange, message)
        else:
            self._framing.reply(self._exchange, message)

    def fail(self, error: ZerolayerError) -> None:
        """Before the first message an error reply; after it the framing's end of a failed stream."""
        if self._exchange.streaming:
            self._framing.fail(self._exchange, error)
        else:
            self._exchange.error(error)
