"""The openai package for Python on the real engine: what its parameters do to real log probabilities."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

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
