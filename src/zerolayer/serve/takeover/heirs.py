"""Whoever would take this server over, one at a time; what they do is imported when the first one comes."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from zerolayer.contract import Contract
from zerolayer.serve.admin_place import addresses
from zerolayer.serve.takeover.service import Service

if TYPE_CHECKING:
    from zerolayer.serve.takeover.old import OldProcess

PARENT: Final = "_ZEROLAYER_PARENT"
"""Process id of a ``serve --devices`` that starts this node again when it ends."""
_MANAGER: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC")


class Started(Protocol):
    """A process of ours."""

    def poll(self) -> int | None:
        """Its exit code, once it has ended; nobody else would ask."""


class Heirs:
    """``gone`` is set once another process has everything; ``on_serving`` gets the id of the process that serves."""

    def __init__(
        self, server: Service, contract: Contract, grace_s: float, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._server = server
        self._addresses = addresses(contract, environ)
        self._environ = environ
        self._grace_s = grace_s
        self._heir: OldProcess | None = None
        self._started: list[Started] = []
        self.gone = asyncio.Event()
        self.moved = asyncio.Event()  # whoever is there is a step further
        self.on_serving: Callable[[int], None] = _nobody_asks

    def knock(self, connected: socket.socket) -> None:
        """Somebody would take over."""
        from zerolayer.serve.takeover.old import OldProcess

        manager = {name: self._environ[name] for name in _MANAGER if name in self._environ}
        heir = OldProcess(self._server, connected, self._addresses, manager, self._grace_s, self)
        if self._heir is not None and not self._heir.over:
            heir.refuse("another process is taking over already")
        elif self._environ.get(PARENT, "") == str(os.getppid()):
            heir.refuse("`serve --devices` starts this node again itself; restart that process, one machine at a time")
        else:
            self._heir = heir

    def start(self) -> None:
        """Start somebody who would."""
        from zerolayer.serve.takeover.starting import start

        started = start(self._addresses["--admin-unix"])
        if started is not None:
            self._started = [each for each in self._started if each.poll() is None] + [started]

    async def settle(self) -> bool:
        """The server was told to end: turn away who only waits. Whether another process serves, and this one drains."""
        heir = self._heir
        if heir is None:
            return False
        heir.refuse("the running server was told to end")
        while not (heir.over or heir.successor):
            self.moved.clear()
            await self.moved.wait()
        return bool(heir.successor)


def _nobody_asks(pid: int) -> None:
    """There is no service manager."""
