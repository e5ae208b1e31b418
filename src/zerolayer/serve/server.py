"""One server: the engine's side, the guard and the doors, joined; its start, its pulse and its end.

Threads: the event loop (sockets and every decision), the step thread (``StepClock``), the kernels' workers, and one
helper thread for text over 4 KB. Loop and step thread meet in the mailbox of the step clock and in one
``Dispatcher.on_step`` call per step.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import zerolayer
from zerolayer.contract import Contract
from zerolayer.errors import Unavailable
from zerolayer.front.defect import on_loop_exception
from zerolayer.front.dispatch import Dispatcher
from zerolayer.front.doorkeeper import Doorkeeper
from zerolayer.front.held import HeldClients
from zerolayer.front.keeping import Keeping
from zerolayer.front.pace import Pace
from zerolayer.front.site import ConnectionLimits, Peer, Site
from zerolayer.front.step_account import Charges
from zerolayer.front.supervision import Supervisor
from zerolayer.guard.answers import AnswerCache
from zerolayer.guard.deadline.admission import build_admission
from zerolayer.model.bell import Bell
from zerolayer.model.cost import CostTable
from zerolayer.model.cost_cache import place
from zerolayer.model.derating import Derating
from zerolayer.model.heartbeat import Heartbeat
from zerolayer.model.program import Named, Programs
from zerolayer.model.recorder import Recorder
from zerolayer.model.step_clock import StepClock, StepReport
from zerolayer.model.warm_up import measure
from zerolayer.model.watchdog import Watchdog
from zerolayer.observe.compute import ComputeMeter
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.memory import GlueMemory
from zerolayer.observe.metrics import AnswerState, Gauges, KeyState, Metrics, NodeState, ProgramState
from zerolayer.serve.entrances import Entrances
from zerolayer.serve.gateway import BudgetBook, build_keyring
from zerolayer.serve.guarding import build_guard
from zerolayer.serve.memory import components
from zerolayer.serve.nodes import NodeBook
from zerolayer.serve.records import Records
from zerolayer.serve.tables import Rooms, Tables
from zerolayer.serve.viewing import Viewing

if TYPE_CHECKING:
    from zerolayer.model.load import LoadedModel

_log = logging.getLogger("zerolayer.serve")

GRACE_S = 10.0  # for running streams, after the first signal
_FLUSH_S = 1.0  # for the last bytes, after that
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000
_BEAT_S = 30  # between two heartbeats
_REPORTS = 64  # of steps, in one turn of the loop
_PREPARE_S = 1.0  # after the start, and until nothing runs


class Server:
    """One service on its listeners, inside a running loop. Raises ``StartupError`` when an address is taken."""

    def __init__(
        self,
        contract: Contract,
        loaded: LoadedModel,
        limits: ConnectionLimits,
        sweep_s: float,
        watchdog: Watchdog | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(on_loop_exception)
        self.loaded = loaded
        self._sweep_s = sweep_s
        self._clock_ns = time.monotonic_ns
        self._helper = ThreadPoolExecutor(1, "zerolayer-helper")
        self.keyring = build_keyring(contract, self._clock_ns, self._helper)
        self.book = BudgetBook(contract, self._clock_ns, self._helper, contract.listen.port)
        self._compiler = ThreadPoolExecutor(1, "zerolayer-grammar")
        self._prepared: Future[None] | None = None
        self._build_engine_side(contract, loaded, watchdog)
        self.records = Records(contract, loaded.name, self.meter, time.time, self._helper, os.environ)
        self.held = HeldClients(self.guard, self._clock_ns, self._loop)
        self.nodes = NodeBook(
            contract, loaded.name, self.guard, self.info.slots, Derating.of_process(os.environ), self._helper
        )
        site = self._build_site(limits, self.metrics, self.glue, contract)
        self.pace = Pace(self.guard, self.dispatcher, self.held, site.turns, self._loop, self._clock_ns)
        self.keeping = _build_keeping(contract)
        rooms = Rooms(
            contract,
            loaded,
            self.guard,
            self.dispatcher,
            self.held,
            site,
            self._helper,
            self._compiler,
            self.nodes,
            self.keeping,
        )
        doorkeeper = None if self.keyring is None else Doorkeeper(self.keyring.authenticator)
        viewing = Viewing(self.slots, self.dispatcher, self.metrics, self.glue, self.meter, self.book.budgets)
        self.live = viewing.page(loaded.name, self.info, self._clock_ns)
        self.tables = Tables(rooms, self._clock_ns, self._render_metrics, self.live, doorkeeper)
        self.calls = self.tables.calls
        self.grpc_health = self.tables.grpc_health
        admin_site = self._build_site(limits, Metrics("admin"), GlueMeter())
        try:
            self.entrances = Entrances(contract, self.tables.routers, site, admin_site)
        except BaseException:
            self.records.close(self._clock_ns())
            self._bell.close()
            raise

    def _build_engine_side(self, contract: Contract, loaded: LoadedModel, watchdog: Watchdog | None) -> None:
        """Steps, their costs, and what is promised by them."""
        self.info = loaded.engine.describe()
        self.cost = CostTable(slots=self.info.slots, chunk_tokens=self.info.chunk_tokens)
        self.metrics = Metrics(loaded.name)
        self.admission = build_admission(contract, self.info.slots, self.cost, self._clock_ns, self.metrics.promises)
        self.slots = self.admission.calendar
        self.glue = GlueMeter()
        self.programs = Programs([Named.of(program) for program in contract.program])
        self.heartbeat = Heartbeat(self.programs, range(1, 17), _BEAT_S * _NS_PER_S)
        self._reports: deque[StepReport] = deque()
        self._bell = Bell()
        self.recorder = Recorder(self._clock_ns, self.cost.step_bound_ns)
        self.steps = StepClock(
            loaded.engine,
            self._reports.append,
            self._clock_ns,
            None,
            self.programs,
            self.heartbeat,
            self.recorder,
            self._bell,
        )
        self.guard = build_guard(contract, loaded, self.admission, self.cost, self.book.budgets)
        self.meter = ComputeMeter(self.info.threads, self.info.slots + 1, self._clock_ns())  # the draft's, too
        charges = Charges(self.meter, self.cost.chunk_share)
        self.dispatcher = Dispatcher(self.slots, self.steps, self.metrics, self.glue, charges, self.admission.drafts)
        watchdog = watchdog or Watchdog(self.cost.mixed_bound_ns)
        self._supervisor = Supervisor(self.guard, self.dispatcher, self.steps, self.heartbeat, watchdog, self.recorder)

    @property
    def prepared(self) -> bool:
        """Whether what is done once, in the first moment without requests, is done."""
        return self._prepared is not None and self._prepared.done()

    @property
    def port(self) -> int:
        """Port of the service."""
        return self.entrances.port

    @property
    def admin_port(self) -> int:
        """Port of the admin listener."""
        return self.entrances.admin_port

    @property
    def connections(self) -> set[Peer]:
        """Who is connected to the service."""
        return self.entrances.connections

    @property
    def alive(self) -> bool:
        """Whether steps end; true while draining, false when the engine stands still or can no longer be trusted."""
        return not self._supervisor.troubled

    @property
    def connection_limit(self) -> int:
        """How many connections the service takes; the system may have lowered it."""
        return self.entrances.limit

    @property
    def ledger_folder(self) -> Path | None:
        """Where requests are written down, if anywhere."""
        return None if self.records.ledger is None else self.records.ledger.folder

    @property
    def worst_stall_ms(self) -> int:
        """The longest gap between two tokens of a stream: a step with a chunk of somebody else's prompt."""
        return -(-self.cost.prices().stall_ns // _NS_PER_MS)

    def start(self) -> None:
        """Begin to answer."""
        kept = place(os.environ, self.loaded.files, self.info) if self.loaded.files else None
        measure(self.loaded.engine, self.cost, self._clock_ns, kept)
        self.tables.models.tell("worst_stall_ms", self.worst_stall_ms)
        self._loop.add_reader(self._bell.fd, self._take_reports)
        self.steps.start()
        self._memory = GlueMemory(components(self._holders()))
        self.entrances.start()
        self.nodes.start(self.port)
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)
        self._preparing = self._loop.call_later(_PREPARE_S, self._prepare)

    async def drain(self, grace_s: float = GRACE_S) -> None:
        """Take no more work, let replies finish within ``grace_s``, then end the rest with an error."""
        self.guard.close(self.nodes.leaving())
        self.nodes.sweep(self._clock_ns())
        self.grpc_health.end()
        self.entrances.drain()
        if not await self._quiet(grace_s):
            self.dispatcher.fail_all(
                Unavailable("the server shut down before the reply was complete; send the request again")
            )

    async def close(self) -> None:
        """Stop listening, flush, stop the step thread, give the engine's memory back."""
        self._sweeper.cancel()
        self._preparing.cancel()
        self.nodes.close()
        self.entrances.stop()
        await self.entrances.close(_FLUSH_S)
        self.steps.stop()
        self.loaded.remember()
        self._helper.shutdown(cancel_futures=True)
        self._compiler.shutdown(cancel_futures=True)
        self.loaded.engine.shutdown()
        self._loop.remove_reader(self._bell.fd)
        while self._reports:
            self._take_reports()
        self._bell.close()
        await asyncio.sleep(0)  # closings that are already on their way
        self.records.close(self._clock_ns())
        self.book.close()

    def reload(self) -> None:
        """Read the certificate again, if there is one; open connections go on."""
        if not self.entrances.reload():
            _log.info("nothing to reload: this server has no certificate")

    def glue_line(self) -> str:
        """What share of the busy time was not arithmetic, for people."""
        now = self._clock_ns()
        share = self.glue.share(now)
        if share is None:
            return "no request was served"
        return f"{share:.2%} of {self.glue.busy_ns(now) / _NS_PER_S:.1f} s busy time was not arithmetic"

    def _take_reports(self) -> None:
        """The bell rang. An engine that is quicker than its replies are written must leave others their turns."""
        self._bell.heard()
        for _ in range(min(len(self._reports), _REPORTS)):
            self.pace.on_step(self._reports.popleft())
        if self._reports:
            self._bell.ring()

    def _build_site(
        self, limits: ConnectionLimits, metrics: Metrics, glue: GlueMeter, contract: Contract | None = None
    ) -> Site:
        cors = contract.listen.cors if contract else ()
        origins = frozenset(origin.encode("ascii") for origin in cors)
        books = self.records.books if contract else None
        return Site(
            limits,
            self._clock_ns,
            time.time,
            zerolayer.__version__,
            self._load_hint,
            metrics,
            glue,
            origins,
            books=books,
        )

    def _load_hint(self) -> bytes:
        return b"free=%d;next_ms=%d%b" % (*self.slots.standing(), self.nodes.tail)

    def _render_metrics(self) -> bytes:
        info, now, ledger = self.info, self._clock_ns(), self.records.ledger
        self.meter.rest(self.steps.step_began_ns or now)
        return self.metrics.render(
            Gauges(
                running=self.dispatcher.running,
                used_tokens=self.dispatcher.used_tokens,
                total_tokens=info.slots * info.slot_tokens,
                free_slots=self.slots.free,
                slots=info.slots,
                slot_tokens=info.slot_tokens,
                connections=len(self.connections),
                glue_share=self.glue.share(now),
                busy_ns=self.glue.busy_ns(now),
                arithmetic_ns=self.glue.arithmetic_ns,
                programs=ProgramState(self.programs.names, self.programs.dropped, self.heartbeat.beats),
                cores=self.meter.cores,
                accounted_ns=self.meter.wall_ns,
                compute_ns=self.meter.totals,
                answers=_answers(self.keeping),
                spans=self.records.spans(),
                ledger_records=None if ledger is None else ledger.records,
                keys=self._key_state(),
                memory=self._memory.measure(),
                engine_bytes=info.memory_bytes,
                chunk_tokens=info.chunk_tokens,
                step_ns=self.cost.usual_ns(),
                node=NodeState(self.nodes.derate, self._supervisor.quarantined, self.nodes.counts()),
            )
        )

    def _holders(self) -> dict[str, tuple[object, ...]]:
        """Where the data of each component begins."""
        loaded = self.loaded
        return {
            "connections": (self.entrances.connections, self.entrances.admin_connections),
            "requests": (self.dispatcher, self.held),
            "calendar": (self.admission,),
            "budgets": (self.book.budgets,),
            "keys": (None if self.keyring is None else self.keyring.authenticator,),
            "answers": (None if self.keeping is None else self.keeping.cache,),
            "ledger": (self.records.ledger,),
            "programs": (self.programs, self.cost),
            "recorder": (self.recorder,),
            "metrics": (self.metrics, self.meter, self.live),
            "text": (loaded.vocabulary, loaded.encoder, loaded.template, loaded.grammars),
            "tables": (self.tables,),
        }

    def _key_state(self) -> KeyState:
        if self.keyring is None:
            return KeyState()
        counts = self.keyring.authenticator.counts
        return KeyState(counts.hits, counts.misses, counts.verified)

    def _prepare(self) -> None:
        """What the first request with a grammar would wait for, in a moment when nobody else does."""
        if self.slots.taken:
            self._preparing = self._loop.call_later(_PREPARE_S, self._prepare)
        else:
            self._prepared = self._compiler.submit(self.loaded.grammars.prepare)

    def _sweep(self) -> None:
        """Deadlines of all connections, and whether the step thread still moves."""
        now = self._clock_ns()
        self.entrances.sweep(now)
        self._supervisor.look(now)
        self.grpc_health.refresh()  # after the look, so that it tells what was seen
        self.pace.sweep(now)
        self.records.sweep(now, self.guard)
        if self.keyring is not None:
            self.keyring.look()
        self.book.sweep(now)
        self.live.sweep(now)
        self.nodes.sweep(now)
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)

    async def _quiet(self, seconds: float) -> bool:
        """Whether everything in flight ended within ``seconds``."""
        deadline = self._loop.time() + seconds
        # Polled: events from every possible end would cost each request something for a thing that happens once.
        while self.slots.taken or self.entrances.busy:
            if self._loop.time() >= deadline:
                return False
            await asyncio.sleep(0.01)
        return True


def _build_keeping(contract: Contract) -> Keeping | None:
    """The cache of whole answers, if the contract has one."""
    cache = contract.cache
    if not cache.answers_mb:
        return None
    return Keeping(AnswerCache(cache.answers_mb << 20, cache.tenant_share), contract.limits.default_max_tokens)


def _answers(keeping: Keeping | None) -> AnswerState | None:
    if keeping is None:
        return None
    cache = keeping.cache
    return AnswerState(cache.hits, cache.misses, cache.bytes)
