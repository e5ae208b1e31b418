"""``GET /v1/nodes``: who else is there, as this node knows it; and who may tell it of another node.

A node that asks announces itself in ``x-zl-node``. That name is believed so far that the node there is asked how it
is, and only from whoever has a node's key or a certificate; where there are neither, only for the caller's own
address, and what is told there of others is not believed: nobody can make a server call machines of his choice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from zerolayer.front.exchange import JSON, Exchange
from zerolayer.front.site import Header

PATH: Final = "/v1/nodes"
NAME: Final = b"x-zl-node"
_NO_STORE: Final[Header] = (b"cache-control", b"no-store")
_LONGEST: Final = 300


class Nodes:
    """``body`` renders the list, ``announced`` takes the address of another node and whether it proved to be one.

    ``keyed``: requests need keys.
    """

    def __init__(self, body: Callable[[], bytes], announced: Callable[[str, bool], None], *, keyed: bool) -> None:
        self._body = body
        self._announced = announced
        self._keyed = keyed

    def listed(self, exchange: Exchange) -> None:
        """The whole list."""
        given = exchange.head.get(NAME)
        if given is not None and len(given) <= _LONGEST and given.isascii():
            address = given.decode("ascii")
            proven = self._proves(exchange)
            if proven or (not self._keyed and _is_at(exchange, address)):
                self._announced(address, proven)
        exchange.reply(200, (JSON, _NO_STORE), self._body())

    def _proves(self, exchange: Exchange) -> bool:
        """Whether the caller has what only this fleet's operator gives."""
        return exchange.identity.is_node if self._keyed else exchange.caller.subject is not None


def _is_at(exchange: Exchange, address: str) -> bool:
    try:
        return urlsplit(address).hostname == exchange.caller.address
    except ValueError:
        return False
