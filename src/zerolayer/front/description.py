"""``GET /openapi.json``: what the service answers, for tools that read it."""

from __future__ import annotations

from zerolayer.front.exchange import JSON, Exchange


class Description:
    """``document`` is rendered once, at start."""

    def __init__(self, document: bytes) -> None:
        self._document = document

    def show(self, exchange: Exchange) -> None:
        """The document."""
        exchange.reply(200, (JSON, (b"cache-control", b"no-cache")), self._document)
