"""Blocks that are compared instead of decoded are the heads that decoding would give."""

from __future__ import annotations

import hpack
import pytest
from hpack.huffman_table import decode_huffman as decode_by_hpack
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.wire.http1_head import Head
from zerolayer.wire.http2_frames import ConnectionFault
from zerolayer.wire.http2_head import HeadDecoder, MalformedHead
from zerolayer.wire.http2_huffman import BadHuffman, decode_huffman

POST = [(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "a"), ("te", "trailers")]
NO_TABLE = b"\x20"


def block(*fields: tuple[str, str], huffman: bool = True) -> bytes:
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    encoder.encode([])
    return encoder.encode([*POST, *fields], huffman=huffman)


def decoder(*before: bytes) -> HeadDecoder:
    """Of a client without a dynamic table that has sent these blocks."""
    made = HeadDecoder(16_384, 50)
    made.request(NO_TABLE + block())
    for raw in before:
        made.request(raw)
    return made


def told(head: Head) -> tuple[object, ...]:
    """All that a head says, however it was found."""
    return tuple(getattr(head, name) for name in Head.__struct_fields__ if name != "like")


@pytest.mark.parametrize("huffman", [True, False])
def test_values_that_changed_before_may_change_again(huffman):
    raws = [block(("grpc-timeout", f"{n}m"), ("x-a", "b"), ("traceparent", str(n)), huffman=huffman) for n in range(3)]
    head = decoder(*raws[:2]).request(raws[2])
    assert head.like is not None
    assert told(head) == told(decoder().request(raws[2]))


@pytest.mark.parametrize("name", [":path", "origin", "content-type", "expect", "host"])
def test_what_decides_where_a_head_leads_is_decoded_each_time(name):
    values = ["/a", "/b", "/c"] if name == ":path" else ["a", "A", "a"]
    fields = [[(name, value)] for value in values]
    raws = [block(*pairs) for pairs in fields]
    if name == ":path":
        raws = [block().replace(block(), hpack_block([(":path", value)])) for value in values]
    assert decoder(*raws[:2]).request(raws[2]).like is None


def hpack_block(changed: list[tuple[str, str]]) -> bytes:
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    encoder.encode([])
    return encoder.encode([(name, dict(changed).get(name, value)) for name, value in POST])


def test_a_value_that_no_header_may_have_is_malformed():
    warm = decoder(block(("x-a", "b")), block(("x-a", "c")))
    with pytest.raises(MalformedHead):
        warm.request(block(("x-a", "d\r"), huffman=False))


def test_a_broken_string_breaks_the_connection():
    warm = decoder(block(("x-a", "b")), block(("x-a", "c")))
    with pytest.raises(ConnectionFault):
        warm.request(block(("x-a", ""))[:-1] + b"\x84\xff\xff\xff\xff")


def test_a_length_that_changes_is_a_number():
    warm = decoder(block(("content-length", "1")), block(("content-length", "22")))
    assert warm.request(block(("content-length", "333"))).content_length == 333
    with pytest.raises(MalformedHead):
        warm.request(block(("content-length", "3a")))


def test_what_was_remembered_without_a_table_is_void_once_there_is_one():
    plain = b"\x83\x86\x84\x01\x01a"  # POST http / and the authority "a", none of it for the table
    raw = plain + b"\x40\x03x-a\x01b"  # a field that is to be added to the table, where there is one
    warm = decoder(raw)
    warm.request(b"\x3f\xe1\x1f" + plain)  # a table of 4096 bytes from here on
    assert not warm.stateless
    warm.request(raw)
    assert warm.request(plain + b"\xbe").values[b"x-a"] == b"b"


@given(st.lists(st.tuples(st.text("ab;= 1", max_size=5), st.text("xyz", max_size=5), st.booleans()), max_size=8))
def test_whatever_changes_a_warm_decoder_reads_what_a_new_one_reads(requests):
    warm = decoder()
    for first, second, huffman in requests:
        raw = block(("x-a", first.strip()), ("x-b", "c"), ("x-c", second), huffman=huffman)
        assert told(warm.request(raw)) == told(decoder().request(raw))


@given(st.binary(max_size=40))
def test_huffman_coding_is_hpacks(string):
    try:
        expected = bytes(decode_by_hpack(string))
    except hpack.HPACKError:
        with pytest.raises(BadHuffman):
            decode_huffman(string)
    else:
        assert decode_huffman(string) == expected
