"""The section ``[listen]`` of the contract: where the server is reached."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final

from msgspec import Meta, Struct

WILDCARDS: Final = ("0.0.0.0", "::")
AUTO: Final = "auto"  # of the admin's Unix socket: a place by the port, where there is one
OFF: Final = "off"
STRIDE: Final = 2  # between the ports of two nodes that were started together: one for the service, one for the admin


class Listen(Struct, frozen=True):
    """Where the server is reached. Port 0 lets the system choose."""

    host: Annotated[str, Meta(pattern=r"[0-9A-Za-z.:_-]{1,253}")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    admin: Annotated[str, Meta(pattern=r"([0-9A-Za-z._-]{1,253}|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}")] = "127.0.0.1:8001"
    cors: tuple[Annotated[str, Meta(pattern=r"https?://[0-9a-z.\[\]:_-]{1,253}")], ...] = ()  # origins of browser pages
    insecure: bool = False  # serve other machines without keys
    idle_s: Annotated[int, Meta(ge=1, le=86_400)] = 60  # seconds without a byte before a connection is closed
    certificate: Annotated[str, Meta(max_length=4096)] = ""  # PEM chain; with it the port speaks TLS 1.3 only
    key: Annotated[str, Meta(max_length=4096)] = ""  # PEM private key of the certificate
    client_ca: Annotated[str, Meta(max_length=4096)] = ""  # PEM; only clients whose certificate it signed may come
    unix: Annotated[str, Meta(max_length=107)] = ""  # path of a further, local socket, mode 0600, without TLS
    admin_unix: Annotated[str, Meta(max_length=107)] = AUTO  # the admin's, also for `serve --takeover`; or "off"

    @property
    def open_to_others(self) -> bool:
        """Whether other machines may come without a key: by their certificates, or because the operator said so."""
        return self.insecure or bool(self.client_ca)

    @property
    def admin_address(self) -> tuple[str, int]:
        """Host and port of the admin listener."""
        host, _, port = self.admin.rpartition(":")
        return host.strip("[]"), int(port)

    def has_room(self, nodes: int) -> bool:
        """Whether so many nodes, ``STRIDE`` ports apart, all get ports of their own."""
        first, admin = self.port, self.admin_address[1]
        ports = [start + STRIDE * place for start in (first, admin) for place in range(nodes)]
        return 0 not in (first, admin) and max(ports) <= 65535 and len(set(ports)) == len(ports)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``. A name other than ``localhost`` counts as not."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
