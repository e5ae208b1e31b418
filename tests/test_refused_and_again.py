"""Over HTTP, from a whole server: whoever was refused and came back gets the answer of who asked alone."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

from reference.server import running_server
from reference.tiny_model import LLAMA_64, write_tiny_model

CLIENTS, SLOTS, TOKENS, TRIES = 8, 2, 300, 50
SAMPLINGS = ({"temperature": 0}, {"temperature": 0.9, "seed": 7}, {"temperature": 1.1, "top_p": 0.9, "seed": 8})


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on a tiny random model, with fewer slots than clients."""
    model = write_tiny_model(tmp_path_factory.mktemp("again") / "tiny.gguf", LLAMA_64)
    with running_server("--model", str(model), "--slots", str(SLOTS), "--slot-tokens", "512", "--threads", "1") as url:
        yield url


def asked(number: int) -> bytes:
    """A request of its own for each client."""
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": f"count from {number}"}],
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "logprobs": True,
        "top_logprobs": 3,
        **SAMPLINGS[number % len(SAMPLINGS)],
    }
    return json.dumps(body).encode()


def answered(url: str, number: int) -> tuple[int, Any]:
    """How often it was refused, and the choices of the reply: text, log probabilities, why it ended."""
    for refusals in range(TRIES):
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        connection.request("POST", "/v1/chat/completions", asked(number), {"content-type": "application/json"})
        reply = connection.getresponse()
        said = json.loads(reply.read())
        connection.close()
        if reply.status == 200:
            return refusals, said["choices"]
        assert reply.status == 429, said
        time.sleep(int(reply.headers["retry-after-ms"]) / 1000)
    pytest.fail(f"refused {TRIES} times")


def test_after_a_refusal_the_answer_is_bit_for_bit_that_of_who_asked_alone(url: str) -> None:
    alone = [answered(url, number) for number in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        together = list(pool.map(lambda number: answered(url, number), range(CLIENTS)))
    assert sum(refusals for refusals, _ in alone) == 0
    assert sum(refusals for refusals, _ in together) > 0
    assert [choices for _, choices in together] == [choices for _, choices in alone]
