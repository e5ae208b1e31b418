"""The synchronous client. Standard library only, so that it installs and runs without the server's needs."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping, Sequence

from zerolayer.client.call import GiveUp, Send, Wait
from zerolayer.client.errors import BadReply, BrokenReply, ClientError, DeadlinePassed, NotReachable
from zerolayer.client.head import json_object, read_head, refused
from zerolayer.client.http1 import CHECK
from zerolayer.client.request import Ask, chat, completion
from zerolayer.client.retry import NS_PER_MS, RetryPolicy
from zerolayer.client.service import NS_PER_S, Clocks, Going, Limits, Service
from zerolayer.client.statistics import Statistics
from zerolayer.client.stream import TextStream
from zerolayer.client.transport import Exchange, send

NO_NODE = "No node could be asked in time: all are left out because they did not answer."


class Client:
    """A client of one server, or of several that serve the same model. Threads may share it.

    ``api_key`` is shown with every request; "" shows none. ``timeout_s`` bounds each single wait for bytes,
    ``answer_within_s`` the wait for a reply to begin (None: the same), ``retry_budget_ms`` the time from a call to its
    last retry. ``on_wait`` is told each wait in milliseconds before it begins. ``tls`` replaces the system's trusted
    authorities. ``clocks`` and ``sleep`` are there for tests. Raises ``InvalidAddress``.
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
        sleep: Callable[[float], None] = time.sleep,
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
        with self._service.lock:
            return self._service.tally.statistics()

    def models(self) -> list[str]:
        """The names of ``GET /v1/models``, of the first node that answers. Raises ``ClientError``."""
        failure: ClientError = NotReachable(NO_NODE)
        for address in self._service.addresses.values():
            request = address.request("GET", "/v1/models", {}, b"")
            try:
                exchange = send(address, request, self._service.until_answer(None), self._tls)
                return model_names(exchange.reply.status, exchange.reply.headers, self._whole(exchange))
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
    ) -> TextStream:
        """Stream an answer to ``messages`` (each with ``role`` and ``content``); without ``model``, of the first one.

        The call is over ``deadline_ms`` milliseconds from now, waits and retries included; the server is told. Every
        attempt sends the same body. Raises ``Refused``, ``NotReachable``, ``BadReply``, ``DeadlinePassed``.
        """
        options = sampling(model or self._first_model(), max_tokens, temperature, seed, stop)
        return self._open(chat(messages, options), deadline_ms)

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
    ) -> TextStream:
        """Stream how the model continues ``prompt``, without a chat template. Otherwise as ``chat``."""
        options = sampling(model or self._first_model(), max_tokens, temperature, seed, stop)
        return self._open(completion(prompt, options), deadline_ms)

    def _first_model(self) -> str:
        if self._default_model is None:
            self._default_model = first(self.models())
        return self._default_model

    def _whole(self, exchange: Exchange) -> bytes:
        return exchange.read_all(self._service.between(None))

    def _open(self, ask: Ask, deadline_ms: float | None) -> TextStream:
        service = self._service
        going = service.begin(ask, deadline_ms)
        failure: ClientError = NotReachable(NO_NODE)
        while True:
            now_ns = service.clocks.monotonic_ns()
            with service.lock:
                step = going.call.next(now_ns)
            match step:
                case Wait(until_ns):
                    if self._on_wait is not None:
                        self._on_wait(-(-(until_ns - now_ns) // NS_PER_MS))
                    self._sleep((until_ns - now_ns) / NS_PER_S)
                case Send():
                    answer = self._attempt(going, step)
                    if isinstance(answer, Exchange):
                        return TextStream(service, going, answer)
                    failure = answer
                case GiveUp():
                    raise failure

    def _attempt(self, going: Going, step: Send) -> Exchange | ClientError:
        """Ask one node: its answer's beginning, or why there is none, which the call has been told."""
        service, clocks, call = self._service, self._service.clocks, going.call
        sent_ns = clocks.monotonic_ns()
        request = service.request(going, step.node, step.ticket)
        try:
            exchange = send(service.addresses[step.node], request, service.until_answer(going.end_ns), self._tls)
        except (NotReachable, BadReply) as error:
            with service.lock:
                call.unreachable(clocks.monotonic_ns(), sent=not isinstance(error, NotReachable) or error.sent)
            return error
        except DeadlinePassed:
            with service.lock:
                call.expired(clocks.monotonic_ns())
            raise
        except BaseException:
            with service.lock:
                call.abandoned()
            raise
        now_ns, wall_ns = clocks.monotonic_ns(), clocks.wall_ns()
        head = read_head(exchange.reply.status, exchange.reply.headers)
        if head.status == 200:
            with service.lock:
                call.began(now_ns, head)
            return exchange
        with service.lock:
            call.refused(sent_ns, now_ns, wall_ns, head)
        try:
            return refused(head, self._whole(exchange))
        except BadReply:
            return refused(head, b"")


def sampling(
    model: str,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    stop: str | Sequence[str] | None,
) -> dict[str, object]:
    """The members of a body that say how to answer; None means not said."""
    given = stop if stop is None or isinstance(stop, str) else list(stop)
    return {"model": model, "max_tokens": max_tokens, "temperature": temperature, "seed": seed, "stop": given}


def model_names(status: int, headers: Mapping[str, str], body: bytes) -> list[str]:
    """The names that a reply of ``GET /v1/models`` tells. Raises ``Refused``, ``BadReply``."""
    if status != 200:
        raise refused(read_head(status, headers), body)
    reply = json_object(body)
    try:
        return [str(model["id"]) for model in reply["data"]]
    except (KeyError, TypeError):
        raise BadReply(f"The list of models has not the shape of OpenAI's API. {CHECK}") from None


def first(names: Sequence[str]) -> str:
    """The model that is asked where the caller names none. Raises ``BadReply``."""
    if not names:
        raise BadReply(f"The server serves no model. {CHECK}")
    return names[0]
