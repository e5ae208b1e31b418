"""``zerolayer serve``: one server from its start to the signal that ends it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvloop

from zerolayer.contract import Contract, Effective
from zerolayer.front.greeting import greeting
from zerolayer.front.site import ConnectionLimits
from zerolayer.model.diagnosis import answer_signal
from zerolayer.model.watchdog import Watchdog
from zerolayer.observe.logs import start_logging
from zerolayer.serve.devices import claim
from zerolayer.serve.loop_slice import shorten_slice
from zerolayer.serve.server import GRACE_S, Server
from zerolayer.serve.service_manager import ServiceManager

if TYPE_CHECKING:
    from zerolayer.model.load import LoadedModel

_log = logging.getLogger("zerolayer.serve")

Progress = Callable[[str], None]

_SWEEP_S = 0.25
_NS_PER_S = 1_000_000_000
_SWITCH_S = 0.0005  # a helper thread in pure Python may keep the loop waiting for this long, not for the default 5 ms


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
    log = effective.contract.log
    start_logging(log.format, log.level, access=log.access)
    for device in effective.contract.engine.devices:  # one: of several, each has a process of its own
        claim(device)
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
        print(greeting(contract, loaded.name, server, loop=shorten_slice()), flush=True)
        manager = ServiceManager(os.environ, lambda: server.alive)
        manager.ready()
        await stop.wait()
        manager.stopping()
        _log.info("draining: running replies have %g s; a second signal ends at once", GRACE_S)
        await server.drain()
        manager.close()
        print(server.glue_line(), flush=True)
    gc.unfreeze()  # native objects are to be freed in order
    return 0


def _progress(line: str) -> None:
    """A bar that grows in place where a person looks, lines elsewhere."""
    in_place = sys.stderr.isatty() and not line.endswith("100 %")
    print(line, file=sys.stderr, end="\r" if in_place else "\n", flush=True)
