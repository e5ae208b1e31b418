"""Where requests come in: the listeners of the service, of its Unix socket and of the admin, and who is connected."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from zerolayer.contract import Contract
from zerolayer.contract_listen import AUTO
from zerolayer.errors import StartupError
from zerolayer.front.connection import Router
from zerolayer.front.door import door, over_limit
from zerolayer.front.listener import Listener, affordable_connections, bind, bind_unix, raise_descriptor_limit
from zerolayer.front.site import Peer, Site
from zerolayer.front.tls import Tls, TlsFiles
from zerolayer.serve.admin_place import admin_socket

_log = logging.getLogger("zerolayer.serve")

_ADMIN_CONNECTIONS = 64


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

    def __init__(self, contract: Contract, routers: Routers, site: Site, admin_site: Site) -> None:
        self._contract = contract
        self._routers = routers
        self._site = site
        self._admin_site = admin_site
        self._loop = asyncio.get_running_loop()
        self.connections: set[Peer] = set()
        self.admin_connections: set[Peer] = set()
        self.limit = affordable_connections(contract.limits.connections, raise_descriptor_limit())
        listen = contract.listen
        self._tls = Tls(TlsFiles(listen.certificate, listen.key, listen.client_ca)) if listen.certificate else None
        self._listeners: list[Listener] = []
        try:
            self._listeners.extend(self._listen())
        except BaseException:
            self.stop()
            raise

    @property
    def port(self) -> int:
        """Port of the service."""
        return self._listeners[0].port

    @property
    def admin_port(self) -> int:
        """Port of the admin listener."""
        return self._listeners[-1].port

    @property
    def busy(self) -> bool:
        """Whether a reply of the service is on its way."""
        return any(connection.busy for connection in self.connections)

    def start(self) -> None:
        """Begin to accept."""
        for listener in self._listeners:
            listener.start()

    def stop(self) -> None:
        """Accept no more; open connections stay."""
        for listener in self._listeners:
            listener.stop()

    def sweep(self, now: int) -> None:
        """Keep the time limits of all connections; ``now`` in monotonic nanoseconds."""
        for connection in (*self.connections, *self.admin_connections):
            connection.expire(now)
        for listener in self._listeners:
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

    def _listen(self) -> Iterator[Listener]:
        """The service's listener comes first, the admin's last."""
        listen, limit = self._contract.listen, self.limit
        full = partial(over_limit, self._site, limit)
        make = self._maker(self._site, self._routers.service, self.connections)
        sockets = bind(listen.host, listen.port, insecure=self._contract.open_to_others, flag="--port")
        yield Listener(sockets, make, self.connections, limit=limit, busy=full, tls=self._tls)
        if listen.unix:
            make = self._maker(self._site, self._routers.local, self.connections)
            yield Listener([bind_unix(listen.unix)], make, self.connections, limit=limit, busy=full)
        make = self._maker(self._admin_site, self._routers.local_admin, self.admin_connections)
        for local in _admin_sockets(self._contract):
            yield Listener([local], make, self.admin_connections, limit=_ADMIN_CONNECTIONS, busy=full)
        make = self._maker(self._admin_site, self._routers.admin, self.admin_connections)
        sockets = bind(*listen.admin_address, insecure=False, flag="--admin")
        yield Listener(sockets, make, self.admin_connections, limit=_ADMIN_CONNECTIONS, busy=full)

    def _maker(self, site: Site, router: Router, connections: set[Peer]) -> Callable[[], asyncio.Protocol]:
        return partial(door, site, router, connections, self._loop)


def _admin_sockets(contract: Contract) -> list[socket.socket]:
    """The admin's Unix socket, if there is one; a place that nobody named may be of no use. Raises ``StartupError``."""
    path = admin_socket(contract, os.environ)
    if path is None:
        return []
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return [bind_unix(str(path))]
    except (OSError, StartupError) as error:
        if contract.listen.admin_unix == AUTO:
            _log.warning("there is no admin socket, so that no model can be deployed")
            return []
        if isinstance(error, StartupError):
            raise
        raise StartupError(f"{path} cannot be made. Give --admin-unix a path in a folder of your own.") from None
