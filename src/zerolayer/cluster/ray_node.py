"""What runs on Ray: actors that each own one ``zerolayer serve``, and one that knows their addresses.

Ray only places and replaces. No request and no token passes it: clients and nodes speak to the servers directly.
Both classes are plain Python; ``ray_fleet`` makes actors of them, and this module is importable without Ray.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

START_S: Final = 300.0  # for a large model
LOOK_S: Final = 1.0
MISSES: Final = 10  # looks in a row without an answer before a server is given up: clients left it after the first
GRACE_S: Final = 15.0  # a server lets its streams finish for 10
_PR_SET_PDEATHSIG: Final = 1  # prctl(2)


class Register:
    """The addresses of a fleet's nodes by their place. It may die and forget: the nodes tell it again."""

    def __init__(self) -> None:
        self._addresses: dict[int, str] = {}

    def join(self, place: int, address: str) -> list[str]:
        """The node at ``place`` has this address now; the addresses of the others."""
        self._addresses[place] = address
        return [other for at, other in sorted(self._addresses.items()) if at != place]

    def addresses(self) -> dict[int, str]:
        """By place."""
        return dict(self._addresses)


class Node:
    """One server process for as long as the actor lives; when the process fails, the actor dies and Ray replaces it.

    ``host`` is the address of this machine, ``port`` 0 for any free one, ``serve`` further flags of
    ``zerolayer serve``, ``register`` a handle of the fleet's ``Register`` and ``get`` Ray's ``get``.
    """

    def __init__(
        self, place: int, host: str, port: int, serve: Sequence[str], register: Any, get: Any, seconds: float = START_S
    ) -> None:
        self._place = place
        self._host = host
        self._port = port or _free_port(host)
        self._address = f"http://{f'[{host}]' if ':' in host else host}:{self._port}"
        self._register = register
        # Known before it serves, so that of two that start together the later one finds the earlier one.
        others = get(register.join.remote(place, self._address))
        self._process: subprocess.Popen[bytes] | None = None
        self._parent = os.getppid()  # Ray's own process on this machine
        prctl = ctypes.CDLL(None).prctl  # looked up before the fork, which leaves little that is safe
        # A server without its actor would keep a device that Ray gives to another.
        process = subprocess.Popen(  # noqa: S603 - the operator's own command line
            self._command(others, serve), preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        )
        self._await_ready(process, seconds)
        self._process = process
        threading.Thread(target=self._watch, name="zerolayer-watch", daemon=True).start()

    def address(self) -> str:
        """Where clients reach the server."""
        return self._address

    def stop(self) -> int:
        """Let running streams finish, then end; the server's exit code, 0 where it had ended already."""
        watched, self._process = self._process, None  # nobody misses it any more
        if watched is None:
            return 0
        watched.terminate()
        try:
            return watched.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            watched.kill()
            return watched.wait()

    def _command(self, others: Sequence[str], serve: Sequence[str]) -> list[str]:
        where = ["--host", self._host, "--port", str(self._port), "--address", self._address]
        peers = ["--peers", ",".join(others)] if others else []
        return [sys.executable, "-m", "zerolayer", "serve", "--admin", "127.0.0.1:0", *where, *peers, *serve]

    def _await_ready(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._answers("/readyz"):
            code = process.poll()
            if code is not None:
                raise RuntimeError(f"zerolayer serve ended with {code} before it was ready; its stderr says why")
            if time.monotonic() > deadline:
                process.kill()
                raise RuntimeError(f"zerolayer serve was not ready within {seconds:g} s")
            time.sleep(0.1)

    def _watch(self) -> None:
        misses = 0
        while True:
            time.sleep(LOOK_S)
            process = self._process
            if process is None:
                return
            misses = 0 if self._answers("/health") else misses + 1
            # Without Ray's process this machine counts as gone, and the node is placed anew elsewhere. Ray ends its
            # workers then, but not always: this one would go on and tell its own address beside the new one's.
            orphaned = os.getppid() != self._parent
            if orphaned or misses >= MISSES or process.poll() is not None:
                with contextlib.suppress(OSError):
                    process.kill()
                os._exit(1)  # an actor cannot end itself in another way from a thread; Ray starts it anew
            self._register.join.remote(self._place, self._address)  # in case that it died and forgot

    def _answers(self, path: str) -> bool:
        """Whether the server says that it does; a refused connection, silence and another status are a no."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=LOOK_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def _free_port(host: str) -> int:
    """One that is free now. Known before the server starts, because its address is told to others before that."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
