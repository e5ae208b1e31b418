"""A server process: what it prints, how it drains, what it does without descriptors."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("front")))

from echo_service import chat, get, read_reply

from zerolayer.front.listener import accept_queue

SCRIPT = Path(__file__).with_name("front") / "echo_process.py"


class Process:
    def __init__(self, port: int = 0, step_us: int = 1000, state: str = "") -> None:
        self.child = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(port), str(step_us)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "XDG_STATE_HOME": state},
        )
        self.greeting = ""
        while "Try it" not in self.greeting and (line := self.child.stdout.readline()):
            self.greeting += line
        found = re.search(r"address   http://127\.0\.0\.1:(\d+)/v1", self.greeting)
        self.port = int(found[1]) if found else 0

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def ask(self, data: bytes):
        with closing(self.connect()) as client:
            client.sendall(data)
            return read_reply(client)

    def limit(self, descriptors: int) -> None:
        self.child.stdin.write(f"{descriptors}\n")
        self.child.stdin.flush()
        while (line := self.child.stdout.readline()) and "limited" not in line:
            pass
        assert line

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def start() -> Iterator[type[Process]]:
    processes = []

    def begin(**given) -> Process:
        processes.append(Process(**given))
        return processes[-1]

    yield begin
    for process in processes:
        process.child.kill()
        process.child.communicate()


def test_the_greeting_says_where_what_and_how_to_try(start):
    greeting = start().greeting
    words = ("ready", "address", "metrics", "model     echo", "kernels", "1 thread\n", "time slice", "slots     2 of")
    waiting = f"waiting   nobody, but for at most {accept_queue()} connections"
    for word in (*words, "watch     http://127.0.0.1:", "stall     ", waiting):
        assert word in greeting


def test_sigterm_refuses_new_work_finishes_old_work_and_exits_0(start):
    process = start(step_us=10_000)
    with closing(process.connect()) as client:
        client.sendall(chat("finish me " * 10, stream=True))
        begun = client.recv(10)
        process.child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 30
        while (ready := process.ask(get("/readyz"))).status == 200:
            assert time.monotonic() < deadline
        refused = process.ask(chat("new"))
        finished = read_reply(client, bytearray(begun))
    assert ready.status == 503
    assert (refused.status, refused.error["code"]) == (503, "unavailable")
    assert int(refused.headers["retry-after-ms"]) >= 1
    assert finished.complete
    assert finished.text == "finish me " * 10
    out, err = process.child.communicate(timeout=10)
    assert process.child.returncode == 0
    assert "% of" in out
    assert "busy time was not arithmetic" in out
    assert "Traceback" not in err


def test_a_second_signal_exits_at_once(start):
    process = start(step_us=100_000)
    with closing(process.connect()) as client:
        client.sendall(chat("slow " * 50, stream=True))
        client.recv(10)
        process.child.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 30
        while process.ask(get("/readyz")).status == 200:
            assert time.monotonic() < deadline
        process.child.send_signal(signal.SIGINT)
        assert process.child.wait(timeout=30) == 128 + signal.SIGINT


def test_sighup_reloads_and_never_stops_the_server(start):
    process = start()
    process.child.send_signal(signal.SIGHUP)
    assert process.ask(get("/livez")).status == 200
    process.child.send_signal(signal.SIGTERM)
    _, err = process.child.communicate(timeout=10)
    assert "nothing to reload" in err


def test_a_port_in_use_is_told_with_the_remedy(start):
    second = start(port=start().port)
    assert second.child.wait(timeout=10) == 3
    assert "is in use" in second.greeting
    assert "--port" in second.greeting


def test_without_descriptors_the_loop_does_not_spin_and_recovers(start):
    process = start()
    process.limit(3)
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(process.connect())) for _ in range(20)]
        before, began = process.cpu_s(), time.monotonic()
        time.sleep(1)
        assert process.cpu_s() - before < 0.5 * (time.monotonic() - began)
        clients[0].sendall(get("/livez"))
        assert read_reply(clients[0]).status == 200
    process.limit(-1)
    deadline = time.monotonic() + 30
    while True:
        try:
            if process.ask(get("/livez")).status == 200:
                break
        except ConnectionError:
            assert time.monotonic() < deadline


def test_whoever_comes_when_no_descriptor_is_left_is_told_so(start):
    process = start()
    process.limit(1)
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(process.connect())) for _ in range(6)]
        statuses = {read_reply(client).status for client in clients[3:]}
    assert statuses == {503}


def test_sigusr1_writes_the_stacks_of_all_threads_and_the_last_steps_and_the_server_goes_on(start, tmp_path):
    process = start(state=str(tmp_path))
    assert process.ask(chat("secret words")).status == 200
    process.child.send_signal(signal.SIGUSR1)
    path = tmp_path / "zerolayer" / f"steps-{process.child.pid}.txt"
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert process.ask(get("/readyz")).status == 200
    process.child.send_signal(signal.SIGTERM)
    err = process.child.communicate(timeout=10)[1]
    assert ("step_clock.py" in err, "command.py" in err, str(path) in err) == (True, True, True)
    steps = path.read_text()
    assert len(steps.splitlines()) > len("secret words")
    assert "secret" not in steps + err


def test_a_process_that_gives_up_leaves_stacks_steps_and_a_code_of_its_own(tmp_path):
    script = (
        "import time; from zerolayer.model.diagnosis import give_up; from zerolayer.model.recorder import Recorder\n"
        "from zerolayer.model.letters import StepReport\n"
        "recorder = Recorder(time.monotonic_ns, lambda rows, tokens: 0)\n"
        "recorder.step(StepReport(1, 2, 'greedy', (0,)))\n"
        "give_up(recorder)"
    )
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, env=environ)
    (path,) = (tmp_path / "zerolayer").iterdir()
    assert run.returncode == 70
    assert "most recent call first" in run.stderr
    assert "greedy" in path.read_text()
