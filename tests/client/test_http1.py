"""Replies of HTTP/1.1 as a client reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.client.errors import BadReply, BrokenReply
from zerolayer.client.http1 import HEAD_BYTES, ReplyReader

PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-Thing:  a b \r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
    b"3;name=value\r\nhel\r\n2\r\nlo\r\n0\r\ntrailer: x\r\n\r\n"
)
CLOSED = b"HTTP/1.0 404 Not Found\r\n\r\nhello"


def read(data: bytes, *, ends: bool = True) -> tuple[ReplyReader, bytes]:
    reader = ReplyReader()
    body = reader.push(data)
    if ends:
        reader.end()
    return reader, body


@pytest.mark.parametrize(("data", "status"), [(PLAIN, 200), (CHUNKED, 200), (CLOSED, 404)])
def test_a_body_is_read_whatever_frames_it(data, status) -> None:
    reader, body = read(data)
    assert (reader.status, body, reader.complete) == (status, b"hello", True)


def test_header_names_are_lower_case_and_values_trimmed() -> None:
    assert read(PLAIN)[0].headers["x-thing"] == "a b"


@given(st.sampled_from([PLAIN, CHUNKED, CLOSED]), st.lists(st.integers(1, 9), max_size=60))
def test_the_pieces_in_which_bytes_arrive_make_no_difference(data, sizes) -> None:
    reader, body, place = ReplyReader(), b"", 0
    for size in [*sizes, len(data)]:
        body += reader.push(data[place : place + size])
        place += size
    reader.end()
    assert (body, reader.complete) == (b"hello", True)


@given(st.sampled_from([PLAIN, CHUNKED]), st.data())
def test_a_reply_that_breaks_off_is_never_complete(data, draw) -> None:
    reader = ReplyReader()
    reader.push(data[: draw.draw(st.integers(0, len(data) - 1))])
    assert not reader.complete
    with pytest.raises(BrokenReply):
        reader.end()


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1,1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffff\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a" * HEAD_BYTES,
    ],
)
def test_what_is_not_the_protocol_is_refused(data) -> None:
    with pytest.raises(BadReply):
        read(data, ends=False)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data) -> None:
    reader = ReplyReader()
    try:
        reader.push(b"HTTP/1.1 200 OK\r\n" + data)
        reader.end()
    except BadReply:
        assert not reader.complete
    else:
        assert reader.complete
