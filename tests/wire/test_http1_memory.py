"""What other connections sent before saves the work of parsing, and changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.wire.http1 import Fault, Head, Http1Protocol
from zerolayer.wire.http1_memory import HeadMemory


def get(*lines: bytes, path: bytes = b"/") -> bytes:
    return b"\r\n".join([b"GET %b HTTP/1.1" % path, b"host: a", *lines, b"", b""])


def connection(memory: HeadMemory | None = None, *before: bytes) -> Http1Protocol:
    """A new one, on which these requests came."""
    made = Http1Protocol(4096, 1024, memory=memory)
    for raw in before:
        assert not any(isinstance(event, Fault) for event in made.receive(raw))
    return made


def head_of(made: Http1Protocol, raw: bytes) -> Head:
    head = made.receive(raw)[0]
    assert isinstance(head, Head)
    return head


def told(head: Head) -> tuple[object, ...]:
    """All that a head says, however it was found."""
    return tuple(getattr(head, name) for name in Head.__struct_fields__ if name != "like")


def test_a_head_that_another_connection_sent_is_the_same_one():
    memory = HeadMemory()
    first = head_of(connection(memory), get())
    message = connection(memory).whole(get())
    assert message is not None
    assert message.head is first


def test_values_that_differ_between_connections_are_read_from_the_bytes():
    memory = HeadMemory()
    for name in (b"a", b"b"):
        connection(memory, get(b"x-request-id: " + name))
    message = connection(memory).whole(get(b"x-request-id: c"))
    assert message is not None
    assert told(message.head) == told(head_of(connection(), get(b"x-request-id: c")))
    assert message.head.like is not None


def test_what_decides_where_a_head_leads_is_parsed_on_every_connection():
    memory = HeadMemory()
    for origin in (b"http://a", b"http://b"):
        connection(memory, get(b"origin: " + origin))
    assert connection(memory).whole(get(b"origin: http://c")) is None


def test_a_connection_that_sends_something_new_each_time_takes_the_memory_from_nobody():
    memory = HeadMemory()
    kept = head_of(connection(memory), get())
    connection(memory, *[get(path=b"/%d" % number) for number in range(1000)])
    assert head_of(connection(memory), get()) is kept


def test_connections_that_each_send_something_new_do_not_make_it_grow():
    memory = HeadMemory()
    for number in range(1000):
        connection(memory, get(path=b"/%d" % number))
    known = [connection(memory).whole(get(path=b"/%d" % number)) is not None for number in range(1000)]
    assert sum(known) == 64
    assert all(known[-64:])


def test_what_one_connection_remembers_for_itself_stays_when_all_others_forget_it():
    memory = HeadMemory()
    steady = connection(memory, get())
    for number in range(1000):
        connection(memory, get(path=b"/%d" % number))
    assert steady.whole(get()) is not None


def test_a_head_over_the_limit_is_refused_though_a_shorter_one_like_it_came():
    memory = HeadMemory()
    for name in (b"a", b"b"):
        connection(memory, get(b"x-request-id: " + name))
    late, raw = connection(memory), get(b"x-request-id: " + b"c" * 5000)
    assert late.whole(raw) is None
    assert isinstance(late.receive(raw)[-1], Fault)


@pytest.mark.parametrize("value", [b"c\x00", b"c\nevil: 1", b"c\r\nhost: b", b"c\r\ntransfer-encoding: x"])
def test_a_value_that_is_no_value_is_refused_as_ever(value):
    memory = HeadMemory()
    for name in (b"a", b"b"):
        connection(memory, get(b"x-request-id: " + name))
    late, raw = connection(memory), get(b"x-request-id: " + value)
    assert late.whole(raw) is None
    assert isinstance(late.receive(raw)[-1], Fault)


KEYED = (b"Authorization: Bearer sk-1", b"x-request-id: a")


def test_a_head_with_a_key_is_known_from_others_that_had_another_key():
    memory = HeadMemory()
    connection(memory, get(*KEYED))
    raw = get(b"Authorization: Bearer sk-22", KEYED[1])
    message = connection(memory).whole(raw)
    assert message is not None
    assert told(message.head) == told(head_of(connection(), raw))


def test_a_key_is_not_kept_beyond_the_connection_that_brought_it():
    memory = HeadMemory()
    for name in (b"a", b"b", b"c"):
        connection(memory, get(KEYED[0], b"cookie: sk-3", b"x-api-key: sk-4", b"x-request-id: " + name))
    other = memory.head(get(b"Authorization: x", b"cookie: y", b"x-api-key: z", b"x-request-id: d"))
    assert other is not None
    assert other.like is not None
    assert b"sk-" not in repr((other, vars(memory), vars(memory._habits))).encode()


def test_a_connection_remembers_its_own_head_with_a_key_once_it_came_twice():
    memory = HeadMemory()
    connection(memory, get(*KEYED))
    made = connection(memory)
    heads = [made.whole(get(*KEYED)) for _ in range(4)]
    assert all(message is not None for message in heads)
    assert heads[2].head is heads[3].head


VALUE = st.text("abc,; \t1", max_size=6).map(str.encode)


@given(st.lists(st.tuples(VALUE, VALUE, st.sampled_from([b"a/b", b"c/d"]), st.booleans()), max_size=10))
def test_whatever_came_on_others_a_connection_reads_what_it_would_read_alone(requests):
    memory = HeadMemory()
    made = connection(memory)
    for first, second, media, anew in requests:
        made = connection(memory) if anew else made
        raw = get(b"x-request-id: " + first, b"authorization: " + second, b"content-type: " + media)
        message = made.whole(raw)
        head = message.head if message is not None else head_of(made, raw)
        assert told(head) == told(head_of(connection(), raw))
