"""The model that is served: its names, and its vocabulary for clients that tokenise themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from zerolayer.errors import ModelNotFound, ZerolayerError
from zerolayer.front.anthropic import page_of
from zerolayer.front.dialect import ANTHROPIC
from zerolayer.front.exchange import JSON, Exchange
from zerolayer.guard.guard import Guard
from zerolayer.wire.anthropic_reply import model_info
from zerolayer.wire.openai_reply import ModelCard, model_body, models_body

PATH: Final = "/v1/models"
_VOCABULARY: Final = "/vocabulary"


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
        name = unquote(exchange.head.path[len(PATH) + 1 :])
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
