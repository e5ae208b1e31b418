"""What somebody who watches the live page costs the server: CPU of its process with and without viewers, idle and busy.

    .venv/bin/python bench/viewer.py [--viewers 20] [--seconds 10] [--json FILE]

The server is ``zerolayer serve --engine mock:step_us=5000`` with 16 slots; viewers are sockets that read ``/live``. The
difference is divided by the number of viewers, because one alone is below what ``/proc`` can tell.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import sys
import threading
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from own_server import free_port, own_server

_TICK = os.sysconf("SC_CLK_TCK")
_BODY = json.dumps(
    {"model": "smollm2", "max_tokens": 200, "messages": [{"role": "user", "content": "Tell me of the sea."}]}
).encode()


class Viewers:
    """So many open streams, read by one thread."""

    def __init__(self, port: int, count: int) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._chosen = selectors.DefaultSelector()
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n")
            self._chosen.register(client, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.is_set():
            for key, _ in self._chosen.select(0.2):
                self.bytes += len(key.fileobj.recv(1 << 16))

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for key in list(self._chosen.get_map().values()):
            key.fileobj.close()


def spent_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def share(pid: int, seconds: float) -> float:
    """Cores that a process uses."""
    before, began = spent_s(pid), time.monotonic()
    time.sleep(seconds)
    return (spent_s(pid) - before) / (time.monotonic() - began)


def keep_busy(url: str, over: threading.Event) -> None:
    while not over.is_set():
        ask = urllib.request.Request(f"{url}/v1/chat/completions", _BODY, {"content-type": "application/json"})
        try:
            urllib.request.urlopen(ask, timeout=60).read()
        except OSError:
            over.wait(0.2)


def measure(pid: int, admin: int, viewers: int, seconds: float) -> dict[str, float]:
    without = share(pid, seconds)
    watching = Viewers(admin, viewers)
    time.sleep(1)
    seen = watching.bytes
    watched = share(pid, seconds)
    told = (watching.bytes - seen) / viewers / seconds
    watching.close()
    again = share(pid, seconds)
    return {
        "per_viewer": (watched - (without + again) / 2) / viewers,
        "without": without,
        "again": again,
        "bytes_s": told,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", "--json-out", metavar="FILE", type=Path)
    options = parser.parse_args()
    print(f"about {6 * options.seconds + 10:.0f} s; load average {os.getloadavg()[0]:.1f}", flush=True)
    admin, results = free_port(), {}
    with own_server(["--engine", "mock:step_us=5000", "--slots", "16", "--admin", f"127.0.0.1:{admin}"]) as (url, pid):
        for name, clients in (("idle", 0), ("8 requests at once", 8)):
            over = threading.Event()
            asking = [threading.Thread(target=keep_busy, args=(url, over)) for _ in range(clients)]
            for each in asking:
                each.start()
            time.sleep(1)
            results[name] = found = measure(pid, admin, options.viewers, options.seconds)
            over.set()
            for each in asking:
                each.join()
            cost, before, after = (100 * found[each] for each in ("per_viewer", "without", "again"))
            print(f"{name:<20} {cost:.3f} % of a core a viewer, {found['bytes_s']:,.0f} bytes/s each")
            print(f"{'':<20} the server without viewers: {before:.1f} %, after them {after:.1f} %", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"viewers": options.viewers, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
