"""Starts ``python -m zerolayer serve`` on free ports, waits until it is ready, stops it."""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def answers(port: int, path: str = "/readyz", host: str = "127.0.0.1") -> bool:
    """``GET`` of ``path`` says 200."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def own_server(arguments: Sequence[str], start_s: float = 120.0) -> Iterator[tuple[str, int]]:
    """The URL of a running server and its process id; ``arguments`` are added to ``zerolayer serve``."""
    port, admin = free_port(), free_port()
    command = [sys.executable, "-m", "zerolayer", "serve", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--admin", f"127.0.0.1:{admin}", *arguments]
    if "--ledger" not in arguments:
        command += ["--ledger", "off"]  # a bench leaves nothing in its user's home
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + start_s
            while not answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    state = "ended" if process.poll() is not None else f"was not ready after {start_s:.0f} s"
                    raise SystemExit(f"The server {state}:\n{log.read().decode(errors='replace')}")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
