"""gRPC's messages, timeouts and trailers."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer import errors
from zerolayer.errors import (
    BeyondHorizon,
    BodyTooLarge,
    InvalidRequest,
    SlotsBusy,
    Unavailable,
    UnsupportedEncoding,
    ZerolayerError,
)
from zerolayer.wire.grpc import Deframer, frame, is_grpc, parse_timeout, percent_encoded, status_trailers


@given(st.lists(st.binary(max_size=50), max_size=6), st.integers(1, 20))
def test_messages_survive_any_cut(messages: list[bytes], step: int) -> None:
    raw = b"".join(frame(message) for message in messages)
    deframer = Deframer(50)
    seen = [message for at in range(0, len(raw), step) for message in deframer.receive(raw[at : at + step])]
    assert seen == messages
    assert not deframer.partial


def test_a_message_that_is_not_complete_is_partial() -> None:
    deframer = Deframer(50)
    assert deframer.receive(frame(b"whole") + b"\0\0") == [b"whole"]
    assert deframer.partial


@pytest.mark.parametrize(
    ("data", "error"),
    [(b"\1\0\0\0\0", UnsupportedEncoding), (b"\2\0\0\0\0", InvalidRequest), (b"\0\0\0\0\x0b", BodyTooLarge)],
    ids=["compressed", "no flag", "too long"],
)
def test_messages_that_are_refused_on_their_prefix(data: bytes, error: type[ZerolayerError]) -> None:
    with pytest.raises(error):
        Deframer(10).receive(data)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_give_messages_or_an_error_of_ours(data: bytes) -> None:
    deframer = Deframer(20)
    try:
        assert all(len(message) <= 20 for message in deframer.receive(data))
    except ZerolayerError as error:
        assert error.grpc_code in (3, 8, 12)


@pytest.mark.parametrize(
    ("value", "nanoseconds"),
    [(b"1H", 3600 * 10**9), (b"2M", 120 * 10**9), (b"3S", 3 * 10**9), (b"4m", 4 * 10**6), (b"5u", 5000), (b"6n", 6)],
)
def test_a_timeout_has_six_units(value: bytes, nanoseconds: int) -> None:
    assert parse_timeout(value) == nanoseconds


@pytest.mark.parametrize("value", [b"", b"1", b"S", b"-1S", b"123456789S", b"1s", b"1 S", b"\xd9\xa1S"])
def test_no_other_timeout_is_taken(value: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_timeout(value)


@given(st.from_regex(rb"[0-9]{0,9}[HMSmunx ]?", fullmatch=True) | st.binary(max_size=4))
def test_a_timeout_is_up_to_eight_digits_and_a_unit(value: bytes) -> None:
    found = re.fullmatch(rb"([0-9]{1,8})([HMSmun])", value)
    try:
        assert parse_timeout(value) == int(found[1]) * parse_timeout(b"1" + found[2])  # type: ignore[index]
    except InvalidRequest:
        assert found is None


@given(st.text())
def test_a_status_message_is_visible_ascii_and_decodes_to_itself(text: str) -> None:
    encoded = percent_encoded(text)
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert unquote_to_bytes(encoded) == text.encode("utf-8", "replace")


def test_a_busy_server_says_when_to_come_back() -> None:
    trailers = dict(status_trailers(SlotsBusy("busy", retry_after_ms=250)))
    assert trailers == {
        b"grpc-status": b"8",
        b"grpc-message": b"busy",
        b"grpc-retry-pushback-ms": b"250",
        b"zl-help": b"docs/troubleshooting.md#slots_busy",
    }


def test_a_draining_server_says_so_too() -> None:
    assert dict(status_trailers(Unavailable("away")))[b"grpc-retry-pushback-ms"] == b"1000"


def test_a_node_that_drains_names_those_that_take_the_call() -> None:
    trailers = dict(status_trailers(Unavailable("away", peers=("http://10.0.0.2:8000", "http://10.0.0.3:8000"))))
    assert trailers[b"zl-peers"] == b"http://10.0.0.2:8000,http://10.0.0.3:8000"
    assert b"zl-peers" not in dict(status_trailers(Unavailable("away")))


def test_every_error_has_a_code_of_grpc() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ZerolayerError)]
    assert all(1 <= kind.grpc_code <= 16 for kind in kinds)


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (b"application/grpc", True),
        (b"application/grpc+proto", True),
        (b"application/grpc;charset=utf-8", True),
        (b"application/grpc-web", False),
        (b"application/json", False),
        (None, False),
    ],
)
def test_a_call_is_told_by_its_content_type(content_type: bytes | None, expected: bool) -> None:
    assert is_grpc(content_type) is expected


def test_what_no_retry_can_help_is_pushed_back_for_good():
    assert dict(status_trailers(BeyondHorizon("too late")))[b"grpc-retry-pushback-ms"] == b"-1"
