"""Who is at the other end of a connection, as far as the operating system or a certificate can tell."""

from __future__ import annotations

import asyncio
import socket
from functools import cached_property
from struct import Struct
from typing import Final

import msgspec

from zerolayer.guard.auth.throttle import network

_UCRED: Final = Struct("iII")  # struct ucred, unix(7)


class Caller(msgspec.Struct, frozen=True, dict=True):
    """Each is None where there is no such thing.

    ``pid``, ``uid`` and ``gid`` are those of whoever connected to a Unix socket, ``subject`` is the common name of the
    client certificate that the listener has verified, ``address`` is an IP address without its port.
    """

    pid: int | None = None
    uid: int | None = None
    gid: int | None = None
    subject: str | None = None
    address: str | None = None

    @cached_property
    def name(self) -> str:
        """A certificate's name, a local user, or an address without port: asked for at each request, and found once.

        Of IPv6 it is the network: a client that has 2**64 addresses has one share of the slots, as others have.
        """
        return self.subject or (f"uid {self.uid}" if self.address is None else network(self.address))


def caller_of(transport: asyncio.BaseTransport) -> Caller:
    """Ask the transport."""
    name = transport.get_extra_info("peername")
    address = str(name[0]) if isinstance(name, tuple) else None
    certificate = transport.get_extra_info("peercert")
    if certificate:
        names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
        return Caller(subject=names[0] if names else None, address=address)
    if address is not None:
        return Caller(address=address)  # no Unix socket: those have no address
    connected = transport.get_extra_info("socket")
    if connected is not None and connected.family == socket.AF_UNIX:
        return Caller(*peer_credentials(connected))
    return Caller(address=address)


def peer_credentials(connected: socket.socket) -> tuple[int, int, int]:
    """Process, user and group at the other end of a Unix socket, as the kernel knows them."""
    pid, uid, gid = _UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid, gid
