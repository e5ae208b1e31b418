"""Anthropic's paths: ``POST /v1/messages``, ``POST /v1/messages/count_tokens``, and its pages of ``GET /v1/models``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs

from zerolayer.errors import InvalidRequest
from zerolayer.front.count_tokens import TokenCounter
from zerolayer.front.exchange import JSON, Exchange
from zerolayer.front.generate import Generator
from zerolayer.wire.anthropic import decode_count, decode_messages
from zerolayer.wire.anthropic_reply import count_body, models_page
from zerolayer.wire.openai_reply import ModelCard

_PAGE: Final = 20
_LARGEST_PAGE: Final = 1000
_FIELDS: Final = 64  # of a query
_LIFECYCLE: Final = "active"  # of every model that is served


class Messages:
    """Actions. ``generator`` answers by ``MessageAnswers``."""

    def __init__(self, generator: Generator, counter: TokenCounter) -> None:
        self._generator = generator
        self._counter = counter

    def create(self, exchange: Exchange) -> None:
        """``POST /v1/messages``."""
        self._generator.generate(exchange, decode_messages, exchange.head.values)

    def count_tokens(self, exchange: Exchange) -> None:
        """``POST /v1/messages/count_tokens``: exactly the ``input_tokens`` of the call itself."""
        self._counter.count(exchange, decode_count, _answer_count)


def _answer_count(exchange: Exchange, prompt_tokens: int, _slot_tokens: int) -> None:
    exchange.reply(200, (JSON,), count_body(prompt_tokens))


def page_of(cards: Sequence[ModelCard], query: str, max_tokens: int) -> bytes:
    """The page that a query wants: ``limit``, ``after_id``, ``before_id``, ``lifecycle``. Raises InvalidRequest."""
    try:
        given = parse_qs(query, max_num_fields=_FIELDS)
    except ValueError:
        raise InvalidRequest(f"the query has more than {_FIELDS} fields; ask with fewer") from None
    limit = _limit(given.get("limit", [str(_PAGE)])[-1])
    stages = [
        stage for name in ("lifecycle", "lifecycle[]") for text in given.get(name, ()) for stage in text.split(",")
    ]
    if stages and _LIFECYCLE not in stages:
        cards = ()
    names = [card.id for card in cards]
    first, last = 0, len(cards)
    if "after_id" in given:
        after = given["after_id"][-1]
        first = names.index(after) + 1 if after in names else last
    backwards = "before_id" in given
    if backwards:
        before = given["before_id"][-1]
        last = names.index(before) if before in names else first
    found = cards[first:last]
    page = found[-limit:] if backwards else found[:limit]
    return models_page(page, max_tokens=max_tokens, has_more=len(found) > limit)


def _limit(text: str) -> int:
    digits = len(str(_LARGEST_PAGE))
    if not (text.isascii() and text.isdigit() and len(text) <= digits and 1 <= int(text) <= _LARGEST_PAGE):
        raise InvalidRequest(f"'limit' must be between 1 and {_LARGEST_PAGE}.", param="limit")
    return int(text)
