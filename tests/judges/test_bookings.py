"""Stock clients with default settings redeem their bookings without knowing of any, in the languages people use."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import openai
import pytest

from reference.server import free_port, running_server
from reference.tiny_model import LLAMA_64, write_tiny_model
from wire.inference_messages import message
from zerolayer.client.service_config import SERVICE_CONFIG

pytestmark = pytest.mark.judge

CLIENTS = 6  # at once, on two slots: some of them are told a time behind somebody who was told one
TOKENS = 40
NODE = """
import Client from "%s";
const client = new Client({ baseURL: process.env.ZEROLAYER_TEST_URL, apiKey: "none" });
const ask = (number) => client.%s.create(
  { model: "tiny", max_tokens: 40, messages: [{ role: "user", content: "hello " + number }] });
const settled = await Promise.allSettled([...Array(6).keys()].map(ask));
console.log(JSON.stringify(settled.map((each) => each.status === "fulfilled" ? "served" : String(each.reason))));
"""


@dataclass(frozen=True)
class Busy:
    """A server with two slots, on which a request takes 0.2 seconds."""

    url: str
    admin: int

    def bookings(self) -> dict[str, int]:
        """Their outcomes since the start."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=5)
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
        connection.close()
        return {name: int(n) for name, n in re.findall(r'booking_total{[^}]*outcome="(\w+)"} (\d+)', page)}

    def judge(self, ask: Callable[[], list[str]]) -> None:
        """All clients are served, some of them by a booking, and none of these was broken."""
        before = self.bookings()
        answers = ask()
        after = self.bookings()
        assert answers == ["served"] * CLIENTS
        assert after["kept"] > before["kept"]
        assert after["broken"] == 0


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    model, admin = write_tiny_model(tmp_path_factory.mktemp("bookings") / "tiny.gguf", LLAMA_64), free_port()
    mock = ("--engine", "mock:step_us=5000", "--slots", "2", "--slot-tokens", "512")
    with running_server("--model", str(model), "--admin", f"127.0.0.1:{admin}", *mock) as url:
        yield Busy(url, admin)


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

    busy.judge(lambda: _at_once(ask))


def test_anthropic_for_python(busy: Busy) -> None:
    anthropic = pytest.importorskip("anthropic", reason="anthropic is missing; install it with: pip install anthropic")
    client = anthropic.Anthropic(base_url=busy.url, api_key="none")

    def ask(number: int) -> None:
        client.messages.create(
            model="tiny", max_tokens=TOKENS, messages=[{"role": "user", "content": f"hello {number}"}]
        )

    busy.judge(lambda: _at_once(ask))


@pytest.mark.parametrize(
    ("package", "call", "base"), [("openai", "chat.completions", "/v1"), ("@anthropic-ai/sdk", "messages", "")]
)
def test_clients_for_node(
    busy: Busy, tool: Callable[[str, str], str], tmp_path: Path, package: str, call: str, base: str
) -> None:
    node, npm = (tool(name, "apt-get install nodejs npm") for name in ("node", "npm"))
    quiet = ["--no-audit", "--no-fund", "--silent", "--prefix", str(tmp_path)]
    if subprocess.run([npm, "install", *quiet, package], cwd=tmp_path, check=False).returncode != 0:
        pytest.skip(f"npm could not install the package; try: npm install {package}")
    script = tmp_path / "judge.mjs"
    script.write_text(NODE % (package, call))
    environment = {**os.environ, "ZEROLAYER_TEST_URL": busy.url + base}

    def ask() -> list[str]:
        run = subprocess.run([node, script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        return list(json.loads(run.stdout))

    busy.judge(ask)


def test_grpcio_with_our_service_config(busy: Busy) -> None:
    request, reply = message("GenerateRequest"), message("GenerateReply")
    options = [("grpc.service_config", SERVICE_CONFIG)]
    with grpc.insecure_channel(urlsplit(busy.url).netloc, options=options) as channel:
        generate = channel.unary_stream("/zerolayer.v1.Inference/Generate", request.SerializeToString, reply.FromString)

        def ask(number: int) -> None:
            words = [{"role": 2, "content": f"hello {number}".encode()}]
            assert list(generate(request(model="tiny", messages=words, max_tokens=TOKENS), timeout=30))

        busy.judge(lambda: _at_once(ask))
