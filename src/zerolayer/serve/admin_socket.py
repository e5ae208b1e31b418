"""The admin's Unix socket: HTTP as on its port, or, told by the first byte, a process that would take over."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from zerolayer.contract import Contract
from zerolayer.contract_listen import AUTO
from zerolayer.errors import StartupError, system_reason
from zerolayer.front.caller import peer_credentials
from zerolayer.front.listener import Listener, bind_unix
from zerolayer.front.site import Peer
from zerolayer.serve.admin_place import admin_socket

_log = logging.getLogger("zerolayer.serve")

TAKEOVER: Final = b"Z"  # as messages.PREAMBLE begins, and no method of HTTP
_SILENT_S: Final = 10.0


class AdminSocket(Listener):
    """``successor`` gets the socket of a process of this user, or of root, that begins as a takeover does."""

    def __init__(
        self,
        sockets: list[socket.socket],
        make: Callable[[], asyncio.Protocol],
        connections: set[Peer],
        *,
        limit: int,
        busy: Callable[[], bytes],
        successor: Callable[[socket.socket], None],
    ) -> None:
        super().__init__(sockets, make, connections, limit=limit, busy=busy)
        self._successor = successor
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}

    def stop(self, *, kept: bool = False) -> None:
        """As of any listener; who has said nothing yet is not waited for."""
        super().stop(kept=kept)
        for accepted in list(self._silent):
            self._forget(accepted)
            accepted.close()

    def _take(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        if len(self._silent) >= self._limit or peer_credentials(accepted)[1] not in (os.geteuid(), 0):
            accepted.close()
            return
        self._silent[accepted] = self._loop.call_later(_SILENT_S, self._begun, accepted)
        self._loop.add_reader(accepted.fileno(), partial(self._begun, accepted))

    def _begun(self, accepted: socket.socket) -> None:
        self._forget(accepted)
        try:
            first = accepted.recv(1, socket.MSG_PEEK)
        except OSError:
            first = b""
        if not first:
            accepted.close()
        elif first == TAKEOVER:
            self._successor(accepted)
        else:
            super()._take(accepted)

    def _forget(self, accepted: socket.socket) -> None:
        self._silent.pop(accepted).cancel()
        self._loop.remove_reader(accepted.fileno())


def bind_admin(contract: Contract, environ: Mapping[str, str]) -> list[socket.socket]:
    """The socket of the contract, if it has one. A place that nobody named may be of no use; then there is none.

    Raises ``StartupError`` where a path was named.
    """
    path = admin_socket(contract, environ)
    if path is None:
        return []
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return [bind_unix(str(path), flag="--admin-unix")]
    except (OSError, StartupError) as error:
        if contract.listen.admin_unix == AUTO:
            _log.warning("there is no admin socket, so that no other process can take over: %s", _why(error))
            return []
        if isinstance(error, StartupError):
            raise
        raise StartupError(f"{path} cannot be made. Give --admin-unix a path in a folder of your own.") from None


def _why(error: OSError | StartupError) -> str:
    return error.message if isinstance(error, StartupError) else system_reason(error)
