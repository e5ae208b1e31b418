"""Properties of a connection: any split of the bytes gives the same events, and no bytes raise."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from zerolayer.wire.http1 import Event, Head, Http1Protocol, Message

CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"


def receive(*parts: bytes) -> list[Event]:
    protocol = Http1Protocol(1024, 4096)
    return [event for part in parts for event in protocol.receive(part)]


TOKENS = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=8).map(str.encode)
VALUES = st.binary(max_size=20).map(lambda raw: bytes(byte for byte in raw if byte >= 0x20 and byte != 0x7F))


@st.composite
def chunked_bodies(draw: st.DrawFn) -> bytes:
    parts = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=4))
    lines = [b"%x%b\r\n%b\r\n" % (len(part), draw(st.sampled_from([b"", b";a=b", b" "])), part) for part in parts]
    return b"".join(lines) + b"0\r\n" + draw(st.sampled_from([b"", b"x-sum: 1\r\n"])) + b"\r\n"


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    target = draw(st.sampled_from([b"/", b"/v1/models?x=1", b"/%00%ff", b"http://h/p"]))
    headers = draw(st.lists(st.tuples(TOKENS.map(lambda name: b"x-" + name), VALUES), max_size=4))
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    blank = draw(st.sampled_from([b"", b"\r\n"]))
    head = blank + b"%b %b HTTP/1.1\r\nHost: h\r\n%b" % (draw(st.sampled_from([b"GET", b"POST"])), target, lines)
    framing = draw(st.sampled_from(["none", "sized", "chunked"]))
    if framing == "none":
        return head + b"\r\n"
    if framing == "sized":
        body = draw(st.binary(max_size=80))
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + draw(chunked_bodies())


@st.composite
def splits(draw: st.DrawFn, raw: bytes) -> list[bytes]:
    cuts = sorted(draw(st.sets(st.integers(0, len(raw)), max_size=12)) | {0, len(raw)})
    return [raw[start:end] for start, end in pairwise(cuts)]


@given(st.data(), st.lists(requests(), min_size=1, max_size=4))
def test_any_split_of_valid_requests_gives_the_same_events(data: st.DataObject, sequence: list[bytes]) -> None:
    raw = b"".join(sequence)
    whole = receive(raw)
    assert [type(event) for event in whole] == [Head, Message] * len(sequence)
    assert receive(*data.draw(splits(raw))) == whole


@given(st.lists(requests(), min_size=1, max_size=3))
def test_valid_requests_may_arrive_byte_by_byte(sequence: list[bytes]) -> None:
    raw = b"".join(sequence)
    assert receive(*[raw[i : i + 1] for i in range(len(raw))]) == receive(raw)


@given(st.lists(st.binary(max_size=200), max_size=5))
@example([b"GET / HTTP/1.1\r\nhost: h\r\n\r\n", b"\xff"])
def test_arbitrary_bytes_give_events_and_never_raise(parts: list[bytes]) -> None:
    events = receive(*parts)
    assert all(isinstance(event, Head | Message) for event in events[:-1])


@given(st.data(), requests())
def test_a_damaged_request_gives_the_same_kinds_of_events_however_it_is_split(data: st.DataObject, raw: bytes) -> None:
    position = data.draw(st.integers(0, len(raw) - 1))
    damaged = raw[:position] + data.draw(st.binary(max_size=3)) + raw[position + data.draw(st.integers(0, 3)) :]
    damaged += b"\r\n\r\n" * 2  # whatever is open comes to an end
    whole, split = receive(damaged), receive(*data.draw(splits(damaged)))
    assert [type(event) for event in split] == [type(event) for event in whole]


@given(st.binary(max_size=60))
def test_a_chunked_body_of_arbitrary_bytes_never_raises(body: bytes) -> None:
    events = receive(CHUNKED + body)
    assert isinstance(events[0], Head)
