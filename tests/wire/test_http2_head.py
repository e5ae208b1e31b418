"""Header blocks: what is a request, and when a remembered block may stand for it."""

from __future__ import annotations

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.errors import HeadersTooLarge
from zerolayer.wire.http2_frames import Code, ConnectionFault
from zerolayer.wire.http2_head import HeadDecoder, MalformedHead

Fields = list[tuple[str, str]]
GET: Fields = [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a.example")]


def encoded(fields: Fields, *, table: int = 0, encoder: hpack.Encoder | None = None, huffman: bool = True) -> bytes:
    encoder = encoder or hpack.Encoder()
    if encoder.header_table_size != table:
        encoder.header_table_size = table
    return encoder.encode(fields, huffman=huffman)


@pytest.fixture
def decoder() -> HeadDecoder:
    return HeadDecoder(16_384, 50)


def test_the_authority_stands_in_for_the_host_header(decoder: HeadDecoder) -> None:
    assert decoder.request(encoded(GET)).get(b"host") == b"a.example"


def test_a_host_header_will_do_without_an_authority(decoder: HeadDecoder) -> None:
    assert decoder.request(encoded([*GET[:3], ("host", "b")])).get(b"host") == b"b"


def test_a_client_may_wait_for_100_continue(decoder: HeadDecoder) -> None:
    assert decoder.request(encoded([*GET, ("expect", "100-continue")])).expects_continue


@pytest.mark.parametrize(
    "fields",
    [
        GET[1:],
        GET[:3],
        [GET[0], *GET[2:]],
        [*GET[:2], GET[3]],
        [*GET, GET[0]],
        [("x", "y"), *GET],
        [*GET, (":status", "200")],
        [*GET, (":protocol", "websocket")],
        [("x-a", "b"), *GET],
        [*GET, ("host", "other")],
        [*GET, ("host", "a.example"), ("host", "a.example")],
        [*GET, ("connection", "close")],
        [*GET, ("transfer-encoding", "chunked")],
        [*GET, ("upgrade", "h2c")],
        [*GET, ("te", "gzip")],
        [*GET, ("X-Upper", "a")],
        [*GET, ("x y", "a")],
        [*GET, ("", "a")],
        [*GET, ("x", "a\r\nb")],
        [*GET, ("x", "a\0b")],
        [*GET, ("x", " a")],
        [*GET, ("content-length", "-1")],
        [*GET, ("content-length", "9" * 40)],
        [*GET, ("content-length", "1"), ("content-length", "2")],
        [("m", "a"), *GET[1:]],
        [(":method", "CONNECT"), *GET[1:]],
        [(":method", "G T"), *GET[1:]],
        [GET[0], (":scheme", "ftp"), *GET[2:]],
        [*GET[:3], (":authority", "user@localhost")],
        [*GET[:3], (":authority", "localhost:80@evil.example")],
        [*GET[:3], ("host", "a b")],
        [*GET[:2], (":path", "x"), GET[3]],
        [*GET[:2], (":path", "*"), GET[3]],
        [*GET[:2], (":path", "/a#b"), GET[3]],
        [*GET[:2], (":path", "/a b"), GET[3]],
        [*GET[:2], (":path", ""), GET[3]],
    ],
    ids=str,
)
def test_fields_that_make_no_request(decoder: HeadDecoder, fields: Fields) -> None:
    with pytest.raises(MalformedHead):
        decoder.request(encoded(fields))


@pytest.mark.parametrize("fields", [[(":path", "/")], [("connection", "close")], [("X", "a")]])
def test_trailers_that_may_not_be_there(decoder: HeadDecoder, fields: Fields) -> None:
    with pytest.raises(MalformedHead):
        decoder.trailers(encoded(fields))


@pytest.mark.parametrize("fields", [[*GET, *[("x", "y")] * 60], [*GET, *[("x", "y" * 2000)] * 10]])
def test_too_many_or_too_large_headers_cost_only_their_request(decoder: HeadDecoder, fields: Fields) -> None:
    encoder = hpack.Encoder()
    decoder.request(encoded(GET, encoder=encoder))
    with pytest.raises(HeadersTooLarge):
        decoder.request(encoded(fields, encoder=encoder))
    assert decoder.request(encoded(GET, encoder=encoder)).path == "/"


def test_a_client_that_keeps_a_table_is_understood(decoder: HeadDecoder) -> None:
    """The default table of 4096 bytes, which a client may use until it has seen our SETTINGS."""
    encoder = hpack.Encoder()
    for value in ("a", "a", "b", "a"):
        head = decoder.request(encoded([*GET, ("x-value", value)], table=4096, encoder=encoder))
        assert head.get(b"x-value") == value.encode()


def test_the_same_bytes_mean_another_header_when_the_table_has_moved(decoder: HeadDecoder) -> None:
    """What depends on the table is never looked up in the memo."""
    base = b"\x82\x87\x84\x41\x01a"  # GET https / of "a", which enters the table
    decoder.request(base + b"\x40\x01x\x01" + b"1")
    assert decoder.request(b"\x82\x87\x84\xbf\xbe").get(b"x") == b"1"
    decoder.request(b"\x82\x87\x84\x01\x01a" + b"\x40\x01x\x01" + b"2")
    assert decoder.request(b"\x82\x87\x84\x01\x01a\xbe").get(b"x") == b"2"


def test_a_block_that_only_names_constants_is_decoded_once(decoder: HeadDecoder) -> None:
    block = encoded(GET)
    first = decoder.request(block)  # with the change of the table's size
    block = b"\x82\x87\x84\x01\x01a"
    first = decoder.request(block)
    assert decoder.request(bytes(block)) is first


def test_one_changed_field_leaves_the_others_remembered(decoder: HeadDecoder) -> None:
    for number in (b"1", b"2", b"3"):
        head = decoder.request(b"\x82\x87\x84\x01\x01a\x00\x01x\x01" + number)
        assert head.get(b"x") == number


def outcome(decoder: HeadDecoder, block: bytes) -> object:
    """What a block gives; of the headers' order only what first values depend on."""
    try:
        head = decoder.request(block)
    except (MalformedHead, HeadersTooLarge) as error:
        return type(error)
    routing = (head.method, head.path, head.query, head.expects_continue, head.content_length)
    return routing, head.values, sorted(head.headers)


POOL: Fields = [
    *GET,
    (":path", "/other"),
    ("host", "a.example"),
    ("expect", "100-continue"),
    ("content-length", "5"),
    ("te", "trailers"),
    ("te", "gzip"),
    ("x-request-id", "one"),
    ("x-request-id", "two"),
    ("grpc-timeout", "1S"),
    ("grpc-timeout", "2S"),
    ("x-long", "x" * 4000),
    ("x-long", "y" * 4000),
]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.sampled_from(POOL), max_size=4), max_size=8), st.integers(0, 4))
def test_whatever_is_remembered_a_block_means_what_it_means_to_a_new_connection(heads: list[Fields], at: int) -> None:
    first = encoded(GET)
    warm = HeadDecoder(8192, 10)
    warm.request(first)
    for fields in heads:
        block = encoded([*GET[:at], *fields, *GET[at:]])[1:]  # without the announcement of the table's size
        fresh = HeadDecoder(8192, 10)
        fresh.request(first)
        assert outcome(warm, block) == outcome(fresh, block)


def test_a_field_that_changes_each_time_costs_no_full_decode(
    decoder: HeadDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [encoded([*GET, ("te", "trailers"), ("grpc-timeout", f"{n}m")])[n > 0 :] for n in range(5)]
    for block in blocks[:3]:
        decoder.request(block)
    monkeypatch.setattr(decoder, "_known_fields", None)
    assert [decoder.request(block).get(b"grpc-timeout") for block in blocks[3:]] == [b"3m", b"4m"]


def test_the_memos_do_not_grow(decoder: HeadDecoder) -> None:
    for number in range(2000):
        decoder.request(b"\x82\x87\x84\x01\x01a\x00\x01x\x04%04d" % number)
    assert len(decoder.heads) <= 16
    assert len(decoder._habits._templates) <= 4
    assert len(decoder._fields) <= 128


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",
        b"\xff\x80\x80\x80\x80\x80\x01",
        b"\x7f\xff\xff\xff\xff\xff\x0f\x00",
        b"\x00\x05ab",
        b"\x00\x81\xff\x00",
        b"\x82\x3f\xe1\x1f",
        b"\x3f\xff\xff\x7f",
        b"\xc0",
    ],
    ids=bytes.hex,
)
def test_damaged_compression_is_a_fault_of_the_connection(decoder: HeadDecoder, block: bytes) -> None:
    with pytest.raises(ConnectionFault) as fault:
        decoder.request(block)
    assert fault.value.code is Code.COMPRESSION_ERROR
