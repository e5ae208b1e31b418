"""What systemd is told of a service of ``Type=notify``: ready, alive, stopping (sd_notify(3))."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping

_US_PER_S = 1_000_000


class ServiceManager:
    """Tells a manager that listens, and nobody else.

    ``healthy`` says whether steps still end; while it does not, no sign of life is sent, and the manager restarts the
    service once its ``WatchdogSec`` is over.
    """

    def __init__(self, environ: Mapping[str, str], healthy: Callable[[], bool]) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._every_s = _every_s(environ) if self._address else 0.0
        self._healthy = healthy
        self._timer: asyncio.TimerHandle | None = None

    def ready(self) -> None:
        """The listeners accept; from now on signs of life follow."""
        self._tell("READY=1")
        if self._every_s:
            self._beat()

    def serves(self, pid: int) -> None:
        """That process is the service from now on; only while it is this one, signs of life follow."""
        self._tell(f"MAINPID={pid}")
        self.close()
        if pid == os.getpid() and self._every_s:
            self._beat()

    def stopping(self) -> None:
        """The service drains; the manager waits for its ``TimeoutStopSec``."""
        self._tell("STOPPING=1")

    def close(self) -> None:
        """No more signs of life."""
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        if self._healthy():
            self._tell("WATCHDOG=1")
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._beat)

    def _tell(self, message: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            try:
                sender.sendto(message.encode("ascii"), self._address)
            except OSError:
                return  # nobody reads there; serving goes on


def _address(text: str) -> str:
    """A path, or a name of the abstract namespace, which ``@`` stands for."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else ""


def _every_s(environ: Mapping[str, str]) -> float:
    """A third of the watchdog's time; 0 when there is none, or it is meant for another process."""
    text, owner = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not (text.isascii() and text.isdigit() and len(text) < 18) or (owner and owner != str(os.getpid())):
        return 0.0
    return int(text) / _US_PER_S / 3
