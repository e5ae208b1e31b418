"""The least of every size that a contract allows: such a server starts, and serves what fits."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from contract_file import write
from reference.server import running_server
from reference.tiny_model import LLAMA, write_tiny_model

SMALLEST = "[context]\nslots = 1\nchunk_tokens = 1\nsystem_tokens = 16\nprefixes = 1\n[engine]\nthreads = 1\n"


def asked(url: str, path: str, body: dict[str, object]) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request("POST", path, json.dumps({"model": "tiny", **body}), {"content-type": "application/json"})
    reply = connection.getresponse()
    said = json.loads(reply.read())
    connection.close()
    return reply.status, said


@pytest.mark.parametrize("slot_tokens", [16, 17, 20])
def test_the_smallest_contract_serves_what_fits_a_slot(tmp_path: Path, slot_tokens: int) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf", LLAMA)
    contract = write(tmp_path, SMALLEST)
    flags = ("--model", str(model), "--contract", str(contract), "--slot-tokens", str(slot_tokens))
    with running_server(*flags) as url:
        prompt = {"prompt": [20] * (slot_tokens - 4), "temperature": 0, "ignore_eos": True}
        fits = asked(url, "/v1/completions", {**prompt, "max_tokens": 4})
        does_not = asked(url, "/v1/completions", {**prompt, "max_tokens": 5})
        words = "far more words than such a slot can hold"
        talk = asked(url, "/v1/chat/completions", {"messages": [{"role": "user", "content": words}]})
    assert (fits[0], fits[1]["usage"]["completion_tokens"]) == (200, 4)
    assert (does_not[0], does_not[1]["error"]["code"]) == (400, "context_length_exceeded")
    assert talk[0] in (400, 422)
