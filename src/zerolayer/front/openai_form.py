"""OpenAI's chats and completions as they leave: streamed events or one body."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.front.exchange import JSON, Exchange
from zerolayer.front.lines import Around, Words
from zerolayer.front.site import Site
from zerolayer.front.stream import Form
from zerolayer.front.transcript import Transcript, Transcripts
from zerolayer.guard.prompts.prompt import Prompt
from zerolayer.text.decode import Decoder
from zerolayer.text.vocabulary import Vocabulary
from zerolayer.wire.http1_reply import server_timing
from zerolayer.wire.openai_logprobs import LogprobWriter, TokenBytes
from zerolayer.wire.openai_reply import choice_member, complete_body
from zerolayer.wire.openai_stream import StreamWriter, text_member
from zerolayer.wire.schema import Account, CallDelta, FinishReason, Request, Route, ToolCall, Usage


class Echo(msgspec.Struct, frozen=True):
    """The prompt in front of its completion. ``first`` is its first token, which has no log probability."""

    text: str = ""
    first: int = -1


EventParts = tuple[Exchange, Transcript, StreamWriter, TokenBytes | None, Echo | None, int | None]
BodyParts = tuple[Exchange, Transcript, Route, int, str, TokenBytes | None, Echo | None]


class EventForm(Form):
    """Server-sent events. The first token's write carries the HTTP head: what fails before has its own status.

    ``token_bytes`` None: no log probabilities were asked for. ``counted``: every event tells the usage so far, of a
    prompt of so many tokens. ``words`` are those of ``openai_stream.text_member``, where each event is the exchange's.
    """

    def __init__(
        self,
        exchange: Exchange,
        transcript: Transcript,
        writer: StreamWriter,
        token_bytes: TokenBytes | None,
        echo: Echo | None = None,
        counted: int | None = None,
        words: Words | None = None,
    ) -> None:
        self._exchange = exchange
        self._transcript = transcript
        self._writer = writer
        self._token_bytes = token_bytes
        self._echo = echo
        self._counted = counted
        self._words = words
        self._opened = False
        self._send: Callable[[bytes], None] = exchange.stream
        self._plain = token_bytes is None and counted is None and type(transcript) is Transcript

    def grow(self, text: str) -> None:
        """One event when there is text, one for each piece of a call; the opening one with the first token anyway."""
        if self._plain and self._opened:
            if text:
                self._send(self._writer.plain_delta(text))
            return
        opening = self._opening()
        if text:
            opening += self._delta(text)
        opening += self._calls()
        if opening:
            self._send(opening)

    def around(self) -> Around | None:
        """Of events that tell nothing but text."""
        return Around(self._words, *self._writer.around_text) if self._plain and self._words is not None else None

    def finish(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> None:
        """Last text, finish reason with the account, usage when asked for, and the end mark."""
        writer = self._writer
        self._exchange.end_stream(self._last(text, reason, account, usage) + writer.usage(usage) + writer.done())

    def fail(self, error: ZerolayerError) -> None:
        """Before the head an error reply; after it an error event and a broken end."""
        if self._exchange.streaming:
            self._exchange.break_stream(self._writer.error(error))
        else:
            self._exchange.error(error)

    def _last(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> bytes:
        """Everything up to the answer's end."""
        counts = None if self._counted is None else usage
        return self._opening() + self._delta(text) + self._calls() + self._writer.finish(reason, account, counts)

    def _delta(self, text: str) -> bytes:
        return self._writer.delta(text, self._transcript.take_logprobs(), self._token_bytes, self._usage())

    def _calls(self) -> bytes:
        pieces = self._transcript.take_calls()
        return self._writer.calls(pieces, self._usage()) if pieces else b""

    def _usage(self) -> Usage | None:
        return None if self._counted is None else Usage(self._counted, self._transcript.completion_tokens)

    def _opening(self) -> bytes:
        if self._opened:
            return b""
        self._opened = True
        opening, echo = self._writer.open(), self._echo
        if echo is not None:
            opening += self._writer.echo(echo.text, self._transcript.prompt_logprobs, self._token_bytes, echo.first)
        return opening


class BodyForm(Form):
    """One JSON body, rendered when the last token is there. ``created`` is in Unix seconds."""

    def __init__(
        self,
        exchange: Exchange,
        transcript: Transcript,
        route: Route,
        created: int,
        model: str,
        token_bytes: TokenBytes | None,
        echo: Echo | None = None,
    ) -> None:
        self._exchange = exchange
        self._transcript = transcript
        self._route = route
        self._created = created
        self._model = model
        self._token_bytes = token_bytes  # None: no log probabilities were asked for
        self._echo = echo
        self._text = [echo.text] if echo is not None else []

    def grow(self, text: str) -> None:
        """Keep the text; log probabilities stay with the transcript."""
        self._text.append(text)

    def finish(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> None:
        """The whole reply in one write, with the stages in ``server-timing``."""
        self.reply([self.choice(text, reason)], account, usage)

    def choice(self, text: str, reason: FinishReason, index: int = 0) -> msgspec.Raw:
        """The answer, the last piece of its text included."""
        self._text.append(text)
        calls = whole_calls(self._transcript.take_calls())
        text = "".join(self._text)
        return choice_member(self._route, text, reason, calls=calls, logprobs=self._logprobs(), index=index)

    def reply(self, choices: Sequence[msgspec.Raw], account: Account, usage: Usage) -> None:
        """The body around the answers."""
        request_id = self._exchange.request_id
        body = complete_body(
            self._route, request_id, self._created, self._model, choices=choices, usage=usage, account=account
        )
        self._exchange.reply(200, (JSON, (b"server-timing", server_timing(account.stages_us))), body)

    def fail(self, error: ZerolayerError) -> None:
        """An error reply with its own status."""
        self._exchange.error(error)

    def _logprobs(self) -> bytes:
        if self._token_bytes is None:
            return b"null"
        transcript, first, logprobs = self._transcript, None, self._transcript.take_logprobs()
        if self._echo is not None:
            first, logprobs = self._echo.first, [*transcript.prompt_logprobs, *logprobs]
        return LogprobWriter(self._route).render(logprobs, self._token_bytes, first)


def whole_calls(pieces: Sequence[CallDelta]) -> list[ToolCall]:
    """The calls of a complete answer from all of their pieces."""
    firsts = [piece for piece in pieces if piece.name]
    arguments: list[list[str]] = [[] for _ in firsts]
    for piece in pieces:
        arguments[piece.index].append(piece.arguments)
    return [ToolCall(first.id, first.name, "".join(arguments[first.index])) for first in firsts]


class OpenAiAnswers:
    """Makes the forms of chats and completions; a ``generate.Answer``. ``model`` is the name that replies tell."""

    def __init__(self, site: Site, model: str, vocabulary: Vocabulary, transcripts: Transcripts) -> None:
        self._wall_s: Callable[[], float] = site.wall_s
        self._model = model
        self._vocabulary = vocabulary
        self._transcripts = transcripts
        self._words = Words(vocabulary.texts, lambda _, text: text_member(text))

    def __call__(self, exchange: Exchange, request: Request, prompt: Prompt) -> tuple[Transcript, Form]:
        """Of one request that is about to run."""
        if request.stream:
            events = self.events(exchange, request, prompt)
            return events[1], EventForm(*events, words=self._words)
        body = self.body(exchange, request, prompt)
        return body[1], BodyForm(*body)

    def events(self, exchange: Exchange, request: Request, prompt: Prompt, index: int = 0) -> EventParts:
        """What the ``EventForm`` of the answer number ``index`` is made of."""
        created = int(self._wall_s())
        writer = StreamWriter(
            request.route, exchange.request_id, created, self._model, request.include_usage, index=index
        )
        counted = len(prompt.ids) if request.continuous_usage else None
        return (
            exchange,
            self._transcripts.of(request),
            writer,
            self._token_bytes(request),
            self._echo(request, prompt),
            counted,
        )

    def body(self, exchange: Exchange, request: Request, prompt: Prompt) -> BodyParts:
        """What a ``BodyForm`` is made of."""
        return (
            exchange,
            self._transcripts.of(request),
            request.route,
            int(self._wall_s()),
            self._model,
            self._token_bytes(request),
            self._echo(request, prompt),
        )

    def _token_bytes(self, request: Request) -> TokenBytes | None:
        """What shows tokens, where log probabilities were asked for."""
        return None if request.sampling.top_logprobs is None else self._vocabulary.piece_bytes

    def _echo(self, request: Request, prompt: Prompt) -> Echo | None:
        """The prompt, where it is to be shown; ids are decoded."""
        if not request.echo:
            return None
        if isinstance(request.prompt, str):
            return Echo(request.prompt, prompt.ids[0])
        decoder = Decoder(self._vocabulary)
        text = "".join([decoder.push(token_id) for token_id in request.prompt]) + decoder.flush()
        return Echo(text, prompt.ids[0])
