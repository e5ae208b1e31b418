"""What is compiled for the wire does what its specification in Python does, byte for byte."""

from __future__ import annotations

from functools import partial

import hpack
import pytest
import wire_specification as specification
from hypothesis import example, given
from hypothesis import strategies as st
from wire_specification import Headers

from zerolayer.errors import SlotsBusy, ZerolayerError
from zerolayer.wire import _native
from zerolayer.wire._native import StreamBase
from zerolayer.wire.grpc import CONTENT_TYPE, later_fields, not_one, status_trailers
from zerolayer.wire.http1_head import Head
from zerolayer.wire.http1_reply import response
from zerolayer.wire.http2_huffman import HUFFMAN
from zerolayer.wire.http2_sending import Sender
from zerolayer.wire.http2_stream import COMPLETE, Stream
from zerolayer.wire.protobuf import bytes_field, varint_field

SMALL = st.binary(max_size=12)
LONG = st.sampled_from([0, 1, 126, 127, 128, 255, 256, 16_383, 16_384, 16_385]).map(lambda size: b"v" * size)
HEADERS = st.lists(st.tuples(SMALL, SMALL | LONG), max_size=4).map(tuple)


def same(made, expected, *arguments: object) -> None:
    """Both give the same, or refuse."""
    try:
        wanted = expected(*arguments)
    except ValueError:
        with pytest.raises(ValueError):
            made(*arguments)
    else:
        assert made(*arguments) == wanted


@given(st.sampled_from([200, 204, 304, 429, 503]), SMALL, HEADERS, SMALL | LONG, st.booleans(), st.booleans())
def test_a_reply_of_http1(status: int, common: bytes, headers: Headers, body: bytes, keep: bool, head_only: bool):
    def made(*given) -> bytes:
        return response(*given, common=common, keep_alive=keep, head_only=head_only)

    def expected(status, headers, body) -> bytes:
        return specification.http1_reply(status, common, headers, body, keep_alive=keep, head_only=head_only)

    same(made, expected, status, headers, body)


@given(st.integers(1, 2**31 - 1), SMALL, SMALL | LONG, HEADERS, SMALL | LONG, SMALL | LONG)
def test_a_reply_of_http2(stream, status, common, headers, body, trailers):
    same(_native.http2_reply, specification.http2_reply, stream, status, common, headers, body, trailers)


@given(st.integers(1, 2**63), st.text(max_size=5) | st.integers(1, 300).map(lambda size: "t" * size))
@example(1001, "t1")
def test_when_to_come_back(ms, ticket):
    def expected(spell, ms, ticket) -> bytes:
        return b"".join([spell(*each) for each in specification.when(ms, ticket)])

    same(_native.http1_when, partial(expected, specification.line), ms, ticket)
    same(_native.http2_when, partial(expected, specification.literal), ms, ticket)


@given(SMALL, st.lists(st.binary(max_size=200), max_size=4).map(tuple), st.integers(0, 2**64 - 1), SMALL)
@example(b"", (b"",), 0, b"")
def test_an_error_that_passes(before, parts, number, after):
    text = (b"%d" % number).join(parts)
    expected = before + bytes_field(2, text) + varint_field(4, number) + after
    assert _native.later_message(before, parts, number, after) == expected


FRAME = st.builds(
    lambda size, kind, flags, stream, payload: (
        (size or len(payload)).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    ),
    st.sampled_from([0, 0, 0, 3, 16_385]),
    st.sampled_from([0, 1, 1, 9]),
    st.sampled_from([0, 1, 4, 5, 12]),
    st.sampled_from([1, 1, 2, 3, 1 | 1 << 31]),
    SMALL,
)


WHOLES = _native.WholeRequests(Head, Stream, COMPLETE)


def whole_head(*, expects: bool = False, length: int | None = None) -> Head:
    return Head("POST", "/x", "", (), 2, True, expects, length, {})


HEADS = {b"h": whole_head(), b"": whole_head(length=0)}
KNOWN = {b"k": whole_head(), b"l": whole_head(length=1), b"m": whole_head(length=2), b"e": whole_head(expects=True)}
WHOLE = st.builds(
    lambda stream, block, body: (
        len(block).to_bytes(3, "big")
        + bytes([1, 4 if body else 5])
        + stream.to_bytes(4, "big")
        + block
        + (len(body).to_bytes(3, "big") + b"\0\1" + stream.to_bytes(4, "big") + body if body else b"")
    ),
    st.sampled_from([1, 3, 3, 5, 7, 9]),
    st.sampled_from([*HEADS, *KNOWN, b"h", b"k", b"k", b"?"]),
    st.binary(max_size=3),
)


@given(
    st.one_of(st.lists(FRAME, max_size=4), st.lists(WHOLE, max_size=4)).map(b"".join),
    st.sampled_from([0, 0, 0, 1, 12]),
    st.sampled_from([0, 0, 1, 5]),
    st.integers(0, 9),
    st.integers(0, 3),
    st.integers(0, 4),
)
@example(b"\0\0\1\1\4\0\0\0\1h\0\0\1\0\1\0\0\0\1b", 0, 0, 9, 3, 4)
@example(b"\0\0\1\1\5\0\0\0\1h", 0, 0, 9, 3, 4)
@example(b"\0\0\1\1\5\0\0\0\1k\0\0\1\1\5\0\0\0\3e", 0, 0, 9, 3, 4)
def test_requests_that_came_whole(frames, cut, last_id, room, body_bytes, most):
    given_ = (frames[: len(frames) - cut], HEADS, KNOWN.get, last_id, room, body_bytes, most)
    same(WHOLES.find, specification.whole_requests, *given_)


@given(st.lists(st.tuples(st.integers(0, 2**31), SMALL, st.none() | st.integers(0, 9)), max_size=4))
def test_streams_of_requests_that_came_whole(requests):
    found = [(stream, whole_head(length=length), body) for stream, body, length in requests]
    streams: dict[int, Stream] = {}
    taken = WHOLES.open(found, streams, 70, 100)
    expected: dict[int, Stream] = {}
    for stream_id, head, body in found:
        expected[stream_id] = Stream(stream_id, 70, 100 - len(body), head.content_length, COMPLETE)
        expected[stream_id].received = len(body)
    assert taken == sum(len(body) for _, _, body in found)
    assert list(map(fields, streams.values())) == list(map(fields, expected.values()))


def fields(stream: Stream) -> dict[str, object]:
    return {name: getattr(stream, name) for name in dir(StreamBase) if not name.startswith("_")}


@pytest.mark.parametrize(
    "found", [[7], [(1, HEADS[b""])], [("1", HEADS[b""], b"")], [(1, 2, b"")], [(1, HEADS[b""], "")]]
)
def test_a_stream_is_one_of_a_request(found):
    streams = {}
    with pytest.raises((TypeError, RuntimeError)):
        WHOLES.open(found, streams, 0, 0)
    assert streams == {}


class Loose:
    """Keeps its fields anywhere."""

    expects_continue = content_length = None


def test_a_head_that_is_none_is_no_request():
    assert WHOLES.find(b"\0\0\1\1\5\0\0\0\1h", {b"h": "no head"}, KNOWN.get, 0, 9, 3, 4) is None
    with pytest.raises(TypeError):
        _native.WholeRequests(Loose, Stream, COMPLETE)
    with pytest.raises(TypeError):
        _native.WholeRequests(Head, Loose, COMPLETE)


OK = b"\x88"


class Spread:
    """A sender whose fields are anywhere."""

    window = out_bytes = out = held = block_start = None


@given(
    st.integers(0, 20),
    st.integers(0, 20),
    st.sampled_from([0, 49, 50]),
    st.booleans(),
    st.sampled_from([b"", b"\x20"]),
    HEADERS,
    SMALL | LONG,
    SMALL,
)
def test_a_whole_reply_behind_others(window, room, collected, held, start, headers, body, trailers):
    """It is put there, as it stands in the specification, exactly where nothing is in its way."""
    sender, stream = Sender(print), Stream(3, room, 0, None, COMPLETE)
    sender.window, sender.out_bytes, sender.held, sender.block_start = window, collected, held, start
    put = _native.WholeReplies(Sender, Stream, 50).put
    free = len(body) <= min(window, room) and collected < 50 and not held and not start
    try:
        frames = specification.http2_reply(3, OK, b"c", headers, body, trailers) if free else None
    except ValueError:
        with pytest.raises(ValueError):
            put(sender, stream, OK, b"c", headers, body, trailers)
        frames = None
    else:
        assert put(sender, stream, OK, b"c", headers, body, trailers) is (frames is not None)
    sent = 0 if frames is None else len(body)
    assert sender.out == ([] if frames is None else [frames])
    assert sender.out_bytes == collected + len(frames or b"")
    assert (sender.window, stream.window, stream.sent_bytes) == (window - sent, room, sent)


def test_a_reply_is_put_behind_those_of_a_sender():
    put = _native.WholeReplies(Sender, Stream, 50).put
    stream = Stream(3, 1, 0, None, COMPLETE)
    for sender, of in ((object(), stream), (Sender(print), object())):
        with pytest.raises(TypeError):
            put(sender, of, OK, b"", (), b"", b"")
    with pytest.raises(TypeError):
        _native.WholeReplies(Spread, Stream, 50)


@given(st.text(max_size=20) | st.just("in {ms} ms, {ms}"), st.integers(-1, 2**63), st.none() | st.text(max_size=3))
@example("é{ms}%\n", 250, "t1")
def test_a_refused_call_is_told_what_its_trailers_would_tell(template, ms, ticket):
    error = SlotsBusy(template, ms, ticket)
    if ticket is None or all(" " <= character <= "~" for character in ticket):
        trailers = tuple(each for each in (CONTENT_TYPE, *status_trailers(error)) if each != (b"zl-ticket", b""))
        assert sorted(hpack.Decoder().decode(later_fields(error), raw=True)) == sorted(trailers)
    else:
        with pytest.raises(ValueError):
            later_fields(error)


def test_what_refusals_have_in_common_holds_no_line_break():
    with pytest.raises(ValueError):
        _native.GrpcLater(b"", (b"a\nb",))
    with pytest.raises(TypeError):
        _native.GrpcLater(b"", ("text",))


PREFIXED = st.builds(
    lambda flag, size, rest: bytes([flag]) + size.to_bytes(4, "big") + rest,
    st.sampled_from([0, 0, 0, 1]),
    st.integers(0, 4),
    st.binary(max_size=5),
)


@given(SMALL | PREFIXED, st.integers(0, 6))
def test_a_message_of_grpc(body, most):
    assert _native.grpc_message(_native.grpc_frame(body), len(body)) == body
    message = _native.grpc_message(body, most)
    if message is None:
        assert isinstance(not_one(body, most), ZerolayerError)
    else:
        assert (_native.grpc_frame(message), len(message) <= most) == (body, True)


NAMES = (b"x-request-id", b"content-length", b"authorization", b"x-a")


def head_of(names: tuple[bytes, ...]) -> Head:
    headers = tuple((name, b"1") for name in names)
    return Head("POST", "/x", "y=1", headers, 1, True, False, 1, dict(headers))


PLACES = st.lists(st.integers(0, 3), unique=True, max_size=4).map(sorted).map(tuple)
BYTES = st.text("a1 \t\r\n:\x00\x7f\xff", max_size=4).map(lambda text: text.encode("latin-1"))
VALUES = BYTES | st.sampled_from([b"1", b"22", b"1" * 15, b"1" * 16, b"a" * 126, b"a" * 127])


def told(head: Head | None) -> object:
    return None if head is None else tuple(getattr(head, name) for name in Head.__struct_fields__)


@given(PLACES, st.lists(BYTES, min_size=5, max_size=5), st.lists(VALUES, min_size=4, max_size=4), BYTES)
def test_a_head_of_http1_with_other_values(places, constants, values, end):
    head, constants = head_of(NAMES), [constants[0], *[b"\r\n" + each for each in constants[1 : len(places) + 1]]]
    raw = constants[0] + b"".join([b" " + a + b for a, b in zip(values, constants[1:], strict=False)]) + end
    found = specification.http1_values(constants, raw)
    expected = None if found is None else specification.filled(head, places, found)
    assert told(_native.Template(tuple(constants), places, head).http1(raw)) == told(expected)


CODES = (hpack.hpack.REQUEST_CODES, hpack.hpack.REQUEST_CODES_LENGTH)


def same_head_of_http2(constants: list[bytes], places: tuple[int, ...], block: bytes) -> None:
    """Both read the same head, or none, or refuse its strings."""
    head = head_of(NAMES)
    made = _native.Template(tuple(constants), places, head)
    try:
        found = specification.http2_values(constants, block)
    except hpack.HPACKError:
        with pytest.raises(ValueError):
            made.http2(block, HUFFMAN)
    else:
        expected = None if found is None else specification.filled(head, places, found)
        assert told(made.http2(block, HUFFMAN)) == told(expected)


@given(PLACES, st.lists(SMALL, min_size=5, max_size=5), st.lists(VALUES, min_size=4, max_size=4), SMALL, st.booleans())
def test_a_head_of_http2_with_other_values(places, constants, values, end, huffman):
    constants = constants[: len(places) + 1]
    block = constants[0]
    for value, constant in zip(values, constants[1:], strict=False):
        string = hpack.hpack.HuffmanEncoder(*CODES).encode(value) if huffman else value
        block += bytes([min(len(string), 0x7F) | (0x80 if huffman else 0)]) + string + constant
    same_head_of_http2(constants, places, block + end)


@given(st.integers(0, 1), SMALL)
def test_a_head_of_http2_with_any_string(coded, string):
    same_head_of_http2([b"", b""], (0,), bytes([len(string) | coded << 7]) + string)


@pytest.mark.parametrize(
    ("constants", "places"), [((b"",), (0,)), ((b"", b""), (4,)), ((b"",) * 10, (0,) * 9), ((b"", "text"), (0,))]
)
def test_a_template_that_cannot_be_is_refused(constants, places):
    with pytest.raises((ValueError, IndexError, TypeError)):
        _native.Template(constants, places, head_of(NAMES))
