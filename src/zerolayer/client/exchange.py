"""One request and its reply as every transport gives it: the head is there, the body comes in pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from zerolayer.client.address import Patience, network_reason
from zerolayer.client.errors import BadReply

REPLY_BYTES: Final = 1 << 26  # a reply that is not a stream; a vocabulary is the largest


class Exchange(Protocol):
    """``headers`` have lower case names; ``trailers`` are there once ``read`` has come to the end."""

    @property
    def status(self) -> int:
        """The status of HTTP."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Of the reply's head."""

    @property
    def trailers(self) -> Mapping[str, str]:
        """What came behind the body; of HTTP/2 only."""

    async def read(self, patience: Patience) -> bytes:
        """The next piece of the body; empty at its end.

        Raises OSError, ``BrokenReply`` for a body that breaks off, ``DeadlinePassed``.
        """

    def close(self) -> None:
        """Leave the reply, which frees the server's slot if it is not complete. Idempotent."""


async def read_all(exchange: Exchange, patience: Patience) -> bytes:
    """The whole body. Closes the exchange. Raises ``BadReply``, ``DeadlinePassed``."""
    body = bytearray()
    try:
        while piece := await exchange.read(patience):
            body += piece
            if len(body) > REPLY_BYTES:
                raise BadReply(f"The reply is larger than {REPLY_BYTES} bytes.")
    except OSError as error:
        raise BadReply(f"The reply broke off ({network_reason(error)}).") from None
    finally:
        exchange.close()
    return bytes(body)
