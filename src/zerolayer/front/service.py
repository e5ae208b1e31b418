"""The tables of paths: what the service answers, and what its admin listener answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from zerolayer.front import models as served
from zerolayer.front.anthropic import Messages
from zerolayer.front.bookings import BOOKINGS, Bookings
from zerolayer.front.count_tokens import TokenCounter
from zerolayer.front.description import Description
from zerolayer.front.exchange import Action, Exchange
from zerolayer.front.gate import PROTOBUF_MEDIA, media_type
from zerolayer.front.generate import Generator
from zerolayer.front.health import NO_STORE, Health
from zerolayer.front.inference import Inference
from zerolayer.front.nodes import PATH as NODES
from zerolayer.front.nodes import Nodes
from zerolayer.front.responses import Responses
from zerolayer.observe.metrics import CONTENT_TYPE

OPENAPI: Final = "/openapi.json"
_RESPONSES: Final = "/v1/responses"
GENERATE: Final = "/v1/generate"
COUNT_TOKENS: Final = "/v1/count_tokens"
BODY_MEDIA: Final[Mapping[str, tuple[bytes, ...]]] = {
    GENERATE: (PROTOBUF_MEDIA,),
    COUNT_TOKENS: (b"application/json", PROTOBUF_MEDIA),
}
"""What the gate lets through beside JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Who answers what of one model."""

    generator: Generator
    messages: Messages
    responses: Responses
    inference: Inference
    counter: TokenCounter
    models: served.Models
    health: Health
    description: Description
    bookings: Bookings
    nodes: Nodes

    def table(self) -> dict[str, Mapping[str, Action]]:
        """Path -> method -> action."""
        responses = self.responses
        return {
            GENERATE: {"POST": self.inference.generate},
            COUNT_TOKENS: {"POST": self._count_tokens},
            "/v1/chat/completions": {"POST": self.generator.chat},
            "/v1/completions": {"POST": self.generator.completion},
            "/v1/messages": {"POST": self.messages.create},
            "/v1/messages/count_tokens": {"POST": self.messages.count_tokens},
            _RESPONSES: {"POST": responses.create},
            _RESPONSES + "/input_tokens": {"POST": responses.count},
            _RESPONSES + "/": {"GET": responses.kept, "DELETE": responses.kept, "POST": responses.kept},
            BOOKINGS: {"DELETE": self.bookings.give_back},
            served.PATH: {"GET": self.models.listed},
            served.PATH + "/": {"GET": self.models.one},
            NODES: {"GET": self.nodes.listed},
            OPENAPI: {"GET": self.description.show},
            **self.health.table(),
        }

    def _count_tokens(self, exchange: Exchange) -> None:
        """Bodies of both kinds come to one path."""
        if media_type(exchange.head.get(b"content-type") or b"") == PROTOBUF_MEDIA:
            self.inference.count_tokens(exchange)
        else:
            self.counter.count_json(exchange)


def admin_table(
    render_metrics: Callable[[], bytes], health: Health, page: Mapping[str, Mapping[str, Action]]
) -> dict[str, Mapping[str, Action]]:
    """What only this machine may ask; ``page`` is the live page's."""

    def metrics(exchange: Exchange) -> None:
        exchange.reply(200, ((b"content-type", CONTENT_TYPE), NO_STORE), render_metrics())

    return {"/metrics": {"GET": metrics}, **page, **health.table()}
