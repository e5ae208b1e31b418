"""Server-sent events as https://html.spec.whatwg.org/multipage/server-sent-events.html defines them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.client.errors import BadReply
from zerolayer.client.sse import EVENT_BYTES, EventReader


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\r\n\r\n", [b"a"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b": comment\n\n", []),
        (b"event: x\nid: 1\nretry: 5\ndata: a\n\n", [b"a"]),
        (b"\n\n\n", []),
        (b"data: a\n", []),
    ],
)
def test_events_are_split_as_the_standard_says(stream: bytes, events: list[bytes]) -> None:
    assert EventReader().push(stream) == events


@given(st.lists(st.sampled_from([b"data: a", b"data:b", b":c", b"", b"data", b"x: y"]), max_size=12), st.data())
def test_the_pieces_in_which_bytes_arrive_make_no_difference(lines: list[bytes], data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=len(lines), max_size=len(lines)))
    stream = b"".join(line + end for line, end in zip(lines, ends, strict=True))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader, events = EventReader(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        events += reader.push(stream[start:end])
    assert events == EventReader().push(stream)


def test_a_line_feed_that_comes_alone_behind_its_return_does_not_swallow_the_next_one() -> None:
    reader = EventReader()
    assert [reader.push(piece) for piece in (b"data: a\r", b"\n", b"\n")] == [[], [], [b"a"]]


@pytest.mark.parametrize("line", [b"data: " + b"x" * EVENT_BYTES, b"data: x\n" * (EVENT_BYTES // 2)])
def test_an_event_without_end_is_refused_instead_of_kept(line: bytes) -> None:
    with pytest.raises(BadReply, match=str(EVENT_BYTES)):
        EventReader().push(line)


@pytest.mark.parametrize("line", [b"d\xe1ta: x", b"datq: x", b"data\x1a {}", b"{}"])
def test_where_text_must_not_be_missing_a_field_that_is_not_known_is_an_error(line: bytes) -> None:
    with pytest.raises(BadReply, match="no field"):
        EventReader(strict=True).push(line + b"\n\n")


def test_the_other_fields_that_the_standard_knows_are_none() -> None:
    assert EventReader(strict=True).push(b": x\nevent: x\nid: 1\nretry: 5\ndata: a\n\n") == [b"a"]
