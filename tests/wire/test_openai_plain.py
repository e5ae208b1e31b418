"""The short way and the long way from a body to a request: the same result, whichever is taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_specification import plain_request

from zerolayer.errors import ZerolayerError
from zerolayer.wire import openai
from zerolayer.wire._native import PlainBodies
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.openai import (
    PlainChat,
    PlainCompletion,
    PlainOptions,
    chats,
    completions,
    decode_chat,
    decode_completion,
)
from zerolayer.wire.openai_general import decode_any_chat, decode_any_completion
from zerolayer.wire.schema import Message, Request, Route, Sampling

PLAIN = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
COMPLETION = {"model": "m", "prompt": "hello"}
CHAT = PlainChat(messages=(Message("user", "hello"),), model="m")
LIMITS = BodyLimits()


Decode = Callable[[bytes, BodyLimits], Request]


def outcome(body: bytes, limits: BodyLimits, decode: Decode = decode_chat) -> object:
    """The request, or all that is told of why there is none."""
    try:
        return decode(body, limits)
    except ZerolayerError as error:
        return type(error), error.message, error.param, error.limit, error.code


def the_long_way(body: bytes, limits: BodyLimits) -> object:
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


TEMPERATURES = st.tuples(st.sampled_from([0, 0.0, 0.5]), st.sampled_from([1, 2.0, 1e9]))
LIMITED = st.builds(
    BodyLimits,
    body_bytes=st.sampled_from([60, 1000, 1000, 1000]),
    json_messages=st.integers(0, 3),
    max_tokens=st.integers(1, 20),
    temperature=TEMPERATURES,
    stop=st.integers(0, 2),
    stop_chars=st.integers(0, 3),
    outside=st.sampled_from(["refuse", "clamp"]),
)


@given(MEMBERS, st.one_of(st.just(PLAIN["messages"]), MESSAGES), LIMITED)
def test_both_ways_give_the_same(members: dict[str, object], messages: object, limits: BodyLimits) -> None:
    body = json.dumps({"model": "m", "messages": messages} | members).encode()
    assert outcome(body, limits) == the_long_way(body, limits)


WHOLE = ["0", "-0", "1", "20", "21", str(2**63 - 1), str(2**63), str(2**64), "1" * 400]
REAL = ["1.0", "2e0", "1e999", "-1e999", "1e-999", "0.1e1"]
NO_NUMBER = ["01", "1.", "+1", "NaN", "Infinity", "true", "null", '"1"', "[1]", "{}", ""]
NUMBER = st.sampled_from([*WHOLE, *REAL, *NO_NUMBER])
TEXT = st.sampled_from(
    [r'"a"', r'"\u0061"', r'"\ud800"', r'"\n"', '"\x01"', '"\xe9"', r'"\x"', '"', '""', "null", "1", '"user"', '"tool"']
)
NUMBERED = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"]
WRITTEN = st.one_of(
    st.tuples(st.sampled_from([*NUMBERED, "seed", "max_tokens", "max_completion_tokens", "n"]), NUMBER),
    st.tuples(st.sampled_from(["stop", "user", "model", "prompt", "x", r"\u0073top", "\xff"]), TEXT),
    st.tuples(st.sampled_from(["stream", "ignore_eos"]), st.sampled_from(["true", "false", "null", "1", "tru"])),
    st.tuples(
        st.just("stream_options"),
        st.sampled_from(["{}", '{"include_usage":true}', '{"include_usage":1}', '{"x":', "[]"]),
    ),
    st.tuples(
        st.just("messages"),
        st.lists(st.builds('{{"role":{0},"content":{1}}}'.format, TEXT, TEXT), max_size=2).map(
            lambda each: f"[{','.join(each)}]"
        ),
    ),
)


HI = [("messages", '[{"role":"user","content":"hi"}]'), ("prompt", '"hi"')]


@given(
    st.tuples(st.lists(WRITTEN, max_size=3), st.lists(st.sampled_from(HI), min_size=1, max_size=1)).flatmap(
        lambda given: st.permutations([*given[0], *given[1], ("model", '"m"')])
    ),
    st.sampled_from([",", ",", ",", ",", ", ", " ,\n\t", ",,"]),
    st.sampled_from(["", "", "", "", "", "", " ", "\n", "x", "\0"]),
    st.integers(1, 40),
    LIMITED,
)
def test_both_ways_read_the_same_bytes(
    members: list[tuple[str, str]], between: str, end: str, cut: int, limits: BodyLimits
) -> None:
    """Members in any order and number, numbers and texts in any spelling, and JSON that is none."""
    text = "{" + between.join([f'"{name}":{value}' for name, value in members]) + "}" + end
    body = text.encode("latin-1")
    for raw in (body, body[:-cut]):
        assert outcome(raw, limits) == the_long_way(raw, limits)
        assert outcome(raw, limits, decode_completion) == outcome(raw, limits, decode_any_completion)


PLAIN_FIELDS = {
    "max_tokens": st.none() | st.integers(1, 30) | st.just(2**70),
    "max_completion_tokens": st.none() | st.integers(1, 30) | st.just(2**70),
    "temperature": st.sampled_from([0.0, 0.7, 1.0, 2.0, float("inf")]),
    "stop": st.none() | st.text(max_size=4),
    "stream": st.booleans(),
    "stream_options": st.none() | st.builds(PlainOptions, include_usage=st.booleans()),
    "ignore_eos": st.booleans(),
    "seed": st.none() | st.just(2**63 - 1),
    "top_k": st.integers(0, 3),
}
ROLES = st.sampled_from(["system", "user", "assistant", "developer", "tool", "", "users", "é"])
CHATS = st.builds(
    PlainChat,
    model=st.just("m"),
    messages=st.lists(st.builds(Message, ROLES, st.text(max_size=3)), max_size=4).map(tuple),
    **PLAIN_FIELDS,
)


@given(CHATS | st.builds(PlainCompletion, model=st.just("m"), prompt=st.text(max_size=3), **PLAIN_FIELDS), LIMITED)
def test_the_compiled_way_is_the_specified_one(body: PlainChat | PlainCompletion, limits: BodyLimits) -> None:
    plain = chats if isinstance(body, PlainChat) else completions
    assert plain.request(body, limits) == plain_request(body, limits)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("messages", [Message("user", "hi")]),
        ("messages", ("hi",)),
        ("messages", (Message(1, "hi"),)),  # type: ignore[arg-type]
        ("stop", 7),
        ("temperature", "hot"),
        ("max_tokens", "many"),
        ("stream_options", {}),
    ],
)
def test_a_field_of_another_type_is_a_defect_and_harms_nobody(change: str, value: object) -> None:
    body = PlainChat(messages=(Message("user", "hi"),), model="m", stream=True)
    setattr(body, change, value)
    with pytest.raises(TypeError):
        chats.request(body, LIMITS)


def test_what_reading_runs_into_is_no_refusal_but_a_defect_may_be_seen() -> None:
    given_ = (PlainChat, Route.CHAT, Message, PlainOptions, BodyLimits, Request, Sampling)
    for error in (ValueError(), RecursionError()):
        assert PlainBodies(mock.Mock(side_effect=error), *given_).decode(b"", LIMITS) is None
    with pytest.raises(KeyError):
        PlainBodies(mock.Mock(side_effect=KeyError()), *given_).decode(b"", LIMITS)
    with pytest.raises(TypeError):
        chats.decode(b"{}", object())  # type: ignore[arg-type]


def test_only_plain_bodies_are_made_requests_of() -> None:
    for body, limits in ((object(), LIMITS), (PlainCompletion(model="m", prompt=""), LIMITS), (CHAT, object())):
        with pytest.raises(TypeError):
            chats.request(body, limits)  # type: ignore[arg-type]


@given(
    MEMBERS,
    st.one_of(st.text(max_size=5), st.sampled_from([None, [1, 2], ["a", "b"], 7])),
    LIMITED,
)
def test_both_ways_of_a_completion_give_the_same(
    members: dict[str, object], prompt: object, limits: BodyLimits
) -> None:
    body = json.dumps(COMPLETION | members | {"prompt": prompt}).encode()
    assert outcome(body, limits, decode_completion) == outcome(body, limits, decode_any_completion)


@pytest.mark.parametrize(
    ("members", "plain"),
    [
        ({}, True),
        ({"prompt": "", "max_tokens": 5, "temperature": 0.0, "ignore_eos": True, "stream": True}, True),
        ({"stream": True, "stream_options": {"include_usage": True}, "stop": "END", "seed": 7}, True),
        ({"top_k": 7, "min_p": 0.1, "repetition_penalty": 1.1, "max_completion_tokens": 5}, True),
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
