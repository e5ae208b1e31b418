"""What is compiled for the wire, in Python: slower, and to be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

from hpack.huffman_table import decode_huffman

from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.http1_head import Head
from zerolayer.wire.http2_frames import END_HEADERS, END_STREAM, FRAME_BYTES, Kind, frame
from zerolayer.wire.openai import PlainChat, PlainCompletion
from zerolayer.wire.schema import Request, Route, Sampling

Headers = Sequence[tuple[bytes, bytes]]

VALUE = re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")
SPACED_VALUE = re.compile(rb" (%b)(?=\r\n)" % VALUE.pattern)
LONGEST_SHORT_STRING = 0x7E


def line(name: bytes, value: bytes) -> bytes:
    """A header of HTTP/1.1."""
    if b"\n" in value or b"\r" in value:
        raise ValueError("line break")
    return b"%b: %b\r\n" % (name, value)


def literal(name: bytes, value: bytes) -> bytes:
    """A header of HTTP/2: RFC 7541 section 6.2.2, without Huffman coding."""
    if re.search(rb"[\r\n\0]", value):
        raise ValueError("line break")
    return b"\0" + _length(len(name)) + name + _length(len(value)) + value


def _length(size: int) -> bytes:
    if size < 0x7F:
        return bytes([size])
    size -= 0x7F
    rest = bytearray([0x7F])
    while size >= 0x80:
        rest.append(0x80 | size & 0x7F)
        size >>= 7
    return bytes([*rest, size])


def http1_reply(
    status: int, common: bytes, headers: Headers, body: bytes, *, keep_alive: bool, head_only: bool
) -> bytes:
    has_content = status not in (204, 304)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode(), common]
    lines += [line(*header) for header in headers]
    if has_content:
        lines.append(line(b"content-length", b"%d" % len(body)))
    if not keep_alive:
        lines.append(b"connection: close\r\n")
    return b"".join([*lines, b"\r\n", body if has_content and not head_only else b""])


def http2_reply(
    stream: int, status: bytes, common: bytes, headers: Headers, body: bytes, trailers: bytes
) -> bytes | None:
    block = status + common + b"".join([literal(*header) for header in headers])
    if max(len(block), len(body), len(trailers)) > FRAME_BYTES:
        return None
    frames = frame(Kind.HEADERS, END_HEADERS | (0 if body or trailers else END_STREAM), stream, block)
    if body:
        frames += frame(Kind.DATA, 0 if trailers else END_STREAM, stream, body)
    if trailers:
        frames += frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream, trailers)
    return frames


def when(ms: int, ticket: str) -> list[tuple[bytes, bytes]]:
    """The headers that say when to come back."""
    if not all(" " <= character <= "~" for character in ticket):
        raise ValueError("not ascii, or a line break")
    told = [(b"x-zl-ticket", ticket.encode())] if ticket else []
    return [
        *told,
        (b"retry-after-ms", b"%d" % ms),
        (b"retry-after", b"%d" % -(-ms // 1000)),
        (b"x-should-retry", b"true"),
    ]


def plain_request(body: PlainChat | PlainCompletion, limits: BodyLimits) -> Request | None:
    """Which requests are made of bodies that msgspec has checked; None: the general decoder has the word."""
    low, high = limits.temperature
    messages = body.messages if isinstance(body, PlainChat) else ()
    both = body.max_tokens is not None and body.max_completion_tokens is not None
    longest = body.max_completion_tokens if body.max_tokens is None else body.max_tokens
    stopped = body.stop is not None and not (limits.stop and 1 <= len(body.stop) <= limits.stop_chars)
    strange = len(messages) > limits.json_messages or {each.role for each in messages} - {"system", "user", "assistant"}
    if both or stopped or strange or not low <= body.temperature <= high or (body.stream_options and not body.stream):
        return None
    if longest is not None and longest > limits.max_tokens:
        return None
    return Request(
        route=Route.CHAT if isinstance(body, PlainChat) else Route.COMPLETIONS,
        model=body.model,
        messages=messages,
        prompt=body.prompt if isinstance(body, PlainCompletion) else "",
        sampling=Sampling(**{name: getattr(body, name) for name in Sampling.__struct_fields__ if hasattr(body, name)}),
        max_tokens=longest,
        stop=() if body.stop is None else (body.stop,),
        stream=body.stream,
        include_usage=body.stream_options is not None and body.stream_options.include_usage,
        ignore_eos=body.ignore_eos,
    )


def whole_requests(
    data: bytes,
    heads: Mapping[bytes, Head],
    known: Callable[[bytes], Head | None],
    last_id: int,
    room: int,
    body_bytes: int,
    most: int,
) -> list[tuple[int, Head, bytes]] | None:
    at, found = 0, list[tuple[int, Head, bytes]]()
    while at < len(data):
        request = _whole_request(data, at)
        if request is None:
            return None
        stream_id, block, body, at = request
        head, size = heads.get(block) or known(block), len(body)
        if head is None or head.expects_continue or stream_id <= last_id or len(found) == most:
            return None
        room, last_id = room - size, stream_id
        if head.content_length not in (None, size) or size > body_bytes or room < 0:
            return None
        found.append((stream_id, head, body))
    return found


def _whole_request(data: bytes, at: int) -> tuple[int, bytes, bytes, int] | None:
    head = _frame(data, at)
    if head is None or head[0] != Kind.HEADERS or not head[2] % 2:
        return None
    _, flags, stream, block, end = head
    if flags == END_HEADERS | END_STREAM:
        return stream, block, b"", end
    body = _frame(data, end)
    if flags != END_HEADERS or body is None or body[:3] != (Kind.DATA, END_STREAM, stream) or not body[3]:
        return None
    return stream, block, body[3], body[4]


def _frame(data: bytes, at: int) -> tuple[int, int, int, bytes, int] | None:
    """Kind, flags, stream, payload and the offset behind it; None where it is not complete, or too long."""
    if len(data) - at < 9:
        return None
    size, stream = int.from_bytes(data[at : at + 3], "big"), int.from_bytes(data[at + 5 : at + 9], "big")
    end = at + 9 + size
    if size > FRAME_BYTES or end > len(data):
        return None
    return data[at + 3], data[at + 4], stream & 0x7FFF_FFFF, data[at + 9 : end], end


def http1_values(constants: Sequence[bytes], raw: bytes) -> list[bytes] | None:
    """The values between ``constants``; None where ``raw`` has another form."""
    if not raw.startswith(constants[0]):
        return None
    at = len(constants[0])
    values = []
    for constant in constants[1:]:
        found = SPACED_VALUE.match(raw, at)
        if found is None or not raw.startswith(constant, found.end()):
            return None
        values.append(found[1])
        at = found.end() + len(constant)
    return values if at == len(raw) else None


def http2_values(constants: Sequence[bytes], block: bytes) -> list[bytes] | None:
    """The same of strings of HPACK. Raises ``hpack.HPACKError`` for a string that has no Huffman coding."""
    if not block.startswith(constants[0]):
        return None
    at = len(constants[0])
    values = []
    for constant in constants[1:]:
        if at >= len(block) or block[at] & 0x7F > LONGEST_SHORT_STRING:
            return None
        end = at + 1 + (block[at] & 0x7F)
        if end > len(block) or not block.startswith(constant, end):
            return None
        value = block[at + 1 : end]
        if block[at] & 0x80:
            value = bytes(decode_huffman(value))
        if not VALUE.fullmatch(value):
            return None
        values.append(value)
        at = end + len(constant)
    return values if at == len(block) else None


def filled(head: Head, places: Sequence[int], values: Sequence[bytes]) -> Head | None:
    """``head`` with other values at ``places``; None where a length is none."""
    headers, by_name, length = [*head.headers], {**head.values}, head.content_length
    for place, value in zip(places, values, strict=True):
        name = headers[place][0]
        headers[place] = (name, value)
        by_name[name] = value
        if name == b"content-length":
            if len(value) > 15 or not value.isdigit():
                return None
            length = int(value)
    return Head(
        head.method,
        head.path,
        head.query,
        tuple(headers),
        head.minor,
        head.keep_alive,
        head.expects_continue,
        length,
        by_name,
        head,
    )
