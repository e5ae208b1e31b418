"""Who is let in, decided on the headers: nobody without a key once there is a key set, whatever the path.

The key is read from ``authorization: Bearer`` or ``x-api-key``; gRPC's metadata are the same headers.
"""

from __future__ import annotations

from typing import Final, Protocol

from zerolayer.errors import Unauthenticated, ZerolayerError
from zerolayer.front.exchange import Exchange
from zerolayer.guard.identity import Identity
from zerolayer.wire.http1 import Head

# What must be told to whoever watches the process, and says nothing about anybody's work.
OPEN: Final = frozenset(
    {"/livez", "/readyz", "/health", "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"}
)
_MISSING: Final = (
    "no API key was sent; send the header authorization: Bearer sk-zl1-... or x-api-key: sk-zl1-..., with a key that "
    "the operator of this server has issued"
)


class Keys(Protocol):
    """What the doorkeeper needs of ``guard.auth.authenticator``."""

    def known(self, key: bytes) -> Identity | None:
        """The identity of a key that was verified before."""

    def admit(self, key: bytes, address: str) -> Identity:
        """The identity of any key, or its refusal."""


class Doorkeeper:
    """``check`` runs once a request, before anything else of it is looked at."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def check(self, exchange: Exchange) -> ZerolayerError | None:
        """Set ``exchange.identity``, or say why not."""
        head = exchange.head
        key = shown(head)
        if key is not None:
            identity = self._keys.known(key)
            if identity is not None:
                exchange.identity = identity
                return None
        if head.path in OPEN:
            return None
        if key is None:
            return Unauthenticated(_MISSING)
        caller = exchange.caller
        try:
            exchange.identity = self._keys.admit(key, caller.address or f"uid {caller.uid}")
        except ZerolayerError as refusal:
            return refusal
        return None


def shown(head: Head) -> bytes | None:
    """The key in the headers; with both, the one that is told as a bearer's. Of repeated ones the first counts."""
    get = head.values.get
    value = get(b"authorization")
    if value is not None:
        scheme = value[:7]
        if scheme == b"Bearer " or scheme.lower() == b"bearer ":
            return value[7:].strip()
    return get(b"x-api-key")
