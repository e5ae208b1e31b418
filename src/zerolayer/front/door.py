"""The beginning of a connection: which protocol it speaks, told by ALPN under TLS or else by its first three bytes.

One door to both protocols and the same routes.
"""

from __future__ import annotations

import asyncio
from typing import cast

from zerolayer.errors import Unavailable
from zerolayer.front.caller import Caller
from zerolayer.front.connection import Connection
from zerolayer.front.exchange import Router
from zerolayer.front.http2_connection import Http2Connection
from zerolayer.front.moving import hold, is_plain
from zerolayer.front.site import Peer, Site
from zerolayer.wire.http1_reply import response
from zerolayer.wire.openai_reply import error_body

_PRI = b"PRI"  # no method of HTTP/1.1 begins so (RFC 9113 section 3.4)


class Door(asyncio.Protocol):
    """Created per accepted socket; hands it to a connection of one of two kinds as soon as it is clear which."""

    def __init__(
        self,
        site: Site,
        router: Router,
        registry: set[Peer],
        loop: asyncio.AbstractEventLoop,
        caller: Caller | None = None,
    ) -> None:
        """``caller``: who it is, where the listener knows."""
        self._site = site
        self._router = router
        self._registry = registry
        self._loop = loop
        self._caller = caller
        self._seen = b""
        self._draining = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._registry.add(self)
        site = self._site
        tls = transport.get_extra_info("ssl_object")
        agreed = None if tls is None else tls.selected_alpn_protocol()
        if agreed is None:
            self._deadline_ns = site.turns.connected(self) + site.limits.idle_ns
        else:
            site.turns.came += 1
            self._enter(Http2Connection if agreed == "h2" else Connection, b"")

    def data_received(self, data: bytes) -> None:
        self._site.turns.spoke(self)
        if self._seen:
            data = self._seen + data
        kind = _spoken(data)
        if kind is not None:
            self._enter(kind, data)
        else:
            self._seen = data
            self._deadline_ns = min(self._deadline_ns, self._site.clock_ns() + self._site.limits.head_ns)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._site.turns.spoke(self)
        self._registry.discard(self)

    @property
    def busy(self) -> bool:
        """Nothing is being answered here."""
        return False

    def expire(self, now_ns: int) -> None:
        """Close a connection that says nothing, or not enough to tell what it speaks."""
        if now_ns >= self._deadline_ns:
            self._transport.close()

    def drain(self) -> None:
        """Whoever comes through later drains at once."""
        self._draining = True

    def hold(self, *, held: bool) -> None:
        """Read nothing."""
        hold(self._transport, held=held)

    def movable(self) -> asyncio.Transport | None:
        """Whoever has said nothing yet may say it to another process."""
        return None if self._seen or not is_plain(self._transport) else self._transport

    @property
    def waits_to_move(self) -> bool:
        """It has no reply to wait for."""
        return False

    def close(self) -> None:
        """Close."""
        self._transport.close()

    def cut(self) -> None:
        """Reset."""
        self._transport.abort()

    def _enter(self, kind: type[Connection | Http2Connection], seen: bytes) -> None:
        self._registry.discard(self)
        connection = kind(self._site, self._router, self._registry, self._loop, self._caller)
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        if self._draining:
            connection.drain()
        if seen:
            connection.data_received(seen)


def at_door(
    site: Site,
    router: Router,
    registry: set[Peer],
    loop: asyncio.AbstractEventLoop,
    caller: Caller | None = None,
    said: bytes = b"",
) -> asyncio.Protocol:
    """As ``Door``; or what that would hand it to, where the client has ``said`` enough already and is told next."""
    kind = _spoken(said)
    if kind is None:
        return Door(site, router, registry, loop, caller)
    site.turns.came += 1
    return kind(site, router, registry, loop, caller)


def _spoken(said: bytes) -> type[Connection | Http2Connection] | None:
    """Which protocol begins so; None: not clear yet."""
    if said.startswith(_PRI):
        return Http2Connection
    return None if _PRI.startswith(said) else Connection


def over_limit(site: Site, connections: int) -> bytes:
    """What a connection is told that comes when there are ``connections`` already; it has asked for nothing yet."""
    site.metrics.limited("connections", "refused")
    error = Unavailable(f"the limit of {connections} connections is reached; close idle ones or try again in a second")
    retry = ((b"retry-after-ms", b"1000"), (b"retry-after", b"1"), (b"x-should-retry", b"true"))
    headers = ((b"content-type", b"application/json"), *retry)
    common = site.http1.of(site.ids.new())
    return response(error.status, headers, error_body(error), keep_alive=False, common=common)
