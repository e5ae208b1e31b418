"""The tables of paths: what the service answers, and what its admin listener answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from zerolayer.errors import ModelNotFound, Unavailable, ZerolayerError
from zerolayer.front.anthropic import Messages, page_of
from zerolayer.front.bookings import BOOKINGS, Bookings
from zerolayer.front.count_tokens import TokenCounter
from zerolayer.front.description import Description
from zerolayer.front.dialect import ANTHROPIC
from zerolayer.front.exchange import JSON, Action, Exchange
from zerolayer.front.gate import PROTOBUF_MEDIA, media_type
from zerolayer.front.generate import Generator
from zerolayer.front.inference import Inference
from zerolayer.front.nodes import NAME, Nodes
from zerolayer.front.nodes import PATH as NODES
from zerolayer.front.responses import Responses
from zerolayer.front.site import Header
from zerolayer.guard.guard import Guard
from zerolayer.observe.metrics import CONTENT_TYPE
from zerolayer.wire.anthropic_reply import model_info
from zerolayer.wire.openai_reply import ModelCard, model_body, models_body

OPENAPI: Final = "/openapi.json"
_MODELS: Final = "/v1/models"
_RESPONSES: Final = "/v1/responses"
_VOCABULARY: Final = "/vocabulary"
GENERATE: Final = "/v1/generate"
COUNT_TOKENS: Final = "/v1/count_tokens"
BODY_MEDIA: Final[Mapping[str, tuple[bytes, ...]]] = {
    GENERATE: (PROTOBUF_MEDIA,),
    COUNT_TOKENS: (b"application/json", PROTOBUF_MEDIA),
}
"""What the gate lets through beside JSON."""
_NO_STORE: Final[Header] = (b"cache-control", b"no-store")


class Health:
    """``/livez`` says that the process answers, ``/readyz`` that it takes work; neither waits for the engine.

    ``closed`` gives the reason why none is taken, or None; ``own`` is what this node is called among others.
    """

    def __init__(self, closed: Callable[[], Unavailable | None], own: Callable[[], bytes] = bytes) -> None:
        self._closed = closed
        self._own = own

    def live(self, exchange: Exchange) -> None:
        """Always 200: the loop runs."""
        exchange.reply(200, (JSON, _NO_STORE), b'{"status":"live"}')

    def ready(self, exchange: Exchange) -> None:
        """200, or 503 while draining or when the engine cannot go on."""
        closed = self._closed()
        exchange.more_headers = ((NAME, self._own()),)
        if closed is None:
            exchange.reply(200, (JSON, _NO_STORE), b'{"status":"ready"}')
        else:
            exchange.error(closed)

    def table(self) -> dict[str, Mapping[str, Action]]:
        """Path -> method -> action."""
        return {"/livez": {"GET": self.live}, "/readyz": {"GET": self.ready}, "/health": {"GET": self.ready}}


class Models:
    """``GET /v1/models``: the names that the sender may use. ``created`` is the start of the service in Unix seconds.

    ``vocabulary`` is the file of ``text.vocabulary_file``, the same for all names; ``max_tokens`` the longest answer.
    """

    def __init__(
        self, guard: Guard, created: int, served_by: Mapping[str, str | int], vocabulary: bytes, max_tokens: int
    ) -> None:
        self._max_tokens = max_tokens
        self._vocabulary = vocabulary
        self.etag = b'"%b"' % hashlib.sha256(vocabulary).hexdigest().encode("ascii")
        self._names = guard.names
        self._created = created
        self._tokens = guard.reader.shape.slot_tokens
        self._served_by = dict(served_by)

    def tell(self, name: str, value: str | int) -> None:
        """One more thing to say about how the model is served."""
        self._served_by[name] = value

    def listed(self, exchange: Exchange) -> None:
        """All names that the key may use."""
        cards = [self._card(name) for name in self._names_for(exchange.identity.models)]
        if exchange.dialect is not ANTHROPIC:
            exchange.reply(200, (JSON,), models_body(cards))
            return
        try:
            exchange.reply(200, (JSON,), page_of(cards, exchange.head.query, self._max_tokens))
        except ZerolayerError as error:
            exchange.error(error)

    def _names_for(self, allowed: frozenset[str] | None) -> Sequence[str]:
        """Where any name will do, a key's own names are names like others."""
        names = self._names.listed()
        if allowed is None:
            return names
        return [*filter(allowed.__contains__, names), *sorted(filter(self._names.known, allowed.difference(names)))]

    def one(self, exchange: Exchange) -> None:
        """One name, or its vocabulary, or 404."""
        name = unquote(exchange.head.path[len(_MODELS) + 1 :])
        if name.endswith(_VOCABULARY) and not self._names.known(name):
            name = name.removesuffix(_VOCABULARY)
            if self._names.known(name) and _may_use(exchange, name):
                self._reply_vocabulary(exchange)
                return
        if not self._names.known(name) or not _may_use(exchange, name):
            exchange.error(ModelNotFound("this model does not exist; GET /v1/models lists the names", param="model"))
            return
        card = self._card(name)
        anthropic = exchange.dialect is ANTHROPIC
        body = model_info(card, max_tokens=self._max_tokens) if anthropic else model_body(card)
        exchange.reply(200, (JSON,), body)

    def _reply_vocabulary(self, exchange: Exchange) -> None:
        """The file, or 304 for who has it already (RFC 9110 section 13.1.2)."""
        headers = ((b"etag", self.etag), (b"cache-control", b"no-cache"))
        held = exchange.head.get(b"if-none-match") or b""
        if held.strip() == b"*" or self.etag in [tag.strip().removeprefix(b"W/") for tag in held.split(b",")]:
            exchange.reply(304, headers, b"")
        else:
            exchange.reply(200, ((b"content-type", b"application/octet-stream"), *headers), self._vocabulary)

    def _card(self, name: str) -> ModelCard:
        return ModelCard(name, self._created, self._tokens, zerolayer=self._served_by)


def _may_use(exchange: Exchange, name: str) -> bool:
    models = exchange.identity.models
    return models is None or name in models


def service_table(
    generator: Generator,
    messages: Messages,
    responses: Responses,
    inference: Inference,
    counter: TokenCounter,
    models: Models,
    health: Health,
    description: Description,
    bookings: Bookings,
    nodes: Nodes,
) -> dict[str, Mapping[str, Action]]:
    """What the service itself answers."""

    def count_tokens(exchange: Exchange) -> None:
        if media_type(exchange.head.get(b"content-type") or b"") == PROTOBUF_MEDIA:
            inference.count_tokens(exchange)
        else:
            counter.count_json(exchange)

    return {
        GENERATE: {"POST": inference.generate},
        COUNT_TOKENS: {"POST": count_tokens},
        "/v1/chat/completions": {"POST": generator.chat},
        "/v1/completions": {"POST": generator.completion},
        "/v1/messages": {"POST": messages.create},
        "/v1/messages/count_tokens": {"POST": messages.count_tokens},
        _RESPONSES: {"POST": responses.create},
        _RESPONSES + "/input_tokens": {"POST": responses.count},
        _RESPONSES + "/": {"GET": responses.kept, "DELETE": responses.kept, "POST": responses.kept},
        BOOKINGS: {"DELETE": bookings.give_back},
        _MODELS: {"GET": models.listed},
        _MODELS + "/": {"GET": models.one},
        NODES: {"GET": nodes.listed},
        OPENAPI: {"GET": description.show},
        **health.table(),
    }


def admin_table(
    render_metrics: Callable[[], bytes], health: Health, page: Mapping[str, Mapping[str, Action]]
) -> dict[str, Mapping[str, Action]]:
    """What only this machine may ask; ``page`` is the live page's."""

    def metrics(exchange: Exchange) -> None:
        exchange.reply(200, ((b"content-type", CONTENT_TYPE), _NO_STORE), render_metrics())

    return {"/metrics": {"GET": metrics}, **page, **health.table()}
