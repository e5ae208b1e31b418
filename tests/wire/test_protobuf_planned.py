"""The short way from a body of the schema to a request, where its tail is known: what the long way gives."""

from __future__ import annotations

from array import array
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wire.inference_messages import message
from zerolayer.errors import BodyTooLarge, ZerolayerError
from zerolayer.wire._native import PlannedBodies
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.protobuf import varint
from zerolayer.wire.protobuf_plan import Plan
from zerolayer.wire.protobuf_request import ROLES, RequestDecoder
from zerolayer.wire.schema import Message, Request, Route

SYSTEMS = {"terse": "Be brief."}


def encoded(**fields: Any) -> bytes:
    return bytes(message("GenerateRequest")(**({"model": "m"} | fields)).SerializeToString())


TAILS = [encoded(), encoded(stream=True, deadline_ms=5, output_schema=b"{}"), encoded(system_name="terse")]
SIZES = st.sampled_from([None, None, None, 0, 3, 4, 127, 128, 16_383, 16_384])
LENGTHS = st.sampled_from([1, 1, 1, 2, 3])  # bytes of a length that needs fewer


def field(tag: int, value: bytes, size: int | None, length: int) -> bytes:
    """Field with a length that may be wrong, or longer than it need be."""
    raw = bytearray(varint(len(value) if size is None else size))
    while len(raw) < length:
        raw[-1] |= 0x80
        raw.append(0)
    return bytes([tag]) + bytes(raw) + value


CONTENTS = st.binary(max_size=6) | st.sampled_from([0, 127, 128, 16_383, 16_384]).map(lambda size: b"a" * size)
PARTS = st.lists(
    st.one_of(
        st.sampled_from([b"\x08\0", b"\x08\x01", b"\x08\x02", b"\x08\x02", b"\x08\x03", b"\x08\x04", b"\x08\x81\0"]),
        st.builds(field, st.just(0x12), CONTENTS, SIZES, LENGTHS),
        st.sampled_from([b"\x18\x01", b"\x12", b""]),
    ),
    max_size=3,
).map(b"".join)
USUAL = st.builds(lambda role, content: bytes([8, role]) + field(0x12, content, None, 1), st.integers(1, 3), CONTENTS)
PROMPTS = st.one_of(
    st.integers(1, 5).map(lambda count: field(0x0A, b"1234" * count, None, 1)),
    st.lists(st.builds(field, st.just(0x12), USUAL, st.none(), st.just(1)), min_size=1, max_size=4).map(b"".join),
    st.builds(field, st.just(0x0A), st.binary(max_size=9) | st.just(b"1234"), SIZES, LENGTHS),
    st.lists(st.builds(field, st.just(0x12), USUAL | PARTS, SIZES, LENGTHS), max_size=4).map(b"".join),
    st.binary(max_size=5),
)


@given(
    PROMPTS,
    st.sampled_from([*TAILS, TAILS[0], TAILS[0], b"", encoded(model="")]),
    st.sampled_from([0, 0, 0, 0, 1, 2, 3]),
    st.sampled_from([20, 1 << 20, 1 << 20, 1 << 20]),
)
@example(b"\x0a\x04\1\0\0\0", TAILS[1], 0, 1 << 20)
@example(b"\x12\x05\x08\x02\x12\x01a", TAILS[1], 0, 1 << 20)
def test_the_short_way_of_known_tails_is_the_long_way(prompt: bytes, tail: bytes, cut: int, body_bytes: int) -> None:
    limits = BodyLimits(max_tokens=100, body_bytes=body_bytes)
    warm, cold = RequestDecoder(limits, 3, SYSTEMS), RequestDecoder(limits, 3, SYSTEMS)
    for known in TAILS:
        with suppress(BodyTooLarge):
            warm.decode(b"\x12\x05\x08\x02\x12\x01a" + known)
    body = prompt + tail
    body = body[: len(body) - cut]
    outcomes: list[object] = []
    for decode in (warm.decode, cold._any):
        try:
            outcomes.append(decode(body))
        except ZerolayerError as error:
            outcomes.append((type(error), error.message, error.param))
    assert outcomes[0] == outcomes[1]


def test_plans_are_plans() -> None:
    planned = PlannedBodies(Plan, array, Message, Request, Route.COMPLETIONS, Route.CHAT, ROLES).decode
    with pytest.raises(TypeError):
        planned(b"\x0a\x04\1\0\0\0t", {b"t": "no plan"}, 100, 1)
    with pytest.raises(ValueError, match="three roles"):
        PlannedBodies(Plan, array, Message, Request, Route.COMPLETIONS, Route.CHAT, ("user",))  # type: ignore[arg-type]
