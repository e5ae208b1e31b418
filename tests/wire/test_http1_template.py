"""Heads that are compared instead of parsed are the heads that parsing would give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.wire.http1 import Fault, Head, Http1Protocol, Message

ID = b"x-request-id"


def post(request_id: bytes = b"a", body: bytes = b"", *, more: bytes = b"", media: bytes = b"text/plain") -> bytes:
    head = b"POST /x HTTP/1.1\r\nhost: a\r\nContent-Type: %b\r\nX-Request-Id: %b\r\n%bContent-Length: %d\r\n\r\n%b"
    return head % (media, request_id, more, len(body), body)


def protocol(*before: bytes) -> Http1Protocol:
    """A connection on which these requests came."""
    made = Http1Protocol(4096, 1024)
    for raw in before:
        assert not any(isinstance(event, Fault) for event in made.receive(raw))
    return made


def parsed(raw: bytes) -> Head:
    head = Http1Protocol(4096, 1024).receive(raw)[0]
    assert isinstance(head, Head)
    return head


def told(head: Head) -> tuple[object, ...]:
    """All that a head says, however it was found."""
    return tuple(getattr(head, name) for name in Head.__struct_fields__ if name != "like")


def test_a_request_like_one_before_is_given_whole():
    message = protocol(post(body=b"abc")).whole(post(body=b"abc"))
    assert message == Message(parsed(post(body=b"abc")), b"abc")


def test_values_that_changed_before_may_change_again():
    raw = post(b"c", b"longer than before")
    message = protocol(post(b"a"), post(b"b", b"xy")).whole(raw)
    assert message is not None
    assert told(message.head) == told(parsed(raw))
    assert message.body == b"longer than before"


def test_heads_of_one_form_are_like_the_same_head():
    warm = protocol(post(b"a"), post(b"b"))
    first, second = (warm.receive(post(name))[0] for name in (b"c", b"d"))
    assert isinstance(first, Head)
    assert isinstance(second, Head)
    assert first.like is second.like is not None


@pytest.mark.parametrize("name", [b"Host", b"Origin", b"Content-Encoding", b"Connection", b"Expect", b"TE"])
def test_what_decides_where_a_head_leads_is_parsed_each_time(name):
    values = (b"a", b"b", b"c") if name != b"Host" else (b"", b"", b"")
    raws = [post(b"x", more=b"%b: %b\r\n" % (name, value)) for value in values]
    if name == b"Host":
        raws = [b"GET / HTTP/1.1\r\nhost: %b\r\n\r\n" % value for value in (b"a", b"b", b"c")]
    head = protocol(*raws[:2]).receive(raws[2])[0]
    assert isinstance(head, Head)
    assert head.like is None


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(post(b"c\x00"), id="control"),
        pytest.param(post(b"c\nevil: 1"), id="line feed"),
        pytest.param(post(b"c\r\nhost: b"), id="second host"),
        pytest.param(post(b"c\r\ntransfer-encoding: chunked"), id="length and coding"),
        pytest.param(post(b"c").replace(b"Length: 0", b"Length: -1"), id="negative length"),
        pytest.param(post(b"c").replace(b"Length: 0", b"Length: 1_0"), id="length of python"),
        pytest.param(post(b"c" * 5000), id="too long"),
    ],
)
def test_a_value_that_is_no_value_is_refused_as_ever(raw):
    warm = protocol(post(b"a", b"x"), post(b"b"))
    assert warm.whole(raw) is None
    assert any(isinstance(event, Fault) for event in warm.receive(raw))


def test_a_request_that_has_not_come_wholly_is_left_to_receive():
    warm, raw = protocol(post(body=b"abc")), post(body=b"abc")
    assert warm.whole(raw[:-1]) is None
    assert warm.whole(raw + b"P") is None
    assert warm.idle


def test_a_body_over_the_limit_is_refused_whatever_was_before():
    warm, raw = protocol(post(b"a", b"x"), post(b"b", b"yz")), post(b"c", b"x" * 1025)
    assert warm.whole(raw) is None
    assert isinstance(warm.receive(raw)[-1], Fault)


VALUE = st.text("abc,; \t1", max_size=6).map(str.encode)


@given(st.lists(st.tuples(VALUE, VALUE, st.binary(max_size=4), st.sampled_from([b"a/b", b"c/d"])), max_size=8))
def test_whatever_changes_a_warm_connection_reads_what_a_new_one_reads(requests):
    warm = protocol()
    for request_id, other, body, media in requests:
        raw = post(request_id, body, more=b"X-Other: %b\r\n" % other, media=media)
        message = warm.whole(raw)
        head = message.head if message is not None else warm.receive(raw)[0]
        assert isinstance(head, Head)
        assert told(head) == told(parsed(raw))
