"""The openai package for Node as the judge: typed replies, streams as iterators, errors as its own classes."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from judges.client_environments import node_folder

pytestmark = pytest.mark.judge
SCRIPT = """
import OpenAI from "openai";
const client = new OpenAI({ baseURL: process.env.ZEROLAYER_TEST_URL + "/v1", apiKey: "none", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const ask = { model, messages: [{ role: "user", content: "hello" }], max_tokens: 6, temperature: 0 };
const whole = await client.chat.completions.create(ask);
let text = "", reason = null, usage = null;
for await (const chunk of await client.chat.completions.create(
    { ...ask, stream: true, stream_options: { include_usage: true } })) {
  text += chunk.choices[0]?.delta?.content ?? "";
  reason = chunk.choices[0]?.finish_reason ?? reason;
  usage = chunk.usage ?? usage;
}
const legacy = await client.completions.create({ model, prompt: "hello", max_tokens: 4, temperature: 0 });
const logprobs = await client.chat.completions.create({ ...ask, logprobs: true, top_logprobs: 2 });
const several = await client.chat.completions.create({ ...ask, n: 2 });
const response = await client.responses.create({ model, input: "hello", max_output_tokens: 6, temperature: 0 });
const kinds = [];
for await (const event of await client.responses.create(
    { model, input: "hello", max_output_tokens: 6, temperature: 0, stream: true }))
  if (kinds.at(-1) !== event.type) kinds.push(event.type);
const colour = { type: "object", properties: { colour: { enum: ["red", "green"] } }, required: ["colour"],
  additionalProperties: false };
const roomy = { ...ask, max_tokens: 100 };
const format = { type: "json_schema", json_schema: { name: "colour", schema: colour, strict: true } };
const formed = await client.chat.completions.create({ ...roomy, response_format: format });
const tools = [{ type: "function", function: { name: "choose", parameters: colour } }];
const calling = { ...roomy, tools, tool_choice: "required", parallel_tool_calls: false };
const called = await client.chat.completions.create(calling);
const calls = {};
for await (const chunk of await client.chat.completions.create({ ...calling, stream: true }))
  for (const { index, function: piece } of chunk.choices[0]?.delta?.tool_calls ?? []) {
    calls[index] ??= { name: piece.name, arguments: "" };
    calls[index].arguments += piece.arguments ?? "";
  }
const errors = {};
for (const [name, change] of Object.entries({ model: { model: "nothing" }, range: { temperature: 99 } })) {
  try { await client.chat.completions.create({ ...ask, ...change }); }
  catch (error) { errors[name] = [error.constructor.name, error.status, error.code]; }
}
const cut = new AbortController();
let seen = 0;
try {
  for await (const chunk of await client.chat.completions.create(
      { ...ask, max_tokens: 300, stream: true, ignore_eos: true }, { signal: cut.signal })) {
    if (++seen === 3) cut.abort();
  }
} catch (error) { if (error.constructor.name !== "APIUserAbortError") throw error; }
console.log(JSON.stringify({
  whole, text, reason, usage, legacy, logprobs, errors, seen, several, response, kinds, formed, called, calls,
}));
"""


@pytest.fixture(scope="module")
def said(server: str) -> dict[str, Any]:
    """What the client saw."""
    folder = node_folder()
    script = folder / "openai_client.mjs"
    script.write_text(SCRIPT)
    environment = {**os.environ, "ZEROLAYER_TEST_URL": server}
    run = subprocess.run(["node", script], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_reply_and_its_stream_say_the_same(said: dict[str, Any]) -> None:
    choice = said["whole"]["choices"][0]
    assert (said["text"], said["reason"]) == (choice["message"]["content"], choice["finish_reason"])
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")  # what was cached depends on who came before
    assert [said["usage"][name] for name in counts] == [said["whole"]["usage"][name] for name in counts]


def test_the_older_completions_route_answers(said: dict[str, Any]) -> None:
    assert said["legacy"]["object"] == "text_completion"
    assert said["legacy"]["usage"]["completion_tokens"] <= 4


def test_logprobs_come_with_their_alternatives(said: dict[str, Any]) -> None:
    tokens = said["logprobs"]["choices"][0]["logprobs"]["content"]
    assert tokens
    assert all(len(token["top_logprobs"]) == 2 for token in tokens)


def test_structured_output_is_what_the_schema_says(said: dict[str, Any]) -> None:
    assert json.loads(said["formed"]["choices"][0]["message"]["content"])["colour"] in {"red", "green"}


def test_a_tool_is_called_whole_and_streamed(said: dict[str, Any]) -> None:
    (call,) = said["called"]["choices"][0]["message"]["tool_calls"]
    assert said["calls"] == {"0": {"name": "choose", "arguments": call["function"]["arguments"]}}
    assert json.loads(call["function"]["arguments"])["colour"] in {"red", "green"}


def test_errors_are_the_client_s_own_classes(said: dict[str, Any]) -> None:
    assert said["errors"]["model"] == ["NotFoundError", 404, "model_not_found"]
    assert said["errors"]["range"][:2] == ["BadRequestError", 400]


def test_a_stream_can_be_aborted(said: dict[str, Any]) -> None:
    assert said["seen"] >= 3


def test_several_answers_are_numbered(said: dict[str, Any]) -> None:
    assert [choice["index"] for choice in said["several"]["choices"]] == [0, 1]
    assert {choice["message"]["content"] for choice in said["several"]["choices"]} == {said["text"]}


def test_the_responses_api_streams_its_events_in_order(said: dict[str, Any]) -> None:
    assert said["response"]["output_text"] == said["text"]
    assert said["kinds"] == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.output_text.delta", "response.output_text.done", "response.content_part.done",
        "response.output_item.done", f"response.{said['response']['status']}",
    ]  # fmt: skip
