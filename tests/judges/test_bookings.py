"""Stock clients with default settings redeem their bookings without knowing of any, in the languages people use."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import grpc
import openai
import pytest

from judges.busy_server import CLIENTS, TOKENS, Busy
from judges.client_environments import node_folder
from wire.inference_messages import message
from zerolayer.client.service_config import SERVICE_CONFIG

pytestmark = pytest.mark.judge

NODE = """
import Client from "%s";
const client = new Client({ baseURL: process.env.ZEROLAYER_TEST_URL, apiKey: "none" });
const ask = (number) => client.%s.create(
  { model: "tiny", max_tokens: 40, messages: [{ role: "user", content: "hello " + number }] });
const settled = await Promise.allSettled([...Array(6).keys()].map(ask));
console.log(JSON.stringify(settled.map((each) => each.status === "fulfilled" ? "served" : String(each.reason))));
"""


def judge(busy: Busy, ask: Callable[[], list[str]]) -> None:
    assert busy.served_after_a_refusal(ask) == ["served"] * CLIENTS


def _at_once(ask: Callable[[int], object]) -> list[str]:
    def served(number: int) -> str:
        ask(number)
        return "served"

    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(served, range(CLIENTS)))


@pytest.mark.parametrize("stream", [False, True])
def test_openai_for_python(busy: Busy, stream: bool) -> None:
    client = openai.OpenAI(base_url=f"{busy.url}/v1", api_key="none")

    def ask(number: int) -> None:
        words = [{"role": "user", "content": f"hello {number}"}]
        answer = client.chat.completions.create(model="tiny", messages=words, max_tokens=TOKENS, stream=stream)
        assert list(answer)

    judge(busy, lambda: _at_once(ask))


def test_anthropic_for_python(busy: Busy) -> None:
    anthropic = pytest.importorskip("anthropic", reason="anthropic is missing; install it with: pip install anthropic")
    client = anthropic.Anthropic(base_url=busy.url, api_key="none")

    def ask(number: int) -> None:
        client.messages.create(
            model="tiny", max_tokens=TOKENS, messages=[{"role": "user", "content": f"hello {number}"}]
        )

    judge(busy, lambda: _at_once(ask))


@pytest.mark.parametrize(
    ("package", "call", "base"), [("openai", "chat.completions", "/v1"), ("@anthropic-ai/sdk", "messages", "")]
)
def test_clients_for_node(busy: Busy, package: str, call: str, base: str) -> None:
    folder = node_folder()
    script = folder / f"bookings_{call}.mjs"
    script.write_text(NODE % (package, call))
    environment = {**os.environ, "ZEROLAYER_TEST_URL": busy.url + base}

    def ask() -> list[str]:
        run = subprocess.run(["node", script], cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        return list(json.loads(run.stdout))

    judge(busy, ask)


def test_grpcio_with_our_service_config(busy: Busy) -> None:
    request, reply = message("GenerateRequest"), message("GenerateReply")
    options = [("grpc.service_config", SERVICE_CONFIG)]
    with grpc.insecure_channel(urlsplit(busy.url).netloc, options=options) as channel:
        generate = channel.unary_stream("/zerolayer.v1.Inference/Generate", request.SerializeToString, reply.FromString)

        def ask(number: int) -> None:
            words = [{"role": 2, "content": f"hello {number}".encode()}]
            assert list(generate(request(model="tiny", messages=words, max_tokens=TOKENS), timeout=30))

        judge(busy, lambda: _at_once(ask))
