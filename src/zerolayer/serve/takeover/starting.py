"""The running server starts its own successor: the command that it was started by, as it is installed now."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

_log = logging.getLogger("zerolayer.serve")

FLAG: Final = "--takeover"


def command_of(arguments: Sequence[str], admin_socket: str) -> tuple[str, ...]:
    """The command for a process of these ``arguments``; () where they are not those of `zerolayer serve`."""
    kept = [each for each in arguments if each.partition("=")[0] != FLAG]
    if kept[:1] != ["serve"] or not admin_socket:
        return ()
    return (sys.executable, "-m", "zerolayer", *kept, f"{FLAG}={admin_socket}")


def start(admin_socket: str) -> subprocess.Popen[bytes] | None:
    """Start it. It goes on when this process has ended."""
    command = command_of(sys.argv[1:], admin_socket)
    if not command:
        _log.warning("no new process was started: this one has no admin socket, or is not `zerolayer serve`")
        return None
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - this process's own command line
    _log.info("a new process was started to take over", extra={"pid": started.pid})
    return started
