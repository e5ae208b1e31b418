"""Whoever would take this server over, one at a time; what they do is imported when the first one comes."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from os import getpid
from typing import TYPE_CHECKING, Final, Protocol

from zerolayer.contract import Contract
from zerolayer.serve.admin_place import addresses
from zerolayer.serve.takeover.service import Service

if TYPE_CHECKING:
    from zerolayer.serve.takeover.new import NewProcess
    from zerolayer.serve.takeover.old import OldProcess

PARENT: Final = "_ZEROLAYER_PARENT"
"""Process id of a ``serve --devices`` that starts this node again when it ends."""
_MANAGER: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC")
_FIRST: Final = 1  # process of a container, which ends with it
_ENDS: Final = "the running server was told to end"


class Started(Protocol):
    """A process of ours."""

    def poll(self) -> int | None:
        """Its exit code, once it has ended; nobody else would ask."""


class Heirs:
    """``gone`` is set once another process has everything; ``on_serving`` gets the id of the process that serves.

    ``new``: what this process took over by, if it did.
    """

    def __init__(
        self,
        server: Service,
        contract: Contract,
        grace_s: float,
        new: NewProcess | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._server = server
        self._new = new
        self._addresses = addresses(contract, environ)
        self._environ = environ
        self._grace_s = grace_s
        self._heir: OldProcess | None = None
        self._started: list[Started] = []
        self._ending = False
        self.gone = asyncio.Event()
        self.moved = asyncio.Event()  # whoever is there is a step further
        self.on_serving: Callable[[int], None] = _nobody_asks

    def knock(self, connected: socket.socket) -> None:
        """Somebody would take over."""
        from zerolayer.serve.takeover.old import OldProcess

        manager = {name: self._environ[name] for name in _MANAGER if name in self._environ}
        heir = OldProcess(self._server, connected, self._addresses, manager, self._grace_s, self)
        if self._heir is not None and not self._heir.over:
            heir.refuse(f"another process (PID {self._heir.pid}) is taking over already")
        elif self._ending:
            heir.refuse(_ENDS)
        elif getpid() == _FIRST:
            heir.refuse(
                "the running server is the first process of its container, which ends with it; start a new container"
            )
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

    @property
    def in_the_way(self) -> str:
        """Why no other model can be served now, for people; "" if it can."""
        if self._heir is not None and not self._heir.over:
            return f"another process (PID {self._heir.pid}) is taking over; deploy when it serves, or end it"
        if self._new is not None and self._new.has_company:
            return "the process before this one finishes its replies; deploy again in some seconds"
        return ""

    async def settle(self) -> bool:
        """The server was told to end: turn away who only waits. Whether another process has everything by now."""
        self._ending, heir = True, self._heir
        if heir is None:
            return False
        heir.refuse(_ENDS)
        while not (heir.over or self.gone.is_set()):
            self.moved.clear()
            await self.moved.wait()
        return self.gone.is_set()


def _nobody_asks(pid: int) -> None:
    """There is no service manager."""
