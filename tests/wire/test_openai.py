"""OpenAI bodies to requests: what is understood, what is refused, and how a refusal names its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from openai_bodies import BOTH, HELLO, SECRET, chat, completion, refusal, refused_param

from zerolayer.errors import BodyTooLarge
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.schema import Message, Request, Route, Sampling

# --- the whole request


def test_a_plain_chat_request_takes_the_defaults() -> None:
    assert chat() == Request(Route.CHAT, "m", messages=(Message("user", "hello"),))


def test_a_plain_completion_request_takes_the_defaults() -> None:
    assert completion() == Request(Route.COMPLETIONS, "m", prompt="hello")


def test_every_member_arrives_where_it_belongs() -> None:
    request = chat(
        temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, repetition_penalty=1.1, presence_penalty=-1,
        frequency_penalty=2, seed=7, logprobs=True, top_logprobs=3, max_tokens=9, stop=["a", "b"], stream=True,
        stream_options={"include_usage": True}, ignore_eos=True,
    )  # fmt: skip
    assert request == Request(
        Route.CHAT,
        "m",
        messages=(Message("user", "hello"),),
        sampling=Sampling(0.5, 0.9, 40, 0.1, 1.1, -1.0, 2.0, 7, 3),
        max_tokens=9,
        stop=("a", "b"),
        stream=True,
        include_usage=True,
        ignore_eos=True,
    )


@BOTH
def test_null_means_absent(decode: Callable[..., Request]) -> None:
    names = (
        "max_tokens max_completion_tokens temperature top_p top_k min_p repetition_penalty presence_penalty"
        " frequency_penalty seed stop n stream stream_options ignore_eos logit_bias logprobs top_logprobs tools"
        " tool_choice functions function_call response_format modalities audio web_search_options echo best_of suffix"
    )
    assert decode(**dict.fromkeys(names.split())) == decode()


@BOTH
def test_members_that_change_nothing_here_are_ignored(decode: Callable[..., Request]) -> None:
    members = {
        "user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "reasoning_effort": "low",
        "parallel_tool_calls": True, "prediction": {"type": "content", "content": "x"}, "chat_template": "{{ x }}",
        "verbosity": "low", "made_up": [1, {"deep": None}],
    }  # fmt: skip
    assert decode(**members) == decode()


# --- messages


def test_developer_is_system() -> None:
    roles = ("developer", "system", "user", "assistant")
    request = chat(messages=[{"role": role, "content": "x"} for role in roles])
    assert [message.role for message in request.messages] == ["system", "system", "user", "assistant"]


def test_text_parts_are_paragraphs_of_one_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert chat(messages=[{"role": "user", "content": parts}]).messages == (Message("user", "a\nb"),)


@pytest.mark.parametrize("message", [{"role": "assistant", "content": None}, {"role": "assistant"}])
def test_an_assistant_may_have_said_nothing(message: dict[str, Any]) -> None:
    assert chat(messages=[*HELLO, message]).messages[1] == Message("assistant", "")


def test_names_and_empty_tool_calls_of_messages_are_ignored() -> None:
    message = {
        "role": "assistant",
        "content": "x",
        "name": "n",
        "tool_calls": [],
        "function_call": None,
        "refusal": None,
    }
    assert chat(messages=[message]).messages == (Message("assistant", "x"),)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("hello", "messages"),
        ({}, "messages"),
        ([SECRET], "messages[0]"),
        ([{"role": "user"}], "messages[0].content"),
        ([*HELLO, {"role": "system", "content": None}], "messages[1].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": SECRET, "content": "x"}], "messages[0].role"),
        ([{"role": "function", "content": "x", "name": "f"}], "messages[0].role"),
        ([{"role": 1, "content": "x"}], "messages[0].role"),
        ([{"role": "assistant", "content": None, "function_call": {"name": "f"}}], "messages[0].function_call"),
        ([{"role": "user", "content": [{"type": "image_url", "url": SECRET}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
    ],
)  # fmt: skip
def test_messages_that_cannot_be_read_name_the_place(messages: Any, param: str) -> None:
    assert refused_param(chat, messages=messages) == param


def test_a_message_without_a_role_is_refused() -> None:
    assert refusal(chat, messages=[{"content": "x"}]).status == 400


def test_there_may_be_as_many_messages_as_the_limit() -> None:
    limits = BodyLimits(json_messages=3)
    assert len(chat(limits, messages=HELLO * 3).messages) == 3
    assert "at most 3" in refusal(chat, limits, messages=HELLO * 4).message


# --- prompts


@pytest.mark.parametrize(
    ("prompt", "read"),
    [("x", "x"), ("", ""), (["x"], "x"), ([""], ""), ([1, 2], (1, 2)), ([[1, 2]], (1, 2)), ([2**31 - 1], (2**31 - 1,))],
)
def test_a_prompt_is_text_or_token_ids_possibly_in_a_list_of_one(prompt: Any, read: Any) -> None:
    assert completion(prompt=prompt).prompt == read


@pytest.mark.parametrize(
    "prompt",
    [None, [], [[]], [["a"]], [1, "a"], [[1], 2], ["a", [1]], [-1], [[1, -1]], [2**31], [2**80],
     [1.5], [True], 5, {}, [None], [[[1]]]],
)  # fmt: skip
def test_other_prompts_are_refused(prompt: Any) -> None:
    assert refusal(completion, prompt=prompt).param in {"prompt", "prompt[0]", "prompt[0][0]"}


@pytest.mark.parametrize(("prompt", "further"), [(["a", "b", ""], ("b", "")), ([[1], [2, 3]], ((2, 3),))])
def test_prompts_may_be_several_texts_or_several_lists_of_ids(prompt: Any, further: Any) -> None:
    assert completion(prompt=prompt).further == further


def test_all_answers_of_a_request_together_are_bounded() -> None:
    assert completion(prompt=["a", "b"], n=2).answers == 4
    error = refusal(completion, prompt=["a", "b"], n=3)
    assert (error.param, "several requests" in error.message) == ("prompt", True)


def test_answers_go_prompt_by_prompt_and_seeds_follow_each_other() -> None:
    each = completion(prompt=["a", "b"], n=2, seed=2**63 - 1).each()
    assert [part.prompt for part in each] == ["a", "a", "b", "b"]
    assert [part.sampling.seed for part in each] == [2**63 - 1, 2**63] * 2
    assert {(part.n, part.further) for part in each} == {(1, ())}


def test_the_first_answer_is_that_of_a_request_for_one() -> None:
    assert completion(n=3, seed=5).each()[0] == completion(seed=5)


def test_no_tokens_at_all_only_fill_the_prompt_cache() -> None:
    assert chat(max_tokens=0).fills_cache
    assert completion(max_tokens=0).fills_cache


def test_scores_of_a_prompt_are_an_answer_of_no_tokens() -> None:
    assert not completion(max_tokens=0, echo=True, logprobs=1).fills_cache


def test_several_answers_of_no_tokens_are_refused() -> None:
    assert refused_param(chat, max_tokens=0, n=2) == "max_tokens"


@BOTH
def test_biases_are_token_ids_with_numbers(decode: Callable[..., Request]) -> None:
    assert decode(logit_bias={"50256": -100, "7": 0.5}).sampling.logit_bias == ((50256, -100.0), (7, 0.5))
    assert decode(logit_bias={"7": 1, "07": 2}).sampling.logit_bias == ((7, 2.0),)


@BOTH
@pytest.mark.parametrize(
    "bias",
    [{"1": 101}, {"1": -100.5}, {"x": 1}, {"-1": 1}, {"": 1}, {"1.0": 1}, {str(2**31): 1}, {"9" * 5000: 1},
     {"²": 1}, {str(i): 1 for i in range(1025)}, {"1": "1"}, {"1": None}, [1], 5],
)  # fmt: skip
def test_other_biases_are_refused(decode: Callable[..., Request], bias: Any) -> None:
    assert (refusal(decode, logit_bias=bias).param or "").startswith("logit_bias")


@BOTH
def test_the_least_number_of_tokens_is_within_the_most(decode: Callable[..., Request]) -> None:
    assert decode(min_tokens=3, max_tokens=3).sampling.min_tokens == 3
    assert refused_param(decode, min_tokens=4, max_tokens=3) == "min_tokens"
    assert refused_param(decode, min_tokens=-1) == "min_tokens"


@BOTH
def test_a_stream_may_tell_its_usage_all_the_time(decode: Callable[..., Request]) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    assert decode(stream=True, stream_options=options).continuous_usage


def test_the_prompt_may_be_echoed() -> None:
    assert completion(echo=True).echo


# --- what this service does not do


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"functions": [{"name": SECRET}]}, "functions"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"web_search_options": {}}, "web_search_options"),
    ],
)
def test_what_would_change_a_chat_and_is_not_done_is_refused(members: dict[str, Any], param: str) -> None:
    error = refusal(chat, **members)
    assert error.param == param
    assert "not supported" in error.message


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"best_of": 2}, "best_of"),
        ({"best_of": 0}, "best_of"),
        ({"suffix": "x"}, "suffix"),
    ],
)
def test_what_would_change_a_completion_and_is_not_done_is_refused(members: dict[str, Any], param: str) -> None:
    error = refusal(completion, **members)
    assert error.param == param
    assert "not supported" in error.message


@pytest.mark.parametrize(
    "members",
    [
        {"tools": []},
        {"tools": [], "tool_choice": "auto"},
        {"functions": [], "function_call": "auto"},
        {"functions": [{"name": "f"}], "function_call": "none"},
        {"response_format": {"type": "text"}},
        {"logit_bias": {}},
        {"modalities": ["text"]},
    ],
)
def test_the_same_members_pass_where_they_ask_for_nothing(members: dict[str, Any]) -> None:
    assert chat(**members) == chat()


def test_completions_pass_members_that_ask_for_nothing() -> None:
    assert completion(best_of=1, suffix="", logit_bias={}) == completion()


def test_the_best_of_as_many_as_are_asked_for_is_all_of_them() -> None:
    assert completion(best_of=3, n=3) == completion(n=3)


# --- the body as a whole


@BOTH
@pytest.mark.parametrize("model", [None, ""])
def test_a_model_must_be_named(decode: Callable[..., Request], model: str | None) -> None:
    assert refused_param(decode, model=model) == "model"


def test_a_body_above_the_limit_is_refused() -> None:
    with pytest.raises(BodyTooLarge):
        chat(BodyLimits(body_bytes=20))
