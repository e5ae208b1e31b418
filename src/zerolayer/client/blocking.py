"""``GET`` without an event loop, for commands that watch one server: the asynchronous exchange behind a portal."""

from __future__ import annotations

from collections.abc import Iterator

from zerolayer.client.address import Address, Patience
from zerolayer.client.connections import Connections, Life
from zerolayer.client.exchange import Exchange, read_all
from zerolayer.client.head import read_head, refused
from zerolayer.client.portal import Portal


class BlockingExchange:
    """A reply whose body is still to be read. It is to be closed, since a thread waits for that."""

    def __init__(self, portal: Portal, exchange: Exchange) -> None:
        self._portal = portal
        self._exchange = exchange

    def read_all(self, patience: Patience) -> bytes:
        """The whole body. Closes the exchange. Raises ``BadReply``, ``DeadlinePassed``."""
        try:
            return self._portal.run(read_all(self._exchange, patience))
        finally:
            self.close()

    def lines(self, patience: Patience) -> Iterator[bytes]:
        """The body's lines, each with its line feed, as they come.

        Raises OSError, ``BrokenReply`` for a body that breaks off, ``DeadlinePassed``.
        """
        rest = b""
        while piece := self._portal.run(self._exchange.read(patience)):
            *whole, rest = (rest + piece).split(b"\n")
            yield from (line + b"\n" for line in whole)
        if rest:
            yield rest

    def close(self) -> None:
        """Close the connection and end the thread. Idempotent."""
        self._portal.tell(self._exchange.close)
        self._portal.close()


def get(address: Address, path: str, patience: Patience) -> BlockingExchange:
    """Ask for ``path``; return when the head of a reply of 200 is there.

    Raises ``Refused``, ``NotReachable``, ``BadReply``, ``DeadlinePassed``.
    """
    connections = Connections(None, http2=False, life=Life(patience.wait_s))
    portal = Portal(connections.close)
    try:
        exchange = portal.run(connections.send(address, "GET", path, {}, b"", patience))
        reply = BlockingExchange(portal, exchange)
        if exchange.status != 200:
            raise refused(read_head(exchange.status, exchange.headers), reply.read_all(patience))
    except BaseException:
        portal.close()
        raise
    return reply
