"""Starts servers by fork, from a process that has imported the server and read the model once.

Each is a process of its own with its own sockets, signals, slots and calendar, as ``zerolayer serve`` starts it; only
the second of imports and reading is not spent again for each of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from reference.server import is_ready, own_host, own_port

TESTS = str(Path(__file__).parents[1])


class Nursery:
    """The other end: ``start`` gives a process id, ``wait`` the exit code (negative: the signal that ended it)."""

    def __init__(self, engine: str, slots: int) -> None:
        command = [sys.executable, __file__, engine, str(slots)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": TESTS}
        )
        self._lock = threading.Lock()

    def start(self, host: str, port: int, **flags: str) -> int:
        listen = {"host": host, "port": str(port), "admin": f"{host}:{port + 1}"}
        return self._ask({"flags": listen | flags})

    def wait(self, pid: int) -> int:
        return self._ask({"wait": pid})

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def _ask(self, request: dict[str, object]) -> int:
        with self._lock:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            return int(self._process.stdout.readline())


class Server:
    """A server at an address of its own, which it keeps when it is started again."""

    def __init__(self, nursery: Nursery, host: str = "", **flags: str) -> None:
        self._flags = flags
        self.host, self.port = host or own_host(), own_port()
        self.url = f"http://{self.host}:{self.port}"
        self._nursery = nursery
        self.start()

    def start(self) -> None:
        self.pid = self._nursery.start(self.host, self.port, **self._flags)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def end(self, number: signal.Signals) -> int:
        """The exit code."""
        self.signal(number)
        code, self.pid = self._nursery.wait(self.pid), 0
        return code

    def kill(self) -> None:
        if self.pid:
            self.end(signal.SIGKILL)

    def ready(self) -> None:
        """In good health, whatever the test before did to it."""
        if not self.pid:
            self.start()
        self.signal(signal.SIGCONT)
        deadline = time.monotonic() + 60
        while not is_ready(self.port, self.host):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def main() -> None:
    from zerolayer.contract import load
    from zerolayer.model.load import load_model
    from zerolayer.serve.command import main as serve

    engine, slots = sys.argv[1:]
    flags = {"engine": engine, "slots": slots, "ledger": "off"}
    loaded = load_model(load(None, {}, flags).contract, print_nothing)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            print(os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1]), flush=True)
            continue
        if (pid := os.fork()) == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os._exit(serve(load(None, {}, flags | request["flags"]), load=lambda *_: loaded))
        print(pid, flush=True)


def print_nothing(_line: str) -> None:
    pass


if __name__ == "__main__":
    main()
