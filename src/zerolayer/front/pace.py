"""What follows from a step, and from the absence of one: progress, prices, deadlines, held clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from zerolayer.front.dispatch import Dispatcher
from zerolayer.front.held import HeldClients
from zerolayer.front.turns import Turns
from zerolayer.guard.guard import Guard
from zerolayer.model.letters import StepReport

_TURNS: Final = 2  # of the loop: the one that is under way may have looked at its sockets already
_MANY_TURNS: Final = 64  # in which those who waited in the kernel are accepted, some in each, and read


class Pace:
    """All methods run on the loop. ``clock_ns`` is the clock of the bookings."""

    def __init__(
        self,
        guard: Guard,
        dispatcher: Dispatcher,
        held: HeldClients,
        turns: Turns,
        loop: asyncio.AbstractEventLoop,
        clock_ns: Callable[[], int],
    ) -> None:
        self._guard = guard
        self._admission = guard.admission
        self._dispatcher = dispatcher
        self.held = held
        self._turns = turns
        self._loop = loop
        self._clock_ns = clock_ns
        self._hearing = False
        self._hear_again = False  # what is being heard was asked for too early
        self._deaf = False
        self._foreseen = False  # who ends soon after the last step
        held.foresee, held.hear = self._foresee, self._hear_for_held

    def on_step(self, report: StepReport) -> None:
        """Once per report, in the order of the steps."""
        draft = self._guard.drafts.number
        for slot, tokens in report.shared:  # before the step, which may have read all the rest
            if slot != draft:
                self._guard.slots.skip(slot, tokens, self._guard.chunk_tokens)
        if report.failure is None and report.ended_ns > report.started_ns:
            self._admission.on_step(
                report.started_ns,
                report.ended_ns,
                decode_rows=len(report.decode),
                prefill_slot=-1 if report.prefill_slot == draft else report.prefill_slot,
                prefill_tokens=report.prefill_tokens,
            )
        self._dispatcher.on_step(report)
        if (report.released or not report.decode) and not self._guard.slots.confirmed:  # who decodes goes on
            self._admission.rest()
        self._dispatcher.expire(report.ended_ns)
        self._foreseen = False
        if self.held:
            self.held.wake()
        self._turns.step_ended()
        self._hear()

    def _foresee(self) -> None:
        """Only those who are held need it, and it looks at every slot: once a step, when one of them may start."""
        if not self._foreseen:
            self._foreseen = True
            self._admission.foresee(self._dispatcher.left(), len(self.held))

    def sweep(self, now_ns: int) -> None:
        """Several times a second: what has passed its time without a step."""
        self._admission.sweep(now_ns)
        self._dispatcher.expire(now_ns)
        self.held.wake()
        self._hear()

    def deafen(self, asked_ns: int | None) -> None:
        """Until it is None: whoever came after ``asked_ns`` is not read, and loses no booking by that."""
        if asked_ns is not None:
            self._deaf, self._admission.heard_ns = True, asked_ns
        elif self._deaf:
            self._deaf, self._hearing = False, True
            self._loop.call_soon(self._heard, self._clock_ns(), _MANY_TURNS)

    def _hear(self) -> None:
        """Find out until when all arrivals have been read, so that nobody loses a booking to a loop that is behind."""
        if not self._hearing and not self._deaf and self._guard.slots.bookings:
            self._hearing = True
            self._loop.call_soon(self._heard, self._clock_ns(), _TURNS)

    def _hear_for_held(self) -> None:
        self._hear_again = self._hearing
        self._hear()

    def _heard(self, asked_ns: int, turns: int) -> None:
        if turns:
            self._loop.call_soon(self._heard, asked_ns, turns - 1)
            return
        self._hearing = False
        if not self._deaf:
            self._admission.heard_ns = asked_ns
            self.held.wake()
        if self._hear_again:
            self._hear_for_held()
