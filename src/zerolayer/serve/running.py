"""A server inside a running loop, and a whole process of one: until the signal that ends it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvloop

from zerolayer.contract import Contract
from zerolayer.front.greeting import greeting
from zerolayer.front.site import ConnectionLimits
from zerolayer.model.cost import CostTable
from zerolayer.model.cost_cache import place
from zerolayer.model.diagnosis import answer_signal
from zerolayer.model.warm_up import measure
from zerolayer.model.watchdog import Watchdog
from zerolayer.serve.deploy.deployment import Load, load_later
from zerolayer.serve.loop_slice import shorten_slice
from zerolayer.serve.server import GRACE_S, Server
from zerolayer.serve.service_manager import ServiceManager

if TYPE_CHECKING:
    from zerolayer.model.load import LoadedModel
    from zerolayer.serve.takeover.new import NewProcess

_log = logging.getLogger("zerolayer.serve")

_SWEEP_S = 0.25
_NS_PER_S = 1_000_000_000


@asynccontextmanager
async def running(
    contract: Contract,
    loaded: LoadedModel,
    *,
    limits: ConnectionLimits | None = None,
    sweep_s: float = _SWEEP_S,
    watchdog: Watchdog | None = None,
    load: Load = load_later,
    new: NewProcess | None = None,
    cost: CostTable | None = None,
) -> AsyncIterator[Server]:
    """A server inside the running loop, until the block ends. ``limits`` default to the contract's.

    ``new`` and ``cost``: as ``Server`` has them.
    """
    if limits is None:
        limits = ConnectionLimits(body_bytes=contract.limits.body_bytes, idle_ns=contract.listen.idle_s * _NS_PER_S)
    server = Server(contract, loaded, limits, sweep_s, watchdog, load, new, cost)
    del loaded  # another model may take its place
    try:
        server.start()
        yield server
    finally:
        await server.close()


def run(contract: Contract, loading: Future[LoadedModel], new: NewProcess | None = None) -> int:
    """Serve until SIGINT or SIGTERM, or until another process does; the exit code. Raises ``StartupError``.

    ``new`` takes over from a process that serves.
    """
    loaded, cost = loading.result(), None
    if new is not None:
        info = loaded.engine.describe()
        cost = CostTable(slots=info.slots, chunk_tokens=info.chunk_tokens)
        measure(loaded.engine, cost, time.monotonic_ns, place(os.environ, loaded.files, info))
        new.take()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_until_signalled(contract, loaded, new, cost))


async def _until_signalled(
    contract: Contract, loaded: LoadedModel, new: NewProcess | None, cost: CostTable | None
) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def signalled(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)  # asked twice: now
        stop.set()

    async with running(contract, loaded, new=new, cost=cost) as server:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, signalled, number)
        loop.add_signal_handler(signal.SIGHUP, server.reload)
        loop.add_signal_handler(signal.SIGUSR2, server.heirs.start)
        answer_signal(loop, lambda: server.recorder)
        # What start-up made lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        server.collector.start()
        print(greeting(contract, loaded.name, server, loop=shorten_slice()), flush=True)
        manager = ServiceManager({**os.environ, **({} if new is None else new.manager)}, lambda: server.alive)
        server.heirs.on_serving = manager.serves
        manager.ready()
        handed_over = await _first(stop, server.heirs.gone) or await server.heirs.settle()
        if not handed_over:
            manager.stopping()
            _log.info("draining: running replies have %g s; a second signal ends at once", GRACE_S)
            await server.drain()
        manager.close()
        print(server.glue_line(), flush=True)
    gc.unfreeze()  # native objects are to be freed in order
    return 0


async def _first(stop: asyncio.Event, gone: asyncio.Event) -> bool:
    """Wait for either; whether it was ``gone``."""
    tasks = [asyncio.ensure_future(event.wait()) for event in (stop, gone)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    return gone.is_set()
