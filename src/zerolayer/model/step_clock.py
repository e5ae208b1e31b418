"""The step clock: one thread that owns the slots and runs steps while any slot has work.

Two meeting points with the event loop, no others: a mailbox of admissions and cancels (``admit``, ``cancel``; any
thread), emptied at every step border, and one report per step (``deliver``, called on the step thread). A report leaves
just before the next step begins, or before the thread sleeps, and the loop is woken where this thread lets go of the
interpreter: a loop that is woken sooner wakes up to wait for it, and may then not be given its core back until the
next tick.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from msgspec.structs import replace

from zerolayer.errors import EngineFailed, ModelFileError, StartupError
from zerolayer.model import _native
from zerolayer.model.bell import Bell
from zerolayer.model.engine import Engine, Generation, StepPlan, chunk_of
from zerolayer.model.heartbeat import Heartbeat
from zerolayer.model.letters import Admit, Cancel, Letter, Probe, StepReport, Stop
from zerolayer.model.program import FULL, Programs
from zerolayer.model.rows import Rows
from zerolayer.model.shared_cores import ALONE, SharedCores

_log = logging.getLogger("zerolayer.model")

_FIRST_MISSES: Final = 3  # heartbeats that come to nothing before the first request, until the engine is given up


class StepClock:
    """Runs ``engine`` on a thread of its own from ``start`` to ``stop``."""

    def __init__(
        self,
        engine: Engine,
        deliver: Callable[[StepReport], None],
        clock_ns: Callable[[], int],
        programs: Programs | None = None,
        heartbeat: Heartbeat | None = None,
        bell: Bell | None = None,
    ) -> None:
        self._engine = engine
        self._bell = bell
        self._deliver = deliver
        self._clock_ns = clock_ns
        self._registry = programs or Programs()
        self._heartbeat = heartbeat
        info = engine.describe()
        self._rings = info.rings
        self._chunk_tokens = info.chunk_tokens
        self._service_slot = info.slots  # one more than requests have: the engine's own
        self._mailbox: SimpleQueue[Letter] = SimpleQueue()
        self._thread = threading.Thread(target=self._turns, name="zerolayer-step", daemon=True)
        self._rows = Rows(self._registry)
        self._admitted: dict[int, Generation] = {}  # whose slots are not open yet
        self._cancelled: list[int] = []
        self._shared: list[tuple[int, int]] = []
        self._outbox: list[StepReport] = []
        self._draft: Generation | None = None  # what only fills the prompt cache, and waits or is being read
        self._closing: list[int] = []  # slots whose end the outbox tells
        self._stopping = False
        self.cores: SharedCores | None = None  # while another engine uses the same ones; set by any thread
        self._steps = 0
        self._step_began_ns = 0

    @property
    def step_began_ns(self) -> int:
        """When the running step began, or, between two, when the last one ended; 0 without work. Any thread."""
        return self._step_began_ns

    @property
    def steps(self) -> int:
        """Steps run so far: progress that health checks can see from any thread."""
        return self._steps

    @property
    def alive(self) -> bool:
        """Whether the step thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Run every program's first heartbeat, where that was not done yet, then start the thread.

        Raises ``StartupError`` where they fail.
        """
        if self._heartbeat is not None and not self._heartbeat.expects_all:
            self.prove()
        self._thread.start()

    def prove(self, rounds: int = 1) -> None:
        """Run every program's heartbeat so often, before the start; each time it must give the same output.

        Raises ``StartupError``, ``ModelFileError``.
        """
        heartbeat, tries = self._heartbeat, 0
        while heartbeat is not None and heartbeat.beats < rounds * heartbeat.programs:
            if tries - heartbeat.beats >= _FIRST_MISSES:
                raise StartupError(
                    f"The engine failed at {_FIRST_MISSES} of its first {tries} generations, before any request. "
                    "Start it again, with another --threads, or on another machine."
                )
            tries += 1
            heartbeat.hasten()  # nobody waits for the engine yet
            self._beat()
            while self._rows:
                self._step()
                self._outbox.clear()  # nobody listens yet
            if heartbeat.unsound:
                raise ModelFileError(
                    "The model computes no finite numbers, so its weights are damaged. Download the file again and "
                    "compare its checksum."
                )
            if heartbeat.refuted:
                raise StartupError("The engine gave another output for the same input the second time it was asked.")
        self._step_began_ns = 0

    def stop(self) -> None:
        """Finish the running step, then end the thread. Open slots are dropped without a report."""
        self._stopping = True
        self._mailbox.put(Stop())
        if self._thread.is_alive():
            self._thread.join()

    def admit(self, slot: int, generation: Generation) -> None:
        """Give a free slot its work; it joins at the next step border."""
        self._mailbox.put(Admit(slot, generation))

    def cancel(self, slot: int) -> None:
        """Drop a slot's work at the next step border; a report then lists it as released.

        A cancel that crosses the slot's own end is void: the slot is already in ``released``.
        """
        self._mailbox.put(Cancel(slot))

    def probe(self) -> None:
        """Run the next heartbeat at the next step border."""
        self._mailbox.put(Probe())

    def _turns(self) -> None:
        while True:
            idle = not (self._rows or self._admitted or self._cancelled or self._draft is not None)
            if idle:
                self._step_began_ns = 0
                self._tell()
            self._empty_mailbox(block=idle)
            if self._stopping:
                self._tell()
                return
            self._open_next()
            self._beat()
            self._open_draft()
            if self._rows:
                self._step()
                self._step_began_ns = self._clock_ns()
            elif self._cancelled:
                now = self._clock_ns()
                self._outbox.append(StepReport(now, now, "none", released=self._take_cancelled()))

    def _tell(self, *, stepping: bool = False) -> int:
        """Send the reports, then close the slots that they release.

        Returns the bell that the step that follows (``stepping``) is to ring; -1: nobody is to be woken any more.

        Nobody can give such a slot new work before the next look into the mailbox, which comes after this.
        """
        told = False
        if self._outbox:
            reports, self._outbox = self._outbox, []
            for report in reports:
                self._deliver(report)
            told = True
        if self._closing:
            closing, self._closing = self._closing, []
            for slot in closing:
                self._engine.close(slot)
        if not told or self._bell is None:
            return -1
        if stepping and self._rings:
            return self._bell.fd
        self._bell.ring()
        return -1

    def _empty_mailbox(self, *, block: bool) -> None:
        mailbox = self._mailbox
        try:
            while block or not mailbox.empty():
                self._handle(mailbox.get(timeout=self._patience_s() if block else None))
                block = False
        except Empty:
            return

    def _patience_s(self) -> float | None:
        """How long an idle step thread may sleep: until the next heartbeat."""
        if self._heartbeat is None:
            return None
        return max(0.0, (self._heartbeat.due_ns - self._clock_ns()) / 1e9)

    def _beat(self) -> None:
        """Begin a heartbeat that is due; its rows then ride in the steps like any other's."""
        heartbeat = self._heartbeat
        if heartbeat is None or heartbeat.beating or (self._step_began_ns or self._clock_ns()) < heartbeat.due_ns:
            return
        if self._reads_draft:
            self._drop(self._service_slot)  # it is read anew after the beat
        self._tell()  # its slot may be one that is to be closed
        program, generation = heartbeat.begin()
        try:
            self._engine.open(self._service_slot, generation)
        except EngineFailed:
            heartbeat.missed(self._clock_ns())
            return
        self._rows.open(self._service_slot, program)

    @property
    def _beats(self) -> bool:
        return self._heartbeat is not None and self._heartbeat.beating

    @property
    def _reads_draft(self) -> bool:
        """Whether the service slot holds the draft."""
        return self._service_slot in self._rows and not self._beats

    def _open_draft(self) -> None:
        """Begin to read the draft when the engine has nothing else to do. Others may come while it is open."""
        if self._draft is not None and not self._rows:
            self._tell()  # the slot may be one that is to be closed
            self._open(self._service_slot, self._draft)

    def _handle(self, letter: Letter) -> None:
        if isinstance(letter, Admit):
            if letter.slot == self._service_slot:
                self._draft = letter.generation
            else:
                self._admitted[letter.slot] = letter.generation
        elif isinstance(letter, Cancel):
            if letter.slot == self._service_slot:
                self._cancel_draft()
            elif self._admitted.pop(letter.slot, None) is not None:
                self._cancelled.append(letter.slot)
            elif letter.slot in self._rows:
                self._drop(letter.slot)
                self._cancelled.append(letter.slot)
        elif isinstance(letter, Probe) and self._heartbeat is not None:
            self._heartbeat.hasten()

    def _cancel_draft(self) -> None:
        if self._draft is not None:
            if self._reads_draft:
                self._drop(self._service_slot)
            self._draft = None
            self._cancelled.append(self._service_slot)

    def _open_next(self) -> None:
        """The slot of who was admitted first: a step reads one prompt, and the last one's report waits for this."""
        if self._admitted:
            slot = next(iter(self._admitted))
            self._open(slot, self._admitted.pop(slot))

    def _open(self, slot: int, generation: Generation) -> None:
        self._step_began_ns = self._step_began_ns or self._clock_ns()
        try:
            self._engine.open(slot, generation)
        except EngineFailed as failure:  # one request's fault, if any: the others go on
            now = self._clock_ns()
            if slot == self._service_slot:
                self._draft = None
            self._outbox.append(StepReport(now, now, "none", released=[slot], failure=failure))
            return
        program = self._registry.of(generation.sampling) if generation.grammar is None else FULL
        # A draft is read when nothing else is.
        scored, apart = generation.prompt_logprobs is not None, slot == self._service_slot
        self._rows.open(slot, program, scored=scored, apart=apart)
        shared = len(generation.prompt) - self._engine.prefill_left(slot)
        if shared:
            self._shared.append((slot, shared))

    def _step(self) -> None:
        plan = self._plan(self._tell(stepping=True))
        program = self._rows.program(plan.prefill_slot)
        if self.cores is not None:
            self._step_began_ns = 0  # to wait for a turn is no work
        with self.cores or ALONE:
            started = self._step_began_ns = self._clock_ns()
            try:
                tokens = self._engine.step(plan)
            except EngineFailed as failure:
                self._fail(failure, started)
                return
            ended = self._clock_ns()
        self._steps += 1
        reads = plan.prefill_slot
        if reads >= 0 and reads == self._rows.reads and self._engine.prefill_left(reads) == 0:
            self._rows.read()
        released = [token.slot for token in tokens if token.finish is not None]
        for slot in released:
            self._drop(slot)
        if self._service_slot in released and not self._beats:
            self._draft = None
        if self._cancelled:
            released += self._take_cancelled()
        shared, self._shared = self._shared, []
        report = StepReport(
            started,
            ended,
            program,
            plan.decode,
            reads,
            plan.prefill_tokens,
            tokens,
            released,
            shared,
            faults=_native.page_faults(),
        )
        if self._heartbeat is not None and self._heartbeat.beating:
            report = self._without_beat(report, self._heartbeat)
        self._outbox.append(report)

    def _without_beat(self, report: StepReport, heartbeat: Heartbeat) -> StepReport:
        """What the service slot did is the heartbeat's; what is left is for requests, and for the flight recorder."""
        mine = self._service_slot
        for token in report.tokens:
            if token.slot == mine:
                heartbeat.token(token)
        if mine in report.released:
            heartbeat.end(report.ended_ns)
        return replace(
            report,
            decode=tuple(slot for slot in report.decode if slot != mine),
            prefill_slot=-1 if report.prefill_slot == mine else report.prefill_slot,
            tokens=[token for token in report.tokens if token.slot != mine],
            released=[slot for slot in report.released if slot != mine],
            beats=True,
            beat_rows=1 if mine in report.decode else 0,
        )

    def _plan(self, bell: int) -> StepPlan:
        rows = self._rows
        slot = rows.reads
        if slot < 0:
            if self._reads_draft and not rows.decode:
                # In quarter chunks: whoever walks in meanwhile waits for one of them.
                chunk = chunk_of(self._chunk_tokens, scored=True)
                left = self._engine.prefill_left(self._service_slot)
                return StepPlan((), self._service_slot, min(chunk, left), bell)
            return StepPlan(rows.decode, bell=bell)
        chunk = chunk_of(self._chunk_tokens, scored=rows.scored(slot))
        return StepPlan(rows.decode, slot, min(chunk, self._engine.prefill_left(slot)), bell)

    def _drop(self, slot: int) -> None:
        self._closing.append(slot)
        self._rows.drop(slot)

    def _take_cancelled(self) -> list[int]:
        cancelled, self._cancelled = self._cancelled, []
        return cancelled

    def _fail(self, failure: EngineFailed, started: int) -> None:
        streams = [slot for slot in self._rows if slot != self._service_slot] + list(self._admitted)
        _log.error("a step failed, and its streams end with an error: %d", len(streams))
        if self._heartbeat is not None:
            self._heartbeat.missed(self._clock_ns())
        if self._draft is not None:
            self._draft = None
            streams.append(self._service_slot)
        for slot in list(self._rows):
            self._drop(slot)
        self._admitted.clear()
        released = streams + self._take_cancelled()
        self._outbox.append(StepReport(started, self._clock_ns(), "none", released=released, failure=failure))
