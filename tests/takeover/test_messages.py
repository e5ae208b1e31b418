"""What two processes say to each other arrives as it was sent, in whatever pieces, and nothing else is taken for it."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.errors import TakeoverFailed
from zerolayer.guard.budget.account import State
from zerolayer.guard.budget.lease import Units
from zerolayer.guard.budget.succession import Legacy, Settled
from zerolayer.guard.deadline.booking import Terms
from zerolayer.guard.deadline.succession import Engagements, Promise
from zerolayer.guard.identity import Quota
from zerolayer.serve.takeover.messages import (
    PREAMBLE,
    VERSION,
    Clocks,
    Connections,
    Drained,
    Estate,
    Go,
    Hello,
    Message,
    Reader,
    Ready,
    Refused,
    Slots,
    Take,
    Welcome,
    frame,
)

number = st.integers(-(2**62), 2**62)
names = st.text(max_size=20)
blob = st.binary(max_size=40)
units = st.builds(Units, number, number, number, number)
clocks = st.builds(Clocks, names, names, number, number)
terms = st.builds(Terms, number, number, number, number, number, st.booleans())
promise = st.builds(Promise, number, number, number, terms, st.booleans(), blob, blob, names)
engagements = st.builds(
    Engagements,
    st.lists(promise, max_size=3).map(tuple),
    st.lists(st.tuples(blob, st.floats(0, 9), st.floats(0, 9)), max_size=2).map(tuple),
    number,
)
legacy = st.builds(Legacy, blob, names, st.builds(Quota, *[number] * 4), st.builds(State, *[number] * 5), units)
messages = st.one_of(
    st.builds(Hello, names, clocks, st.dictionaries(names, names, max_size=3)),
    st.builds(Welcome, names, number, clocks, st.dictionaries(names, names, max_size=3)),
    st.builds(Refused, names),
    st.builds(
        Estate,
        st.lists(names, max_size=5).map(tuple),
        engagements,
        st.lists(legacy, max_size=3).map(tuple),
        st.lists(number, max_size=5).map(tuple),
        number,
    ),
    st.builds(Connections, st.integers(0, 250), st.booleans()),
    st.builds(Slots, st.lists(number, max_size=5).map(tuple)),
    st.builds(Settled, blob, units, units),
    st.sampled_from([Take(), Ready(), Go(), Drained()]),
)


@given(st.lists(messages, max_size=6), st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_messages_arrive_as_they_were_sent_in_whatever_pieces(sent, sizes):
    data = PREAMBLE + b"".join(map(frame, sent))
    reader, found, place = Reader(), list[Message](), 0
    while place < len(data):
        size = sizes[place % len(sizes)]
        found += reader.receive(data[place : place + size])
        place += size
    assert found == sent


@given(st.binary(min_size=6, max_size=200))
def test_other_bytes_are_refused_or_wait_and_nothing_else(data):
    reader = Reader()
    try:
        found = reader.receive(data)
    except TakeoverFailed:
        return
    assert found == [] or data.startswith(PREAMBLE)


def test_of_another_version_nothing_is_read_but_its_number():
    reader = Reader()
    assert reader.receive(struct.pack(">4sH", b"ZLTO", VERSION + 1) + frame(Take())) == []
    assert reader.version == VERSION + 1


@pytest.mark.parametrize("length", [2**31, (1 << 28) + 1])
def test_a_length_that_no_message_has_is_refused_before_its_bytes_come(length):
    with pytest.raises(TakeoverFailed):
        Reader().receive(PREAMBLE + struct.pack(">I", length))


@given(promise, st.integers(-(2**40), 2**40))
def test_a_promise_by_another_clock_keeps_its_distances(given_promise, by_ns):
    moved = given_promise.moved(by_ns)
    assert moved.start_ns - given_promise.start_ns == by_ns
    assert moved.terms.from_ns - given_promise.terms.from_ns == by_ns
    assert msgspec.structs.replace(moved, start_ns=0, terms=terms_of(moved)) == msgspec.structs.replace(
        given_promise, start_ns=0, terms=terms_of(moved)
    )


def terms_of(of: Promise) -> Terms:
    return of.terms
