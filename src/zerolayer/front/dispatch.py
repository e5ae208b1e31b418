"""The meeting point with the step thread: slots to running requests, one call on the loop per step.

Hot path: no coroutine, no queue, no task. A slot goes back to the guard's table only when a report lists it as
released; until then the step thread may still hold it, even though its client has long been answered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, Protocol

from zerolayer.errors import DeadlineMissed, EngineFailed, ZerolayerError
from zerolayer.front.defect import log_defect
from zerolayer.front.lines import Line, Lines
from zerolayer.front.step_account import Charges, Rider, StepAccount
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.deadline.draft_slot import DraftSlot
from zerolayer.model.engine import Broken, Generation, SampledToken
from zerolayer.model.letters import StepReport
from zerolayer.observe.answered import Answered
from zerolayer.observe.glue import GlueMeter

_BROKEN: Final = {
    Broken.GRAMMAR: (
        "the answer became too complex to hold it to its JSON schema, so it ends here; use a simpler schema or pattern"
    ),
    Broken.NUMBERS: (
        "the model's logits are no finite numbers for this text, so the answer ends here; its file may be damaged: "
        "compare its checksum"
    ),
}


_LATE: Final = "the reply was not complete at its deadline and ends here; allow more time"


class Steps(Protocol):
    """What the dispatcher needs of the step clock; both calls are mailbox letters."""

    def admit(self, slot: int, generation: Generation) -> None:
        """Give a free slot its work."""

    def cancel(self, slot: int) -> None:
        """Drop a slot's work at the next step border."""


class Running(Rider, ABC):
    """One request that holds a slot."""

    tenant: str  # who is charged for it
    cached_tokens = 0  # of the prompt, kept from an earlier one
    line: Line | None = None  # what takes its plain tokens, once there is one

    @property
    @abstractmethod
    def used_tokens(self) -> int:
        """Tokens of the slot that are in use."""

    @property
    def unread_tokens(self) -> int:
        """Tokens of its prompt that were not read yet, at most, and that somebody waits for."""
        return 0

    def bears(self, _gap_ns: int) -> bool:
        """Whether its tokens may come so far apart."""
        return True

    @property
    @abstractmethod
    def left(self) -> int:
        """Tokens that it has before it; more than any answer has while its prompt is read."""

    @abstractmethod
    def push(self, token: SampledToken, report: StepReport) -> bool:
        """Take the step's token and write at most once. True when the reply is complete."""

    @abstractmethod
    def fail(self, error: ZerolayerError) -> None:
        """End the reply with an error. Never raises."""


class Dispatcher:
    """``on_step`` is called on the loop, once per report, in the order of the steps."""

    def __init__(
        self,
        slots: Calendar,
        steps: Steps,
        metrics: Answered,
        glue: GlueMeter,
        charges: Charges | None = None,
        drafts: DraftSlot | None = None,
    ) -> None:
        self._slots = slots
        self._drafts = drafts or DraftSlot(slots.slots, lambda: 0)
        self._steps = steps
        self.metrics = metrics
        self._glue = glue
        self._charges = charges
        self._running: list[Running | None] = [None] * (slots.slots + 1)  # the last one is the draft's
        self._account = StepAccount(self._running, charges)
        self._lines = Lines(len(self._running))
        self._ended_ns = 0  # of the last step

    @property
    def running(self) -> int:
        """Requests that hold a slot and are not answered yet."""
        return sum(running is not None for running in self._running)

    @property
    def rests(self) -> bool:
        """Whether no slot holds a request that is not answered yet."""
        return not any(self._running)

    @property
    def used_tokens(self) -> int:
        """Slot tokens in use."""
        return sum(running.used_tokens for running in self._running if running is not None)

    @property
    def unread_tokens(self) -> int:
        """Prompt tokens of all that run which were not read yet."""
        return sum(running.unread_tokens for running in self._running if running is not None)

    def bears(self, gap_ns: int) -> bool:
        """Whether the tokens of all that run may come so far apart."""
        return all(running is None or running.bears(gap_ns) for running in self._running)

    def left(self) -> list[int]:
        """Tokens that each request in a slot has before it."""
        return [running.left for running in self._running[: self._slots.slots] if running is not None]

    def since_ns(self) -> list[int]:
        """By slot, when the first byte of its request was read; 0 where none is running."""
        requests = self._running[: self._slots.slots]
        return [0 if running is None else running.stages.started_ns for running in requests]

    def start(self, slot: int, generation: Generation, running: Running) -> None:
        """Put a request into its claimed slot."""
        self._running[slot] = running
        self.metrics.admitted(len(generation.prompt))
        if self._charges is not None:
            self._charges.meter.begin(slot, running.tenant)
        if slot != self._drafts.number:
            self.metrics.sizes.started(generation.max_tokens)
        self._steps.admit(slot, generation)

    def cancel(self, slot: int) -> None:
        """The client is gone: no more tokens for it. The slot is free at the next step border."""
        if self._running[slot] is not None:
            self._vacate(slot)
            self._ending(slot)

    def on_step(self, report: StepReport) -> None:
        """Hand the step's tokens to their requests, then give released slots back."""
        running = self._running
        if report.failure is None and report.ended_ns > report.started_ns:
            self._glue.step(report.started_ns, report.ended_ns)
            gap_ns = report.ended_ns - self._ended_ns  # whoever decodes got its last token from the step before
            chosen, decoded = len(report.tokens), len(report.decode)
            self.metrics.step(report.program, chosen, report.prefill_tokens, gap_ns, decoded)
            self._ended_ns = report.ended_ns
        for slot, cached in report.shared:
            request = running[slot]
            if request is not None:
                request.cached_tokens = cached
        self._account.step(report)
        ended = report.ended_ns
        due = self._slots.due_ns
        draft = self._drafts.number
        dues = {slot: due(slot) for slot in report.released if slot != draft} if report.released else {}
        for slot in report.released:
            self._free(slot)  # before the replies, which tell the load
        tokens, late = self._lines.take(report.tokens, ended)
        for _ in range(late):
            self.metrics.promises.missed("per_token")
        for token in tokens:
            if self._push(token, report):
                self.metrics.promises.ended((dues.get(token.slot) or due(token.slot)) - ended)
                self._complete(token)
        self._lines.send()
        for slot in report.released:
            request = running[slot]
            if request is not None:  # released, yet neither finished nor cancelled: its step failed
                self._vacate(slot)
                request.fail(report.failure or EngineFailed("the engine dropped this request; send it again"))

    def _push(self, token: SampledToken, report: StepReport) -> bool:
        """Hand a token to its request. True when that was the last one of an answer."""
        slot = token.slot
        request = self._running[slot]
        if request is None:
            return False
        if token.broken is not None:
            self._vacate(slot)
            request.fail(EngineFailed(_BROKEN[token.broken]))
            return False
        try:
            complete = request.push(token, report)
        except Exception as error:  # noqa: BLE001 - a reply's defect must not take the step's other slots along
            log_defect("a reply was cut", error)
            request.fail(EngineFailed("the reply could not be rendered; this is a defect of the server"))
            self._complete(token)
            return False
        if complete and slot == self._drafts.number:
            self._vacate(slot)
            return False
        if request.line is not None and not complete:
            self._lines.add(slot, request.line)
        return complete

    def expire(self, now_ns: int) -> None:
        """End what is not done at its deadline: never late without a word."""
        for slot in self._slots.late(now_ns):
            if self._running[slot] is not None:
                self.metrics.promises.broken_off()
            self._end(slot, DeadlineMissed(_LATE))
        if self._drafts.due_ns < now_ns:
            self._end(self._drafts.number, DeadlineMissed(_LATE))

    def interrupt(self, error: ZerolayerError) -> None:
        """The engine stands still: every running reply ends with ``error``; slots come back when it moves again."""
        for slot in range(len(self._running)):
            self._end(slot, error)

    def _end(self, slot: int, error: ZerolayerError) -> None:
        request = self._running[slot]
        if request is not None:
            self.cancel(slot)
            request.fail(error)

    def fail_all(self, error: ZerolayerError) -> None:
        """The step thread is gone: every running reply ends with ``error`` and every slot comes back."""
        for slot, request in enumerate(self._running):
            self._vacate(slot)
            if request is not None:
                request.fail(error)
            self._free(slot)

    def _complete(self, token: SampledToken) -> None:
        """The reply has its last token."""
        self._vacate(token.slot)
        if token.finish is None:  # a stop string: the engine does not know that the text is complete
            self._ending(token.slot)

    def _vacate(self, slot: int) -> None:
        self._running[slot] = None
        self._lines.drop(slot)
        self._account.ended(slot)

    def _ending(self, slot: int) -> None:
        if slot != self._drafts.number:
            self._slots.ending(slot)
        self._steps.cancel(slot)

    def _free(self, slot: int) -> None:
        if slot == self._drafts.number:
            self._drafts.release()
        else:
            self._slots.release(slot)
