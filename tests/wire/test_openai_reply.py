"""Complete replies, judged by the types of the stock ``openai`` package."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion

from zerolayer.errors import InvalidRequest, SlotsBusy, Unavailable, ZerolayerError
from zerolayer.wire.openai_logprobs import LogprobWriter
from zerolayer.wire.openai_reply import ModelCard, choice_member, complete_body, error_body, model_body, models_body
from zerolayer.wire.schema import Account, Alternative, FinishReason, Route, TokenLogprob, Usage

ACCOUNT = Account({"read": 12, "prefill": 3400}, "greedy", 64, 60_000)
USAGE = Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=2)
PIECES = [b"Hel", b"lo", b" \xe2\x82", b"\xac"]
LOGPROBS = [
    TokenLogprob(0, -0.5, (Alternative(0, -0.5), Alternative(1, -2.0))),
    TokenLogprob(2, float("-inf"), (Alternative(1, -0.1),)),
    TokenLogprob(3, float("nan")),
]


def body(route: Route, text: str = "Hello", logprobs: bytes = b"null", **members: Any) -> dict[str, Any]:
    choices = [choice_member(route, text, FinishReason.STOP, logprobs=logprobs)]
    members |= {"choices": choices, "usage": USAGE, "account": ACCOUNT}
    return json.loads(complete_body(route, "r1", 1_700_000_000, "m", **members))


def with_logprobs(route: Route, tokens: list[TokenLogprob] = LOGPROBS, first: int | None = None) -> dict[str, Any]:
    return body(route, logprobs=LogprobWriter(route).render(tokens, PIECES.__getitem__, first))


def test_a_chat_reply_is_what_the_openai_package_expects() -> None:
    reply = ChatCompletion.model_validate(body(Route.CHAT), strict=True)
    assert (reply.id, reply.created, reply.model) == ("chatcmpl-r1", 1_700_000_000, "m")
    choice = reply.choices[0]
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "stop", None)
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello")


def test_a_completion_is_what_the_openai_package_expects() -> None:
    reply = Completion.model_validate(body(Route.COMPLETIONS), strict=True)
    assert (reply.id, reply.object) == ("cmpl-r1", "text_completion")
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == ("Hello", "stop")


@pytest.mark.parametrize("route", [Route.CHAT, Route.COMPLETIONS])
def test_usage_counts_prompt_completion_their_sum_and_what_was_cached(route: Route) -> None:
    assert body(route)["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


@pytest.mark.parametrize("route", [Route.CHAT, Route.COMPLETIONS])
def test_the_account_is_a_member_of_the_reply(route: Route) -> None:
    assert body(route)["zerolayer"] == {
        "stages_us": {"read": 12, "prefill": 3400},
        "program": "greedy",
        "max_tokens": 64,
        "deadline_ms": 60_000,
    }


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_survives(text: str) -> None:
    assert body(Route.CHAT, text)["choices"][0]["message"]["content"] == text
    assert body(Route.COMPLETIONS, text)["choices"][0]["text"] == text


def test_a_fingerprint_may_be_given() -> None:
    assert body(Route.CHAT, fingerprint="fp_1")["system_fingerprint"] == "fp_1"


def test_chat_logprobs_name_token_bytes_and_alternatives() -> None:
    reply = ChatCompletion.model_validate(with_logprobs(Route.CHAT), strict=True)
    assert reply.choices[0].logprobs is not None
    content = reply.choices[0].logprobs.content
    assert content is not None
    assert [(entry.token, entry.bytes, entry.logprob) for entry in content] == [
        ("Hel", list(b"Hel"), -0.5),
        (" �", list(b" \xe2\x82"), -9999.0),
        ("�", list(b"\xac"), -9999.0),
    ]
    assert [(top.token, top.logprob) for top in content[0].top_logprobs] == [("Hel", -0.5), ("lo", -2.0)]
    assert content[2].top_logprobs == []


def test_completion_logprobs_are_parallel_lists() -> None:
    reply = Completion.model_validate(with_logprobs(Route.COMPLETIONS), strict=True)
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["Hel", " �", "�"]
    assert logprobs.token_logprobs == [-0.5, -9999.0, -9999.0]
    assert logprobs.text_offset == [0, 3, 4]


def test_the_chosen_token_is_always_among_the_alternatives_of_a_completion() -> None:
    logprobs = with_logprobs(Route.COMPLETIONS)["choices"][0]["logprobs"]
    assert logprobs["top_logprobs"] == [{"Hel": -0.5, "lo": -2.0}, {"lo": -0.1, " �": -9999.0}, {"�": -9999.0}]


def test_logprobs_of_a_reply_without_tokens_are_empty_lists() -> None:
    chat = with_logprobs(Route.CHAT, [])
    assert chat["choices"][0]["logprobs"] == {"content": [], "refusal": None}


def test_nothing_could_predict_the_first_token_of_a_prompt_that_is_shown() -> None:
    logprobs = with_logprobs(Route.COMPLETIONS, LOGPROBS[:1], first=1)["choices"][0]["logprobs"]
    assert (logprobs["tokens"], logprobs["text_offset"]) == (["lo", "Hel"], [0, 2])
    assert logprobs["token_logprobs"] == [None, -0.5]
    assert logprobs["top_logprobs"][0] is None


@pytest.mark.parametrize("route", [Route.CHAT, Route.COMPLETIONS])
def test_answers_are_numbered(route: Route) -> None:
    choices = [choice_member(route, text, FinishReason.STOP, index=index) for index, text in enumerate("ab")]
    raw = complete_body(route, "r1", 1, "m", choices=choices, usage=USAGE, account=ACCOUNT)
    assert [choice["index"] for choice in json.loads(raw)["choices"]] == [0, 1]


# --- errors


def test_an_error_has_openais_four_members_and_says_where_help_is() -> None:
    error = InvalidRequest("'n' must be 1.", param="n")
    assert json.loads(error_body(error)) == {
        "error": {
            "message": "'n' must be 1.",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_request",
            "help": "docs/troubleshooting.md#invalid_request",
        }
    }


@pytest.mark.parametrize("error", [InvalidRequest("x"), Unavailable("x"), ZerolayerError("x")])
def test_an_error_without_a_param_says_null(error: ZerolayerError) -> None:
    member = json.loads(error_body(error))["error"]
    assert member == {"message": "x", "type": error.kind, "param": None, "code": error.code, "help": error.help}


def test_a_refusal_for_lack_of_slots_says_when_to_come_back() -> None:
    member = json.loads(error_body(SlotsBusy("busy", retry_after_ms=37)))["error"]
    assert (member["type"], member["code"], member["retry_after_ms"]) == ("rate_limit_error", "slots_busy", 37)


# --- models

CARD = ModelCard("m", 1_700_000_000, 2048, zerolayer={"engine": "native", "slots": 16})


def test_a_model_is_what_the_openai_package_expects() -> None:
    model = Model.model_validate(json.loads(model_body(CARD)), strict=True)
    assert (model.id, model.object, model.created, model.owned_by) == ("m", "model", 1_700_000_000, "zerolayer")


def test_a_model_tells_its_length_and_how_it_is_served() -> None:
    model = json.loads(model_body(CARD))
    assert (model["max_model_len"], model["zerolayer"]) == (2048, {"engine": "native", "slots": 16})


def test_models_are_a_list_of_the_same_objects() -> None:
    listed = json.loads(models_body([CARD, ModelCard("n", 1, 2)]))
    assert listed["object"] == "list"
    assert listed["data"][0] == json.loads(model_body(CARD))
    assert [model["id"] for model in listed["data"]] == ["m", "n"]
