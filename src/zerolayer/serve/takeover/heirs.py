"""Whoever would take this server over, one at a time; what they do is imported when the first one comes."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from zerolayer.contract import Contract
from zerolayer.serve.admin_place import addresses
from zerolayer.serve.takeover.service import Service

if TYPE_CHECKING:
    from zerolayer.serve.takeover.old import OldProcess

_log = logging.getLogger("zerolayer.serve")

FLAG: Final = "--takeover"
PARENT: Final = "_ZEROLAYER_PARENT"
"""Process id of a ``serve --devices`` that starts this node again when it ends."""
_MANAGER: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC")


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
        self._started: list[subprocess.Popen[bytes]] = []
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
        """Start the same command as it is installed now, to take over. It goes on when this process has ended."""
        arguments = [each for each in sys.argv[1:] if each.partition("=")[0] != FLAG]
        at = self._addresses["--admin-unix"]
        if arguments[:1] != ["serve"] or not at:
            _log.warning(
                "no new process was started: this one was not started by `zerolayer serve`, or has no admin socket"
            )
            return
        command = (sys.executable, "-m", "zerolayer", *arguments, f"{FLAG}={at}")
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - our own command line
        self._started = [each for each in self._started if each.poll() is None] + [started]
        _log.info("a new process was started to take over", extra={"pid": started.pid})

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
