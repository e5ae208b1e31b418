"""``zerolayer wire``: what captured bytes are, range by range, and what is wrong where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.inference_messages import message
from zerolayer.check import arguments
from zerolayer.check.wire_dump import FORMS, as_json, guess, lines
from zerolayer.check.wire_range import ByteRange
from zerolayer.cli import main
from zerolayer.wire import protobuf_reply
from zerolayer.wire.http1_reply import LAST_CHUNK, chunk, response, stream_head
from zerolayer.wire.protobuf import delimited
from zerolayer.wire.schema import Account, FinishReason, Usage

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
SCHEMA = {"model": "m", "messages": [{"role": 2, "content": b"hi"}]}


POST = b"POST / HTTP/1.1\r\nhost: h\r\n"


def encoded(**fields: Any) -> bytes:
    return bytes(message("GenerateRequest")(**(SCHEMA | fields)).SerializeToString())


def post(path: str, body: bytes, media: str, *headers: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "host: h", f"content-type: {media}", f"content-length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def dump(data: bytes, form: str = "") -> list[ByteRange]:
    return list(FORMS[form or guess(data)](data))


def faults(data: bytes, form: str = "") -> list[tuple[int, str]]:
    return [(part.offset, part.fault) for part in dump(data, form) if part.fault]


def found(data: bytes, tag: str, form: str = "") -> ByteRange:
    return next(part for part in dump(data, form) if part.tag == tag)


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


# --- HTTP/1.1


def test_head_and_json_are_told_value_by_value_with_their_places() -> None:
    data = post("/v1/chat/completions", json.dumps(CHAT).encode(), "application/json")
    part = found(data, "messages[0].content")
    assert data[part.offset : part.offset + part.size] == b'"hi"'
    assert faults(data) == []
    assert [part.tag for part in dump(data)][:3] == ["request line", "host", "content-type"]


def test_a_value_outside_its_limit_is_blamed_at_its_place() -> None:
    data = post("/v1/chat/completions", json.dumps(CHAT | {"temperature": 7}).encode(), "application/json")
    assert faults(data) == [(data.index(b"7}"), "'temperature' must be between 0 and 2.")]


def test_what_is_missing_is_said_at_the_end() -> None:
    data = post("/v1/chat/completions", b'{"model":"m"}', "application/json")
    assert faults(data)[0][0] == len(data)


@pytest.mark.parametrize(
    ("body", "at"),
    [(b'{"a":x}', 5), (b'{"a":1,}', 7), (b"[1 2]", 3), (b'{"a":"\xff"}', 5), (b'{"a":', 5), (b"{}{}", 2)],
)
def test_a_fault_of_json_has_its_place(body: bytes, at: int) -> None:
    assert [offset for offset, _ in faults(body, "json")] == [at]


@pytest.mark.parametrize(
    ("head", "wrong"),
    [
        (b"GET / HTTP/1.1\nhost: h\r\n\r\n", "LF alone"),
        (b"GET / HTTP/1.1\r\nhost: h\r\n folded\r\n\r\n", "folded"),
        (b"GET / HTTP/1.1\r\nno header\r\nhost: h\r\n\r\n", "no header"),
        (b"GET / HTTP/1.1\r\nhost: h\r\nhost: h\r\n\r\n", "twice"),
        (b"GET / HTTP/1.1\r\n\r\n", "no host header"),
        (b"GET  / HTTP/1.1\r\nhost: h\r\n\r\n", "neither"),
        (
            b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "contradict",
        ),
        (POST + b"content-length: 9\r\n\r\nabc", "6 bytes early"),
        (
            b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
            "where its size says",
        ),
        (POST + b"transfer-encoding: chunked\r\n\r\nz\r\n", "no chunk size"),
    ],
)
def test_faults_of_framing_are_named(head: bytes, wrong: str) -> None:
    assert any(wrong in fault for _, fault in faults(head, "http1"))


def test_what_this_server_would_refuse_is_said_too() -> None:
    assert dump(b"GET / HTTP/1.1\r\n\r\n")[-1].type == "400"


def test_a_request_may_be_followed_by_its_reply() -> None:
    data = b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n" + response(200, [(b"a", b"b")], b"ok", keep_alive=True)
    assert [part.tag for part in dump(data) if "line" in part.tag] == ["request line", "status line"]
    assert faults(data) == []


def test_events_are_found_across_chunks() -> None:
    event = b'data: {"choices":[{"index":0}]}\n\ndata: [DONE]\n\n'
    head = stream_head([(b"content-type", b"text/event-stream; charset=utf-8")])
    data = head + chunk(event[:10]) + chunk(event[10:]) + LAST_CHUNK
    part = found(data, "choices[0].index")
    assert data[part.offset : part.offset + 1] == b"0"
    assert faults(data) == []


def test_a_stream_without_its_last_chunk_is_incomplete() -> None:
    data = stream_head([(b"content-type", b"text/event-stream")]) + chunk(b"data: {}\n\n")
    assert faults(data)[0] == (len(data), "no last chunk: the body is incomplete")


# --- the schema


def test_a_message_is_told_field_by_field_by_name() -> None:
    data = encoded(token_ids=b"", temperature=700_000, stop=["END"])
    assert [(part.tag, part.value) for part in dump(data, "request")] == [
        ("2 messages", "6 bytes"),
        ("1 role", "ROLE_USER"),
        ("2 content", "'hi'"),
        ("9 model", "'m'"),
        ("13 temperature", "700000"),
        ("22 stop", "'END'"),
    ]


def test_token_ids_are_shown_as_numbers() -> None:
    assert (
        found(encoded(messages=[], token_ids=bytes(range(1, 9))), "1 token_ids").value == "2 ids: 67305985, 134678021"
    )


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"temperature": 3_000_000}, "'temperature' must be between"),
        ({"messages": [{"role": 9}]}, "no such value"),
        ({"messages": [{"role": 2, "content": b"\xff"}]}, "not UTF-8"),
        ({"token_ids": b"abc"}, "not four bytes for each token"),
        ({"model": ""}, "'model' is missing"),
    ],
)
def test_what_is_wrong_with_a_request_is_told_where(fields: dict[str, Any], wrong: str) -> None:
    assert any(wrong in fault for _, fault in faults(encoded(**fields), "request"))


@pytest.mark.parametrize(
    ("raw", "at", "wrong"),
    [
        (b"\x60", 0, "ends inside a number"),
        (b"\x4a\x05ab", 0, "3 bytes early"),
        (b"\x0b", 0, "groups"),
        (b"\x4a\x01m\x65\0\0\0\0", 3, "wire type fixed32, not varint"),
        (b"\x4a\x01m\xf8\x07\x01", 3, "unknown"),
    ],
)
def test_a_fault_of_the_format_has_its_place(raw: bytes, at: int, wrong: str) -> None:
    assert any(offset == at and wrong in fault for offset, fault in faults(raw, "request"))


def test_replies_of_a_stream_are_told_one_by_one() -> None:
    end = protobuf_reply.last(FinishReason.STOP, Usage(1, 2), Account({"read": 5}, "greedy", 3, 4))
    data = delimited(protobuf_reply.piece([5], b"x")) + delimited(protobuf_reply.piece([6], b"") + end)
    parts = dump(data, "replies")
    assert [part.tag for part in parts if part.depth == 0] == ["length", "length"]
    assert found(data, "4 finish_reason", "replies").value == "FINISH_REASON_STOP"
    assert faults(data, "replies") == []


# --- HTTP/2


def test_frames_are_told_with_the_fields_that_steer() -> None:
    data = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, b"\x00\x04\x00\x01\x00\x00") + frame(3, b"\0\0\0\x08", 0, 5)
    assert [(part.tag, part.value) for part in dump(data)] == [
        ("preface", ""),
        ("SETTINGS", "stream 0, 6 bytes"),
        ("INITIAL_WINDOW_SIZE", "65536"),
        ("RST_STREAM", "stream 5, 4 bytes"),
        ("error", "CANCEL"),
    ]


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (frame(0, b"x"), "needs a stream"),
        (frame(4, b"", 0, 1), "belongs to stream 0"),
        (frame(6, b"abc"), "FRAME_SIZE_ERROR"),
        (frame(8, bytes(4)), "increment of 0"),
        (frame(0, b"abc", 0, 1)[:-1], "1 bytes early"),
        (b"\0\0", "incomplete"),
    ],
)
def test_faults_of_frames_are_named(data: bytes, wrong: str) -> None:
    assert any(wrong in fault for _, fault in faults(data, "http2"))


@pytest.mark.parametrize("kind", [3, 7, 8], ids=["RST_STREAM", "GOAWAY", "WINDOW_UPDATE"])
def test_a_frame_too_short_for_its_fields_is_shown_as_bytes(kind: int) -> None:
    data = frame(4) + frame(kind, b"abc", stream=kind & 3)
    part = found(data, "payload", "http2")
    assert (part.offset, part.size) == (18, 3)


# --- anything


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (b"POST / HTTP/1.1\r\n", "http1"),
        (b"HTTP/1.1 200 OK\r\n", "http1"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http2"),
        (frame(4, b"\x00\x04\x00\x01\x00\x00"), "http2"),
        (b' {"a":1}', "json"),
        (b"data: x\n\n", "sse"),
        (encoded(), "request"),
        (protobuf_reply.piece([5], b"x"), "reply"),
    ],
)
def test_the_form_is_guessed(data: bytes, form: str) -> None:
    assert guess(data) == form


@given(st.binary(max_size=150), st.sampled_from(sorted(FORMS)))
def test_any_bytes_in_any_form_give_ranges_inside_the_file(data: bytes, form: str) -> None:
    assert all(0 <= part.offset <= part.offset + part.size <= len(data) for part in dump(data, form))


@given(st.binary(max_size=80), st.sampled_from(["application/json", "text/event-stream", "application/x-protobuf"]))
def test_any_body_gives_ranges_and_a_table(body: bytes, media: str) -> None:
    data = post("/v1/generate", body, media)
    table = list(lines(dump(data)))
    assert len(table) == 1 + len(dump(data)) + len(faults(data))


def test_json_counts_the_faults() -> None:
    data = encoded(temperature=3_000_000)
    written = json.loads(as_json("request", data, dump(data, "request")))
    assert (written["version"], written["form"], written["faults"], written["bytes"]) == (1, "request", 1, len(data))


def test_the_command_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = tmp_path / "capture"
    capture.write_bytes(b"GET / HTTP/1.1\r\n\r\n")
    assert main(["wire", str(capture)]) == 0
    assert "no host header" in capsys.readouterr().out


def test_the_form_can_be_named_and_is_one_that_there_is(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    capture.write_bytes(b"GET / HTTP/1.1\r\n\r\n")
    assert main(["wire", str(capture), "--as", "http1", "--json"]) == 0
    assert tuple(FORMS) == arguments._FORMS
    with pytest.raises(SystemExit):
        main(["wire", str(capture), "--as", "nonsense"])


def test_an_empty_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "capture").write_bytes(b"")
    assert main(["wire", str(tmp_path / "capture")]) == 2
    assert "is empty" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wire", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err
