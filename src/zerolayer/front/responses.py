"""OpenAI's Responses API: ``POST /v1/responses``, and what its other paths can say of a service that keeps nothing."""

from __future__ import annotations

from collections.abc import Callable

from zerolayer.errors import NotFound, ZerolayerError
from zerolayer.front.count_tokens import TokenCounter
from zerolayer.front.exchange import JSON, Exchange
from zerolayer.front.generate import Generator
from zerolayer.front.stream import Form
from zerolayer.front.transcript import Transcript, Transcripts
from zerolayer.guard.prompts.prompt import Prompt
from zerolayer.text.vocabulary import Vocabulary
from zerolayer.wire.http1_reply import server_timing
from zerolayer.wire.responses import ResponseRequest, decode_response
from zerolayer.wire.responses_reply import ResponseWriter, input_tokens_body
from zerolayer.wire.schema import Account, FinishReason, Request, Usage


class ResponseAnswers:
    """Makes the form of one response; a ``generate.Answer``. ``model`` is the name that replies tell."""

    def __init__(
        self, wall_s: Callable[[], float], model: str, vocabulary: Vocabulary, transcripts: Transcripts
    ) -> None:
        self._wall_s = wall_s
        self._model = model
        self._vocabulary = vocabulary
        self._transcripts = transcripts

    def __call__(self, exchange: Exchange, request: Request, _prompt: Prompt) -> tuple[Transcript, Form]:
        """Of one request that is about to run."""
        transcript = self._transcripts.of(request)
        token_bytes = None if request.sampling.top_logprobs is None else self._vocabulary.piece_bytes
        told = request.told if isinstance(request, ResponseRequest) else b""
        writer = ResponseWriter(exchange.request_id, int(self._wall_s()), self._model, told, token_bytes)
        return transcript, ResponseForm(exchange, transcript, writer, stream=request.stream)


class ResponseForm(Form):
    """Server-sent events (``stream``), or one body with what they come to."""

    def __init__(self, exchange: Exchange, transcript: Transcript, writer: ResponseWriter, *, stream: bool) -> None:
        self._exchange = exchange
        self._transcript = transcript
        self._writer = writer
        self._stream = stream

    def grow(self, text: str) -> None:
        """The step's events; the opening ones with the first token, text or not."""
        events = self._events(text)
        if self._stream and events:
            self._exchange.stream(events)

    def finish(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> None:
        """The last events, or the body."""
        events = self._events(text)
        if self._stream:
            self._exchange.end_stream(events + self._writer.finish(reason, usage, account))
            return
        timing = (b"server-timing", server_timing(account.stages_us))
        self._exchange.reply(200, (JSON, timing), self._writer.body(reason, usage, account))

    def fail(self, error: ZerolayerError) -> None:
        """Before the head an error reply; after it ``response.failed`` and a broken end."""
        if self._exchange.streaming:
            self._exchange.break_stream(self._writer.fail(error))
        else:
            self._exchange.error(error)

    def _events(self, text: str) -> bytes:
        opening = b"" if self._exchange.streaming or not self._stream else self._writer.open()
        transcript = self._transcript
        logprobs = transcript.take_logprobs() if text else ()
        return opening + self._writer.text(text, logprobs) + self._writer.calls(transcript.take_calls())


class Responses:
    """The actions. ``generator`` answers by ``ResponseAnswers``."""

    def __init__(self, generator: Generator, counter: TokenCounter) -> None:
        self._generator = generator
        self._counter = counter

    def create(self, exchange: Exchange) -> None:
        """``POST /v1/responses``."""
        self._generator.generate(exchange, decode_response, exchange.head.values)

    def count(self, exchange: Exchange) -> None:
        """``POST /v1/responses/input_tokens``."""
        self._counter.count(exchange, decode_response, _answer_count)

    def kept(self, exchange: Exchange) -> None:
        """Whatever asks for an earlier response."""
        exchange.error(
            NotFound("this service keeps no responses; the reply to POST /v1/responses, or its stream, has all of it")
        )


def _answer_count(exchange: Exchange, prompt_tokens: int, _slot_tokens: int) -> None:
    exchange.reply(200, (JSON,), input_tokens_body(prompt_tokens))
