"""A request that runs: one token per step in, at most one write per step out; streamed events or one body."""

from __future__ import annotations

from typing import Protocol

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.front.exchange import JSON, Exchange
from zerolayer.front.transcript import Transcript
from zerolayer.model.engine import SampledToken
from zerolayer.model.step_clock import StepReport
from zerolayer.observe.metrics import Metrics
from zerolayer.observe.stages import Stage
from zerolayer.wire.http1_reply import server_timing
from zerolayer.wire.openai_logprobs import TokenBytes
from zerolayer.wire.openai_reply import complete_body
from zerolayer.wire.openai_stream import StreamWriter
from zerolayer.wire.schema import Account, FinishReason, Route, Usage

_NS = 1e-9


class Form(Protocol):
    """How a reply reaches the client."""

    def grow(self, text: str) -> None:
        """The step's text, perhaps empty."""

    def finish(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> None:
        """The last text, and the end."""

    def fail(self, error: ZerolayerError) -> None:
        """The end that nobody takes for a complete one."""


class Reply:
    """``applied`` is the account of what was applied, without stages and program; the last event repeats it.

    ``limits_ns`` are the longest time to the first token and between two; where they do not hold, that is counted.
    """

    def __init__(
        self,
        exchange: Exchange,
        transcript: Transcript,
        form: Form,
        metrics: Metrics,
        *,
        prompt_tokens: int,
        applied: Account,
        limits_ns: tuple[int, int],
    ) -> None:
        self.stages = exchange.stages
        self._exchange = exchange
        self._transcript = transcript
        self._form = form
        self._metrics = metrics
        self.cached_tokens = 0
        self._prompt_tokens = prompt_tokens
        self._applied = applied
        self._first_token_ns, self._gap_ns = limits_ns
        self._last_token_ns = 0

    @property
    def used_tokens(self) -> int:
        """Tokens of the slot that are in use."""
        return self._prompt_tokens + self._transcript.completion_tokens

    def push(self, token: SampledToken, report: StepReport) -> bool:
        """Take the step's token. True when the reply is complete."""
        self._observe(report.ended_ns)
        transcript = self._transcript
        text = transcript.push(token)
        reason = transcript.reason
        if reason is None:
            self._form.grow(text)
            return False
        self._exchange.mark(Stage.FRAME)
        spent = self.stages.spent_us()
        account = msgspec.structs.replace(self._applied, stages_us=spent, program=report.program)
        usage = Usage(self._prompt_tokens, transcript.completion_tokens, self.cached_tokens)
        self._form.finish(text, reason, account, usage)
        self._metrics.finished(reason.value, self.stages)
        self._metrics.sizes.finished(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, self.stages)
        return True

    def fail(self, error: ZerolayerError) -> None:
        """End with an error."""
        self._form.fail(error)
        self._metrics.finished("error", self.stages)

    def abandon(self) -> None:
        """The client went away; only the account is left."""
        self._metrics.finished("abort", self.stages)

    def _observe(self, ended_ns: int) -> None:
        metrics = self._metrics
        if self._last_token_ns:
            gap = ended_ns - self._last_token_ns
            metrics.between_tokens.observe(gap * _NS)
            if gap > self._gap_ns:
                metrics.promises.missed("per_token")
        else:
            self.stages.first_token()
            taken = ended_ns - self.stages.started_ns
            metrics.first_token.observe(taken * _NS)
            if taken > self._first_token_ns:
                metrics.promises.missed("first_token")
        self._last_token_ns = ended_ns


class EventForm:
    """Server-sent events. The first token's write carries the HTTP head: what fails before has its own status."""

    def __init__(
        self, exchange: Exchange, transcript: Transcript, writer: StreamWriter, token_bytes: TokenBytes, echo: str
    ) -> None:
        self._exchange = exchange
        self._transcript = transcript
        self._writer = writer
        self._token_bytes = token_bytes
        self._echo = echo

    def grow(self, text: str) -> None:
        """One event when there is text; the opening event with the first token, text or not."""
        opening = self._opening()
        if text:
            opening += self._writer.delta(text, self._transcript.take_logprobs(), self._token_bytes)
        if opening:
            self._exchange.stream(opening)

    def finish(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> None:
        """Last text, finish reason with the account, usage when asked for, and the end mark."""
        writer = self._writer
        events = self._opening() + writer.delta(text, self._transcript.take_logprobs(), self._token_bytes)
        events += writer.finish(reason, account) + writer.usage(usage) + writer.done()
        self._exchange.end_stream(events)

    def fail(self, error: ZerolayerError) -> None:
        """Before the head an error reply; after it an error event and a broken end."""
        if self._exchange.streaming:
            self._exchange.break_stream(self._writer.error(error))
        else:
            self._exchange.error(error)

    def _opening(self) -> bytes:
        if self._exchange.streaming:
            return b""
        return self._writer.open() + self._writer.delta(self._echo)


class BodyForm:
    """One JSON body, rendered when the last token is there. ``created`` is in Unix seconds."""

    def __init__(
        self,
        exchange: Exchange,
        transcript: Transcript,
        route: Route,
        created: int,
        model: str,
        *,
        token_bytes: TokenBytes | None,
        echo: str,
    ) -> None:
        self._exchange = exchange
        self._transcript = transcript
        self._route = route
        self._created = created
        self._model = model
        self._token_bytes = token_bytes  # None: no log probabilities were asked for
        self._text = [echo]

    def grow(self, text: str) -> None:
        """Keep the text; log probabilities stay with the transcript."""
        self._text.append(text)

    def finish(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> None:
        """The whole reply in one write, with the stages in ``server-timing``."""
        self._text.append(text)
        body = complete_body(
            self._route,
            self._exchange.request_id,
            self._created,
            self._model,
            text="".join(self._text),
            reason=reason,
            usage=usage,
            account=account,
            logprobs=None if self._token_bytes is None else self._transcript.take_logprobs(),
            token_bytes=self._token_bytes,
        )
        self._exchange.reply(200, (JSON, (b"server-timing", server_timing(account.stages_us))), body)

    def fail(self, error: ZerolayerError) -> None:
        """An error reply with its own status."""
        self._exchange.error(error)
