"""The @anthropic-ai/sdk package for Node as the judge: messages, streams as iterators, errors as its own classes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.judge
SCRIPT = """
import Anthropic from "@anthropic-ai/sdk";
const client = new Anthropic({ baseURL: process.env.ZEROLAYER_TEST_URL, apiKey: "none", maxRetries: 0 });
const listed = await client.models.list();
const model = listed.data[0].id;
const one = await client.models.retrieve(model);
const ask = { model, messages: [{ role: "user", content: "hello" }], max_tokens: 6, temperature: 0 };
const whole = await client.messages.create(ask);
const stream = client.messages.stream(ask);
let text = "";
stream.on("text", (piece) => { text += piece; });
const streamed = await stream.finalMessage();
const raw = [];
for await (const event of await client.messages.create({ ...ask, stream: true })) raw.push(event.type);
const tools = [{ name: "weather", description: "Tells it.",
  input_schema: { type: "object", properties: { city: { type: "string", enum: ["Ulm"] } }, required: ["city"] } }];
const forced = { tools, tool_choice: { type: "tool", name: "weather" } };
const call = await client.messages.create({ ...ask, max_tokens: 200, ...forced });
const count = await client.messages.countTokens({ model, messages: ask.messages, ...forced });
const errors = {};
for (const [name, change] of Object.entries({ model: { model: "nothing" }, range: { temperature: 2 } })) {
  try { await client.messages.create({ ...ask, ...change }); }
  catch (error) { errors[name] = [error.constructor.name, error.status, error.error?.error?.type, error.requestID]; }
}
let seen = 0, aborted = false;
const cut = client.messages.stream({ ...ask, max_tokens: 400 });
try { for await (const event of cut) if (++seen === 4) cut.abort(); }
catch (error) { aborted = error.constructor.name === "APIUserAbortError"; }
const beta = await client.beta.messages.create({ ...ask, betas: ["a-2024-01-01"] });
const said = { listed: listed.data, one, whole, text, streamed, raw, call, count, errors, seen, aborted, beta };
console.log(JSON.stringify(said));
"""


@pytest.fixture(scope="module")
def said(tool: Callable[[str, str], str], server: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the client saw."""
    node, npm = (tool(name, "apt-get install nodejs npm") for name in ("node", "npm"))
    folder: Path = tmp_path_factory.mktemp("anthropic-node")
    quiet = ["--no-audit", "--no-fund", "--silent", "--prefer-offline", "--prefix", str(folder)]
    if subprocess.run([npm, "install", *quiet, "@anthropic-ai/sdk"], cwd=folder, check=False).returncode != 0:
        pytest.skip("npm could not install the package; try: npm install @anthropic-ai/sdk")
    script = folder / "judge.mjs"
    script.write_text(SCRIPT)
    environment = {**os.environ, "ZEROLAYER_TEST_URL": server}
    run = subprocess.run([node, script], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_message_and_its_stream_say_the_same(said: dict[str, Any]) -> None:
    whole, streamed = said["whole"], said["streamed"]
    assert whole["content"] == streamed["content"]
    assert (whole["stop_reason"], whole["usage"]) == (streamed["stop_reason"], streamed["usage"])
    assert said["text"] == "".join([block["text"] for block in whole["content"]])


def test_events_come_in_anthropic_s_order(said: dict[str, Any]) -> None:
    assert said["raw"][0] == "message_start"
    assert said["raw"][-2:] == ["message_delta", "message_stop"]


def test_a_forced_call_is_a_block_with_its_input(said: dict[str, Any]) -> None:
    block = said["call"]["content"][-1]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "weather", {"city": "Ulm"})
    assert said["call"]["stop_reason"] == "tool_use"


def test_a_count_is_what_the_call_is_billed(said: dict[str, Any]) -> None:
    assert said["count"]["input_tokens"] == said["call"]["usage"]["input_tokens"]


def test_models_are_listed_in_pages(said: dict[str, Any]) -> None:
    assert said["listed"][0] == said["one"]
    assert said["one"]["type"] == "model"


def test_errors_are_the_client_s_own_classes(said: dict[str, Any]) -> None:
    assert said["errors"]["model"][:3] == ["NotFoundError", 404, "not_found_error"]
    assert said["errors"]["range"][:3] == ["BadRequestError", 400, "invalid_request_error"]
    assert all(error[3] for error in said["errors"].values())


def test_a_stream_can_be_aborted(said: dict[str, Any]) -> None:
    assert said["seen"] >= 4
    assert said["aborted"]


def test_the_beta_path_answers(said: dict[str, Any]) -> None:
    assert said["beta"]["content"] == said["whole"]["content"]
