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
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue

from zerolayer.errors import EngineFailed, StartupError
from zerolayer.model.bell import Bell
from zerolayer.model.cost import CostTable
from zerolayer.model.engine import Engine, Generation, StepPlan, chunk_of
from zerolayer.model.heartbeat import Heartbeat
from zerolayer.model.letters import Admit, Cancel, Letter, Probe, StepReport, Stop
from zerolayer.model.program import FULL, Programs
from zerolayer.model.recorder import Recorder
from zerolayer.model.shared_cores import ALONE, SharedCores

_log = logging.getLogger("zerolayer.model")

_FIRST_MISSES = 3  # heartbeats that come to nothing before the first request, until the engine is given up


class StepClock:
    """Runs ``engine`` on a thread of its own from ``start`` to ``stop``."""

    def __init__(
        self,
        engine: Engine,
        deliver: Callable[[StepReport], None],
        clock_ns: Callable[[], int],
        cost: CostTable | None = None,
        programs: Programs | None = None,
        heartbeat: Heartbeat | None = None,
        recorder: Recorder | None = None,
        bell: Bell | None = None,
    ) -> None:
        self._engine = engine
        self._bell = bell
        self._deliver = deliver
        self._clock_ns = clock_ns
        self._cost = cost
        self._registry = programs or Programs()
        self._heartbeat = heartbeat
        self._recorder = recorder
        info = engine.describe()
        self._rings = info.rings
        self._chunk_tokens = info.chunk_tokens
        self._service_slot = info.slots  # one more than requests have: the engine's own
        self._mailbox: SimpleQueue[Letter] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="zerolayer-step", daemon=True)
        self._programs: dict[int, str] = {}  # of open slots
        self._prefilling: deque[int] = deque()
        self._scored: set[int] = set()  # open slots whose prompt is scored
        self._decoding: list[int] = []
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

        Raises ``StartupError``.
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
            while self._programs:
                self._step()
            if heartbeat.refuted:
                raise StartupError("The engine gave another output for the same input the second time it was asked.")
        self._step_began_ns = 0

    def stop(self) -> None:
        """Finish the running step, then end the thread. Open slots are dropped without a report."""
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

    def _run(self) -> None:
        if self._recorder is None:
            self._turns()
            return
        self._recorder.start()
        try:
            self._turns()
        finally:
            self._recorder.stop()

    def _turns(self) -> None:
        while True:
            block = not self._programs and not self._cancelled and self._draft is None
            if block:
                self._step_began_ns = 0
                self._tell()
            elif self._rings and not self._mailbox.empty():
                self._tell(waits=True)  # to open slots takes longer than the loop should wait
            self._empty_mailbox(block=block)
            if self._stopping:
                self._tell()
                return
            self._beat()
            self._open_draft()
            if self._programs:
                self._step()
                self._step_began_ns = self._clock_ns()
            elif self._cancelled:
                now = self._clock_ns()
                self._outbox.append(StepReport(now, now, "none", released=self._take_cancelled()))

    def _tell(self, *, stepping: bool = False, waits: bool = False) -> int:
        """Send the reports, then close the slots that they release.

        ``waits``: let the loop take them first. Returns the bell that the step that follows (``stepping``) is to ring;
        -1: nobody is to be woken any more.

        Nobody can give such a slot new work before the next look into the mailbox, which comes after this.
        """
        reports, self._outbox = self._outbox, []
        for report in reports:
            self._deliver(report)
        bell = self._bell if reports else None
        if bell is not None and (waits or not self._rings):
            (bell.ring_and_wait if self._rings else bell.ring)()
            bell = None
        closing, self._closing = self._closing, []
        for slot in closing:
            self._engine.close(slot)
        if bell is not None and not stepping:
            bell.ring()
            bell = None
        return -1 if bell is None else bell.fd

    def _empty_mailbox(self, *, block: bool) -> None:
        try:
            while True:
                self._handle(self._mailbox.get(block=block, timeout=self._patience_s()))
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
        if heartbeat is None or heartbeat.beating or self._clock_ns() < heartbeat.due_ns:
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
        self._programs[self._service_slot] = program
        self._prefilling.append(self._service_slot)

    @property
    def _beats(self) -> bool:
        return self._heartbeat is not None and self._heartbeat.beating

    @property
    def _reads_draft(self) -> bool:
        """Whether the service slot holds the draft."""
        return self._service_slot in self._programs and not self._beats

    def _open_draft(self) -> None:
        """Begin to read the draft when the engine has nothing else to do. Others may come while it is open."""
        if self._draft is not None and not self._programs:
            self._tell()  # the slot may be one that is to be closed
            self._open(Admit(self._service_slot, self._draft))

    def _handle(self, letter: Letter) -> None:
        if isinstance(letter, Admit):
            if letter.slot == self._service_slot:
                self._draft = letter.generation
            else:
                self._open(letter)
        elif isinstance(letter, Cancel):
            if letter.slot == self._service_slot:
                self._cancel_draft()
            elif letter.slot in self._programs:
                self._drop(letter.slot)
                self._cancelled.append(letter.slot)
        elif isinstance(letter, Probe):
            if self._heartbeat is not None:
                self._heartbeat.hasten()
        else:
            self._stopping = True

    def _cancel_draft(self) -> None:
        if self._draft is not None:
            if self._reads_draft:
                self._drop(self._service_slot)
            self._draft = None
            self._cancelled.append(self._service_slot)

    def _open(self, letter: Admit) -> None:
        self._step_began_ns = self._step_began_ns or self._clock_ns()
        try:
            self._engine.open(letter.slot, letter.generation)
        except EngineFailed as failure:  # one request's fault, if any: the others go on
            now = self._clock_ns()
            if letter.slot == self._service_slot:
                self._draft = None
            self._outbox.append(StepReport(now, now, "none", released=[letter.slot], failure=failure))
            return
        generation = letter.generation
        program = self._registry.of(generation.sampling)
        self._programs[letter.slot] = program if generation.grammar is None else FULL
        if letter.slot != self._service_slot:  # a draft is read when nothing else is
            self._prefilling.append(letter.slot)
        if letter.generation.prompt_logprobs is not None:
            self._scored.add(letter.slot)
        shared = len(letter.generation.prompt) - self._engine.prefill_left(letter.slot)
        if shared:
            self._shared.append((letter.slot, shared))

    def _step(self) -> None:
        plan = self._plan()
        rows = set(plan.decode) | ({plan.prefill_slot} - {-1})
        program = self._registry.covering(self._programs[slot] for slot in rows)
        bell = self._tell(stepping=True)
        if bell >= 0:
            plan = StepPlan(plan.decode, plan.prefill_slot, plan.prefill_tokens, bell)
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
        reads = plan.prefill_slot if plan.prefill_slot in self._prefilling else -1
        if reads >= 0 and self._engine.prefill_left(reads) == 0:
            self._prefilling.popleft()
            self._decoding.append(reads)
        released = [token.slot for token in tokens if token.finish is not None]
        for slot in released:
            self._drop(slot)
        if self._service_slot in released and not self._beats:
            self._draft = None
        released += self._take_cancelled()
        self._account(plan, program, started, ended)
        shared, self._shared = self._shared, []
        report = StepReport(
            started,
            ended,
            program,
            plan.decode,
            plan.prefill_slot,
            plan.prefill_tokens,
            tokens,
            released,
            shared,
        )
        if self._heartbeat is not None and self._heartbeat.beating:
            report = self._without_beat(report, self._heartbeat)
        if report.decode or report.prefill_slot >= 0 or report.released or report.shared:
            self._outbox.append(report)

    def _account(self, plan: StepPlan, program: str, started: int, ended: int) -> None:
        rows, tokens = len(plan.decode), plan.prefill_tokens
        if self._recorder is not None:
            self._recorder.step(started, ended, decode_rows=rows, prefill_tokens=tokens, program=program)
        if self._cost is not None:
            self._cost.observe(decode_rows=rows, prefill_tokens=tokens, elapsed_ns=ended - started)

    def _without_beat(self, report: StepReport, heartbeat: Heartbeat) -> StepReport:
        """What the service slot did is the heartbeat's; what is left is for requests."""
        mine = self._service_slot
        for token in report.tokens:
            if token.slot == mine:
                heartbeat.token(token.token_id)
        if mine in report.released:
            heartbeat.end(report.ended_ns)
        return StepReport(
            report.started_ns,
            report.ended_ns,
            report.program,
            [slot for slot in report.decode if slot != mine],
            -1 if report.prefill_slot == mine else report.prefill_slot,
            report.prefill_tokens,
            [token for token in report.tokens if token.slot != mine],
            [slot for slot in report.released if slot != mine],
            report.shared,
        )

    def _plan(self) -> StepPlan:
        if not self._prefilling:
            if self._reads_draft and not self._decoding:
                # In quarter chunks: whoever walks in meanwhile waits for one of them.
                chunk = chunk_of(self._chunk_tokens, scored=True)
                left = self._engine.prefill_left(self._service_slot)
                return StepPlan((), self._service_slot, min(chunk, left))
            return StepPlan(tuple(self._decoding))
        slot = self._prefilling[0]
        chunk = chunk_of(self._chunk_tokens, scored=slot in self._scored)
        return StepPlan(tuple(self._decoding), slot, min(chunk, self._engine.prefill_left(slot)))

    def _drop(self, slot: int) -> None:
        self._closing.append(slot)
        del self._programs[slot]
        self._scored.discard(slot)
        if slot in self._decoding:
            self._decoding.remove(slot)
        elif slot in self._prefilling:
            self._prefilling.remove(slot)

    def _take_cancelled(self) -> list[int]:
        cancelled, self._cancelled = self._cancelled, []
        return cancelled

    def _fail(self, failure: EngineFailed, started: int) -> None:
        _log.error("a step failed; its %d streams end with an error", len(self._programs))
        if self._heartbeat is not None:
            self._heartbeat.missed(self._clock_ns())
        released = [slot for slot in self._programs if slot != self._service_slot]
        if self._draft is not None:
            self._draft = None
            released.append(self._service_slot)
        for slot in list(self._programs):
            self._drop(slot)
        released += self._take_cancelled()
        self._outbox.append(StepReport(started, self._clock_ns(), "none", released=released, failure=failure))
