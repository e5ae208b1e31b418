"""``zerolayer wire`` on HTTP/2 and gRPC: fields of heads, bodies and messages, wherever their frames lie."""

from __future__ import annotations

from typing import Any

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.inference_messages import message
from zerolayer.check.wire_http2 import Http2Dump
from zerolayer.check.wire_range import ByteRange
from zerolayer.wire import grpc
from zerolayer.wire.http2_frames import (
    END_HEADERS,
    END_STREAM,
    PADDED,
    PREFACE,
    PRIORITY,
    Kind,
    Setting,
    frame,
    settings,
    window_update,
)
from zerolayer.wire.http2_reply import reply_block

BEGIN = PREFACE + settings({})
GENERATE = "/zerolayer.v1.Inference/Generate"
CHAT = {"model": "m", "messages": [{"role": 2, "content": b"hi"}]}
GRPC = ("content-type", "application/grpc")


def block(path: str, *more: tuple[str, str], encoder: hpack.Encoder | None = None) -> bytes:
    pseudo = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "h")]
    return (encoder or hpack.Encoder()).encode([*pseudo, *more])


OK = reply_block(200, [(b"content-type", b"application/grpc")])


def head(fields: bytes, flags: int = END_HEADERS, stream: int = 1) -> bytes:
    return frame(Kind.HEADERS, flags, stream, fields)


def data(payload: bytes, flags: int = 0, stream: int = 1) -> bytes:
    return frame(Kind.DATA, flags, stream, payload)


def call(**fields: Any) -> bytes:
    return grpc.frame(bytes(message("GenerateRequest")(**(CHAT | fields)).SerializeToString()))


def dump(capture: bytes) -> list[ByteRange]:
    return list(Http2Dump(capture).ranges())


def found(capture: bytes, tag: str) -> ByteRange:
    return next(part for part in dump(capture) if part.tag == tag)


def faults(capture: bytes) -> list[tuple[str, str]]:
    return [(part.tag, part.fault) for part in dump(capture) if part.fault]


# --- heads


def test_every_field_of_a_head_has_its_place_and_how_it_is_coded() -> None:
    encoder = hpack.Encoder()
    first = BEGIN + head(block("/a", ("x-kept", "once"), encoder=encoder), END_HEADERS | END_STREAM)
    both = first + head(block("/a", ("x-kept", "once"), encoder=encoder), END_HEADERS | END_STREAM, 3)
    told = [(part.type, part.size, part.value) for part in dump(both) if part.tag == "x-kept"]
    assert [kind for kind, _, _ in told] == ["kept", "indexed"]
    assert told[0][1] > told[1][1] == 1
    assert {value for _, _, value in told} == {"'once'"}


def test_a_head_may_lie_in_several_frames() -> None:
    fields = block("/a", ("x-long", "a" * 50))
    capture = BEGIN + head(fields[:10], 0) + frame(Kind.CONTINUATION, END_HEADERS, 1, fields[10:])
    assert found(capture, "x-long").value == repr("a" * 50)
    assert found(capture, ":path").offset == capture.index(fields[:10]) + 2


def test_padding_and_priority_are_told_apart_from_the_fields() -> None:
    payload = b"\x03" + b"\0\0\0\7\x10" + block("/a") + b"\0\0\0"
    capture = BEGIN + head(payload, END_HEADERS | PADDED | PRIORITY | END_STREAM)
    assert found(capture, "priority").value == "after stream 7"
    assert found(capture, "padding").size == 3
    assert found(capture, ":path").value == "'/a'"
    assert not faults(capture)


def test_a_damaged_block_has_its_place_and_later_ones_are_not_guessed() -> None:
    capture = BEGIN + head(block("/a") + b"\xff\xff\xff\xff\x7f") + head(block("/b"), stream=3)
    wrong = [part for part in dump(capture) if "COMPRESSION_ERROR" in part.fault]
    assert [part.tag for part in wrong] == ["HEADERS", "field"]
    assert capture[wrong[1].offset :].startswith(b"\xff\xff\xff\xff\x7f")
    assert "cannot be told" in faults(capture)[-1][1]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (b"\0\1A\1b", "no message may have this field"),
        (b"\0\1a\x84\xff\xff\xff\xff", "no text has this Huffman coding"),
        (b"\0\1a\x09b", "a string ends 8 bytes early"),
        (b"\xc6", "there is no entry 70"),
        (b"\x80", "there is no entry 0"),
        (b"\x20", "a table's size may change only before the first field"),
    ],
)
def test_what_is_wrong_with_a_field_is_told_at_it(field: bytes, reason: str) -> None:
    capture = BEGIN + head(block("/a") + field, END_HEADERS | END_STREAM)
    assert any(reason in part.fault and capture[part.offset :].startswith(field) for part in dump(capture))


# --- what streams carry


def test_a_message_of_a_call_is_told_field_by_field_wherever_its_frames_lie() -> None:
    body = call(temperature=700_000)
    pieces = data(body[:7]) + window_update(0, 9) + data(b"\x02" + body[7:] + b"\0\0", PADDED | END_STREAM)
    capture = BEGIN + head(block(GENERATE, GRPC)) + pieces
    part = found(capture, "13 temperature")
    assert part.value == "700000"
    assert capture[part.offset : part.offset + part.size] == b"\x6d" + (700_000).to_bytes(4, "little")
    assert not faults(capture)


def test_several_messages_in_one_frame_are_several() -> None:
    capture = (
        BEGIN + head(block("/other.Service/Say", GRPC)) + data(grpc.frame(b"one") + grpc.frame(b"two"), END_STREAM)
    )
    assert [part.value for part in dump(capture) if part.type == "grpc"] == ["3 bytes", "3 bytes"]
    assert [part.value for part in dump(capture) if part.depth == 2] == ["'one'", "'two'"]


def test_replies_and_their_trailers_are_told() -> None:
    reply = message("GenerateReply")(token_ids=[5, 300], text=b"hi").SerializeToString()
    capture = settings({Setting.HEADER_TABLE_SIZE: 0}) + head(
        reply_block(200, [(b"content-type", b"application/grpc")])
    )
    capture += data(grpc.frame(bytes(reply)))
    capture += head(b"\0\x0bgrpc-status\x010", END_HEADERS | END_STREAM)
    assert found(capture, "1 token_ids").value == "2 ids: 5, 300"
    assert found(capture, "grpc-status").value == "'0'"
    assert not faults(capture)


def test_a_reply_that_is_no_reply_of_generate_is_bytes() -> None:
    capture = settings({}) + head(OK)
    capture += data(grpc.frame(b"\x0d\1\2\3"), END_STREAM)
    assert found(capture, "message").value == "4 bytes"
    assert not faults(capture)


@pytest.mark.parametrize("cut", [1, 9, 10_000])
def test_bodies_of_other_types_are_told_as_over_http_1(cut: int) -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 9}'
    flags = [0] * ((len(body) - 1) // cut) + [END_STREAM]
    pieces = [data(body[at * cut : (at + 1) * cut], flag) for at, flag in enumerate(flags)]
    capture = BEGIN + head(block("/v1/chat/completions", ("content-type", "application/json"))) + b"".join(pieces)
    part = found(capture, "temperature")
    assert capture[part.offset :].startswith(b"9")
    assert "between" in part.fault


# --- what is wrong


@pytest.mark.parametrize(
    ("body", "tag", "reason"),
    [
        (call(temperature=3_000_000), "13 temperature", "must be between 0 and 2000000"),
        (call(messages=[{"role": 9, "content": b"hi"}]), "1 role", "no such value"),
        (call(ticket="t" * 65), "6 ticket", "at most 64"),
        (b"\1\0\0\0\2ab", "message", "compressed"),
        (b"\7\0\0\0\2ab", "message", "must be 0 or 1"),
        (call()[:-1], "message", "the call ends within a message: 1 bytes are missing"),
        (b"\0\0", "message", "the call ends within a message: 3 bytes are missing"),
    ],
)
def test_what_is_wrong_with_a_call_is_told_where(body: bytes, tag: str, reason: str) -> None:
    capture = BEGIN + head(block(GENERATE, GRPC)) + data(body, END_STREAM)
    ((at, fault),) = faults(capture)
    assert at == tag
    assert reason in fault


@pytest.mark.parametrize(
    ("frames", "tag", "reason"),
    [
        (window_update(0, 0x7FFF_FFFF), "WINDOW_UPDATE", "closes the connection over this (FLOW_CONTROL_ERROR)"),
        (head(block("/a")) + window_update(1, 0x7FFF_FFFF), "WINDOW_UPDATE", "resets this stream (FLOW_CONTROL_ERROR)"),
        (data(b"x", stream=9), "DATA", "closes the connection over this (PROTOCOL_ERROR)"),
        (head(block("/a", ("content-length", "2"))) + data(b"x", END_STREAM), "DATA", "resets this stream"),
        (head(block("/a", ("content-length", "2000000"))), "HEADERS", "larger than 1048576 bytes"),
        (head(block("/a"), END_STREAM) + data(b"x"), "DATA", "closes the connection over this"),
        (head(block("/a"), END_HEADERS | END_STREAM) * 2, "HEADERS", "(STREAM_CLOSED)"),
        (head(block("/a", ("connection", "close"))), "HEADERS", "resets this stream (PROTOCOL_ERROR)"),
        (data(b"", PADDED), "payload", "too short for its fields"),
        (head(b"\x09ab", END_HEADERS | PADDED), "payload", "9 bytes of padding do not fit"),
    ],
)
def test_what_a_server_would_not_take_is_told_at_its_frame(frames: bytes, tag: str, reason: str) -> None:
    assert any(at == tag and reason in fault for at, fault in faults(BEGIN + frames))


def test_what_is_limited_by_the_second_is_not_held_against_a_capture() -> None:
    assert not faults(BEGIN + frame(Kind.PING, 0, 0, bytes(8)) * 3000)


KINDS = st.sampled_from([*Kind, 0x77])
BLOCKS = st.sampled_from(
    [block(GENERATE, GRPC), block("/a"), reply_block(200, [(b"content-type", b"text/event-stream")])]
)
FRAMES = st.tuples(KINDS, st.integers(0, 255), st.integers(0, 5), st.binary(max_size=40) | BLOCKS | st.just(call()))


@given(st.booleans(), st.lists(FRAMES, max_size=12), st.integers(0, 40))
def test_any_frames_give_ranges_inside_the_capture(client: bool, frames: list[Any], cut: int) -> None:
    capture = (BEGIN if client else settings({})) + b"".join([frame(*parts) for parts in frames])
    capture = capture[: len(capture) - cut]
    for part in dump(capture):
        assert 0 <= part.offset <= len(capture)
        assert part.size >= 0
