"""Carries out what ``call`` decides: attempts, waits, hedges, bookings that are given back. On asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from zerolayer.client.address import Patience, network_reason
from zerolayer.client.attempt import GiveUp, Head, Promise, Send, Wait
from zerolayer.client.connections import Connections
from zerolayer.client.errors import BadReply, BrokenReply, ClientError, DeadlinePassed, NotReachable
from zerolayer.client.exchange import Exchange, read_all
from zerolayer.client.forms import Ask
from zerolayer.client.nodes import FIRST_PAUSE_NS, PROBE_NS
from zerolayer.client.peers import NODES, peers
from zerolayer.client.retry import NS_PER_MS
from zerolayer.client.service import NS_PER_S, Going, Service
from zerolayer.wire.load import Load

NO_NODE: Final = "No node could be asked in time: all are left out because they did not answer."
_ASIDE_S: Final = 5.0  # for what nobody waits for
_READY: Final = "/readyz"
_SERVER_ERROR: Final = 500  # a server without this path says 404, and lives


class Opened:
    """A reply that is an answer; ``first`` is what was read of it so far."""

    def __init__(self, exchange: Exchange, first: bytes = b"") -> None:
        self.exchange = exchange
        self._first = first

    async def read(self, patience: Patience) -> bytes:
        """As ``Exchange.read``."""
        first, self._first = self._first, b""
        return first or await self.exchange.read(patience)

    def close(self) -> None:
        """Leave the reply. Idempotent."""
        self.exchange.close()


@dataclass(frozen=True)
class _Reply:
    """What came of one attempt: a head with an answer, a head with a refusal, or neither."""

    sent_ns: int
    read_ns: int
    wall_ns: int = 0
    head: Head | None = None
    opened: Opened | None = None
    error: ClientError | None = None


class Asker:
    """The input and output of calls. ``on_wait`` is told each wait in milliseconds before it begins."""

    def __init__(self, service: Service, connections: Connections, on_wait: Callable[[int], None] | None) -> None:
        self._service = service
        self._connections = connections
        self._on_wait = on_wait
        self._aside: set[asyncio.Task[None]] = set()
        self._probes: set[asyncio.Task[None]] = set()
        self._watches: set[asyncio.Task[None]] = set()  # one at most

    async def open(self, going: Going) -> Opened:
        """The beginning of the call's answer. Raises as ``Client.chat`` does."""
        service, call = self._service, going.call
        failure: ClientError = NotReachable(NO_NODE)
        try:
            while True:
                now_ns = service.clocks.monotonic_ns()
                self._connections.forget(service.refresh())
                self._look_after(now_ns)
                match step := call.next(now_ns):
                    case Wait(until_ns):
                        await self._wait(going, until_ns - now_ns)
                    case Send():
                        answer = await self._attempt(going, step)
                        if isinstance(answer, Opened):
                            return answer
                        failure = answer
                    case GiveUp():
                        raise failure
        finally:
            self._give_back(call.take_left())

    def aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for."""
        _begin(work, self._aside)

    async def settle(self) -> None:
        """Wait for what was begun aside; whether nodes are well does not matter any more."""
        looking = self._probes | self._watches
        for task in looking:
            task.cancel()
        if begun := self._aside | looking:
            await asyncio.wait(begun)

    async def fetch(self, name: str, path: str, headers: dict[str, str], patience: Patience) -> Exchange:
        """``GET path`` of one node, whatever it answers. Raises ``NotReachable``, ``BadReply``, ``DeadlinePassed``."""
        return await self._exchange(name, "GET", path, headers, b"", patience)

    async def warm(self, node: str, ask: Ask) -> None:
        """Have a node read a prompt. Cancelled, it leaves the server at once. Raises as ``fetch`` does."""
        patience = self._service.until_answer(None)
        exchange = await self._exchange(node, "POST", ask.path, dict(ask.headers), ask.body, patience)
        await read_all(exchange, patience)

    async def _wait(self, going: Going, wait_ns: int) -> None:
        if self._on_wait is not None:
            self._on_wait(-(-wait_ns // NS_PER_MS))
        waiters = self._service.waiters
        sleep = asyncio.ensure_future(self._service.clocks.sleep(wait_ns / NS_PER_S))
        waiters.add(going.call, sleep.cancel)
        self._watch_over()
        try:
            await asyncio.wait([sleep])
            if not sleep.cancelled():
                sleep.result()
        except BaseException:
            going.call.left()
            raise
        finally:
            waiters.remove(going.call)
            sleep.cancel()

    async def _attempt(self, going: Going, step: Send) -> Opened | ClientError:
        """Ask one node, or two: the answer's beginning, or why there is none, which the call has been told."""
        hedge_after_ms, call = self._service.limits.hedge_after_ms, going.call
        try:
            if hedge_after_ms is None or len(self._service.nodes) < 2:
                reply = await self._ask(going, step, peek=going.ask.form.late_status)
            else:
                reply = await self._hedged(going, step, hedge_after_ms / 1000)
        except BaseException:
            call.abandoned()
            raise
        return self._told(going, reply)

    async def _hedged(self, going: Going, step: Send, after_s: float) -> _Reply:
        """The first of two that begins to answer; else what came of the first one."""
        call, clock_ns = going.call, self._service.clocks.monotonic_ns
        loop = asyncio.get_running_loop()
        first = loop.create_task(self._ask(going, step, peek=True))
        second: asyncio.Task[_Reply] | None = None
        winner: asyncio.Task[_Reply] | None = None
        try:
            await asyncio.wait([first], timeout=after_s)
            beside = None if first.done() else call.hedge(clock_ns())
            if beside is None:
                winner = first
                return await first
            second = loop.create_task(self._ask(going, beside, peek=True))
            pending = {first, second}
            while pending and winner is None:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                winner = next((task for task in (first, second) if task in done and _answers(task)), None)
                if second in done and winner is not second and not _answers(second):
                    call.hedge_failed(clock_ns(), second.result().head)
            if winner is second:
                call.hedge_won(first.result().head if first.done() else None)
            return (winner or first).result()
        finally:
            call.hedge_lost()
            for task in (first, second):
                if task is not None and task is not winner:
                    _leave(task)

    async def _ask(self, going: Going, step: Send, *, peek: bool) -> _Reply:
        """One attempt. ``peek``: until the first piece of the body is there."""
        service, clocks, ask = self._service, self._service.clocks, going.ask
        sent_ns = clocks.monotonic_ns()
        patience = service.until_answer(going.end_ns)
        headers = service.headers(going, step.ticket)
        try:
            exchange = await self._exchange(step.node, "POST", ask.path, headers, ask.body, patience)
            read_ns, wall_ns = clocks.monotonic_ns(), clocks.wall_ns()
            return await self._read(going, exchange, _Reply(sent_ns, read_ns, wall_ns), peek=peek)
        except ClientError as error:
            return _Reply(sent_ns, clocks.monotonic_ns(), error=error)

    async def _read(self, going: Going, exchange: Exchange, at: _Reply, *, peek: bool) -> _Reply:
        service, form = self._service, going.ask.form
        first, trailers = b"", exchange.trailers
        try:
            if peek and exchange.status == 200:
                first = await exchange.read(service.until_answer(going.end_ns))
                trailers = exchange.trailers if not first else {}
            head = form.head(exchange.status, exchange.headers, trailers)
            if head.status == 200:
                return _Reply(at.sent_ns, at.read_ns, at.wall_ns, head, Opened(exchange, first))
        except OSError as error:
            exchange.close()
            raise BrokenReply(f"The reply did not begin ({network_reason(error)}).") from None
        except BaseException:
            exchange.close()
            raise
        body = first
        with suppress(BadReply):
            body += await read_all(exchange, service.between(going.end_ns))
        refusal = form.refused(head, body, exchange.headers, trailers)
        return _Reply(at.sent_ns, at.read_ns, at.wall_ns, head, error=refusal)

    def _told(self, going: Going, reply: _Reply) -> Opened | ClientError:
        call, head, error = going.call, reply.head, reply.error
        if reply.opened is not None and head is not None:
            call.began(reply.read_ns, head)
            self._heard()
            return reply.opened
        if error is None:
            raise AssertionError("an attempt has an answer or an error")
        if head is not None:
            call.refused(reply.sent_ns, reply.read_ns, reply.wall_ns, head)
            self._give_back(call.take_left())
            self._heard()
        elif isinstance(error, DeadlinePassed):
            call.expired(reply.read_ns)
            raise error
        else:
            call.unreachable(reply.read_ns, sent=not isinstance(error, NotReachable) or error.sent)
            self._heard()
        return error

    async def _exchange(
        self, node: str, method: str, path: str, headers: dict[str, str], body: bytes, patience: Patience
    ) -> Exchange:
        service = self._service
        address = service.address(node)
        exchange = await self._connections.send(address, method, path, headers, body, patience)
        if service.heard(exchange.headers):
            self._connections.knows(address)
            if service.peers_are_due(Load.parse(exchange.headers.get("x-zl-load", ""))):
                self.aside(self._fetch_peers(node))
        return exchange

    def _look_after(self, now_ns: int) -> None:
        """Ask nodes that failed whether they are well, beside the calls."""
        for name in self._service.nodes.to_probe(now_ns):
            _begin(self._probe(name), self._probes)

    async def _probe(self, name: str) -> None:
        service, lives = self._service, False
        patience = Patience(PROBE_NS / NS_PER_S, None, service.clocks.monotonic_ns)
        try:
            exchange = await self.fetch(name, _READY, {}, patience)
            await read_all(exchange, patience)
            lives = exchange.status < _SERVER_ERROR
        except ClientError:
            pass
        service.nodes.probed(name, service.clocks.monotonic_ns(), lives=lives)
        self._heard()

    def _heard(self) -> None:
        """Something is known of a node: that may be what somebody waits for."""
        waiters = self._service.waiters
        waiters.look(self._service.clocks.monotonic_ns())
        if waiters:
            self._watch_over()

    def _watch_over(self) -> None:
        """Somebody waits: nodes that failed are asked meanwhile, though no call may come that would have it done."""
        if not self._watches and self._service.nodes.probe_due_ns() is not None:
            _begin(self._watch(), self._watches)

    async def _watch(self) -> None:
        service = self._service
        while service.waiters and (due_ns := service.nodes.probe_due_ns()) is not None:
            if self._probes:  # what comes of them says when the next one is due
                pause_s = FIRST_PAUSE_NS / NS_PER_S
                await asyncio.wait(self._probes, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
            else:
                await service.clocks.sleep(max(0, due_ns - service.clocks.monotonic_ns()) / NS_PER_S)
            self._look_after(service.clocks.monotonic_ns())

    async def _fetch_peers(self, node: str) -> None:
        patience = Patience(_ASIDE_S, None, self._service.clocks.monotonic_ns)
        with suppress(ClientError):
            exchange = await self.fetch(node, NODES, {}, patience)
            body = await read_all(exchange, patience)
            if exchange.status == 200:
                self._connections.forget(self._service.take_peers(peers(body)))
                self._heard()

    def _give_back(self, promises: list[Promise]) -> None:
        for promise in promises:
            self.aside(self._cancel(promise))

    async def _cancel(self, promise: Promise) -> None:
        """Tell a node that nobody comes for a booking. One that cannot be told keeps it until its grace ends."""
        patience = Patience(_ASIDE_S, None, self._service.clocks.monotonic_ns)
        path = f"/v1/bookings/{promise.ticket}"
        with suppress(ClientError):
            exchange = await self._exchange(promise.node, "DELETE", path, {}, b"", patience)
            exchange.close()


def _begin(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _answers(task: asyncio.Task[_Reply]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None and task.result().opened is not None


def _leave(task: asyncio.Task[_Reply]) -> None:
    """Its answer is not wanted: the server's slot comes back."""
    if not task.done():
        task.cancel()
    elif not task.cancelled() and task.exception() is None and (opened := task.result().opened) is not None:
        opened.close()
