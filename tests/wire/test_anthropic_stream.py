"""Anthropic's events: their order, their blocks, and that whatever is said comes out of them again."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zerolayer.errors import EngineFailed
from zerolayer.wire.anthropic_stream import MessageWriter
from zerolayer.wire.schema import Account, CallDelta, Usage

ACCOUNT = Account({"decode": 5}, "plain", 16, 60_000)


def events(data: bytes) -> list[dict[str, Any]]:
    """The events as a client reads them; each is named as its type, in a line of its own."""
    found = []
    for block in data.decode().split("\n\n")[:-1]:
        name, value = block.split("\n")
        event = json.loads(value.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def kinds(data: bytes) -> list[str]:
    return [event["type"] for event in events(data)]


def writer() -> MessageWriter:
    return MessageWriter("r1", "m", 7)


def finished(writer: MessageWriter, reason: str = "end_turn", sequence: str | None = None) -> bytes:
    return writer.finish(reason, sequence, Usage(7, 3), ACCOUNT)


def test_the_start_tells_the_tokens_of_the_prompt() -> None:
    (start,) = events(writer().open())
    message = start["message"]
    assert message["usage"]["input_tokens"] == 7
    assert message["usage"]["output_tokens"] == 1
    assert (message["id"], message["type"], message["role"], message["model"]) == (
        "msg_r1",
        "message",
        "assistant",
        "m",
    )
    assert (message["content"], message["stop_reason"], message["stop_sequence"]) == ([], None, None)


def test_a_text_is_one_block_with_a_ping_after_its_start() -> None:
    one = writer()
    data = one.open() + one.text("a") + one.text("b") + finished(one)
    assert kinds(data) == [
        "message_start", "content_block_start", "ping", "content_block_delta", "content_block_delta",
        "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip


def test_no_text_is_no_event() -> None:
    assert writer().text("") == b""


def test_an_empty_answer_has_no_block() -> None:
    one = writer()
    assert kinds(one.open() + finished(one)) == ["message_start", "message_delta", "message_stop"]


def test_the_end_tells_the_reason_and_all_tokens_so_far() -> None:
    delta = events(finished(writer(), "stop_sequence", "END"))[0]
    assert delta["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    assert (delta["usage"]["input_tokens"], delta["usage"]["output_tokens"]) == (7, 3)
    assert delta["zerolayer"]["program"] == "plain"


def test_a_call_is_a_block_of_its_own_after_the_text() -> None:
    one = writer()
    data = (
        one.text("I look.")
        + one.calls([CallDelta(0, "t1", "weather", '{"a"')])
        + one.calls([CallDelta(0, arguments=":1}")])
    )
    data += finished(one, "tool_use")
    blocks = events(data)
    assert kinds(data) == [
        "content_block_start", "ping", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    assert blocks[4]["content_block"] == {"type": "tool_use", "id": "t1", "name": "weather", "input": {}}
    assert [block["index"] for block in blocks[:8] if "index" in block] == [0, 0, 0, 1, 1, 1, 1]


def test_a_call_without_text_is_the_first_block() -> None:
    one = writer()
    data = one.calls([CallDelta(0, "t1", "weather")]) + one.calls([CallDelta(1, "t2", "snow", "{}")]) + finished(one)
    assert [event["index"] for event in events(data) if event["type"] == "content_block_start"] == [0, 1]
    assert kinds(data).count("ping") == 1


def test_a_failure_is_an_event_of_its_own() -> None:
    (event,) = events(writer().error(EngineFailed("a step failed")))
    assert event["error"]["type"] == "api_error"
    assert event["request_id"] == "r1"


PIECES = st.lists(st.text(max_size=8), max_size=6)


@given(PIECES, st.lists(PIECES, max_size=4))
def test_whatever_is_said_comes_out_again_inside_blocks(texts: list[str], calls: list[list[str]]) -> None:
    one = writer()
    data = one.open() + b"".join(one.text(text) for text in texts)
    for index, pieces in enumerate(calls):
        data += one.calls(
            [CallDelta(index, f"t{index}", "tool"), *(CallDelta(index, arguments=piece) for piece in pieces)]
        )
    data += finished(one)
    blocks: list[list[str]] = []
    is_open = False
    for event in events(data):
        if event["type"] == "content_block_start":
            assert not is_open
            assert event["index"] == len(blocks)
            blocks.append([])
            is_open = True
        elif event["type"] == "content_block_delta":
            assert is_open
            delta = event["delta"]
            blocks[event["index"]].append(delta.get("text", "") + delta.get("partial_json", ""))
        elif event["type"] == "content_block_stop":
            assert is_open
            is_open = False
    assert not is_open
    said = "".join(texts)
    assert ["".join(block) for block in blocks] == ([said] if said else []) + ["".join(pieces) for pieces in calls]
