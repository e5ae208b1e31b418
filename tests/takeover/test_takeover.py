"""A new process takes the service over from the one that runs: real processes, real sockets, stock clients."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from zerolayer.errors import TakeoverFailed
from zerolayer.guard.ledger.annex import annexes
from zerolayer.guard.ledger.record import Entry
from zerolayer.guard.ledger.segment import Chain
from zerolayer.serve.takeover.channel import Channel
from zerolayer.serve.takeover.clocks import clocks
from zerolayer.serve.takeover.messages import (
    VERSION,
    Estate,
    Go,
    Hello,
    Ready,
    Refused,
    Take,
    Welcome,
)
from zerolayer.serve.takeover.new import NewProcess

WAIT_S = 30.0


class Place:
    """Where one service is: its flags, whichever process serves."""

    def __init__(self, folder: Path, contract: str = "", step_us: int = 2000, slots: int = 4) -> None:
        self.folder = folder
        self.path = folder / "admin.sock"
        self.ledger = folder / "ledger"
        (folder / "contract.toml").write_text(contract)
        self.flags = [
            "serve", "--engine", f"mock:step_us={step_us}", "--slots", str(slots), "--port", "0",
            "--admin", "127.0.0.1:0", "--admin-unix", str(self.path), "--ledger", str(self.ledger),
            "--contract", str(folder / "contract.toml"),
        ]  # fmt: skip
        self.inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.inbox.bind(str(folder / "notify"))
        self.told: list[str] = []  # what a service manager hears; read at once, as few messages wait
        threading.Thread(target=self._hear, daemon=True).start()
        self.processes: list[subprocess.Popen[str]] = []
        self.port = 0

    def start(self, *more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "zerolayer", *self.flags, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "NOTIFY_SOCKET": str(self.folder / "notify"), "WATCHDOG_USEC": "600000"},
        )
        self.processes.append(process)
        return process

    def serve(self, *more: str) -> subprocess.Popen[str]:
        """Until it is ready."""
        process = self.start(*more)
        said = ""
        for line in process.stdout:
            said += line
            if "address" in line:
                self.port = int(line.rpartition(":")[2].partition("/")[0])
            if "Try it" in line:
                return process
        raise AssertionError(said)

    def client(self, retries: int = 2) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="x", max_retries=retries)

    def post(self, tokens: int, text: str = "hello", **more: object) -> tuple[int, dict[str, str], bytes]:
        body = {"model": "smollm2", "messages": [{"role": "user", "content": text}], "max_tokens": tokens, **more}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json", "x-stainless-retry-count": "0"},
        )
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as reply:
                return reply.status, dict(reply.headers), reply.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def stream(self, tokens: int) -> threading.Thread:
        """A reply of so many tokens is on its way."""
        began = threading.Event()

        def read() -> None:
            parts = self.client(0).chat.completions.create(
                model="smollm2", messages=[{"role": "user", "content": "long"}], max_tokens=tokens, stream=True
            )
            for _ in parts:
                began.set()

        thread = threading.Thread(target=read)
        thread.start()
        assert began.wait(WAIT_S)
        return thread

    def _hear(self) -> None:
        with contextlib.suppress(OSError):
            while message := self.inbox.recv(4096):
                self.told.append(message.decode())

    def records(self) -> list[Entry]:
        """The ledger's requests; its chain holds, or this raises."""
        return [record for link in Chain(self.ledger) if isinstance(record := link.record(), Entry)]

    def addresses(self) -> dict[str, str]:
        return {
            "--host": "127.0.0.1", "--port": "0", "--admin": "127.0.0.1:0", "--unix": "",
            "--admin-unix": str(self.path), "TLS": "",
        }  # fmt: skip

    def channel(self) -> Channel:
        """The side of a new process, played by the test."""
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.connect(str(self.path))
        return Channel(connected)

    def hello(self) -> Channel:
        channel = self.channel()
        channel.send(Hello("test", clocks(), self.addresses()))
        assert isinstance(channel.ask(WAIT_S)[0], Welcome)
        return channel


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    end(made)


def end(place: Place) -> None:
    for process in place.processes:
        process.kill()
        process.communicate()
    place.inbox.shutdown(socket.SHUT_RD)
    place.inbox.close()


def stopped(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(WAIT_S)


class Load:
    """Stock clients that ask without a pause, over connections that they keep."""

    def __init__(self, place: Place, retries: int) -> None:
        self.done = 0
        self.failed: list[str] = []
        self._over = False
        self._threads = [threading.Thread(target=self._ask, args=(place, retries, n)) for n in range(3)]
        for thread in self._threads:
            thread.start()

    def _ask(self, place: Place, retries: int, number: int) -> None:
        client = place.client(retries)
        while not self._over:
            try:
                if number:
                    answer = client.chat.completions.create(
                        model="smollm2", messages=[{"role": "user", "content": f"{number}"}], max_tokens=10 * number
                    )
                    assert answer.choices[0].finish_reason == "length"
                else:
                    parts = client.chat.completions.create(
                        model="smollm2", messages=[{"role": "user", "content": "s"}], max_tokens=150, stream=True
                    )
                    assert list(parts)[-1].choices[0].finish_reason == "length"
                self.done += 1
            except Exception as error:
                self.failed.append(repr(error))

    def end(self) -> None:
        self._over = True
        for thread in self._threads:
            thread.join()


def test_stock_clients_notice_nothing_and_every_request_is_recorded_once(place):
    old = place.serve()
    load = Load(place, retries=0)
    time.sleep(0.3)
    before = load.done
    new = place.serve("--takeover")
    assert old.wait(WAIT_S) == 0
    time.sleep(0.3)
    load.end()
    told = list(place.told)
    assert stopped(new) == 0
    assert load.failed == []
    assert load.done > before > 0
    assert len(place.records()) == load.done
    assert annexes(place.ledger) == []
    assert f"MAINPID={new.pid}" in told
    assert "STOPPING=1" not in told


def test_a_booking_made_by_the_old_process_is_redeemed_from_the_new_one_at_its_time(tmp_path):
    place = Place(tmp_path, slots=1, step_us=10_000)
    try:
        old = place.serve()
        running = place.stream(600)
        status, headers, _ = place.post(5, "booked")
        told = time.monotonic() + int(headers["retry-after-ms"]) / 1000
        assert status == 429
        assert headers["x-zl-ticket"]
        new = place.serve("--takeover")
        assert time.monotonic() < told
        time.sleep(max(0.0, told - time.monotonic()))
        request = urllib.request.Request(
            f"http://127.0.0.1:{place.port}/v1/chat/completions",
            json.dumps(
                {"model": "smollm2", "messages": [{"role": "user", "content": "booked"}], "max_tokens": 5}
            ).encode(),
            {"content-type": "application/json", "x-zl-ticket": headers["x-zl-ticket"]},
        )
        with urllib.request.urlopen(request, timeout=WAIT_S) as reply:
            assert reply.status == 200
        admin = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        admin.connect(str(place.path))
        admin.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        text = b"".join(iter(lambda: admin.recv(65536), b"")).decode()
        admin.close()
        kept = [line for line in text.splitlines() if "booking" in line and 'kept"' in line]
        assert [line.rpartition(" ")[2] for line in kept] == ["1"]
        running.join()
        assert old.wait(WAIT_S) == 0
        assert stopped(new) == 0
    finally:
        end(place)


def test_budgets_go_on_where_they_stood_with_what_still_runs(tmp_path):
    place = Place(tmp_path, "[tenants]\ntokens_per_minute = 2000\nconcurrent = 2\n", step_us=4000)
    try:
        old = place.serve()
        assert place.post(1000, ignore_eos=True)[0] == 200
        running = place.stream(500)
        new = place.serve("--takeover")
        status, _, body = place.post(600)
        assert (status, json.loads(body)["error"]["code"]) == (429, "rate_limit_exceeded")
        assert place.post(100)[0] == 200
        running.join()
        assert old.wait(WAIT_S) == 0
        assert stopped(new) == 0
    finally:
        end(place)


@pytest.mark.parametrize("last", ["hello", "take", "estate", "go"])
def test_a_new_process_that_dies_leaves_the_old_one_serving(place, last):
    old = place.serve()
    assert place.post(3)[0] == 200
    running = place.stream(1500) if last == "go" else None  # else nothing would be left to do for it
    channel = place.hello()
    if last in ("take", "estate", "go"):
        channel.send(Take())
    if last in ("estate", "go"):
        assert isinstance(channel.ask(WAIT_S)[0], Estate)
    if last == "go":
        channel.send(Ready())
        assert isinstance(channel.ask(WAIT_S)[0], Go)
    channel.close()
    assert place.post(4)[0] == 200
    assert place.client().chat.completions.create(
        model="smollm2", messages=[{"role": "user", "content": "again"}], max_tokens=5
    )
    if running is not None:
        running.join()
    assert stopped(old) == 0
    assert len(place.records()) == (3 if running is None else 4)
    assert annexes(place.ledger) == []


def test_another_format_is_refused_and_the_old_process_serves_on(place):
    place.serve()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.settimeout(WAIT_S)
        stranger.connect(str(place.path))
        stranger.sendall(struct.pack(">4sH", b"ZLTO", VERSION + 1))
        assert stranger.recv(64) == struct.pack(">4sH", b"ZLTO", VERSION)
        assert stranger.recv(64) == b""
    assert place.post(3)[0] == 200


def test_a_server_of_another_format_is_not_taken_over(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()

        def answer() -> None:
            accepted, _ = listening.accept()
            accepted.sendall(struct.pack(">4sH", b"ZLTO", VERSION + 1))
            accepted.recv(65536)
            accepted.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TakeoverFailed, match=f"different formats \\({VERSION + 1} and {VERSION}\\)"):
            NewProcess(tmp_path / "s", {})
        thread.join()


def test_who_would_listen_elsewhere_is_told_before_its_model_is_read(place):
    place.serve()
    place.flags[place.flags.index("--admin") + 1] = "127.0.0.1:9"
    process = place.start(f"--takeover={place.path}")
    said, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "--admin = 127.0.0.1:0 and the new one 127.0.0.1:9" in said
    assert place.post(3)[0] == 200


def test_two_cannot_take_over_at_once(place):
    place.serve()
    first = place.hello()
    second = place.channel()
    message, _ = second.ask(WAIT_S)
    assert isinstance(message, Refused)
    assert "already" in message.why
    first.close()
    second.close()
    place.hello().close()


def test_without_a_server_the_remedy_is_named(place):
    process = place.start("--takeover")
    said, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert f"no server listens at {place.path}. Start without --takeover" in said


def test_a_tcp_address_cannot_hand_sockets_over(place):
    process = place.start("--takeover=127.0.0.1:8001")
    said, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "only be handed over through a Unix socket" in said


def test_sigusr2_starts_the_new_process(place):
    old = place.serve()
    old.send_signal(signal.SIGUSR2)
    assert old.wait(WAIT_S) == 0
    assert place.post(3)[0] == 200
    new = int(next(line for line in place.told if line.startswith("MAINPID=")).partition("=")[2])
    assert new != old.pid
    os.kill(new, signal.SIGTERM)
    deadline = time.monotonic() + WAIT_S
    while "STOPPING=1" not in place.told and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "STOPPING=1" in place.told
