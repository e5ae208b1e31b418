"""The numbers and lists of OpenAI bodies: what lies within the limits is taken, all else is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_bodies import BOTH, LIMITS, chat, completion, refusal, refused_param

from zerolayer.errors import InvalidRequest
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.schema import Request

# --- numbers

RANGES: list[tuple[str, list[Any], list[Any]]] = [
    ("temperature", [0, 0.0, 1, 2], [-0.1, 2.1, -1e300, 1e300]),
    ("top_p", [1e-9, 0.5, 1], [0, -0.1, 1.1]),
    ("top_k", [-1, 0, 1, 2**31 - 1], [-2, 2**31, 10**30]),
    ("min_p", [0, 0.5, 1], [-0.1, 1.1]),
    ("repetition_penalty", [0.01, 1, 10], [0, -1, 10.1]),
    ("presence_penalty", [-2, 0, 2], [-2.1, 2.1]),
    ("frequency_penalty", [-2, 0, 2], [-2.1, 2.1]),
    ("seed", [-(2**63), -1, 0, 2**63 - 1], [-(2**63) - 1, 2**63, 10**30]),
    ("max_tokens", [1, 2048], [-1, 2049, 10**30]),
    ("max_completion_tokens", [1, 2048], [-1, 2049, 10**30]),
    ("min_tokens", [0, 2048], [-1, 2049, 10**30]),
    ("n", [1, 4], [0, -1, 5, 10**30]),
]


@BOTH
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, good, _ in RANGES for value in good])
def test_numbers_within_their_range_are_taken(decode: Callable[..., Request], name: str, value: Any) -> None:
    assert decode(**{name: value}).model == "m"


@BOTH
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, _, bad in RANGES for value in bad])
def test_numbers_outside_their_range_are_refused_by_name(decode: Callable[..., Request], name: str, value: Any) -> None:
    assert refused_param(decode, **{name: value}) == name


@BOTH
@pytest.mark.parametrize("name", [name for name, _, _ in RANGES])
@pytest.mark.parametrize("value", ["1", True, [], {}])
def test_only_numbers_are_numbers(decode: Callable[..., Request], name: str, value: Any) -> None:
    assert refused_param(decode, **{name: value}) == name


@BOTH
@pytest.mark.parametrize("name", ["seed", "top_k", "max_tokens", "n"])
def test_a_fraction_is_no_integer(decode: Callable[..., Request], name: str) -> None:
    assert refused_param(decode, **{name: 1.5}) == name


@BOTH
@pytest.mark.parametrize("name", ["stream", "ignore_eos"])
@pytest.mark.parametrize("value", ["true", 1, 0])
def test_only_true_and_false_are_switches(decode: Callable[..., Request], name: str, value: Any) -> None:
    assert refused_param(decode, **{name: value}) == name


def test_minus_one_turns_top_k_off() -> None:
    assert chat(top_k=-1).sampling.top_k == 0


@pytest.mark.parametrize(("seed", "folded"), [(0, 0), (-1, 2**64 - 1), (-(2**63), 2**63), (2**63 - 1, 2**63 - 1)])
def test_a_negative_seed_is_folded_into_unsigned_64_bits(seed: int, folded: int) -> None:
    assert chat(seed=seed).sampling.seed == folded


# --- how many tokens


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_both_names_of_the_token_limit_mean_the_same(name: str) -> None:
    assert chat(**{name: 7}).max_tokens == 7


def test_both_names_may_be_given_when_they_agree() -> None:
    assert chat(max_tokens=7, max_completion_tokens=7).max_tokens == 7


def test_both_names_with_different_values_are_refused() -> None:
    assert refused_param(chat, max_tokens=7, max_completion_tokens=8) == "max_tokens"


def test_a_number_of_tokens_that_is_not_named_stays_unnamed() -> None:
    assert chat().max_tokens is None


# --- outside the contract


def test_clamping_moves_a_number_to_the_nearest_limit() -> None:
    limits = BodyLimits(temperature=(0.5, 1.0), max_tokens=100, outside="clamp")
    request = chat(limits, temperature=1.5, max_tokens=1000)
    assert (request.sampling.temperature, request.max_tokens) == (1.0, 100)
    assert chat(limits, temperature=0).sampling.temperature == 0.5


@pytest.mark.parametrize("members", [{"temperature": -0.1}, {"max_tokens": -1}, {"top_p": 2}])
def test_clamping_does_not_make_sense_of_nonsense(members: dict[str, Any]) -> None:
    assert refusal(chat, BodyLimits(outside="clamp"), **members).param == next(iter(members))


def test_the_default_temperature_lies_within_the_contract() -> None:
    assert chat(BodyLimits(temperature=(0.0, 0.7))).sampling.temperature == 0.7


def test_a_temperature_outside_the_contract_is_refused_with_the_range() -> None:
    assert "between 0.5 and 0.7" in refusal(chat, BodyLimits(temperature=(0.5, 0.7)), temperature=1).message


# --- stop strings


@pytest.mark.parametrize(
    ("stop", "read"), [("a", ("a",)), (["a"], ("a",)), ([], ()), (["a", "b", "c", "d"], tuple("abcd"))]
)
def test_stop_is_a_string_or_a_list(stop: Any, read: tuple[str, ...]) -> None:
    assert chat(stop=stop).stop == read


@pytest.mark.parametrize("stop", [list("abcde"), "", ["a", ""], "x" * 1025])
def test_too_many_empty_or_too_long_stop_strings_are_refused(stop: Any) -> None:
    assert refused_param(chat, stop=stop) == "stop"


def test_a_stop_string_of_another_type_is_refused() -> None:
    assert refused_param(chat, stop=["a", 1]) == "stop[1]"


# --- log probabilities


@pytest.mark.parametrize(
    ("members", "read"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 0}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
    ],
)
def test_chat_asks_for_logprobs_with_a_switch_and_a_number(members: dict[str, Any], read: int | None) -> None:
    assert chat(**members).sampling.top_logprobs == read


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 1}, "top_logprobs"),
        ({"logprobs": 1}, "logprobs"),
    ],
)
def test_chat_refuses_other_logprobs(members: dict[str, Any], param: str) -> None:
    assert refused_param(chat, **members) == param


@pytest.mark.parametrize("logprobs", [0, 1, 20])
def test_completions_ask_for_logprobs_with_a_number(logprobs: int) -> None:
    assert completion(logprobs=logprobs).sampling.top_logprobs == logprobs


@pytest.mark.parametrize("logprobs", [-1, 21, True, "1"])
def test_completions_refuse_other_logprobs(logprobs: Any) -> None:
    assert refused_param(completion, logprobs=logprobs) == "logprobs"


# --- streams


@BOTH
@pytest.mark.parametrize(
    "options", [{}, {"include_usage": False}, {"include_usage": None, "include_obfuscation": False}]
)
def test_usage_in_a_stream_is_off_unless_asked_for(decode: Callable[..., Request], options: dict[str, Any]) -> None:
    request = decode(stream=True, stream_options=options)
    assert (request.stream, request.include_usage) == (True, False)


@BOTH
def test_stream_options_need_a_stream(decode: Callable[..., Request]) -> None:
    assert refused_param(decode, stream_options={"include_usage": True}) == "stream_options"


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
ANY = st.none() | st.booleans() | NUMBERS | st.text(max_size=5) | st.lists(st.integers(-5, 5), max_size=3) | st.just({})
NAMES = st.sampled_from(
    [name for name, _, _ in RANGES]
    + ["model", "messages", "prompt", "stop", "stream", "stream_options", "logprobs", "top_logprobs", "tools", "echo"]
)


@BOTH
@given(members=st.dictionaries(NAMES, ANY, max_size=5))
def test_any_members_give_a_request_within_the_limits_or_one_clear_error(
    decode: Callable[..., Request], members: dict[str, Any]
) -> None:
    try:
        request = decode(**members)
    except InvalidRequest as error:
        assert error.param is not None  # either outcome is right
        return
    sampling = request.sampling
    assert 0 <= sampling.temperature <= 2
    assert 0 < sampling.top_p <= 1
    assert 0 <= sampling.min_p <= 1
    assert 0 <= sampling.top_k < 2**31
    assert 0 < sampling.repetition_penalty <= 10
    assert sampling.seed is None or 0 <= sampling.seed < 2**64
    # A completion of no tokens may score its prompt; any other request of none fills the prompt cache and nothing else.
    least = 0 if decode is completion or request.fills_cache else 1
    assert request.max_tokens is None or least <= request.max_tokens <= LIMITS.max_tokens
