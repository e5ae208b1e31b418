"""The asynchronous client, on asyncio. Standard library only."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence

from zerolayer.client.async_stream import AsyncTextStream
from zerolayer.client.async_transport import AsyncExchange, send
from zerolayer.client.call import GiveUp, Send, Wait
from zerolayer.client.client import NO_NODE, first, model_names, sampling
from zerolayer.client.errors import BadReply, BrokenReply, ClientError, DeadlinePassed, NotReachable
from zerolayer.client.head import read_head, refused
from zerolayer.client.request import Ask, chat, completion
from zerolayer.client.retry import NS_PER_MS, RetryPolicy
from zerolayer.client.service import NS_PER_S, Clocks, Going, Limits, Service
from zerolayer.client.statistics import Statistics


class AsyncClient:
    """A client of one server, or of several that serve the same model, for tasks of one event loop.

    The arguments are those of ``Client``. Raises ``InvalidAddress``.
    """

    def __init__(
        self,
        base_url: str | Sequence[str] = "http://127.0.0.1:8000",
        *,
        api_key: str = "",
        timeout_s: float = 600.0,
        answer_within_s: float | None = None,
        retry_budget_ms: int = 60_000,
        retry: RetryPolicy | None = None,
        tls: ssl.SSLContext | None = None,
        on_wait: Callable[[int], None] | None = None,
        clocks: Clocks | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        limits = Limits(timeout_s, answer_within_s, retry_budget_ms)
        self._service = Service(base_url, api_key, limits, retry or RetryPolicy(), clocks or Clocks())
        self._tls = tls
        self._on_wait = on_wait
        self._sleep = sleep
        self._default_model: str | None = None

    @property
    def statistics(self) -> Statistics:
        """What became of the calls so far, and whether retrying helped."""
        return self._service.tally.statistics()

    async def models(self) -> list[str]:
        """The names of ``GET /v1/models``, of the first node that answers. Raises ``ClientError``."""
        failure: ClientError = NotReachable(NO_NODE)
        for address in self._service.addresses.values():
            request = address.request("GET", "/v1/models", {}, b"")
            try:
                exchange = await send(address, request, self._service.until_answer(None), self._tls)
                return model_names(exchange.reply.status, exchange.reply.headers, await self._whole(exchange))
            except (NotReachable, BrokenReply) as error:
                failure = error
        raise failure

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        model: str | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        deadline_ms: float | None = None,
    ) -> AsyncTextStream:
        """Stream an answer to ``messages``, as ``Client.chat`` does. The call begins when the stream is used."""

        async def start() -> tuple[Going, AsyncExchange]:
            options = sampling(model or await self._first_model(), max_tokens, temperature, seed, stop)
            return await self._open(chat(messages, options), deadline_ms)

        return AsyncTextStream(self._service, start)

    def generate(
        self,
        prompt: str,
        *,
        model: str | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        deadline_ms: float | None = None,
    ) -> AsyncTextStream:
        """Stream how the model continues ``prompt``, without a chat template. Otherwise as ``chat``."""

        async def start() -> tuple[Going, AsyncExchange]:
            options = sampling(model or await self._first_model(), max_tokens, temperature, seed, stop)
            return await self._open(completion(prompt, options), deadline_ms)

        return AsyncTextStream(self._service, start)

    async def _first_model(self) -> str:
        if self._default_model is None:
            self._default_model = first(await self.models())
        return self._default_model

    async def _whole(self, exchange: AsyncExchange) -> bytes:
        return await exchange.read_all(self._service.between(None))

    async def _open(self, ask: Ask, deadline_ms: float | None) -> tuple[Going, AsyncExchange]:
        service = self._service
        going = service.begin(ask, deadline_ms)
        failure: ClientError = NotReachable(NO_NODE)
        while True:
            now_ns = service.clocks.monotonic_ns()
            match step := going.call.next(now_ns):
                case Wait(until_ns):
                    if self._on_wait is not None:
                        self._on_wait(-(-(until_ns - now_ns) // NS_PER_MS))
                    await self._sleep((until_ns - now_ns) / NS_PER_S)
                case Send():
                    answer = await self._attempt(going, step)
                    if isinstance(answer, AsyncExchange):
                        return going, answer
                    failure = answer
                case GiveUp():
                    raise failure

    async def _attempt(self, going: Going, step: Send) -> AsyncExchange | ClientError:
        """Ask one node: its answer's beginning, or why there is none, which the call has been told."""
        service, clocks, call = self._service, self._service.clocks, going.call
        sent_ns = clocks.monotonic_ns()
        request = service.request(going, step.node, step.ticket)
        try:
            exchange = await send(service.addresses[step.node], request, service.until_answer(going.end_ns), self._tls)
        except (NotReachable, BadReply) as error:
            call.unreachable(clocks.monotonic_ns(), sent=not isinstance(error, NotReachable) or error.sent)
            return error
        except DeadlinePassed:
            call.expired(clocks.monotonic_ns())
            raise
        except BaseException:
            call.abandoned()
            raise
        now_ns, wall_ns = clocks.monotonic_ns(), clocks.wall_ns()
        head = read_head(exchange.reply.status, exchange.reply.headers)
        if head.status == 200:
            call.began(now_ns, head)
            return exchange
        call.refused(sent_ns, now_ns, wall_ns, head)
        try:
            return refused(head, await self._whole(exchange))
        except BadReply:
            return refused(head, b"")
