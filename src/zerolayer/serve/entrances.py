"""Where requests come in: the listeners of the service, of its Unix socket and of the admin, and who is connected."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from zerolayer.contract import Contract
from zerolayer.front.door import at_door, over_limit
from zerolayer.front.exchange import Router
from zerolayer.front.listener import Listener, affordable_connections, bind, bind_unix, raise_descriptor_limit
from zerolayer.front.site import Peer, Site
from zerolayer.front.tls import Tls, TlsFiles
from zerolayer.serve.admin_socket import AdminSocket, bind_admin

_ADMIN_CONNECTIONS = 64
SERVICE, LOCAL, ADMIN, LOCAL_ADMIN = "service", "unix", "admin", "admin_unix"


@dataclass(frozen=True, slots=True)
class Routers:
    """Who answers on the service's address, on its Unix socket, and on those of the admin."""

    service: Router
    local: Router
    admin: Router
    local_admin: Router


class Entrances:
    """All listening sockets of one server. Raises ``StartupError`` when an address is taken.

    The admin listener's ``admin_site`` keeps accounts of its own: a scrape is no work.
    """

    def __init__(
        self,
        contract: Contract,
        routers: Routers,
        site: Site,
        admin_site: Site,
        successor: Callable[[socket.socket], None],
        given: Mapping[str, list[socket.socket]] = {},
    ) -> None:
        """``successor`` gets a process that would take over; ``given`` are sockets that listen already, by name."""
        self._contract = contract
        self._successor = successor
        self._given = dict(given)
        self._routers = routers
        self._site = site
        self._admin_site = admin_site
        self._loop = asyncio.get_running_loop()
        self.connections: set[Peer] = set()
        self.admin_connections: set[Peer] = set()
        self.limit = affordable_connections(contract.limits.connections, raise_descriptor_limit())
        listen = contract.listen
        self._tls = Tls(TlsFiles(listen.certificate, listen.key, listen.client_ca)) if listen.certificate else None
        self._listeners: dict[str, Listener] = {}
        try:
            self._listen()
        except BaseException:
            self.stop()
            raise

    @property
    def port(self) -> int:
        """Port of the service."""
        return self._listeners[SERVICE].port

    @property
    def admin_port(self) -> int:
        """Port of the admin listener."""
        return self._listeners[ADMIN].port

    @property
    def busy(self) -> bool:
        """Whether a reply of the service is on its way."""
        return any(connection.busy for connection in self.connections)

    def start(self) -> None:
        """Begin to accept."""
        for listener in self._listeners.values():
            listener.start()

    def rest(self) -> None:
        """Accept and read nothing until ``start``: what clients send waits in the kernel."""
        for listener in self._listeners.values():
            listener.rest()
        self.hold(held=True)

    @property
    def opening(self) -> bool:
        """Whether somebody was accepted whose connection is not there yet, and so is not held."""
        return any(listener.opening for listener in self._listeners.values())

    def drop_opening(self) -> None:
        """Close those."""
        for listener in self._listeners.values():
            listener.drop_opening()

    def hold(self, *, held: bool) -> None:
        """Read nothing on the connections of the service, or go on."""
        for connection in list(self.connections):
            connection.hold(held=held)

    def sockets(self) -> dict[str, tuple[socket.socket, ...]]:
        """What is listened on, by name."""
        return {name: listener.sockets for name, listener in self._listeners.items()}

    def take(self, accepted: socket.socket) -> None:
        """A connection of the service that another process accepted."""
        name = LOCAL if accepted.family == socket.AF_UNIX else SERVICE
        listener = self._listeners.get(name)
        if listener is None:
            accepted.close()
        else:
            listener.take(accepted)

    def stop(self, *, kept: bool = False) -> None:
        """Accept no more; open connections stay. ``kept``: another process listens on the same sockets."""
        for listener in self._listeners.values():
            listener.stop(kept=kept)

    def sweep(self, now: int) -> None:
        """Keep the time limits of all connections; ``now`` in monotonic nanoseconds."""
        for connection in (*self.connections, *self.admin_connections):
            connection.expire(now)
        for listener in self._listeners.values():
            listener.sweep()

    def drain(self) -> None:
        """Let what runs finish, and take nothing new on the connections of the service."""
        for connection in list(self.connections):
            connection.drain()

    async def close(self, flush_s: float) -> None:
        """Close all connections once their bytes are out, and cut what is left after ``flush_s``."""
        for connection in self._everyone():
            connection.close()
        deadline = self._loop.time() + flush_s
        while self._everyone():
            if self._loop.time() >= deadline:
                break
            await asyncio.sleep(0.01)
        for connection in self._everyone():
            connection.cut()

    def reload(self) -> bool:
        """Read the certificate again, if there is one; open connections go on."""
        if self._tls is None:
            return False
        self._tls.reload()
        return True

    def _everyone(self) -> list[Peer]:
        return [*self.connections, *self.admin_connections]

    def _listen(self) -> None:
        contract, listen, limit = self._contract, self._contract.listen, self.limit
        full = partial(over_limit, self._site, limit)
        make = self._maker(self._site, self._routers.service, self.connections)
        sockets = self._take_given(SERVICE) or bind(
            listen.host, listen.port, insecure=contract.open_to_others, flag="--port"
        )
        self._listeners[SERVICE] = Listener(sockets, make, self.connections, limit=limit, busy=full, tls=self._tls)
        if listen.unix:
            make = self._maker(self._site, self._routers.local, self.connections)
            sockets = self._take_given(LOCAL) or [bind_unix(listen.unix)]
            self._listeners[LOCAL] = Listener(sockets, make, self.connections, limit=limit, busy=full)
        make = self._maker(self._admin_site, self._routers.admin, self.admin_connections)
        sockets = self._take_given(ADMIN) or bind(*listen.admin_address, insecure=False, flag="--admin")
        self._listeners[ADMIN] = Listener(sockets, make, self.admin_connections, limit=_ADMIN_CONNECTIONS, busy=full)
        make = self._maker(self._admin_site, self._routers.local_admin, self.admin_connections)
        sockets = self._take_given(LOCAL_ADMIN) or bind_admin(contract, os.environ)
        if sockets:
            self._listeners[LOCAL_ADMIN] = AdminSocket(
                sockets,
                make,
                self.admin_connections,
                limit=_ADMIN_CONNECTIONS,
                busy=full,
                successor=self._successor,
            )
        for unwanted in self._given.values():
            for listening in unwanted:
                listening.close()
        self._given.clear()

    def _take_given(self, name: str) -> list[socket.socket]:
        return self._given.pop(name, [])

    def _maker(self, site: Site, router: Router, connections: set[Peer]) -> Callable[..., asyncio.Protocol]:
        return partial(at_door, site, router, connections, self._loop)
