"""LangChain: replies, streams, structured output, tools and errors; or, as ``ZEROLAYER_TEST_ASK`` says, ``left``: a
stream that is left; ``busy``: more calls than the server has slots. One line of JSON.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import openai
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel

BASE = os.environ["ZEROLAYER_TEST_URL"] + "/v1"
MODEL = openai.OpenAI(base_url=BASE, api_key="none").models.list().data[0].id
given = {"base_url": BASE, "api_key": "none", "model": MODEL, "temperature": 0, "max_tokens": 8}
LONG = {"ignore_eos": True}
if os.environ["ZEROLAYER_TEST_ASK"] == "left":
    for count, _ in enumerate(ChatOpenAI(**{**given, "max_tokens": 300}, extra_body=LONG).stream("hello"), 1):
        if count == 3:
            break
    print(count)
    sys.exit()
if os.environ["ZEROLAYER_TEST_ASK"] == "busy":
    busy = ChatOpenAI(**{**given, "max_tokens": 40}, max_retries=2, extra_body=LONG)
    with ThreadPoolExecutor(6) as pool:
        print(len(list(pool.map(busy.invoke, ["hello"] * 6))))
    sys.exit()
chat = ChatOpenAI(**given)
whole = chat.invoke("hello")
chunks = list(ChatOpenAI(**given, stream_usage=True).stream("hello"))
usage = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
errors = {}
for name, change in {"model": {"model": "nothing"}, "range": {"temperature": 99}}.items():
    try:
        ChatOpenAI(**{**given, **change}).invoke("hello")
    except openai.APIStatusError as error:
        errors[name] = error.status_code
responses = ChatOpenAI(**given, use_responses_api=True)


class Choice(BaseModel):
    """A colour."""

    colour: Literal["red", "green"]


roomy = ChatOpenAI(**{**given, "max_tokens": 100})
called = roomy.bind_tools([Choice], tool_choice="Choice", parallel_tool_calls=False)
print(
    json.dumps(
        {
            "whole": whole.content,
            "reason": whole.response_metadata["finish_reason"],
            "usage": whole.usage_metadata["total_tokens"],
            "streamed": "".join(chunk.content for chunk in chunks),
            "streamed_usage": usage[-1]["total_tokens"] if usage else None,
            "logprobs": len(chat.bind(logprobs=True).invoke("hello").response_metadata["logprobs"]["content"]),
            "legacy": OpenAI(**given).invoke("hello"),
            "responses": responses.invoke("hello").text,
            "responses_streamed": "".join(chunk.text for chunk in responses.stream("hello")),
            "structured": roomy.with_structured_output(Choice, method="json_schema").invoke("hello").colour,
            "called": [[call["name"], call["args"]] for call in called.invoke("hello").tool_calls],
            "called_streamed": sum(called.stream("hello"), AIMessageChunk("")).tool_calls[0]["name"],
            "errors": errors,
        }
    )
)
