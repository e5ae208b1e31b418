"""Nodes with a ledger each, and as many callers as they have slots; what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from reference.server import own_host, ready_soon
from zerolayer import AsyncClient
from zerolayer.client.answer import Answer
from zerolayer.client.errors import BadReply, CutStream

TOKENS, SLOTS, NODES = 8, 4, 4
MOCK = ("--engine", "mock:step_us=5000")  # steps that sleep, so that four nodes on two cores have a capacity each
DEADLINE_MS = 20_000
PATIENCE_S = 60.0
PORT, ADMIN = 21800, 21801  # of each node, on an address of its own


class Node:
    """A server process with these flags; it keeps its address and its ledger when it is started again."""

    def __init__(self, ledger: Path, *flags: str) -> None:
        self.ledger, self.host, self.port = ledger, own_host(), PORT
        self.url = f"http://{self.host}:{self.port}"
        self._flags = flags
        self.start()

    def start(self) -> None:
        """Begin to start; ``wait`` ends when it is ready."""
        command = [sys.executable, "-m", "zerolayer", "serve", "--slots", str(SLOTS), "--ledger", str(self.ledger)]
        command += ["--host", self.host, "--port", str(self.port), "--admin", f"{self.host}:{ADMIN}", *self._flags]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait(self) -> None:
        """Until it is ready."""
        assert ready_soon(self._process, self.port, self.host)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal that does not end it."""
        self._process.send_signal(number)

    def end(self, number: signal.Signals) -> int:
        """Its exit code (negative: the signal that ended it)."""
        self.signal(number)
        return self._process.wait(30)

    def up(self) -> None:
        """Running and ready, whatever became of it before."""
        if self._process.poll() is not None:
            self.start()
        self.wait()

    def executed(self) -> int:
        """Requests for which it made a token, by its own records."""
        return self.executed_by(self.ledger)

    @staticmethod
    def executed_by(ledger: Path) -> int:
        """The same, of the node that wrote ``ledger``."""
        command = [sys.executable, "-m", "zerolayer", "usage", "--ledger", str(ledger), "--format", "cloudevents"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        return sum(json.loads(line)["data"].get("output_tokens", 0) > 0 for line in lines)

    def kill(self) -> None:
        """End it, whatever became of it."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def running_nodes(folder: Path, count: int = NODES, first: tuple[str, ...] = ()) -> Iterator[list[Node]]:
    """Nodes of the mock engine; the flags ``first`` are for the first one only."""
    with started([(*MOCK, *(first if number == 0 else ())) for number in range(count)], folder) as nodes:
        yield nodes


@contextlib.contextmanager
def started(flags: Sequence[tuple[str, ...]], folder: Path) -> Iterator[list[Node]]:
    """A node for each of ``flags``, each on a loopback address of its own, all ready."""
    nodes = [Node(folder / f"ledger{number}", *each) for number, each in enumerate(flags)]
    try:
        for node in nodes:
            node.wait()
        yield nodes
    finally:
        for node in nodes:
            node.kill()


class Load:
    """Workers who ask again and again until they are told to stop. Any error but those counted here ends it."""

    def __init__(self, client: AsyncClient, expected: str, workers: int = NODES * SLOTS) -> None:
        self.client, self.expected = client, expected
        self.answers: Counter[str] = Counter()  # by node
        self.cut = self.bad = 0  # reported as such
        self.wrong: list[str] = []
        self._over = False
        self._tasks = [asyncio.create_task(self._work()) for _ in range(workers)]

    async def _work(self) -> None:
        while not self._over:
            try:
                answer = await ask(self.client)
            except CutStream:
                self.cut += 1
            except BadReply:
                self.bad += 1
            else:
                self.answers[answer.node] += 1
                if (answer.text, answer.outcome.completion_tokens) != (self.expected, TOKENS):
                    self.wrong.append(answer.text)

    async def reach(self, count: int, *nodes: str) -> None:
        """Until so many more answers came, of ``nodes`` if given."""
        goal = self._count(nodes) + count
        deadline = time.monotonic() + PATIENCE_S
        while self._count(nodes) < goal:
            for task in self._tasks:
                if task.done():
                    task.result()
            assert time.monotonic() < deadline, self.answers
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Until all calls have ended."""
        self._over = True
        await asyncio.gather(*self._tasks)

    def _count(self, nodes: tuple[str, ...]) -> int:
        return sum(self.answers[node] for node in nodes) if nodes else self.answers.total()


async def ask(client: AsyncClient) -> Answer:
    """One answer, the same from every node."""
    stream = client.generate("One two three", max_tokens=TOKENS, temperature=0.0, deadline_ms=DEADLINE_MS)
    return await stream.answer()
