"""A request that runs: one token per step in, at most one write per step out; its form says what is written."""

from __future__ import annotations

from typing import Protocol

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.front.exchange import Exchange
from zerolayer.front.transcript import Transcript
from zerolayer.model.engine import SampledToken
from zerolayer.model.step_clock import StepReport
from zerolayer.observe.metrics import Metrics
from zerolayer.observe.stages import Stage
from zerolayer.wire.schema import Account, FinishReason, Usage

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
        self._last_token_ns = 0  # until its first token came

    @property
    def used_tokens(self) -> int:
        """Tokens of the slot that are in use."""
        return self._prompt_tokens + self._transcript.completion_tokens

    def push(self, token: SampledToken, report: StepReport) -> bool:
        """Take the step's token. True when the reply is complete."""
        ended_ns, last_ns = report.ended_ns, self._last_token_ns
        self._last_token_ns = ended_ns
        if not last_ns:
            self._begin(ended_ns)
        elif ended_ns - last_ns > self._gap_ns:
            self._metrics.promises.missed("per_token")
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

    def _begin(self, ended_ns: int) -> None:
        """The first token came."""
        self.stages.first_token()
        taken = ended_ns - self.stages.started_ns
        self._metrics.first_token.observe(taken * _NS)
        if taken > self._first_token_ns:
            self._metrics.promises.missed("first_token")
