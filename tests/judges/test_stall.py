"""A step that does not end, in a real process: the kernel stops the step thread (ptrace(2)), and no other one."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from judges.fault_load import Node, started
from reference.tiny_model import LLAMA_64, write_tiny_model

pytestmark = pytest.mark.judge

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
PATIENCE_S = 10.0
PROBES = 200  # after ten seconds the process would give up


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    model = write_tiny_model(tmp_path / "tiny.gguf", LLAMA_64)
    flags = ("--model", str(model), "--slot-tokens", "2048", "--engine", "mock:step_us=10000")
    with started([flags], tmp_path) as nodes:
        yield nodes[0]


def ask(node: Node, method: str, path: str, **body: Any) -> http.client.HTTPResponse:
    """A reply whose body is not read yet; its connection is not used again."""
    connection = http.client.HTTPConnection(node.host, node.port, timeout=PATIENCE_S)
    headers = {"content-type": "application/json", "connection": "close"}
    connection.request(method, path, json.dumps(body) if body else None, headers)
    return connection.getresponse()


def status(node: Node, path: str) -> int:
    with closing(ask(node, "GET", path)) as reply:
        reply.read()
        return reply.status


def chat(node: Node, **members: Any) -> http.client.HTTPResponse:
    words = [{"role": "user", "content": "hello"}]
    return ask(node, "POST", "/v1/chat/completions", model="tiny", messages=words, **members)


def switches(node: Node) -> dict[int, int]:
    """How often each thread but the first has waited so far."""
    threads = [thread for thread in Path(f"/proc/{node.pid}/task").iterdir() if thread.name != str(node.pid)]
    waited = re.compile(r"^voluntary_ctxt_switches:\s+(\d+)", re.MULTILINE)
    return {int(thread.name): int(waited.findall((thread / "status").read_text())[0]) for thread in threads}


@contextmanager
def stopped_step(node: Node) -> Iterator[None]:
    """While an answer is on its way, the thread that makes its tokens stands still: it is the one that is busiest."""
    before = switches(node)
    time.sleep(0.5)
    after = switches(node)
    thread = max(before, key=lambda each: after[each] - before[each])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(SEIZE, thread, None, None):
        pytest.skip(f"this system allows no ptrace ({os.strerror(ctypes.get_errno())})")
    libc.ptrace(INTERRUPT, thread, None, None)
    try:
        yield
    finally:
        os.waitpid(thread, 0x40000000)  # __WALL: it is stopped by now
        libc.ptrace(DETACH, thread, None, None)


def soon(node: Node, wanted: int) -> None:
    """Until ``/readyz`` says so; within a second, as ``model/watchdog.py`` has it, where the machine has time."""
    began_s = time.monotonic()
    while status(node, "/readyz") != wanted:
        assert time.monotonic() - began_s < PATIENCE_S
        time.sleep(0.01)


def test_a_step_that_stands_still_is_told_and_the_server_returns_with_it(node: Node) -> None:
    stream = chat(node, stream=True, max_tokens=1500, ignore_eos=True)
    descriptors = len(list(Path(f"/proc/{node.pid}/fd").iterdir()))
    with stopped_step(node):
        soon(node, 503)
        assert status(node, "/livez") == 200
        refused = chat(node, max_tokens=1)
        assert refused.status == 503
        assert (refused.headers["retry-after-ms"], refused.headers["retry-after"]) == ("1000", "1")
        with pytest.raises(http.client.IncompleteRead) as cut:  # it must not look complete
            stream.read()
        assert b"engine_failed" in cut.value.partial[-300:]
        assert {status(node, "/readyz") for _ in range(PROBES)} == {503}
        assert len(list(Path(f"/proc/{node.pid}/fd").iterdir())) <= descriptors
    soon(node, 200)
    answer = chat(node, max_tokens=2)
    assert answer.status == 200
