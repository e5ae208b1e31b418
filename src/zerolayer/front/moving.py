"""A connection on its way to another process: nothing more is read here, and its descriptor goes there.

Only what rests and speaks HTTP/1.1 in clear can move: then all that there is to know of it is in the kernel. The keys
of TLS and the tables of HTTP/2 stay where they are.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

from zerolayer.front.plain import PlainTransport
from zerolayer.front.site import Peer


def hold(transport: asyncio.Transport, *, held: bool) -> None:
    """Stop reading, or go on."""
    if not transport.is_closing() and transport.is_reading() is held:
        (transport.pause_reading if held else transport.resume_reading)()


def is_plain(transport: asyncio.Transport) -> bool:
    """Whether its bytes are the kernel's: no TLS, none of ours unsent, and none of its own here already."""
    return (
        transport.get_extra_info("ssl_object") is None
        and not transport.is_closing()
        and not transport.get_write_buffer_size()
        and not (isinstance(transport, PlainTransport) and transport.unread)
    )


def plain_descriptor(transport: asyncio.Transport) -> int:
    """Of the socket, where the bytes that are written are those that the client reads; -1 under TLS.

    It is good until ``connection_lost``: only then the transport closes it.
    """
    if isinstance(transport, PlainTransport):
        return transport.descriptor
    opened = transport.get_extra_info("socket")
    return -1 if opened is None or transport.get_extra_info("ssl_object") is not None else int(opened.fileno())


def take(peers: Iterable[Peer], most: int) -> list[int]:
    """Descriptors of those that can move, at most so many. They are over here; the caller closes what it was given."""
    found: list[int] = []
    for peer in list(peers):
        if len(found) == most:
            break
        transport = peer.movable()
        if transport is not None:
            peer.hold(held=True)
            try:
                found.append(os.dup(plain_descriptor(transport)))
            except OSError:  # no descriptor is left: later
                peer.hold(held=False)
                break
            peer.cut()  # closes this process's descriptor; the connection lives by the other one
    return found
