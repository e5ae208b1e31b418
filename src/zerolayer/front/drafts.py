"""Requests that only fill the prompt cache (``max_tokens`` 0): read while the engine has nothing else to do.

For people who type: the client sends what is there so far, and by the time that the question is sent most of it has
been read. A draft has an empty answer, whose usage tells how much of it was known.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.front.aside import Result, read_aside
from zerolayer.front.dispatch import Dispatcher, Running
from zerolayer.front.exchange import Exchange
from zerolayer.front.stream import Form
from zerolayer.front.transcript import Transcript
from zerolayer.guard.deadline.reservation import Arrival, Reservation
from zerolayer.guard.guard import Guard
from zerolayer.guard.prompts.prompt import Prompt
from zerolayer.guard.spent import Spent
from zerolayer.model.engine import SampledToken
from zerolayer.model.letters import StepReport
from zerolayer.wire.schema import Account, FinishReason, Request, Usage

Answer = Callable[[Exchange, Request, Prompt], tuple[Transcript, Form]]


class Drafts:
    """All methods run on the loop; text is tokenised on the helper thread, however short: nobody waits for it."""

    def __init__(self, guard: Guard, dispatcher: Dispatcher, helper: Executor, answer: Answer) -> None:
        self._guard = guard
        self._dispatcher = dispatcher
        self._helper = helper
        self._answer = answer

    def begin(self, exchange: Exchange, request: Request, arrival: Arrival) -> None:
        """Take the draft's place. Raises as ``Guard.reserve_draft``."""
        reservation = self._guard.reserve_draft(request, arrival)
        tokenised = partial(self._tokenised, exchange, request, arrival, reservation)
        read_aside(self._helper, self._guard, exchange, request, reservation, tokenised)

    def _tokenised(
        self, exchange: Exchange, request: Request, arrival: Arrival, reservation: Reservation, result: Result
    ) -> None:
        """Whatever fails from here to the engine gives the place back."""
        started = False
        try:
            self._start(exchange, request, arrival, reservation, result()[0])
            started = True
        except ZerolayerError as error:
            exchange.error(error)
        finally:
            if not started:
                self._guard.release(reservation)

    def _start(
        self, exchange: Exchange, request: Request, arrival: Arrival, reservation: Reservation, prompt: Prompt
    ) -> None:
        if (stalled := self._guard.stalled) is not None:
            raise stalled
        generation = self._guard.confirm_draft(reservation, request, prompt)
        _, form = self._answer(exchange, request, prompt)
        applied = Account({}, "", 0, arrival.limits.end_ms, prompt.truncated, prompt.duplicates)
        draft = Draft(exchange, form, len(prompt.ids), applied, reservation)
        if exchange.receipt is not None:
            exchange.receipt.began(draft, 0, arrival.limits.end_ms)
        slot = reservation.slot
        exchange.on_gone = partial(self._abandon, slot, draft)
        salted = msgspec.structs.replace(generation, salt=exchange.identity.salt)
        self._dispatcher.start(slot, salted, draft)

    def _abandon(self, slot: int, draft: Draft) -> None:
        self._dispatcher.cancel(slot)
        draft.settle()


class Draft(Running):
    """One that is being read; a ``dispatch.Running``. It is in no latency that is measured: it waits by design."""

    left = 0

    def __init__(
        self,
        exchange: Exchange,
        form: Form,
        prompt_tokens: int,
        applied: Account,
        reservation: Reservation,
    ) -> None:
        self.stages = exchange.stages
        self.tenant = exchange.identity.tenant
        self._exchange = exchange
        self._form = form
        self._prompt_tokens = prompt_tokens
        self._applied = applied
        self._reservation = reservation

    @property
    def used_tokens(self) -> int:
        """None of a request's slot."""
        return 0

    def spent(self) -> Spent:
        """What was read so far."""
        read = min(self._prompt_tokens, self.cached_tokens + self.prefilled)
        return Spent(read, 0, min(read, self.cached_tokens), self.compute_ns // 1000)

    def settle(self) -> None:
        """It is over, however."""
        self._reservation.hold.settle(self.spent())

    def push(self, _token: SampledToken, report: StepReport) -> bool:
        """Its only token, which is computed and not shown: the prompt was read."""
        if self._exchange.receipt is not None:
            self._exchange.receipt.finished(FinishReason.LENGTH.value)
        self.settle()
        account = msgspec.structs.replace(
            self._applied,
            stages_us=self.stages.spent_us(),
            program=report.program,
            compute_us=self.compute_ns // 1000,
        )
        self._form.finish("", FinishReason.LENGTH, account, Usage(self._prompt_tokens, 0, self.cached_tokens))
        return True

    def fail(self, error: ZerolayerError) -> None:
        """It ends with an error."""
        if self._exchange.receipt is not None:
            self._exchange.receipt.failed(error)
        self.settle()
        self._form.fail(error)
