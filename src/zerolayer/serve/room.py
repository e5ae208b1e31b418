"""The model room of a server: everything that is bound to one model, from its engine to what is answered by it.

A server has one room, and two while a model is being replaced (``deploying.py``). What is not in it stays whatever
model is served: sockets, keys, budgets, ledger, accounts.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from zerolayer.contract import Contract
from zerolayer.front.dispatch import Dispatcher
from zerolayer.front.held import HeldClients
from zerolayer.front.keeping import Keeping
from zerolayer.front.pace import Pace
from zerolayer.front.receipt import model_bytes
from zerolayer.front.site import Site
from zerolayer.front.step_account import Charges, Meter
from zerolayer.front.supervision import Supervisor
from zerolayer.guard.answers import AnswerCache
from zerolayer.guard.budget.budgets import Budgets
from zerolayer.guard.deadline.admission import Admission, build_admission
from zerolayer.guard.guard import Guard
from zerolayer.model.bell import Bell
from zerolayer.model.cost import CostTable, Prices
from zerolayer.model.cost_cache import place
from zerolayer.model.engine import EngineInfo
from zerolayer.model.heartbeat import Heartbeat, known_prompt
from zerolayer.model.letters import StepReport
from zerolayer.model.program import Named, Programs
from zerolayer.model.recorder import Recorder
from zerolayer.model.shared_cores import SharedCores
from zerolayer.model.step_clock import StepClock
from zerolayer.model.warm_up import measure
from zerolayer.model.watchdog import Watchdog
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.metrics import Metrics
from zerolayer.serve.answers import Answers, Parts
from zerolayer.serve.collector import Collector
from zerolayer.serve.guarding import build_guard
from zerolayer.serve.nodes import NodeBook

if TYPE_CHECKING:
    from zerolayer.model.load import LoadedModel

_NS_PER_MS: Final = 1_000_000
_BEAT_NS: Final = 30_000_000_000  # between two heartbeats
_REPORTS: Final = 64  # of steps, in one turn of the loop


@dataclass(frozen=True)
class House:
    """What rooms stand in: it stays when the model is another one."""

    loop: asyncio.AbstractEventLoop
    clock_ns: Callable[[], int]
    site: Site
    metrics: Metrics
    glue: GlueMeter
    budgets: Budgets
    helper: Executor
    compiler: Executor
    nodes: NodeBook
    collector: Collector


class Reports:
    """The way of one step clock's reports to the loop: a bell is rung when there are some.

    ``then`` is called when they have been taken: the next step computes, if there is one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, then: Callable[[], None]) -> None:
        self._loop = loop
        self._then = then
        self._waiting: deque[StepReport] = deque()
        self.bell = Bell()
        self.put = self._waiting.append  # on the step thread
        self.take: Callable[[StepReport], None]

    def __len__(self) -> int:
        return len(self._waiting)

    def listen(self) -> None:
        """Begin to take them."""
        self._loop.add_reader(self.bell.fd, self._heard)

    def close(self) -> None:
        """Take the last ones. Idempotent: a bell that is closed has no descriptor."""
        if self.bell.fd >= 0:
            self._loop.remove_reader(self.bell.fd)
            while self._waiting:
                self._heard()
            self.bell.close()

    def _heard(self) -> None:
        """An engine that is quicker than its replies are written must leave others their turns."""
        for _ in range(min(len(self._waiting), _REPORTS)):
            self.take(self._waiting.popleft())
        self.bell.heard()  # not before: until then the engine gives way to this thread
        if self._waiting:
            self.bell.ring()
        else:
            self._then()


@dataclass(frozen=True, eq=False)
class ModelRoom:
    """One model that is served. ``model`` is its name as records have it, ``contract`` what it was loaded by."""

    contract: Contract
    loaded: LoadedModel
    model: bytes
    info: EngineInfo
    cost: CostTable
    admission: Admission
    programs: Programs
    heartbeat: Heartbeat
    recorder: Recorder
    steps: StepClock
    guard: Guard
    dispatcher: Dispatcher
    supervisor: Supervisor
    held: HeldClients
    pace: Pace
    keeping: Keeping | None
    answers: Answers
    reports: Reports

    @property
    def name(self) -> str:
        """What the model is called."""
        return self.loaded.name

    @property
    def worst_stall_ms(self) -> int:
        """The longest gap between two tokens of a stream: a step with a chunk of somebody else's prompt."""
        return -(-self.cost.alone().stall_ns // _NS_PER_MS)

    @property
    def empty(self) -> bool:
        """Whether nobody is in it: no request in a slot, none held, none on its way into one."""
        return not (self.admission.calendar.taken or self.held or self.admission.drafts.taken)

    def warm(self, clock_ns: Callable[[], int], cores: SharedCores | None = None) -> None:
        """Measure what steps cost and prove every program; before the first request. Raises ``StartupError``."""
        measure(self.loaded.engine, self.cost, clock_ns, place(os.environ, self.loaded.files, self.info), cores)
        self.warmed(cores)

    def warmed(self, cores: SharedCores | None = None) -> None:
        """The cost table holds what steps take."""
        self.answers.models.tell("worst_stall_ms", self.worst_stall_ms)
        self.steps.cores = cores

    def start(self) -> None:
        """Begin to run steps. On the loop."""
        self.recorder.start()
        self.reports.listen()
        self.steps.start()

    def silence(self) -> None:
        """Take the last reports; no more will come. On the loop, after ``close``."""
        self.reports.close()
        self.recorder.stop()

    def share(self, cores: SharedCores, beside: Callable[[], Prices]) -> None:
        """From now on something else uses the same cores in cores, at these prices."""
        self.steps.cores = cores
        self.cost.beside = beside
        self.admission.rest()

    def alone(self) -> None:
        """The cores are this room's own again."""
        self.cost.beside = None
        self.steps.cores = None
        self.admission.rest()

    def bears(self, beside: Callable[[], Prices]) -> bool:
        """Whether whoever has a slot here would be done in time if something else had every second turn from now.

        What is booked is not asked: it goes along to the next room.
        """
        calendar, was = self.admission.calendar, self.cost.beside
        self.cost.beside = beside
        try:
            calendar.is_feasible()  # brings the ends up to date
            in_time = all(ends is None or ends[0] <= ends[1] for ends in calendar.ends())
            return in_time and self.dispatcher.bears(self.cost.prices().stall_ns)
        finally:
            self.cost.beside = was

    def sweep(self, now_ns: int) -> None:
        """Several times a second: whether steps end, and what has passed its time without one."""
        self.supervisor.look(now_ns)
        self.pace.sweep(now_ns)

    def close(self) -> None:
        """Stop the steps and give the engine's memory back. Its step thread ends first, which may take a step."""
        self.steps.stop()
        self.loaded.remember()
        self.loaded.engine.shutdown()


def build_room(
    house: House,
    contract: Contract,
    loaded: LoadedModel,
    meter: Meter,
    watchdog: Watchdog | None = None,
    cost: CostTable | None = None,
) -> ModelRoom:
    """Everything around a loaded model; ``meter`` counts its slots, ``cost`` are its prices. Nothing runs yet."""
    info, clock_ns = loaded.engine.describe(), house.clock_ns
    cost = cost or CostTable(slots=info.slots, chunk_tokens=info.chunk_tokens)
    answered = house.metrics.of(loaded.name)
    admission = build_admission(contract, info.slots, cost, clock_ns, answered.promises)
    programs = Programs([Named.of(program) for program in contract.program])
    heartbeat = Heartbeat(programs, known_prompt(info.slot_tokens), _BEAT_NS)
    engine = loaded.engine
    recorder = Recorder(clock_ns, cost.step_bound_ns, beside=lambda: (engine.crowded, engine.resting))

    reports = Reports(house.loop, house.collector.look)
    steps = StepClock(loaded.engine, reports.put, clock_ns, programs, heartbeat, reports.bell)
    guard = build_guard(contract, loaded, admission, cost, house.budgets)
    charges = Charges(meter, cost.chunk_share)
    dispatcher = Dispatcher(admission.calendar, steps, answered, house.glue, charges, admission.drafts)
    supervisor = Supervisor(guard, dispatcher, steps, heartbeat, watchdog or Watchdog(cost.mixed_bound_ns), recorder)
    held = HeldClients(guard, clock_ns, house.loop)
    pace = Pace(guard, dispatcher, held, house.site.turns, house.loop, clock_ns)

    def on_step(report: StepReport) -> None:
        recorder.step(report)
        if report.beats and not report.concerns:
            return
        pace.on_step(report)
        if cost.beside is not None:
            admission.rest()  # what lies between two steps was another one's turn

    reports.take = on_step
    keeping = _keeping(contract)
    site, helper, compiler, nodes = house.site, house.helper, house.compiler, house.nodes
    parts = Parts(contract, loaded, guard, dispatcher, held, site, helper, compiler, nodes, keeping)
    model, answers = model_bytes(loaded.name), Answers(parts)
    return ModelRoom(
        contract, loaded, model, info, cost, admission, programs, heartbeat, recorder, steps, guard, dispatcher,
        supervisor, held, pace, keeping, answers, reports,
    )  # fmt: skip


def _keeping(contract: Contract) -> Keeping | None:
    """The cache of whole answers, if the contract has one; another model's answers are never given for this one's."""
    cache = contract.cache
    if not cache.answers_mb:
        return None
    return Keeping(AnswerCache(cache.answers_mb << 20, cache.tenant_share), contract.limits.default_max_tokens)
