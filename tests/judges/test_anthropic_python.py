"""The stock anthropic client on the real engine: answers and calls that follow types, streams that are left.

What else it does is judged in tests/front/test_anthropic_client.py, its retries in test_bookings.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import anthropic
import pytest
from pydantic import BaseModel

from judges.busy_server import Busy

pytestmark = pytest.mark.judge
ASK = [{"role": "user", "content": "hello"}]


class Colour(BaseModel):
    """A colour and how often it was seen."""

    colour: Literal["red", "green"]
    often: bool | None


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model(client: anthropic.Anthropic) -> str:
    return client.models.list().data[0].id


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_becomes_what_its_type_says(client: anthropic.Anthropic, model: str, stream: bool) -> None:
    given = {"model": model, "messages": ASK, "max_tokens": 100, "output_format": Colour}
    if stream:
        with client.messages.stream(**given) as events:
            message = events.get_final_message()
    else:
        message = client.messages.parse(**given)
    assert isinstance(message.parsed_output, Colour)


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_as_its_schema_says(client: anthropic.Anthropic, model: str, stream: bool) -> None:
    tool = {"name": "choose", "input_schema": Colour.model_json_schema()}
    given = {
        "model": model, "messages": ASK, "max_tokens": 200, "tools": [tool],
        "tool_choice": {"type": "tool", "name": "choose", "disable_parallel_tool_use": True},
    }  # fmt: skip
    if stream:
        with client.messages.stream(**given) as events:
            message = events.get_final_message()
    else:
        message = client.messages.create(**given)
    (block,) = [block for block in message.content if block.type == "tool_use"]
    assert Colour.model_validate(block.input)
    assert message.stop_reason == "tool_use"


def test_a_stream_that_is_left_gives_its_slot_back(busy: Busy) -> None:
    def ask() -> int:
        client = anthropic.Anthropic(base_url=busy.url, api_key="none")
        with client, client.messages.stream(model="tiny", messages=ASK, max_tokens=400) as stream:
            return sum(1 for _, _ in zip(range(3), stream.text_stream, strict=False))

    assert busy.left(ask) == 3
