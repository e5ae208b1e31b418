"""curl as the judge of HTTP/1.1: what a person types first must work, and connections must be kept."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.judge
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5, "temperature": 0}


@pytest.fixture
def curl(tool: Callable[[str, str], str]) -> Callable[..., str]:
    """Run curl; its standard output."""
    path = tool("curl", "apt-get install curl")

    def run(*arguments: str) -> str:
        command = [path, "--silent", "--show-error", "--max-time", "60", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return run


@pytest.fixture
def model(curl: Callable[..., str], server: str) -> str:
    return json.loads(curl(f"{server}/v1/models"))["data"][0]["id"]


def body(model: str, **extra: object) -> str:
    return json.dumps({"model": model, **CHAT, **extra})


def test_a_complete_chat_reply(curl: Callable[..., str], server: str, model: str) -> None:
    reply = json.loads(curl(f"{server}/v1/chat/completions", "--json", body(model)))
    assert reply["object"] == "chat.completion"
    assert reply["usage"]["completion_tokens"] <= 5
    assert reply["choices"][0]["finish_reason"] in ("stop", "length")


def test_a_stream_ends_with_done(curl: Callable[..., str], server: str, model: str) -> None:
    lines = curl("--no-buffer", f"{server}/v1/chat/completions", "--json", body(model, stream=True)).splitlines()
    events = [line.removeprefix("data: ") for line in lines if line]
    assert events[-1] == "[DONE]"
    assert all(json.loads(event)["object"] == "chat.completion.chunk" for event in events[:-1])


def test_a_connection_is_kept_after_replies_streams_and_errors(
    curl: Callable[..., str], server: str, model: str
) -> None:
    """One new connection in all, whatever was asked on it."""
    chat, write = f"{server}/v1/chat/completions", ["--output", "/dev/null", "--write-out", "%{num_connects} "]
    requests = [
        [f"{server}/v1/models"],
        [chat, "--json", body(model)],
        [chat, "--json", body(model, stream=True)],
        [chat, "--json", body(model, temperature=99)],
        [f"{server}/nowhere"],
        [f"{server}/livez"],
    ]
    arguments = [argument for request in requests for argument in ["--next", *write, *request]][1:]
    assert curl(*arguments).split() == ["1", "0", "0", "0", "0", "0"]


def test_a_body_that_waits_for_100_continue_is_read(
    curl: Callable[..., str], server: str, model: str, tmp_path: Path
) -> None:
    file = tmp_path / "body.json"
    file.write_text(body(model) + " " * 200_000)
    arguments = ["--header", "Expect: 100-continue", "--expect100-timeout", "30", "--json", f"@{file}"]
    reply = curl(f"{server}/v1/chat/completions", *arguments, "--write-out", "\n%{http_code}")
    assert reply.splitlines()[-1] == "200"


def test_an_oversize_body_is_refused_before_it_is_sent(curl: Callable[..., str], server: str, tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_bytes(b"x" * 8_000_000)
    arguments = ["--expect100-timeout", "30", "--json", f"@{file}", "--output", "/dev/null"]
    figures = curl(f"{server}/v1/chat/completions", *arguments, "--write-out", "%{http_code} %{size_upload}").split()
    assert figures == ["413", "0"]


def test_complete_replies_carry_server_timing_and_a_request_id(
    curl: Callable[..., str], server: str, model: str
) -> None:
    text = curl("--dump-header", "-", "--output", "/dev/null", f"{server}/v1/chat/completions", "--json", body(model))
    names = [line.partition(":")[0].lower() for line in text.splitlines()]
    assert {"server-timing", "x-request-id", "content-type", "content-length"} <= set(names)


def test_a_reader_that_leaves_frees_its_slot(curl: Callable[..., str], server: str, model: str) -> None:
    """More cut streams than there are slots; the next request still finds one."""
    long = body(model, stream=True, max_tokens=400, ignore_eos=True)
    for _ in range(6):
        with pytest.raises(subprocess.CalledProcessError):
            curl(
                "--no-buffer",
                "--max-time",
                "0.03",
                "--limit-rate",
                "1",
                f"{server}/v1/chat/completions",
                "--json",
                long,
            )
    code = curl(
        f"{server}/v1/chat/completions",
        "--json",
        body(model),
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
        "--retry",
        "3",
    )
    assert code == "200"
