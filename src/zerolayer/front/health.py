"""What is told to whoever watches the process: that it answers, and whether it takes work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from zerolayer.errors import Unavailable
from zerolayer.front.exchange import JSON, Action, Exchange
from zerolayer.front.nodes import NAME
from zerolayer.front.site import Header

NO_STORE: Final[Header] = (b"cache-control", b"no-store")


class Health:
    """``/livez`` says that the process answers, ``/readyz`` that it takes work; neither waits for the engine.

    ``closed`` gives the reason why none is taken, or None; ``own`` is what this node is called among others.
    """

    def __init__(self, closed: Callable[[], Unavailable | None], own: Callable[[], bytes] = bytes) -> None:
        self._closed = closed
        self._own = own

    def live(self, exchange: Exchange) -> None:
        """Always 200: the loop runs."""
        exchange.reply(200, (JSON, NO_STORE), b'{"status":"live"}')

    def ready(self, exchange: Exchange) -> None:
        """200, or 503 while draining or when the engine cannot go on."""
        closed = self._closed()
        exchange.more_headers = ((NAME, self._own()),)
        if closed is None:
            exchange.reply(200, (JSON, NO_STORE), b'{"status":"ready"}')
        else:
            exchange.error(closed)

    def table(self) -> dict[str, Mapping[str, Action]]:
        """Path -> method -> action."""
        return {"/livez": {"GET": self.live}, "/readyz": {"GET": self.ready}, "/health": {"GET": self.ready}}
