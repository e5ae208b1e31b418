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
from concurrent.futures import ThreadPoolExecutor
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
from zerolayer.guard.deadline.admission import Admission
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.guard import Guard
from zerolayer.model.cost import CostTable
from zerolayer.model.derating import Derating
from zerolayer.model.engine import EngineInfo
from zerolayer.model.heartbeat import Heartbeat
from zerolayer.model.recorder import Recorder
from zerolayer.model.step_clock import StepClock
from zerolayer.model.watchdog import Watchdog
from zerolayer.observe.compute import ComputeMeter
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.metrics import Metrics
from zerolayer.serve.collector import Collector
from zerolayer.serve.deploy.deployment import Deployments, Load, load_later
from zerolayer.serve.entrances import LOCAL_ADMIN, Entrances
from zerolayer.serve.gateway import BudgetBook, build_keyring
from zerolayer.serve.measuring import Measuring
from zerolayer.serve.nodes import NodeBook
from zerolayer.serve.preparing import Preparing
from zerolayer.serve.records import Records
from zerolayer.serve.room import House, ModelRoom, build_room
from zerolayer.serve.rooms import Rooms
from zerolayer.serve.tables import Tables
from zerolayer.serve.takeover.heirs import Heirs
from zerolayer.serve.viewing import Viewing

if TYPE_CHECKING:
    from zerolayer.model.load import LoadedModel
    from zerolayer.serve.takeover.new import NewProcess

_log = logging.getLogger("zerolayer.serve")

GRACE_S = 10.0  # for running streams, after the first signal
_FLUSH_S = 1.0  # for the last bytes, after that
_NS_PER_S = 1_000_000_000


class Server:
    """One service on its listeners, inside a running loop. Raises ``StartupError`` when an address is taken.

    ``new`` takes over from a process that serves; ``cost`` are the prices of a warm engine.
    """

    def __init__(
        self,
        contract: Contract,
        loaded: LoadedModel,
        limits: ConnectionLimits,
        sweep_s: float,
        watchdog: Watchdog | None = None,
        load: Load = load_later,
        new: NewProcess | None = None,
        cost: CostTable | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(on_loop_exception)
        self._sweep_s = sweep_s
        self._clock_ns = time.monotonic_ns
        self._helper = ThreadPoolExecutor(1, "zerolayer-helper")
        self.keyring = build_keyring(contract, self._clock_ns, self._helper)
        self.book = BudgetBook(contract, self._clock_ns, self._helper, contract.listen.port)
        self._compiler = ThreadPoolExecutor(1, "zerolayer-grammar")
        self._new = new
        self._warm = cost is not None
        self.moving_in = False  # another process still has ledger and budgets, which are this one's again
        info = loaded.engine.describe()
        self.metrics, self.glue = Metrics(loaded.name), GlueMeter()
        # A second model may come beside the first one, and each has a slot for drafts.
        self.meter = ComputeMeter(info.threads, 2 * (info.slots + 1), self._clock_ns())
        self.records = Records(contract, loaded.name, self.meter, time.time, self._helper, os.environ)
        self.nodes = NodeBook(contract, Derating.of_process(os.environ), self._helper)
        self._sweeper: asyncio.TimerHandle | None = None
        self._load, self._told_load = (-1, -1, b""), b""  # what was told last, and its words
        self._open_slots: Calendar | None = None  # those of the room: they are looked at for every reply
        site = self._build_site(limits, self.metrics, self.glue, contract)
        book, aside = self.book, (self._helper, self._compiler)
        self.collector = Collector(self._clock_ns)
        counts = self.metrics, self.glue, book.budgets
        self.house = House(self._loop, self._clock_ns, site, *counts, *aside, self.nodes, self.collector)
        self.rooms = Rooms(build_room(self.house, contract, loaded, self.meter, watchdog, cost), self.meter)
        self._tell_name()
        doorkeeper = None if self.keyring is None else Doorkeeper(self.keyring.authenticator)
        self._viewing = Viewing(self.rooms, self.metrics, self.glue, self.meter, book.budgets)
        self.live = self._viewing.page(self._clock_ns)
        self.measuring = Measuring(self, self._clock_ns)
        self.deployments = Deployments(self, load)
        self.heirs = Heirs(self, contract, GRACE_S, new)
        render, begin = self.measuring.render, self.deployments.begin
        parts = (site, self.nodes, book.budgets, render, self.live, begin, doorkeeper)
        self.tables = Tables(contract, lambda: self.room, *parts)
        self.calls = self.tables.calls
        self.grpc_health = self.tables.grpc_health
        admin_site = self._build_site(limits, Metrics("admin"), GlueMeter())
        try:
            given = {} if new is None else new.give_sockets()
            self.entrances = Entrances(contract, self.tables.routers, site, admin_site, self.heirs.knock, given)
        except BaseException:
            self.records.close(self._clock_ns())
            self.room.silence()
            raise
        self._preparing = Preparing(lambda: self.room, lambda: self.entrances.busy, self._compiler)

    @property
    def room(self) -> ModelRoom:
        """What is bound to the model that is served."""
        return self.rooms.current

    def served(self, new: ModelRoom) -> None:
        """``new`` answers from now on, and everything that says what is served says so; what runs stays where it is."""
        self.rooms.swap(new)
        self._tell_name()
        self.metrics.serve(new.name, new.dispatcher.metrics)
        self.records.books.serve(new.name)
        self.live.serve(self._viewing.service())
        self.measuring.look()
        self._preparing.begin()

    @property
    def replacing(self) -> bool:
        """Whether a model is being replaced."""
        return self.deployments.busy

    def left(self) -> None:
        """The room that was served before is empty and closed."""
        self.rooms.left()
        self.measuring.look()

    def _tell_name(self) -> None:
        self._open_slots = self.slots
        self.nodes.serve(self.room.name, self.room.guard, self.room.info.slots)

    @property
    def prepared(self) -> bool:
        """Whether no request has to wait for what grammars are compiled with."""
        return self.room.loaded.grammars.prepared

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
        return self.rooms.alive

    @property
    def connection_limit(self) -> int:
        """How many connections the service takes; the system may have lowered it."""
        return self.entrances.limit

    @property
    def admin_socket(self) -> str:
        """Path of the admin's Unix socket; "" without one."""
        sockets = self.entrances.sockets().get(LOCAL_ADMIN, ())
        return str(sockets[0].getsockname()) if sockets else ""

    @property
    def ledger_folder(self) -> Path | None:
        """Where requests are written down, if anywhere."""
        return None if self.records.ledger is None else self.records.ledger.folder

    @property
    def worst_stall_ms(self) -> int:
        """As its room has it."""
        return self.room.worst_stall_ms

    # Of the room, for those who look at a server from outside.

    @property
    def info(self) -> EngineInfo:
        """The engine that is served by."""
        return self.room.info

    @property
    def guard(self) -> Guard:
        """Who decides."""
        return self.room.guard

    @property
    def admission(self) -> Admission:
        """What it decides with."""
        return self.room.admission

    @property
    def slots(self) -> Calendar:
        """The slots of new requests."""
        return self.room.admission.calendar

    @property
    def dispatcher(self) -> Dispatcher:
        """What runs in them."""
        return self.room.dispatcher

    @property
    def held(self) -> HeldClients:
        """Clients that are held for moments."""
        return self.room.held

    @property
    def pace(self) -> Pace:
        """What follows from its steps."""
        return self.room.pace

    @property
    def keeping(self) -> Keeping | None:
        """Whole answers that are kept."""
        return self.room.keeping

    @property
    def steps(self) -> StepClock:
        """Its steps."""
        return self.room.steps

    @property
    def heartbeat(self) -> Heartbeat:
        """Its trials."""
        return self.room.heartbeat

    @property
    def recorder(self) -> Recorder:
        """Its last steps."""
        return self.room.recorder

    def start(self) -> None:
        """Begin to answer."""
        room, new = self.room, self._new
        if self._warm:
            room.warmed()
        else:
            room.warm(self._clock_ns)
        room.start()
        self.measuring.look()
        if new is not None:
            new.adopt(self)
            new.ready()
        self.entrances.start()
        if new is not None:
            new.serve()
        self.nodes.start(self.port)
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)
        self._preparing.begin()

    async def drain(self, grace_s: float = GRACE_S) -> None:
        """Take no more work, let replies finish within ``grace_s``, then end the rest with an error."""
        self.deployments.call_off()
        leaving = self.nodes.leaving()
        for room in self.rooms:
            room.guard.close(leaving)
        self.nodes.sweep(self._clock_ns())
        self.grpc_health.end()
        self.entrances.drain()
        if not await self._quiet(grace_s):
            for room in self.rooms:
                room.dispatcher.fail_all(
                    Unavailable("the server shut down before the reply was complete; send the request again")
                )

    async def close(self) -> None:
        """Stop listening, flush, stop the step thread, give the engine's memory back."""
        self._preparing.stop()
        if self._sweeper is not None:  # none where the start failed
            self._sweeper.cancel()
        await self.deployments.close()
        self.nodes.close()
        new = self._new
        if new is not None:
            new.close()
        self.entrances.stop(kept=self.heirs.gone.is_set() or (new is not None and not new.serves))
        await self.entrances.close(_FLUSH_S)
        for room in self.rooms:
            room.close()
            room.silence()
        self._helper.shutdown(cancel_futures=True)
        self._compiler.shutdown(cancel_futures=True)
        await asyncio.sleep(0)  # closings that are already on their way
        self.records.close(self._clock_ns())
        self.book.close()
        self.collector.stop()

    def move_in(self) -> None:
        """Write ledger and budgets again, as soon as the process that was to take over lets go of them."""
        self.moving_in = True

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
        """Every reply asks for it, and gets the same bytes for as long as they are true."""
        slots = self._open_slots
        free, next_ms = (0, 0) if slots is None else slots.standing()
        load = (free, next_ms, self.nodes.tail)
        if load != self._load:
            self._load, self._told_load = load, b"free=%d;next_ms=%d%b" % load
        return self._told_load

    def _sweep(self) -> None:
        """Deadlines of all connections, and whether the step thread still moves."""
        now = self._clock_ns()
        self.entrances.sweep(now)
        self.rooms.sweep(now)
        self.grpc_health.refresh()  # after the look, so that it tells what was seen
        if self.moving_in and self.records.move_in() and self.book.move_in():
            self.moving_in = False
        self.records.sweep(now, self.guard)
        if self.keyring is not None:
            self.keyring.look()
        self.book.sweep(now)
        self.live.sweep(now)
        self.nodes.sweep(now)
        self.collector.look()
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)

    async def _quiet(self, seconds: float) -> bool:
        """Whether everything in flight ended within ``seconds``."""
        deadline = self._loop.time() + seconds
        # Polled: events from every possible end would cost each request something for a thing that happens once.
        while self.rooms.taken or self.entrances.busy or (self._new is not None and self._new.has_company):
            if self._loop.time() >= deadline:
                return False
            await asyncio.sleep(0.01)
        return True
