"""Anthropic's bodies to requests: what is understood, what is ignored, what is refused and by which name."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from anthropic_bodies import HELLO, SECRET, WEATHER, assistant, body, count, messages, refusal, user
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.errors import BodyTooLarge, InvalidRequest
from zerolayer.wire.anthropic import decode_messages
from zerolayer.wire.anthropic_fields import Block, MessagesBody, Turn
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.schema import (
    Message,
    Request,
    Route,
    Sampling,
    Tool,
    ToolChoice,
    ToolMode,
)

MEMBERS = [field.name for field in msgspec.structs.fields(MessagesBody)]
WORDS = [field.name for fields in (Turn, Block, Tool) for field in msgspec.structs.fields(fields)] + ["user", "text"]

# --- the whole request


def test_a_plain_request_takes_the_defaults() -> None:
    assert messages() == Request(
        Route.MESSAGES, "m", messages=(Message("user", "hello"),), max_tokens=16, fills_slot=True
    )


def test_every_member_arrives_where_it_belongs() -> None:
    request = messages(
        system="Be kind.", temperature=0.5, top_p=0.9, top_k=40, max_tokens=9, stop_sequences=["a", "b"], stream=True,
        deadline_ms=900, tools=[WEATHER], tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )  # fmt: skip
    assert request == Request(
        Route.MESSAGES,
        "m",
        messages=(Message("system", "Be kind."), Message("user", "hello")),
        sampling=Sampling(0.5, 0.9, 40),
        max_tokens=9,
        stop=("a", "b"),
        stream=True,
        deadline_ms=900,
        tools=(Tool("weather", "Tells it.", b'{"type": "object"}'),),
        tool_choice=ToolChoice(ToolMode.REQUIRED),
        parallel_tool_calls=False,
        fills_slot=True,
    )


def test_null_means_absent() -> None:
    names = (
        "system stop_sequences stream temperature top_p top_k metadata tools tool_choice thinking service_tier"
        " output_config output_format deadline_ms container mcp_servers"
    )
    assert messages(**dict.fromkeys(names.split())) == messages()


def test_members_that_change_nothing_here_are_ignored() -> None:
    members = {
        "cache_control": {"type": "ephemeral"}, "container": {"id": "c"}, "metadata": {"user_id": "u"},
        "inference_geo": "eu", "speed": "standard", "service_tier": "auto", "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"}, "context_management": {"edits": [{}]}, "made_up": [1, {"deep": None}],
    }  # fmt: skip
    assert messages(**members) == messages()


@pytest.mark.parametrize("max_tokens", ["absent", 1_000_000])
def test_a_count_needs_no_max_tokens_and_is_the_same_prompt(max_tokens: Any) -> None:
    counted = count(max_tokens=max_tokens, system="Be kind.", tools=[WEATHER])
    called = messages(system="Be kind.", tools=[WEATHER])
    assert counted == msgspec.structs.replace(called, max_tokens=None)


def test_max_tokens_is_required() -> None:
    assert refusal(max_tokens="absent").param == "max_tokens"


@pytest.mark.parametrize("model", ["absent", None, ""])
def test_the_model_is_required(model: Any) -> None:
    assert refusal(model=model).param == "model"


# --- numbers


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0), ("max_tokens", -1), ("max_tokens", 2**31), ("max_tokens", 2**70), ("max_tokens", 1.5),
        ("max_tokens", "16"), ("max_tokens", True), ("temperature", -0.1), ("temperature", 1.01), ("temperature", "1"),
        ("temperature", True), ("top_p", -0.1), ("top_p", 1.1), ("top_p", "0.5"), ("top_k", -1), ("top_k", 2**31),
        ("top_k", 0.5), ("top_k", "5"), ("stream", "true"), ("stream", 1), ("stop_sequences", "stop"),
        ("stop_sequences", [1]), ("stop_sequences", [""]), ("stop_sequences", ["x"] * 5), ("service_tier", "flex"),
        ("stop_sequences", ["x" * 1025]), ("model", 1), ("messages", "hello"), ("messages", []), ("deadline_ms", "9"),
    ],
)  # fmt: skip
def test_what_is_out_of_range_or_of_another_type_is_refused_by_name(name: str, value: Any) -> None:
    param = refusal(**{name: value}).param
    assert param is not None
    assert param.startswith(name)


@pytest.mark.parametrize(
    ("name", "value"), [("temperature", 0), ("temperature", 1), ("top_p", 0), ("top_p", 1), ("top_k", 0)]
)
def test_the_ends_of_a_range_belong_to_it(name: str, value: float) -> None:
    assert messages(**{name: value}).max_tokens == 16


def test_a_top_p_of_zero_leaves_the_likeliest_token() -> None:
    assert 0 < messages(top_p=0).sampling.top_p < 1e-5


def test_a_bound_beyond_the_contract_s_is_the_contract_s() -> None:
    assert messages(BodyLimits(max_tokens=8), max_tokens=32_000).max_tokens == 8


def test_the_contract_may_clamp_temperatures_instead() -> None:
    limits = BodyLimits(temperature=(0.2, 0.8), outside="clamp")
    assert messages(limits, temperature=1).sampling.temperature == 0.8


def test_the_contract_s_range_of_temperatures_holds_too() -> None:
    assert refusal(BodyLimits(temperature=(0.0, 0.5)), temperature=0.6).param == "temperature"


def test_a_body_over_the_limit_is_too_large() -> None:
    with pytest.raises(BodyTooLarge):
        decode_messages(body(system="x" * 100), BodyLimits(body_bytes=100))


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b"null", b'{"model":"\xff"}', b"[" * 100_000])
def test_what_is_no_object_is_refused(broken: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_messages(broken, BodyLimits())


def test_nothing_that_a_client_sent_is_in_a_refusal() -> None:
    for members in (
        {"tool_choice": {"type": SECRET}},
        {"thinking": {"type": SECRET}},
        {"service_tier": SECRET},
        {"messages": [{"role": SECRET, "content": SECRET}]},
        {"messages": [user([{"type": SECRET}])]},
        {"tools": [{"name": SECRET + "!", "input_schema": {}}]},
        {"output_config": {"format": {"type": SECRET}}},
    ):
        assert refusal(**members).param


# --- thinking


@pytest.mark.parametrize("thinking", [{"type": "disabled"}, {"type": "adaptive", "display": "summarized"}])
def test_thinking_is_accepted_and_has_no_effect(thinking: Any) -> None:
    assert messages(thinking=thinking) == messages()


def test_thinking_with_a_budget_below_max_tokens_is_accepted() -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    assert messages(max_tokens=2000, thinking=thinking) == messages(max_tokens=2000)


@pytest.mark.parametrize(
    "thinking",
    [
        {"type": "enabled"},
        {"type": "enabled", "budget_tokens": 1023},
        {"type": "enabled", "budget_tokens": -1},
        {"type": "enabled", "budget_tokens": "1024"},
        {"type": "enabled", "budget_tokens": 1024},
        {"type": "deep"},
    ],
)
def test_a_budget_out_of_range_is_refused(thinking: Any) -> None:
    assert str(refusal(max_tokens=1024, thinking=thinking).param).startswith("thinking.")


# --- tools and formats


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ({"type": "auto"}, ToolChoice()),
        ({"type": "any"}, ToolChoice(ToolMode.REQUIRED)),
        ({"type": "tool", "name": "weather"}, ToolChoice(ToolMode.REQUIRED, ("weather",))),
        ({"type": "none"}, ToolChoice(ToolMode.NONE)),
    ],
)
def test_a_tool_choice(given: Any, choice: ToolChoice) -> None:
    assert messages(tools=[WEATHER], tool_choice=given).tool_choice == choice


@pytest.mark.parametrize("choice", [{"type": "some"}, {"type": "tool"}, {"type": "tool", "name": "snow"}, {}, "any"])
def test_a_tool_choice_that_means_nothing_is_refused(choice: Any) -> None:
    assert str(refusal(tools=[WEATHER], tool_choice=choice).param).startswith("tool_choice")


def test_a_tool_of_the_client_takes_every_member_of_the_sdk() -> None:
    members = {"cache_control": {"type": "ephemeral"}, "defer_loading": True, "strict": True, "type": "custom"}
    assert messages(tools=[WEATHER | members]).tools[0].strict


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "bash_20250124", "name": "bash"},
        {"name": "no_schema"},
        {"name": "no letters only", "input_schema": {}},
        {"name": "x", "input_schema": "{}"},
        {"input_schema": {}},
        {"name": "x" * 129, "input_schema": {}},
    ],
)
def test_a_tool_that_this_service_cannot_offer_is_refused(tool: Any) -> None:
    assert str(refusal(tools=[tool]).param).startswith("tools[0]")


def test_a_tool_may_have_a_long_name_as_those_of_mcp_servers_do() -> None:
    assert messages(tools=[{"name": "mcp__server__" + "x" * 100, "input_schema": {}}]).tools


def test_the_number_of_tools_is_bounded() -> None:
    assert refusal(BodyLimits(tools=1), tools=[WEATHER, WEATHER | {"name": "other"}]).param == "tools"


@pytest.mark.parametrize("place", ["output_config", "output_format"])
def test_an_output_format_in_both_spellings(place: str) -> None:
    given = {"type": "json_schema", "schema": {"type": "object"}}
    request = messages(**{place: {"format": given} if place == "output_config" else given})
    assert request.output is not None
    assert request.output.schema == b'{"type": "object"}'


@pytest.mark.parametrize("given", [{"type": "json"}, {"type": "json_schema"}, {"type": "json_schema", "schema": "{}"}])
def test_an_output_format_without_a_schema_is_refused(given: Any) -> None:
    assert str(refusal(output_config={"format": given}).param).startswith("output_config.format")


def test_a_schema_over_the_limit_is_refused() -> None:
    given = {"type": "json_schema", "schema": {"description": "x" * 100}}
    assert refusal(BodyLimits(schema_bytes=100), output_config={"format": given}).param is not None


def test_a_format_and_a_prefill_do_not_go_together() -> None:
    given = {"type": "json_schema", "schema": {}}
    turns = [*HELLO, assistant("{")]
    assert refusal(messages=turns, output_config={"format": given}).param == "messages"


def test_of_a_repeated_member_the_last_counts() -> None:
    twice = json.dumps({"model": "m", "max_tokens": 1, "messages": HELLO}).replace("{", '{"model":"n",', 1)
    assert decode_messages(twice.encode(), BodyLimits()).model == "m"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=5))
def test_whatever_stands_in_any_member_is_a_request_or_one_refusal(members: dict[str, Any]) -> None:
    try:
        request = messages(**members)
    except InvalidRequest as error:
        assert error.status == 400
    else:
        assert 1 <= request.max_tokens <= 2048
        assert 0 <= request.sampling.temperature <= 1
        assert 0 < request.sampling.top_p <= 1
        assert request.messages
