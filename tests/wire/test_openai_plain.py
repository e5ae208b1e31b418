"""The short way and the long way from a body to a request: the same result, whichever is taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.errors import ZerolayerError
from zerolayer.wire import openai
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.openai import decode_chat, decode_completion
from zerolayer.wire.openai_general import decode_any_chat, decode_any_completion
from zerolayer.wire.schema import Request

PLAIN = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
COMPLETION = {"model": "m", "prompt": "hello"}
LIMITS = BodyLimits()


Decode = Callable[[bytes, BodyLimits], Request]


def outcome(body: bytes, limits: BodyLimits, decode: Decode = decode_chat) -> Request | str:
    try:
        return decode(body, limits)
    except ZerolayerError as error:
        return error.message


def the_long_way(body: bytes, limits: BodyLimits) -> Request | str:
    return outcome(body, limits, decode_any_chat)


def goes_the_long_way(body: bytes, limits: BodyLimits = LIMITS, decode: Decode = decode_chat) -> bool:
    with (
        mock.patch.object(openai, "decode_any_chat", return_value=None) as any_chat,
        mock.patch.object(openai, "decode_any_completion", return_value=None) as any_completion,
    ):
        decode(body, limits)
    return bool(any_chat.called or any_completion.called)


NUMBERS = st.one_of(st.none(), st.integers(-3, 30), st.floats(-3, 12, allow_nan=False), st.just(2**63), st.just("1"))
FLAGS = st.sampled_from([True, False, None, 1])
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty"], NUMBERS),
        **dict.fromkeys(["frequency_penalty", "seed", "max_tokens", "max_completion_tokens", "n"], NUMBERS),
        **dict.fromkeys(["stream", "ignore_eos", "logprobs"], FLAGS),
        "stop": st.one_of(st.text(max_size=3), st.lists(st.text(max_size=2), max_size=3)),
        "stream_options": st.sampled_from([None, {}, {"include_usage": True}, {"include_usage": None}, {"x": 1}]),
        "user": st.sampled_from(["me", None, 7]),
        "unknown": st.just({"a": [1]}),
    },
)
CONTENTS = st.one_of(st.text(max_size=5), st.none(), st.just([{"type": "text", "text": "x"}]))
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "developer", "tool", "?"]), "content": CONTENTS},
        optional={"tool_calls": st.just([1]), "name": st.just("n")},
    ),
    max_size=4,
)


@given(MEMBERS, st.one_of(st.just(PLAIN["messages"]), MESSAGES), st.sampled_from(["refuse", "clamp"]))
def test_both_ways_give_the_same(members: dict[str, object], messages: object, outside: str) -> None:
    limits = BodyLimits(outside=outside, json_messages=3, max_tokens=20, stop_chars=2)  # type: ignore[arg-type]
    body = json.dumps({"model": "m", "messages": messages} | members).encode()
    assert outcome(body, limits) == the_long_way(body, limits)


@given(
    MEMBERS,
    st.one_of(st.text(max_size=5), st.sampled_from([None, [1, 2], ["a", "b"], 7])),
    st.sampled_from(["refuse", "clamp"]),
)
def test_both_ways_of_a_completion_give_the_same(members: dict[str, object], prompt: object, outside: str) -> None:
    limits = BodyLimits(outside=outside, max_tokens=20, stop_chars=2)  # type: ignore[arg-type]
    body = json.dumps(COMPLETION | members | {"prompt": prompt}).encode()
    assert outcome(body, limits, decode_completion) == outcome(body, limits, decode_any_completion)


@pytest.mark.parametrize(
    ("members", "plain"),
    [
        ({}, True),
        ({"prompt": "", "max_tokens": 5, "temperature": 0.0, "ignore_eos": True, "stream": True}, True),
        ({"stream": True, "stream_options": {"include_usage": True}, "stop": "END", "seed": 7}, True),
        ({"prompt": [1]}, False),
        ({"max_tokens": 0}, False),
        ({"echo": True}, False),
        ({"logprobs": 1}, False),
    ],
)
def test_what_most_clients_complete_takes_the_short_way(members: dict[str, object], plain: bool) -> None:
    body = json.dumps(COMPLETION | members).encode()
    assert goes_the_long_way(body, decode=decode_completion) is not plain


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"temperature": 0, "top_p": 1, "max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}},
        {"max_completion_tokens": 5, "stop": "END", "seed": 7, "n": 1, "user": "me"},
    ],
)
def test_what_most_clients_send_takes_the_short_way(members: dict[str, object]) -> None:
    assert not goes_the_long_way(json.dumps(PLAIN | members).encode())


@pytest.mark.parametrize("members", [{"tools": []}, {"messages": []}, {"temperature": 3}, {"stop": ["a"]}])
def test_everything_else_is_left_to_the_long_way(members: dict[str, object]) -> None:
    assert goes_the_long_way(json.dumps(PLAIN | members).encode())


def test_a_body_above_the_limit_is_not_read() -> None:
    assert goes_the_long_way(json.dumps(PLAIN).encode(), BodyLimits(body_bytes=10))
