"""LlamaIndex: all that ``ZEROLAYER_TEST_ASK`` names, as one line of JSON."""

import asyncio
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import openai
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

BASE = os.environ["ZEROLAYER_TEST_URL"] + "/v1"
MODEL = openai.OpenAI(base_url=BASE, api_key="none").models.list().data[0].id
HELLO = [ChatMessage(role="user", content="hello")]
LONG = {"additional_kwargs": {"extra_body": {"ignore_eos": True}}}


class Choice(BaseModel):
    """A colour."""

    colour: Literal["red", "green"]


def choose(colour: Literal["red", "green"]) -> str:
    """Chooses a colour."""
    return f"It is {colour}."


def client(**members: Any) -> OpenAILike:
    usual = {"temperature": 0, "max_tokens": 8, "is_chat_model": True, "is_function_calling_model": True}
    return OpenAILike(**{"api_base": BASE, "api_key": "none", "model": MODEL, **usual, **members})


def replies() -> dict[str, Any]:
    llm, plain = client(), client(is_chat_model=False)

    async def later() -> list[str]:
        return [piece.delta or "" async for piece in await llm.astream_chat(HELLO)]

    return {
        "whole": llm.chat(HELLO).message.content,
        "streamed": "".join(piece.delta or "" for piece in llm.stream_chat(HELLO)),
        "asynchronous": "".join(asyncio.run(later())),
        "completed": plain.complete("hello").text,
        "completed_streamed": "".join(piece.delta or "" for piece in plain.stream_complete("hello")),
    }


def structured() -> dict[str, Any]:
    by_format = client(max_tokens=100, should_use_structured_outputs=True).as_structured_llm(Choice)
    by_call = client(max_tokens=100).as_structured_llm(Choice)
    last = [piece.raw for piece in by_format.stream_chat(HELLO)][-1]
    return {
        "by_format": by_format.chat(HELLO).raw.colour,
        "by_call": by_call.chat(HELLO).raw.colour,
        "streamed": last.colour,
    }


def tools() -> dict[str, Any]:
    llm, tool = client(max_tokens=100), FunctionTool.from_defaults(choose)
    asked = {"tools": [tool], "user_msg": "hello", "tool_required": True, "allow_parallel_tool_calls": False}
    whole = llm.get_tool_calls_from_response(llm.chat_with_tools(**asked))
    streamed = llm.get_tool_calls_from_response(list(llm.stream_chat_with_tools(**asked))[-1])
    answered = llm.predict_and_call([tool], user_msg="hello", tool_required=True)
    return {
        "whole": [[call.tool_name, call.tool_kwargs["colour"]] for call in whole],
        "streamed": [[call.tool_name, call.tool_kwargs["colour"]] for call in streamed],
        "answered": str(answered),
    }


def errors() -> dict[str, Any]:
    told = {}
    for name, change in {"model": {"model": "nothing"}, "range": {"temperature": 1.5, "max_tokens": 10**9}}.items():
        try:
            client(**change, max_retries=0).chat(HELLO)
        except openai.APIStatusError as refused:
            told[name] = [type(refused).__name__, refused.status_code]
    return told


def left() -> int:
    for count, _ in enumerate(client(max_tokens=300, **LONG).stream_chat(HELLO), 1):
        if count == 3:
            break
    return count


def busy() -> int:
    llm = client(max_tokens=40, max_retries=3, **LONG)
    with ThreadPoolExecutor(6) as pool:
        return len(list(pool.map(llm.chat, [HELLO] * 6)))


ASKED: list[Callable[[], Any]] = [replies, structured, tools, errors, left, busy]
print(json.dumps({ask.__name__: ask() for ask in ASKED if ask.__name__ in os.environ["ZEROLAYER_TEST_ASK"].split()}))
