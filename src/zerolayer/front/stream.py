"""A request that runs: one token per step in, at most one write per step out; its form says what is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.front.dispatch import Running
from zerolayer.front.exchange import Exchange
from zerolayer.front.lines import Around, Line
from zerolayer.front.transcript import Transcript
from zerolayer.front.watch import Watch
from zerolayer.guard.spent import Spent
from zerolayer.model.engine import SampledToken
from zerolayer.model.letters import StepReport
from zerolayer.observe.answered import Answered
from zerolayer.observe.stages import Stage
from zerolayer.wire.schema import Account, FinishReason, Usage

_NS = 1e-9
_UNREAD: Final = 1 << 31  # more tokens than any answer has


class Form(Protocol):
    """How a reply reaches the client."""

    def grow(self, text: str) -> None:
        """The step's text, perhaps empty."""

    def around(self) -> Around | None:
        """What ``grow`` adds to the stream from now on, where that is the same around every text."""
        return None

    def finish(self, text: str, reason: FinishReason, account: Account, usage: Usage) -> None:
        """The last text, and the end."""

    def fail(self, error: ZerolayerError) -> None:
        """The end that nobody takes for a complete one."""


class Settling(Protocol):
    """Budgets that wait for what was used."""

    def settle(self, spent: Spent) -> None:
        """The answer has ended."""


class Reply(Running):
    """``applied`` is the account of what was applied, without stages and program; the last event repeats it.

    ``hold`` is settled with what ran, whatever the end is.
    ``limits_ns`` are the longest time to the first token and between two; where they do not hold, that is counted.
    """

    def __init__(
        self,
        exchange: Exchange,
        transcript: Transcript,
        form: Form,
        metrics: Answered,
        *,
        prompt_tokens: int,
        applied: Account,
        hold: Settling,
        limits_ns: tuple[int, int],
    ) -> None:
        self.stages = exchange.stages
        self.tenant = exchange.identity.tenant
        self._hold = hold
        self._exchange = exchange
        self._transcript = transcript
        self._form = form
        self._metrics = metrics
        self.prompt_tokens = prompt_tokens
        self._applied = applied
        self._first_token_ns, self._gap_ns = limits_ns
        self._last_token_ns = 0  # until its first token came; once it has a line, that knows
        self.watch: Watch | None = None  # who else sees the tokens

    def spent(self) -> Spent:
        """What ran so far; of a prompt only what was read counts."""
        output = self._transcript.completion_tokens
        read = self.prompt_tokens if output else min(self.prompt_tokens, self.cached_tokens + self.prefilled)
        return Spent(read, output, min(read, self.cached_tokens), self.compute_ns // 1000)

    @property
    def used_tokens(self) -> int:
        """Tokens of the slot that are in use."""
        return self.prompt_tokens + self._transcript.completion_tokens

    @property
    def unread_tokens(self) -> int:
        """Of its prompt, until its first token has come."""
        return 0 if self._last_token_ns else max(0, self.prompt_tokens - self.cached_tokens - self.prefilled)

    def bears(self, gap_ns: int) -> bool:
        """Whether its client allows so long between two tokens, and before the first one if that has not come."""
        return gap_ns <= (self._gap_ns if self._last_token_ns else min(self._gap_ns, self._first_token_ns))

    @property
    def left(self) -> int:
        """Tokens that it has before it; an end that its text may bring sooner is not foreseen."""
        done = self._transcript.completion_tokens
        return self._applied.max_tokens - done if done else _UNREAD

    def push(self, token: SampledToken, report: StepReport) -> bool:
        """Take the step's token. True when the reply is complete."""
        ended_ns, line = report.ended_ns, self.line
        if line is None:
            last_ns, self._last_token_ns = self._last_token_ns, ended_ns
        else:
            last_ns, line.last_ns = line.last_ns, ended_ns
        if not last_ns:
            self._begin(ended_ns)
        elif ended_ns - last_ns > self._gap_ns:
            self._metrics.promises.missed("per_token")
        if self.watch is not None:
            token = self.watch.take(token)
        transcript = self._transcript
        text = transcript.push(token)
        reason = transcript.reason
        if reason is None:
            self._form.grow(text)
            if not last_ns:
                self._open_line(ended_ns)
            return False
        self._finish(text, reason, report.program)
        return True

    def replay(self, tokens: Sequence[SampledToken], program: str) -> None:
        """Answer with tokens that were kept from an equal request, all at once. Nothing is computed."""
        self.cached_tokens = self.prompt_tokens
        transcript, text = self._transcript, ""
        for token in tokens:
            shown = token if self.watch is None else self.watch.take(token)
            text += transcript.push(shown)
        self._finish(text, transcript.reason or FinishReason.STOP, program)

    def _finish(self, text: str, reason: FinishReason, program: str) -> None:
        transcript = self._transcript
        self._exchange.mark(Stage.FRAME)
        spent = self.stages.spent_us()
        account = msgspec.structs.replace(
            self._applied, stages_us=spent, program=program, compute_us=self.compute_ns // 1000
        )
        usage = Usage(self.prompt_tokens, transcript.completion_tokens, self.cached_tokens)
        if self._exchange.receipt is not None:
            self._exchange.receipt.finished(reason.value)
        if self.watch is not None:
            self.watch.complete(reason, program)
        self._close()
        self._form.finish(text, reason, account, usage)
        tokens = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        self._metrics.finished(reason.value, self.stages, tokens)

    def fail(self, error: ZerolayerError) -> None:
        """End with an error."""
        if self._exchange.receipt is not None:
            self._exchange.receipt.failed(error)
        self._close()
        self._form.fail(error)
        self._metrics.finished("error", self.stages)

    def abandon(self) -> None:
        """The client went away; only the account is left."""
        self._close()
        self._metrics.finished("abort", self.stages)

    def _close(self) -> None:
        """Settle the budgets, before the last bytes are written."""
        self._hold.settle(self.spent())

    def _open_line(self, ended_ns: int) -> None:
        """The first token has left: its further ones may go the short way, if nobody else is to see them."""
        around = self._form.around() if self.watch is None and self._transcript.plain else None
        outlet = None if around is None else self._exchange.outlet()
        if around is not None and outlet is not None:
            self.line = Line(self._transcript, around, outlet, last_ns=ended_ns, gap_ns=self._gap_ns)

    def _begin(self, ended_ns: int) -> None:
        """The first token came."""
        self.stages.first_token()
        if self._exchange.receipt is not None and not self._exchange.receipt.first_token_ns:
            self._exchange.receipt.first_token_ns = ended_ns
        taken = ended_ns - self.stages.started_ns
        self._metrics.first_token.observe(taken * _NS)
        if taken > self._first_token_ns:
            self._metrics.promises.missed("first_token")
