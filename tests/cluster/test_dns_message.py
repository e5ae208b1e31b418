"""The bytes of DNS, as RFC 1035 has them."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from fake_servers import reply_to
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.cluster.dns_message import Kind, MessageError, ServerFailed, question, read_reply

ASKED = question(0x1234, "llm.prod.svc", Kind.A)


def test_a_question_is_written_label_by_label() -> None:
    written = bytes.fromhex("1234 0100 0001 0000 0000 0000 03 6c6c6d 04 70726f64 03 737663 00 0001 0001")
    assert written == ASKED


@pytest.mark.parametrize("name", ["", ".", "a..b", "a" * 64, ".".join(["a" * 60] * 5)])
def test_what_is_no_name_is_never_asked_for(name) -> None:
    with pytest.raises(MessageError):
        question(1, name, Kind.A)


def test_addresses_names_and_ports_are_read() -> None:
    answers = [
        ("llm.prod.svc", (1, 30, "10.0.0.1", 0)),
        ("llm.prod.svc", (28, 40, "fd00::1", 0)),
        ("llm.prod.svc", (33, 50, "LLM-0.prod.svc", 8000)),
        ("llm.prod.svc", (5, 60, "other.svc", 0)),
    ]
    records = read_reply(reply_to(ASKED, answers), ASKED).records
    assert [(record.kind, record.ttl_s, record.value, record.port) for record in records] == [
        (1, 30, "10.0.0.1", 0),
        (28, 40, "fd00::1", 0),
        (33, 50, "llm-0.prod.svc", 8000),
        (5, 60, "other.svc", 0),
    ]
    assert {record.name for record in records} == {"llm.prod.svc"}


def test_records_of_other_kinds_are_passed_over() -> None:
    answers = [("llm.prod.svc", (2, 30, "ns.example", 0)), ("llm.prod.svc", (1, 30, "10.0.0.1", 0))]
    assert [record.value for record in read_reply(reply_to(ASKED, answers), ASKED).records] == ["10.0.0.1"]


def test_a_name_that_does_not_exist_has_no_records() -> None:
    assert read_reply(reply_to(ASKED, [], code=3), ASKED).records == ()


@pytest.mark.parametrize("code", [1, 2, 5])
def test_a_server_that_fails_says_so(code) -> None:
    for reply in (reply_to(ASKED, [], code=code), ASKED[:2] + struct.pack("!HHHHH", 0x8180 | code, 0, 0, 0, 0)):
        with pytest.raises(ServerFailed):
            read_reply(reply, ASKED)


def test_nobody_else_can_say_that_the_server_failed() -> None:
    for other in (question(0x1235, "llm.prod.svc", Kind.A), question(0x1234, "llm.test.svc", Kind.A)):
        with pytest.raises(MessageError) as caught:
            read_reply(reply_to(other, [], code=2), ASKED)
        assert not isinstance(caught.value, ServerFailed)


def test_case_of_the_question_does_not_matter() -> None:
    reply = reply_to(ASKED, [("llm.prod.svc", (1, 30, "10.0.0.1", 0))])
    assert len(read_reply(reply.replace(b"prod", b"PROD"), ASKED).records) == 1


def test_a_reply_to_another_question_is_none() -> None:
    for other in (question(0x1235, "llm.prod.svc", Kind.A), question(0x1234, "llm.test.svc", Kind.A)):
        with pytest.raises(MessageError):
            read_reply(reply_to(other, []), ASKED)


def test_a_question_is_no_reply() -> None:
    with pytest.raises(MessageError):
        read_reply(ASKED, ASKED)


def test_a_pointer_that_points_at_itself_ends() -> None:
    at = len(ASKED)
    record = struct.pack("!H", 0xC000 | at) + struct.pack("!HHIH", 1, 1, 1, 4) + bytes(4)
    looped = ASKED[:2] + struct.pack("!HHHHH", 0x8180, 1, 1, 0, 0) + ASKED[12:] + record
    with pytest.raises(MessageError, match="end"):
        read_reply(looped, ASKED)


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_be_read_or_refused(data) -> None:
    for bytes_ in (data, ASKED[:2] + struct.pack("!HHHHH", 0x8180, 1, 3, 0, 0) + ASKED[12:] + data):
        with suppress(MessageError):
            read_reply(bytes_, ASKED)


@given(st.integers(0, 80))
def test_a_reply_that_was_cut_is_refused(cut) -> None:
    whole = reply_to(ASKED, [("llm.prod.svc", (33, 9, "llm-0.prod.svc", 1)), ("x.y", (1, 9, "10.0.0.1", 0))])
    if cut < len(whole):
        with pytest.raises(MessageError):
            read_reply(whole[: len(whole) - 1 - cut], ASKED)
