"""Asks name servers, over UDP and, where the answer does not fit, over TCP. Blocking.

``getaddrinfo`` gives neither SRV records nor times to live, which say when to look again.
Sources: RFC 1035 section 4.2, resolv.conf(5).
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zerolayer.cluster.directory import DiscoveryError
from zerolayer.cluster.dns_message import Kind, MessageError, Record, Reply, ServerFailed, question, read_reply

_PORT: Final = 53
_DATAGRAM_BYTES: Final = 4096
_ATTEMPTS: Final = 2
_TIMEOUT_S: Final = 1.0
_RESOLV_CONF: Final = Path("/etc/resolv.conf")

Server = tuple[str, int]


@dataclass(frozen=True)
class Resolver:
    """``search`` are domains that are tried for names with fewer than ``ndots`` dots, and for others at last."""

    servers: tuple[Server, ...]
    search: tuple[str, ...] = ()
    ndots: int = 1
    timeout_s: float = _TIMEOUT_S

    @classmethod
    def of_system(cls, path: Path = _RESOLV_CONF) -> Resolver:
        """What resolv.conf says; the name server of this machine where there is none."""
        try:
            lines = path.read_text("ascii", "replace").splitlines()
        except OSError:
            lines = []
        words = [line.split() for line in lines if line.strip() and line[0] not in "#;"]
        servers = [row[1] for row in words if row[0] == "nameserver" and len(row) > 1]
        search = [row[1:] for row in words if row[0] in ("search", "domain")]
        options = [option for row in words if row[0] == "options" for option in row[1:]]
        dots = [option[6:] for option in options if option.startswith("ndots:") and option[6:].isdigit()]
        return cls(
            tuple((server, _PORT) for server in servers[:3]) or (("127.0.0.1", _PORT),),
            tuple(domain.strip(".") for domain in search[-1]) if search else (),
            min(15, int(dots[-1])) if dots else 1,
        )

    def lookup(self, name: str, kind: Kind) -> tuple[Record, ...]:
        """The records of this kind; none where the name has none.

        Raises ``DiscoveryError`` when nobody answers, or all say that they cannot.
        """
        for full in self._names(name):
            records = self._records(full, kind)
            if records:
                return records
        return ()

    def _names(self, name: str) -> Iterable[str]:
        if name.endswith("."):
            return [name]
        searched = [f"{name}.{domain}" for domain in self.search]
        return [name, *searched] if name.count(".") >= self.ndots else [*searched, name]

    def _records(self, name: str, kind: Kind) -> tuple[Record, ...]:
        try:
            asked = question(secrets.randbits(16), name, kind)
        except MessageError:
            raise DiscoveryError("this is no domain name") from None
        reply = self._ask(asked)
        return tuple(_belonging(reply.records, name.rstrip(".").lower(), kind))

    def _ask(self, asked: bytes) -> Reply:
        """The first answer of any server. One that says that it cannot answer is not asked again."""
        servers = list(self.servers)
        for _ in range(_ATTEMPTS):
            for server in list(servers):
                try:
                    reply = self._over_udp(server, asked)
                    return self._over_tcp(server, asked) if reply.truncated else reply
                except ServerFailed:
                    servers.remove(server)
                except (OSError, MessageError):
                    continue
        raise DiscoveryError("no name server answers" if servers else "every name server says that it failed")

    def _over_udp(self, server: Server, asked: bytes) -> Reply:
        """Raises ``OSError``, ``MessageError``."""
        family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as client:
            client.connect(server)  # from here on the kernel takes nothing from others
            client.send(asked)
            end_s = time.monotonic() + self.timeout_s
            while (left_s := end_s - time.monotonic()) > 0:
                client.settimeout(left_s)
                try:
                    return read_reply(client.recv(_DATAGRAM_BYTES), asked)
                except ServerFailed:
                    raise
                except MessageError:
                    continue  # of an earlier question, or a forgery; the true one may still come
        raise TimeoutError

    def _over_tcp(self, server: Server, asked: bytes) -> Reply:
        """Raises ``OSError``, ``MessageError``."""
        end_s = time.monotonic() + self.timeout_s
        with socket.create_connection(server, timeout=self.timeout_s) as client:
            client.sendall(struct.pack("!H", len(asked)) + asked)
            length = int.from_bytes(_read(client, 2, end_s))
            return read_reply(_read(client, length, end_s), asked)


def _read(client: socket.socket, size: int, end_s: float) -> bytes:
    """The next ``size`` bytes; fewer at the end of the connection. Raises ``OSError``, after ``end_s`` too."""
    data = b""
    while len(data) < size:
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        client.settimeout(left_s)
        piece = client.recv(size - len(data))
        if not piece:
            break
        data += piece
    return data


def _belonging(records: Sequence[Record], name: str, kind: Kind) -> Iterable[Record]:
    """Those of ``name``, or of what it is another name for."""
    names = {name}
    for _ in records:  # a chain of aliases is no longer than the reply
        names |= {record.value for record in records if record.kind == Kind.CNAME and record.name in names}
    return (record for record in records if record.kind == kind and record.name in names)
