"""``llm`` with this server as an extra model: all that ``ZEROLAYER_TEST_ASK`` names, as one line of JSON."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
from pydantic import BaseModel

BASE = os.environ["ZEROLAYER_TEST_URL"] + "/v1"
MODEL = openai.OpenAI(base_url=BASE, api_key="none").models.list().data[0].id
KINDS: dict[str, dict[str, Any]] = {"chat": {}, "responses": {"responses": True}, "completion": {"completion": True}}
MODELS = [
    {"model_id": name, "model_name": MODEL, "api_base": BASE, "supports_tools": True, "supports_schema": True, **kind}
    for name, kind in KINDS.items()
]
OTHER = {"model_id": "other", "model_name": "nothing", "api_base": BASE}
Path(os.environ["LLM_USER_PATH"], "extra-openai-models.yaml").write_text(json.dumps([*MODELS, OTHER]))  # YAML too

import llm  # noqa: E402 - reads the file when it is imported

CALL = '<tool_call>\n{"name": "choose", "arguments": {"colour": "green"}}\n</tool_call>'


class Choice(BaseModel):
    """A colour."""

    colour: bool


def choose(colour: str) -> str:
    """Chooses a colour."""
    return f"It is {colour}."


def prompt(kind: str = "chat", text: str = "hello", *, stream: bool = False, tokens: int = 8, **more: Any) -> Any:
    return llm.get_model(kind).prompt(text, stream=stream, key="none", temperature=0, max_tokens=tokens, **more)


def replies() -> dict[str, Any]:
    said = {}
    for kind in KINDS:
        whole, streamed = prompt(kind), prompt(kind, stream=True)
        said[kind] = {"whole": whole.text(), "streamed": "".join(streamed)}
        usage = streamed.usage()
        said[kind]["usage"] = [usage.input, usage.output]
    return said


def structured() -> dict[str, Any]:
    return {kind: json.loads(prompt(kind, schema=Choice, tokens=60).text()) for kind in ("chat", "responses")}


def tools() -> dict[str, Any]:
    """Of a model that says its prompt again: the call that is asked for, and then its result."""
    said = {}
    for kind in ("chat", "responses"):
        for stream in (False, True):
            chain = llm.get_model(kind).chain(CALL, tools=[choose], stream=stream, key="none")
            said[f"{kind}, {stream}"] = "".join(chain)
    return said


def errors() -> dict[str, Any]:
    try:
        llm.get_model("other").prompt("hello", stream=False, key="none").text()
    except openai.APIStatusError as refused:
        return {"model": refused.status_code}
    return {}


def left() -> int:
    for count, _ in enumerate(prompt(stream=True, tokens=300), 1):
        if count == 3:
            break
    return count


def busy() -> int:
    llm.get_model("chat")  # its plugins are not loaded by several threads at once
    with ThreadPoolExecutor(6) as pool:
        return len(list(pool.map(lambda _: prompt(tokens=40).text(), range(6))))


ASKED: list[Callable[[], Any]] = [replies, structured, tools, errors, left, busy]
print(json.dumps({ask.__name__: ask() for ask in ASKED if ask.__name__ in os.environ["ZEROLAYER_TEST_ASK"].split()}))
