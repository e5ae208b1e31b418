"""The asynchronous client, on asyncio. It needs the standard library only; see ``connections`` for what more brings."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Final, Self, Unpack

from zerolayer.client.asking import NO_NODE, Asker, Opened
from zerolayer.client.async_stream import AsyncTextStream
from zerolayer.client.connections import Connections, Life
from zerolayer.client.drafts import Drafter
from zerolayer.client.errors import BadReply, BrokenReply, ClientError, NotReachable, NotSupported, Refused
from zerolayer.client.exchange import read_all
from zerolayer.client.forms import Ask
from zerolayer.client.head import json_object, read_head, refused
from zerolayer.client.http1 import CHECK
from zerolayer.client.http2_connection import speaks_http2
from zerolayer.client.json_form import JsonForm
from zerolayer.client.options import CallOptions, ClientOptions, Protocol, check
from zerolayer.client.request import Options, Question
from zerolayer.client.retry import RetryPolicy
from zerolayer.client.schema_form import GrpcForm, SchemaForm, encode
from zerolayer.client.service import Clocks, Going, Limits, Service
from zerolayer.client.statistics import Statistics
from zerolayer.client.vocabulary import OTHER_VOCABULARY, Encode, Held, can_tokenise, path_of, tokeniser

_LONG_TEXT: Final = 4096  # characters above which tokenising would hold the loop up


class AsyncClient:
    """A client of one server, or of several that serve the same model, for tasks of one event loop.

    The arguments are those of ``Client``. ``close``, or the end of an ``async with`` block, closes its connections, and
    so does throwing it away. Raises ``InvalidAddress``, and ``NotSupported`` for gRPC without the package ``hpack``.
    """

    def __init__(
        self, base_url: str | Sequence[str] = "http://127.0.0.1:8000", **options: Unpack[ClientOptions]
    ) -> None:
        check(options, ClientOptions)
        self._protocol: Protocol = options.get("protocol", "auto")
        if self._protocol == "grpc" and not speaks_http2():
            raise NotSupported("gRPC needs HTTP/2, and that the package hpack: pip install hpack.")
        limits = Limits(
            options.get("timeout_s", 600.0),
            options.get("answer_within_s"),
            options.get("retry_budget_ms", 60_000),
            options.get("hedge_after_ms"),
        )
        life = Life(options.get("connect_within_s", 3.0), options.get("dead_after_s", 4.0))
        policy, clocks = options.get("retry") or RetryPolicy(), options.get("clocks") or Clocks()
        key, follow = options.get("api_key", ""), options.get("follow_nodes", True)
        self._service = Service(base_url, key, limits, policy, clocks, follow_nodes=follow)
        self._connections = Connections(options.get("tls"), True if self._protocol == "grpc" else None, life)
        self._asker = Asker(self._service, self._connections, options.get("on_wait"))
        self._default_model: str | None = None
        self._vocabularies: dict[str, Held] = {}
        self._drafter = self.drafter()
        weakref.finalize(self, self._connections.abandon).atexit = False

    @property
    def statistics(self) -> Statistics:
        """What became of the calls so far, and whether retrying helped."""
        return self._service.tally.statistics()

    @property
    def nodes(self) -> list[str]:
        """The addresses that calls go to: those given, or since a node told the list, those in it."""
        return self._service.nodes.listed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back what nobody will come for, then close the connections. A later call opens new ones."""
        self._drafter.cancel()
        await self._asker.settle()
        self._connections.close()
        await asyncio.sleep(0)  # transports that were closed say so

    @property
    def disconnect(self) -> Callable[[], None]:
        """Closes the connections at once, on the event loop; it does not refer to the client."""
        return self._connections.close

    async def models(self) -> list[str]:
        """The names of ``GET /v1/models``, of the first node that answers. Raises ``ClientError``."""
        return await self._models(None)

    async def _models(self, end_ns: int | None) -> list[str]:
        failure: ClientError = NotReachable(NO_NODE)
        await self._service.ready(end_ns)
        for name in self._service.nodes.listed:
            try:
                exchange = await self._asker.fetch(name, "/v1/models", {}, self._service.until_answer(end_ns))
                body = await read_all(exchange, self._service.between(end_ns))
                names = model_names(exchange.status, exchange.headers, body)
                self._default_model = self._default_model or next(iter(names), None)
                return names
            except (NotReachable, BrokenReply) as error:
                failure = error
        raise failure

    def chat(self, messages: Sequence[Mapping[str, str]], **options: Unpack[CallOptions]) -> AsyncTextStream:
        """Stream an answer to ``messages``, as ``Client.chat`` does. The call begins when the stream is used."""
        check(options, CallOptions)
        return AsyncTextStream(self._service, partial(self._start, None, messages, options))

    def generate(self, prompt: str, **options: Unpack[CallOptions]) -> AsyncTextStream:
        """Stream how the model continues ``prompt``, without a chat template. Otherwise as ``chat``."""
        check(options, CallOptions)
        return AsyncTextStream(self._service, partial(self._start, prompt, (), options))

    def draft(self, text: str, *, messages: Sequence[Mapping[str, str]] = (), model: str | None = None) -> None:
        """Somebody is typing ``text``, which will follow ``messages``: see ``Drafter.draft``. For one user's input."""
        self._drafter.draft(text, messages=messages, model=model)

    def drafter(self, pause_ms: int = 150) -> Drafter:
        """Drafts of one input field; whoever serves several users has one for each."""
        return Drafter(self._warm, self._service.clocks, pause_ms)

    async def _warm(self, messages: Sequence[Mapping[str, str]], model: str | None) -> None:
        """Ask the node that the next call will go to to read the prompt. Failures tell nobody: nothing was promised."""
        with suppress(ClientError):
            await self._service.ready(None)
            options = Options(model or await self._first_model(None), fills_cache=True)
            ask = JsonForm().ask(Question(options, messages))
            service = self._service
            node = service.nodes.choose(service.clocks.monotonic_ns(), ask.prefix)
            if node is not None:
                await self._asker.warm(node, ask)

    async def _first_model(self, end_ns: int | None) -> str:
        if self._default_model is None:
            self._default_model = first(await self._models(end_ns))
        return self._default_model

    async def _start(
        self, prompt: str | None, messages: Sequence[Mapping[str, str]], given: CallOptions
    ) -> tuple[Going, Opened]:
        service, stop, fresh = self._service, given.get("stop"), given.get("fresh")
        begun_ns, end_ns = service.clocks.monotonic_ns(), service.end_of(given.get("deadline_ms"))
        self._drafter.asked(messages)
        await service.ready(end_ns)
        options = Options(
            given.get("model") or await self._first_model(end_ns),
            given.get("max_tokens"),
            given.get("temperature"),
            given.get("seed"),
            stop if stop is None or isinstance(stop, str) else tuple(stop),
        )
        question = Question(options, messages, prompt, {} if fresh is None else fresh.headers())
        going = service.begin(await self._ask_of(question, end_ns), begun_ns, end_ns)
        try:
            return going, await self._asker.open(going)
        except Refused as refusal:
            held = self._vocabularies.get(options.model)
            if refusal.status_code != OTHER_VOCABULARY or held is None:
                raise
            held.forget()
        # The model was replaced, and nothing was generated: ask it in its own words.
        going = service.begin_anew(going, await self._ask_of(question, end_ns))
        return going, await self._asker.open(going)

    async def _ask_of(self, question: Question, end_ns: int | None) -> Ask:
        """The question in the protocol that was asked for, as far as the service and the question allow it."""
        protocol, plain = self._protocol, JsonForm()
        if protocol == "json" or (protocol == "auto" and not self._service.speaks_schema):
            return plain.ask(question)
        ids: list[int] | None = None
        if (
            question.prompt is not None
            and (token_ids := await self._tokeniser(question.options.model, end_ns)) is not None
        ):
            etag = self._vocabularies[question.options.model].etag  # of these ids; another one may come meanwhile
            long = len(question.prompt) > _LONG_TEXT
            ids = await asyncio.to_thread(token_ids, question.prompt) if long else token_ids(question.prompt)
            question = replace(question, headers={**question.headers, "x-zl-vocabulary": etag})
        message = encode(question, ids)
        if message is None:
            return plain.ask(question)
        return GrpcForm().ask(question, message) if protocol == "grpc" else SchemaForm().ask(question, message)

    async def _tokeniser(self, model: str, end_ns: int | None) -> Encode | None:
        """The encoder of the published vocabulary. Unless the schema was asked for, nobody waits for the file."""
        held = self._vocabularies.setdefault(model, Held())
        if held.is_due(now_ns := self._service.clocks.monotonic_ns()) and can_tokenise():
            held.asked_ns = now_ns
            if self._protocol == "auto":
                self._asker.aside(self._fetch_vocabulary(model, held, None))
            else:
                await self._fetch_vocabulary(model, held, end_ns)
        return held.encode

    async def _fetch_vocabulary(self, model: str, held: Held, end_ns: int | None) -> None:
        service = self._service
        now_ns = service.clocks.monotonic_ns()
        node = service.nodes.choose(now_ns)
        if node is None:
            return
        with suppress(ClientError):
            exchange = await self._asker.fetch(node, path_of(model), held.headers(), service.until_answer(end_ns))
            body = await read_all(exchange, service.between(end_ns))
            made = await asyncio.to_thread(tokeniser, body) if exchange.status == 200 else None
            held.take(now_ns, exchange.status, exchange.headers.get("etag", ""), made)


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
