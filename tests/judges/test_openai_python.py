"""The openai package for Python on the real engine: what its parameters do to real log probabilities."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Literal

import openai
import pytest
from pydantic import BaseModel

from judges.busy_server import Busy

pytestmark = pytest.mark.judge
PROMPT = "The sky is"


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=2) as client:
        yield client


@pytest.fixture(scope="module")
def model(client: openai.OpenAI) -> str:
    return client.models.list().data[0].id


def test_answers_of_one_request_are_those_of_as_many_requests(client: openai.OpenAI, model: str) -> None:
    given = {"model": model, "prompt": PROMPT, "max_tokens": 12, "temperature": 1.0}
    together = client.completions.create(**given, n=3, seed=40)
    alone = [client.completions.create(**given, seed=40 + i).choices[0].text for i in range(3)]
    assert [choice.text for choice in together.choices] == alone
    assert len(set(alone)) > 1


def test_a_text_that_is_shown_again_has_the_log_probabilities_that_it_was_written_with(
    client: openai.OpenAI, model: str
) -> None:
    words = [5, 70, 33, 201]
    written = client.completions.create(
        model=model, prompt=words, max_tokens=10, temperature=0, logprobs=0, extra_body={"ignore_eos": True}
    ).choices[0]
    assert written.logprobs is not None
    both = client.completions.create(
        model=model, prompt=words, max_tokens=10, temperature=0, logprobs=0, echo=True, extra_body={"ignore_eos": True}
    ).choices[0]
    assert both.logprobs is not None
    assert both.logprobs.token_logprobs is not None
    assert both.logprobs.token_logprobs[0] is None
    assert both.logprobs.token_logprobs[len(words) :] == written.logprobs.token_logprobs
    assert both.text.endswith(written.text)


def test_a_prompt_is_scored_without_an_answer(client: openai.OpenAI, model: str) -> None:
    reply = client.completions.create(
        model=model, prompt=[PROMPT, "Grass is"], max_tokens=0, temperature=0, logprobs=2, echo=True
    )
    assert [choice.text for choice in reply.choices] == [PROMPT, "Grass is"]
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 0
    for choice in reply.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.token_logprobs is not None
        assert all(logprob < 0 for logprob in choice.logprobs.token_logprobs[1:])


def test_a_bias_decides(client: openai.OpenAI, model: str) -> None:
    reply = client.completions.create(
        model=model, prompt=PROMPT, max_tokens=3, temperature=0, logprobs=0, logit_bias={"40": 100}
    )
    assert reply.choices[0].logprobs is not None
    assert len(set(reply.choices[0].logprobs.tokens or [])) == 1


def test_an_answer_is_at_least_as_long_as_asked(client: openai.OpenAI, model: str) -> None:
    given = {"model": model, "prompt": PROMPT, "max_tokens": 8, "temperature": 0, "logit_bias": {"2": 100}}
    assert client.completions.create(**given).usage.completion_tokens == 1  # token 2 ends a sequence
    longer = client.completions.create(**given, extra_body={"min_tokens": 5})
    assert longer.usage.completion_tokens == 6
    assert longer.choices[0].finish_reason == "stop"


def test_usage_so_far_grows_event_by_event(client: openai.OpenAI, model: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    stream = client.completions.create(
        model=model, prompt=PROMPT, max_tokens=6, stream=True, stream_options=options, extra_body={"ignore_eos": True}
    )
    counts = [event.usage.completion_tokens for event in stream if event.usage]
    assert counts == sorted(counts)
    assert counts[-1] == 6


class Colour(BaseModel):
    """A colour and how often it was seen."""

    colour: Literal["red", "green"]
    often: bool | None


ASK = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_becomes_what_its_type_says(client: openai.OpenAI, model: str, stream: bool) -> None:
    given = {"model": model, "messages": ASK, "max_tokens": 100, "temperature": 0, "response_format": Colour}
    if stream:
        with client.chat.completions.stream(**given) as events:
            reply = events.get_final_completion()
    else:
        reply = client.chat.completions.parse(**given)
    assert isinstance(reply.choices[0].message.parsed, Colour)


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_becomes_what_its_type_says(client: openai.OpenAI, model: str, stream: bool) -> None:
    given = {"model": model, "input": "hello", "max_output_tokens": 100, "temperature": 0, "text_format": Colour}
    if stream:
        with client.responses.stream(**given) as events:
            response = events.get_final_response()
    else:
        response = client.responses.parse(**given)
    assert isinstance(response.output_parsed, Colour)


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_with_what_its_type_says(client: openai.OpenAI, model: str, stream: bool) -> None:
    given = {
        "model": model, "messages": ASK, "max_tokens": 200, "temperature": 0, "parallel_tool_calls": False,
        "tools": [openai.pydantic_function_tool(Colour, name="choose")], "tool_choice": "required",
    }  # fmt: skip
    if stream:
        with client.chat.completions.stream(**given) as events:
            reply = events.get_final_completion()
    else:
        reply = client.chat.completions.parse(**given)
    (call,) = reply.choices[0].message.tool_calls or ()
    assert call.function.name == "choose"
    assert isinstance(call.function.parsed_arguments, Colour)


def test_a_stream_that_is_left_gives_its_slot_back(busy: Busy) -> None:
    def ask() -> int:
        with openai.OpenAI(base_url=f"{busy.url}/v1", api_key="none") as client:
            given = {"model": "tiny", "messages": ASK, "max_tokens": 400, "stream": True}
            with client.chat.completions.create(**given, extra_body={"ignore_eos": True}) as stream:
                return sum(1 for _, _ in zip(range(3), stream, strict=False))

    assert busy.left(ask) == 3


def test_a_call_that_is_cancelled_gives_its_slot_back(busy: Busy) -> None:
    async def cancelled() -> bool:
        async with openai.AsyncOpenAI(base_url=f"{busy.url}/v1", api_key="none") as client:
            given = {"model": "tiny", "messages": ASK, "max_tokens": 400, "extra_body": {"ignore_eos": True}}
            call = asyncio.create_task(client.chat.completions.create(**given))
            await asyncio.sleep(0.3)
            call.cancel()
            await asyncio.wait([call])
            return call.cancelled()

    assert busy.left(lambda: asyncio.run(cancelled()))
