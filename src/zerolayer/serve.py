"""Composition root: builds model, guard and front, starts them, drains them.

Threads: the event loop (sockets and every decision), the step thread (``StepClock``), the kernels' workers, and one
helper thread for text over 4 KB. Loop and step thread meet in the mailbox of the step clock and in one
``Dispatcher.on_step`` call per step.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import uvloop

import zerolayer
from zerolayer.contract import Contract, Effective
from zerolayer.errors import Unavailable
from zerolayer.front.bodies import body_limits, request_decoder
from zerolayer.front.connection import Router
from zerolayer.front.count_tokens import TokenCounter
from zerolayer.front.defect import on_loop_exception
from zerolayer.front.dispatch import Dispatcher
from zerolayer.front.door import door, over_limit
from zerolayer.front.exchange import Action
from zerolayer.front.gate import Gate, hosts_of
from zerolayer.front.generate import Answer, Generator
from zerolayer.front.greeting import greeting
from zerolayer.front.grpc import Calls, Method
from zerolayer.front.grpc_health import HEALTH, GrpcHealth
from zerolayer.front.grpc_inference import SERVICE, GrpcFraming, inference_methods
from zerolayer.front.grpc_reflection import Reflection
from zerolayer.front.held import HeldClients
from zerolayer.front.inference import Inference
from zerolayer.front.listener import Listener, affordable_connections, bind, bind_unix, raise_descriptor_limit
from zerolayer.front.pace import Pace
from zerolayer.front.routes import Routes
from zerolayer.front.schema_form import Framing, HttpFraming, SchemaAnswers
from zerolayer.front.service import BODY_MEDIA, Health, Models, admin_table, service_table
from zerolayer.front.site import ConnectionLimits, Peer, Site
from zerolayer.front.supervision import Supervisor
from zerolayer.front.tls import Tls, TlsFiles
from zerolayer.guard.deadline.admission import build_admission
from zerolayer.guard.guard import build_guard
from zerolayer.model.cost import CostTable
from zerolayer.model.diagnosis import answer_signal
from zerolayer.model.heartbeat import Heartbeat
from zerolayer.model.program import Named, Programs
from zerolayer.model.recorder import Recorder
from zerolayer.model.step_clock import StepClock, StepReport
from zerolayer.model.warm_up import measure
from zerolayer.model.watchdog import Watchdog
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.metrics import Gauges, Metrics, ProgramState
from zerolayer.text.vocabulary_file import pack
from zerolayer.wire.body_limits import BodyLimits

if TYPE_CHECKING:
    from zerolayer.model.load import LoadedModel

_log = logging.getLogger("zerolayer.serve")

Progress = Callable[[str], None]

GRACE_S = 10.0  # for running streams, after the first signal
_FLUSH_S = 1.0  # for the last bytes, after that
_SWEEP_S = 0.25
_ADMIN_CONNECTIONS = 64
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000
_BEAT_S = 30  # between two heartbeats
_SWITCH_S = 0.0005  # a helper thread in pure Python may keep the loop waiting for this long, not for the default 5 ms


class Server:
    """One service on its two listeners, inside a running loop. Raises ``StartupError`` when an address is taken."""

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
        self._contract = contract
        self._loaded = loaded
        self._sweep_s = sweep_s
        self._clock_ns = time.monotonic_ns
        self._connections: set[Peer] = set()
        self._admin_connections: set[Peer] = set()
        self._helper = ThreadPoolExecutor(1, "zerolayer-helper")
        self.info = loaded.engine.describe()
        self.cost = CostTable(slots=self.info.slots, chunk_tokens=self.info.chunk_tokens)
        self.admission = build_admission(contract, self.info.slots, self.cost, self._clock_ns)
        self.slots = self.admission.calendar
        self.glue = GlueMeter()
        self.metrics = Metrics(loaded.name)
        self.programs = Programs([Named.of(program) for program in contract.program])
        self.heartbeat = Heartbeat(self.programs, range(1, 17), _BEAT_S * _NS_PER_S)
        self.recorder = Recorder(self._clock_ns, self.cost.step_bound_ns)
        self.steps = StepClock(
            loaded.engine, self._deliver, self._clock_ns, None, self.programs, self.heartbeat, self.recorder
        )
        self.guard = build_guard(contract, loaded, self.admission, self.cost)
        self.dispatcher = Dispatcher(self.slots, self.steps, self.metrics, self.glue)
        watchdog = watchdog or Watchdog(self.cost.mixed_bound_ns)
        self._supervisor = Supervisor(self.guard, self.dispatcher, self.steps, self.heartbeat, watchdog, self.recorder)
        self.held = HeldClients(self.guard, self._clock_ns, self._loop)
        self.pace = Pace(self.guard, self.dispatcher, self.held)
        hosts, admin_hosts = hosts_of(contract.listen)
        origins = frozenset(origin.encode("ascii") for origin in contract.listen.cors)
        self._site = self._build_site(limits, self.metrics, self.glue, origins)
        health = Health(self.guard)
        self.grpc_health = GrpcHealth(lambda: self.guard.closed, frozenset({SERVICE}))
        table, methods = self._build_tables(health)
        methods |= self.grpc_health.methods() | Reflection((SERVICE, HEALTH)).methods()
        self.calls = Calls(methods, self._clock_ns, limits.body_bytes)
        router = Routes(Gate(hosts, origins, BODY_MEDIA), table, self.calls)
        # No browser and no foreign name reaches a Unix socket, and gRPC gives its path as the host.
        local = Routes(Gate(origins=origins, media=BODY_MEDIA), table, self.calls)
        admin = Routes(Gate(admin_hosts), admin_table(self._render_metrics, health))
        self.routers = (router, local, admin)
        self.connections = affordable_connections(contract.limits.connections, raise_descriptor_limit())
        listen = contract.listen
        self._tls = Tls(TlsFiles(listen.certificate, listen.key, listen.client_ca)) if listen.certificate else None
        self._listeners: list[Listener] = []
        try:
            self._listeners.extend(self._listen(*self.routers))
        except BaseException:
            for listener in self._listeners:
                listener.stop()
            raise

    @property
    def port(self) -> int:
        """Port of the service."""
        return self._listeners[0].port

    @property
    def worst_stall_ms(self) -> int:
        """The longest gap between two tokens of a stream: a step with a chunk of somebody else's prompt."""
        return -(-self.cost.prices().stall_ns // _NS_PER_MS)

    @property
    def admin_port(self) -> int:
        """Port of the admin listener."""
        return self._listeners[-1].port

    def start(self) -> None:
        """Begin to answer."""
        measure(self._loaded.engine, self.cost, self._clock_ns)
        self._models.tell("worst_stall_ms", self.worst_stall_ms)
        self.steps.start()
        for listener in self._listeners:
            listener.start()
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)

    async def drain(self, grace_s: float = GRACE_S) -> None:
        """Take no more work, let replies finish within ``grace_s``, then end the rest with an error."""
        self.guard.close(Unavailable("the server is shutting down; send the request again in a moment"))
        self.grpc_health.end()
        for connection in list(self._connections):
            connection.drain()
        if not await self._quiet(grace_s):
            self.dispatcher.fail_all(
                Unavailable("the server shut down before the reply was complete; send the request again")
            )

    async def close(self) -> None:
        """Stop listening, flush, stop the step thread, give the engine's memory back."""
        self._sweeper.cancel()
        for listener in self._listeners:
            listener.stop()
        connections = self._connections | self._admin_connections
        for connection in list(connections):
            connection.close()
        deadline = self._loop.time() + _FLUSH_S
        while self._connections or self._admin_connections:
            if self._loop.time() >= deadline:
                break
            await asyncio.sleep(0.01)
        for connection in list(self._connections | self._admin_connections):
            connection.cut()
        self.steps.stop()
        self._loaded.remember()
        self._helper.shutdown(cancel_futures=True)
        self._loaded.engine.shutdown()
        await asyncio.sleep(0)  # reports and closings that are already on their way

    def reload(self) -> None:
        """Read the certificate again, if there is one; open connections go on."""
        if self._tls is None:
            _log.info("nothing to reload: this server has no certificate")
        else:
            self._tls.reload()

    def glue_line(self) -> str:
        """What share of the busy time was not arithmetic, for people."""
        now = self._clock_ns()
        share = self.glue.share(now)
        if share is None:
            return "no request was served"
        return f"{share:.2%} of {self.glue.busy_ns(now) / _NS_PER_S:.1f} s busy time was not arithmetic"

    def _deliver(self, report: StepReport) -> None:
        self._loop.call_soon_threadsafe(self.pace.on_step, report)

    def _build_site(
        self, limits: ConnectionLimits, metrics: Metrics, glue: GlueMeter, origins: frozenset[bytes] = frozenset()
    ) -> Site:
        return Site(limits, self._clock_ns, time.time, zerolayer.__version__, self._load_hint, metrics, glue, origins)

    def _build_tables(self, health: Health) -> tuple[dict[str, Mapping[str, Action]], dict[str, Method]]:
        """What is answered over HTTP, and over gRPC."""
        limits = body_limits(self._contract)
        counter = TokenCounter(self.guard, limits, self._helper)
        decoder = request_decoder(self._contract)

        def inference(framing: Framing) -> Inference:
            schema = self._build_generator(limits, SchemaAnswers(framing, self._loaded.vocabulary))
            return Inference(schema, framing, decoder, counter, self.guard)

        openai, self._models = self._build_generator(limits), self._build_models()
        table = service_table(openai, inference(HttpFraming()), counter, self._models, health)
        return table, inference_methods(inference(GrpcFraming()))

    def _build_generator(self, limits: BodyLimits, answer: Answer | None = None) -> Generator:
        return Generator(
            guard=self.guard,
            dispatcher=self.dispatcher,
            site=self._site,
            limits=limits,
            vocabulary=self._loaded.vocabulary,
            helper=self._helper,
            held=self.held,
            answer=answer,
        )

    def _build_models(self) -> Models:
        info = self.info
        served_by: dict[str, str | int] = {
            "engine": info.engine,
            "kernels": info.kernels,
            "weights": info.weights,
            "threads": info.threads,
            "slots": info.slots,
        }
        return Models(self.guard, int(time.time()), served_by, pack(self._loaded.vocabulary))

    def _listen(self, router: Router, local: Router, admin: Router) -> Iterator[Listener]:
        """The listeners of the service, of its Unix socket if there is one, and of the admin, which comes last."""
        listen, limit = self._contract.listen, self.connections
        full = partial(over_limit, self._site, limit)
        make = partial(door, self._site, router, self._connections, self._loop)
        sockets = bind(listen.host, listen.port, insecure=listen.open_to_others, flag="--port")
        yield Listener(sockets, make, self._connections, limit=limit, busy=full, tls=self._tls)
        if listen.unix:
            make = partial(door, self._site, local, self._connections, self._loop)
            yield Listener([bind_unix(listen.unix)], make, self._connections, limit=limit, busy=full)
        # The admin listener's accounts are its own: a scrape is no work.
        site = self._build_site(self._site.limits, Metrics("admin"), GlueMeter())
        make = partial(door, site, admin, self._admin_connections, self._loop)
        sockets = bind(*listen.admin_address, insecure=False, flag="--admin")
        yield Listener(sockets, make, self._admin_connections, limit=_ADMIN_CONNECTIONS, busy=full)

    def _load_hint(self) -> bytes:
        return b"free=%d;next_ms=%d;derate=1.00;epoch=0" % (self.slots.free, self.slots.next_free_ms())

    def _render_metrics(self) -> bytes:
        info = self.info
        return self.metrics.render(
            Gauges(
                running=self.dispatcher.running,
                used_tokens=self.dispatcher.used_tokens,
                total_tokens=info.slots * info.slot_tokens,
                free_slots=self.slots.free,
                connections=len(self._connections),
                glue_share=self.glue.share(self._clock_ns()),
                programs=ProgramState(self.programs.names, self.programs.dropped, self.heartbeat.beats),
            )
        )

    def _sweep(self) -> None:
        """Deadlines of all connections, and whether the step thread still moves."""
        now = self._clock_ns()
        for connection in (*self._connections, *self._admin_connections):
            connection.expire(now)
        for listener in self._listeners:
            listener.sweep()
        self._supervisor.look(now)
        self.grpc_health.refresh()  # after the look, so that it tells what was seen
        self.pace.sweep(now)
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)

    async def _quiet(self, seconds: float) -> bool:
        """Whether everything in flight ended within ``seconds``."""
        deadline = self._loop.time() + seconds
        # Polled: events from every possible end would cost each request something for a thing that happens once.
        while self.slots.taken or any(connection.busy for connection in self._connections):
            if self._loop.time() >= deadline:
                return False
            await asyncio.sleep(0.01)
        return True


@asynccontextmanager
async def running(
    contract: Contract,
    loaded: LoadedModel,
    *,
    limits: ConnectionLimits | None = None,
    sweep_s: float = _SWEEP_S,
    watchdog: Watchdog | None = None,
) -> AsyncIterator[Server]:
    """A server inside the running loop, until the block ends. ``limits`` default to the contract's."""
    if limits is None:
        limits = ConnectionLimits(body_bytes=contract.limits.body_bytes, idle_ns=contract.listen.idle_s * _NS_PER_S)
    server = Server(contract, loaded, limits, sweep_s, watchdog)
    server.start()
    try:
        yield server
    finally:
        await server.close()


def main(effective: Effective, load: Callable[[Contract, Progress], LoadedModel] | None = None) -> int:
    """``zerolayer serve``: runs until SIGINT or SIGTERM; returns the exit code. Raises ``StartupError``.

    ``load`` replaces the reading of a model file, for tests.
    """
    if load is None:
        from zerolayer.model.load import load_model

        load = load_model
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    loaded = load(effective.contract, _progress)
    sys.setswitchinterval(_SWITCH_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(effective.contract, loaded))


async def _serve(contract: Contract, loaded: LoadedModel) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def signalled(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)  # asked twice: now
        stop.set()

    async with running(contract, loaded) as server:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, signalled, number)
        loop.add_signal_handler(signal.SIGHUP, server.reload)
        answer_signal(loop, server.recorder)
        # What start-up made lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        print(greeting(contract, loaded.name, server), flush=True)
        await stop.wait()
        _log.info("draining: running replies have %g s; a second signal ends at once", GRACE_S)
        await server.drain()
        print(server.glue_line(), flush=True)
    gc.unfreeze()  # native objects are to be freed in order
    return 0


def _progress(line: str) -> None:
    """A bar that grows in place where a person looks, lines elsewhere."""
    in_place = sys.stderr.isatty() and not line.endswith("100 %")
    print(line, file=sys.stderr, end="\r" if in_place else "\n", flush=True)
