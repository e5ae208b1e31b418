"""``zerolayer deploy`` on a server process with real engines: what the command says, and what clients notice."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from reference.tiny_model import LLAMA, write_tiny_model
from zerolayer.errors import DeployFailed
from zerolayer.serve.deploy.command import deploy

STORY = "Tell me of the sea."


class Process:
    """A server of a tiny model, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.first, self.second = (write_tiny_model(folder / f"{name}.gguf", LLAMA) for name in ("first", "second"))
        self.socket = folder / "admin.sock"
        flags = {
            "model": self.first,
            "port": 0,
            "admin": "127.0.0.1:0",
            "admin-unix": self.socket,
            "slots": 4,
            "slot-tokens": 256,
            "threads": 1,
            "ledger": "off",
        }
        given = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
        self.environ = {**os.environ, "XDG_CACHE_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
        command = [sys.executable, "-m", "zerolayer", "serve", *given]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.environ)
        address = ""
        while "address" not in address:
            address = self.child.stdout.readline()
            assert address, "the server did not start"
        self.client = OpenAI(base_url=address.split()[-1], api_key="none", timeout=20)

    def deploy(self, model: Path) -> tuple[int, list[dict[str, object]], str]:
        """The command's exit code, its news, and what it said on stderr."""
        command = [sys.executable, "-m", "zerolayer", "deploy", "--model", str(model), "--json"]
        done = subprocess.run(
            [*command, "--socket", str(self.socket)], capture_output=True, text=True, timeout=60, env=self.environ
        )
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def ask(self, tokens: int = 8) -> tuple[str, str]:
        """Model and text of an answer."""
        said = self.client.chat.completions.create(
            model="first", messages=[{"role": "user", "content": STORY}], max_tokens=tokens, temperature=0
        )
        return said.model, said.choices[0].message.content


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    process.child.terminate()
    assert process.child.wait(20) == 0
    process.child.stdout.close()


def test_stock_clients_notice_nothing_but_the_name(server):
    alone = server.ask(tokens=200)
    replies, over = [alone], threading.Event()

    def ask() -> None:
        while not over.is_set():
            replies.append(server.ask(tokens=200))

    clients = [threading.Thread(target=ask) for _ in range(3)]
    for client in clients:
        client.start()
    code, news, _ = server.deploy(server.second)
    assert server.ask() == ("second", server.ask()[1])
    over.set()
    for client in clients:
        client.join(20)
    assert code == 0
    assert [one["phase"] for one in news][-1] == "done"
    assert {"load", "pack", "warm", "switch"} <= {one["phase"] for one in news}
    assert {model for model, _ in replies} == {"first", "second"}
    assert {text for _, text in replies} == {alone[1]}  # the weights are the same, so every token is


def test_a_file_that_is_no_model_leaves_the_old_one_serving(server):
    damaged = server.second.with_name("damaged.gguf")
    damaged.write_bytes(server.second.read_bytes()[:5000])
    code, news, said = server.deploy(damaged)
    assert code == 1
    assert news[-1]["phase"] == "failed"
    assert news[-1]["text"]
    assert server.ask()[0] == "first"
    assert said == ""


def test_without_a_server_the_command_says_where_it_looked(tmp_path):
    command = [sys.executable, "-m", "zerolayer", "deploy", "--model", "smollm2", "--socket", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert str(tmp_path / "none") in done.stderr


def test_a_server_that_ends_meanwhile_is_not_taken_for_one_that_was_never_there(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "admin.sock"))
        listening.listen()

        def begin_and_die() -> None:
            accepted, _ = listening.accept()
            asked = b""
            while not asked.endswith(b"}"):
                asked += accepted.recv(65536)
            line = b'{"phase": "load", "text": "loading"}\n'
            accepted.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(line), line))
            accepted.close()

        server = threading.Thread(target=begin_and_die)
        server.start()
        with pytest.raises(DeployFailed, match="the server ended before the new model was served"):
            deploy("next.gguf", tmp_path / "admin.sock", as_json=True)
        server.join()
