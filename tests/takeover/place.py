"""Where one service is, whichever process serves, and clients that ask it without a pause."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import openai

from zerolayer.guard.ledger.record import Entry
from zerolayer.guard.ledger.segment import Chain
from zerolayer.serve.takeover.channel import Channel
from zerolayer.serve.takeover.clocks import clocks
from zerolayer.serve.takeover.messages import Hello, Welcome

WAIT_S = 30.0


class Place:
    """Where one service is: its flags, whichever process serves."""

    def __init__(self, folder: Path, contract: str = "", step_us: int = 2000, slots: int = 4, engine: str = "") -> None:
        self.folder = folder
        self.path = folder / "admin.sock"
        self.ledger = folder / "ledger"
        (folder / "contract.toml").write_text(contract)
        self.flags = [
            "serve", "--engine", engine or f"mock:step_us={step_us}", "--slots", str(slots), "--port", "0",
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

    def open(self, tokens: int, text: str = "hello", *, ticket: str = "", **more: object) -> http.client.HTTPResponse:
        """The head of a reply. Raises ``HTTPError``."""
        body = {"model": "smollm2", "messages": [{"role": "user", "content": text}], "max_tokens": tokens, **more}
        headers = {"content-type": "application/json", "x-stainless-retry-count": "0"}
        if ticket:
            headers |= {"x-zl-ticket": ticket, "x-stainless-retry-count": "1"}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/chat/completions", json.dumps(body).encode(), headers
        )
        return urllib.request.urlopen(request, timeout=WAIT_S)

    def post(self, tokens: int, text: str = "hello", **more: object) -> tuple[int, dict[str, str], bytes]:
        try:
            with self.open(tokens, text, **more) as reply:
                return reply.status, dict(reply.headers), reply.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def stream(self, tokens: int, *, may_break: bool = False) -> threading.Thread:
        """A reply of so many tokens is on its way."""
        began = threading.Event()

        def read() -> None:
            parts = self.client(0).chat.completions.create(
                model="smollm2", messages=[{"role": "user", "content": "long"}], max_tokens=tokens, stream=True
            )
            with contextlib.suppress(*([openai.APIError] if may_break else [])):
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
                    assert answer.choices[0].finish_reason in ("length", "stop")
                else:
                    parts = client.chat.completions.create(
                        model="smollm2", messages=[{"role": "user", "content": "s"}], max_tokens=150, stream=True
                    )
                    assert list(parts)[-1].choices[0].finish_reason in ("length", "stop")
                self.done += 1
            except Exception as error:
                self.failed.append(repr(error))

    def go_on(self, answers: int = 3) -> None:
        """Until so many more requests were answered."""
        wanted, late = self.done + answers, time.monotonic() + WAIT_S
        while self.done < wanted and time.monotonic() < late:
            time.sleep(0.01)

    def end(self) -> None:
        self._over = True
        for thread in self._threads:
            thread.join()
