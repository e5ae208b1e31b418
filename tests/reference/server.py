"""A whole server as its users start it: its own process, addresses of its own, ready when this returns."""

from __future__ import annotations

import contextlib
import http.client
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

START_S = 60


def own_host() -> str:
    """An address of the loopback interface (RFC 1122 section 3.2.1.3) that nobody else uses.

    Every port of it is free, and stays so while a server is down. A port that was looked for on 127.0.0.1 may be
    somebody's by the time it is bound: whoever connects gets one too.
    """
    return f"127.{random.randint(1, 254)}.{random.randint(0, 255)}.{random.randint(1, 254)}"


def own_port() -> int:
    """A port of an own host, and the next one is for its admin.

    Any would do, but for the admin's Unix socket, which is named by the port alone.
    """
    return random.randrange(10_000, 30_000, 2)


def addressed(host: str, port: int) -> list[str]:
    """Flags of a server at ``port`` of ``host``, with its admin at the next one."""
    return ["--host", host, "--port", str(port), "--admin", f"{host}:{port + 1}"]


@contextlib.contextmanager
def running_server(*arguments: str, unix: Path | None = None, host: str = "") -> Iterator[str]:
    """``zerolayer serve`` with ``arguments``; its URL. Its admin is at the next port.

    It is asked whether it is ready on ``unix`` if that is given. ``host``: one of ``own_host``, where it must be known.
    """
    host, port = host or own_host(), own_port()
    command = [sys.executable, "-m", "zerolayer", "serve", *addressed(host, port)]
    if "--ledger" not in arguments:
        command += ["--ledger", "off"]  # a test leaves nothing in its user's home
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([*command, *arguments], stdout=log, stderr=subprocess.STDOUT)
        try:
            if not ready_soon(process, port, host, unix):
                log.seek(0)
                raise AssertionError(f"the server did not start:\n{log.read().decode(errors='replace')}")
            yield f"http://{host}:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def ready_soon(process: subprocess.Popen[bytes], port: int, host: str, unix: Path | None = None) -> bool:
    """Whether the server of that process is ready, after a while of waiting."""
    deadline = time.monotonic() + START_S
    while not is_ready(port, host, unix):
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def is_ready(port: int, host: str, unix: Path | None = None) -> bool:
    """Whether whoever listens there, or on the socket ``unix``, says that it is ready."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        if unix is not None:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(unix))
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
