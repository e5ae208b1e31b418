"""Whoever is killed in the middle of the work has recorded every reply that a client received: kill -9, many times."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from zerolayer.guard.ledger.record import Entry, Outcome
from zerolayer.guard.ledger.segment import Chain

KILLS = 20
RANDOM_KILLS = 1000
CLIENTS = 4
FRONT = Path(__file__).parents[1] / "front"


def start(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A server with two slots that writes to ``folder``, and its port."""
    path = os.pathsep.join([str(FRONT), *filter(None, sys.path)])
    child = subprocess.Popen(
        [sys.executable, str(FRONT / "echo_process.py"), "0", "200", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    for line in child.stdout:
        if "address" in line:
            return child, int(line.split(":")[2].split("/")[0])
    raise AssertionError("the server did not start")


def ask_on(port: int, number: int, received: set[str]) -> None:
    """Ask until the server is gone; note the id of every reply that came whole."""
    body = json.dumps({"model": "echo", "prompt": "a" * 20, "max_tokens": 8, "stream": bool(number % 2)}).encode()
    asked = 0
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            while True:
                asked += 1
                name = f"kill-{number}-{asked}-{random.getrandbits(64):x}"
                head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nx-request-id: {name}\r\n"
                head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                client.sendall(head.encode() + body)
                if read_whole(client):
                    received.add(name)
    except OSError:
        return


def read_whole(client: socket.socket) -> bool:
    """Whether the next reply is a 200 that came to its end. Raises ``OSError`` when the server is gone."""
    data = b""
    while True:
        piece = client.recv(65536)
        if not piece:
            raise ConnectionError
        data += piece
        head, end, rest = data.partition(b"\r\n\r\n")
        if not end:
            continue
        if b"chunked" in head:
            whole = rest.endswith(b"0\r\n\r\n")
        else:
            whole = len(rest) >= int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if whole:
            return head.startswith(b"HTTP/1.1 200")


@pytest.mark.judge
def test_killed_20_times_under_load_a_server_has_a_record_of_every_reply_that_came_whole(tmp_path):
    received: set[str] = set()
    chance = random.Random(7)
    for _ in range(KILLS):
        child, port = start(tmp_path / "ledger")
        clients = [threading.Thread(target=ask_on, args=(port, number, received)) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(0.1 + chance.random() * 0.5)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        for client in clients:
            client.join(20)
            assert not client.is_alive()
    chain = Chain(tmp_path / "ledger")
    recorded = set()
    for link in chain:  # raises where the chain does not hold
        record = link.record()
        if isinstance(record, Entry) and record.outcome == Outcome.FINISHED:
            recorded.add(record.request_id.decode())
    assert len(received) > 100
    assert received <= recorded


@pytest.mark.judge
def test_killed_at_1000_random_lines_no_request_that_was_told_is_without_record_or_charge(tmp_path):
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        command = [sys.executable, str(Path(__file__).with_name("dying_writer.py")), folder, str(RANDOM_KILLS)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    trials = [json.loads(line) for line in said.splitlines()]
    assert len(trials) == RANDOM_KILLS
    assert all(trial["died"] for trial in trials)
    assert len({trial["told"] for trial in trials}) > 10  # early, late and between
    for trial in trials:
        told, recorded = trial["told"], len(trial["recorded"])
        assert trial["recorded"] == [f"request-{number}" for number in range(recorded)]
        assert told <= recorded <= told + 1  # the one that was under way may have come so far, or not
        assert recorded <= trial["used_us"] <= told + 1  # it is charged before it is recorded
