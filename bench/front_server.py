"""This server's door with nothing behind it: each request is answered with prepared bytes.

python bench/front_server.py; the first line it prints is its port.

``POST /echo`` takes JSON, and ``/bench.Door/Say`` is its gRPC twin. ``POST /v1/chat/completions`` and ``/v1/generate``
decode a real request and are refused by a guard that has no slot: the way of a refusal without its decision.
"""

from __future__ import annotations

import asyncio
import gc
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import uvloop

from zerolayer.contract import Contract
from zerolayer.errors import SlotsBusy
from zerolayer.front.bodies import body_limits, request_decoder
from zerolayer.front.door import at_door, over_limit
from zerolayer.front.gate import Gate, local_hosts
from zerolayer.front.generate import Generator
from zerolayer.front.grpc import Calls, Method
from zerolayer.front.grpc_inference import GrpcFraming, inference_actions
from zerolayer.front.inference import Inference
from zerolayer.front.listener import Listener, bind
from zerolayer.front.routes import Routes
from zerolayer.front.schema_form import HttpFraming
from zerolayer.front.service import BODY_MEDIA
from zerolayer.front.site import ConnectionLimits, Site
from zerolayer.guard.deadline.limits import of_contract
from zerolayer.guard.deadline.reservation import Arrival
from zerolayer.guard.freshness import TIMELESS, Stamps
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.metrics import Metrics

ANSWER = b'{"answer":"%s"}' % (b"x" * 187)
_JSON = ((b"content-type", b"application/json"),)
_ETAG = b"bench"  # of its vocabulary
_SWEEP_S = 0.25
_WHEN = "All slots are busy; the start is booked in 1200 ms."


class NoSlot:
    """Where the guard would decide, it has decided."""

    closed = None
    names = SimpleNamespace(served="bench")

    def __init__(self) -> None:
        limits = of_contract(5000, 250, 60_000)
        self._arrival = Arrival(limits, limits, Stamps(), TIMELESS, "bench", "bench")

    def arrive(self, _request, _headers, *, credential, body, wall_ms, passed_ns, identity):  # noqa: ARG002 - as the guard's
        return self._arrival

    def reserve(self, _request, _arrival):
        return SlotsBusy(_WHEN, 1200, "0123456789abcdef")


def router(site: Site, contract: Contract) -> Routes:
    """The table of paths and of calls."""
    limits, decoder, helper, guard = body_limits(contract), request_decoder(contract), ThreadPoolExecutor(1), NoSlot()
    generator = Generator(
        guard=guard,
        dispatcher=None,
        site=site,
        limits=limits,
        vocabulary=SimpleNamespace(texts=()),
        transcripts=None,
        helper=helper,
        compiler=helper,
        held=None,
    )
    table = {
        "/echo": {"POST": lambda exchange: exchange.reply(200, _JSON, ANSWER)},
        "/v1/chat/completions": {"POST": generator.chat},
        "/v1/generate": {"POST": Inference(generator, HttpFraming(), decoder, None, guard, _ETAG).generate},
    }
    actions = inference_actions(Inference(generator, GrpcFraming(), decoder, None, guard, _ETAG))
    methods = {path: Method(action=action) for path, action in actions.items()}
    methods["/bench.Door/Say"] = Method(lambda call, _: call.finish(ANSWER))
    calls = Calls(methods, time.monotonic_ns, site.limits.body_bytes)
    return Routes(Gate(local_hosts("127.0.0.1"), media=BODY_MEDIA), table, calls)


async def main() -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    load = b"free=0;next_ms=1200;derate=1.00;epoch=0"
    site = Site(ConnectionLimits(), time.monotonic_ns, time.time, "bench", lambda: load, Metrics("bench"), GlueMeter())
    connections: set = set()
    make = partial(at_door, site, router(site, Contract()), connections, loop)
    full = partial(over_limit, site, 4096)
    sockets = bind("127.0.0.1", 0, insecure=False, flag="")
    listener = Listener(sockets, make, connections, limit=4096, busy=full)
    listener.start()

    def sweep() -> None:
        now = time.monotonic_ns()
        for connection in list(connections):
            connection.expire(now)
        loop.call_later(_SWEEP_S, sweep)

    sweep()
    gc.collect()
    gc.freeze()
    print(listener.port, 0, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
