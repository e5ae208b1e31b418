"""LlamaIndex: a reply, a stream, an error, a stream that is left, and more calls than slots."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import openai
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

BASE = os.environ["ZEROLAYER_TEST_URL"] + "/v1"
MODEL = openai.OpenAI(base_url=BASE, api_key="none").models.list().data[0].id
given = {"api_base": BASE, "api_key": "none", "model": MODEL, "temperature": 0, "is_chat_model": True}
llm = OpenAILike(**given, max_tokens=8)
ask = [ChatMessage(role="user", content="hello")]
streamed = [piece.delta or "" for piece in llm.stream_chat(ask)]
left = 0
for _ in OpenAILike(**given, max_tokens=300, additional_kwargs={"extra_body": {"ignore_eos": True}}).stream_chat(ask):
    left += 1
    if left == 3:
        break
try:
    OpenAILike(**{**given, "model": "nothing"}, max_tokens=8, max_retries=0).chat(ask)
    error = None
except openai.APIStatusError as refused:
    error = [type(refused).__name__, refused.status_code]
busy = OpenAILike(**given, max_tokens=200, max_retries=3, additional_kwargs={"extra_body": {"ignore_eos": True}})
with ThreadPoolExecutor(6) as pool:
    served = list(pool.map(busy.chat, [ask] * 6))
print(
    json.dumps(
        {
            "whole": llm.chat(ask).message.content,
            "streamed": "".join(streamed),
            "completed": OpenAILike(**{**given, "is_chat_model": False}, max_tokens=8).complete("hello").text,
            "error": error,
            "left": left,
            "served": len(served),
        }
    )
)
