"""Questions in zerolayer's own schema (``proto/zerolayer/v1/inference.proto``), over HTTP and over gRPC. Sans-IO."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, cast
from urllib.parse import unquote

from zerolayer.client.answer import Outcome, Stages
from zerolayer.client.attempt import Head
from zerolayer.client.errors import BadReply, Refused
from zerolayer.client.forms import Ask
from zerolayer.client.head import read_head, refused
from zerolayer.client.request import Question
from zerolayer.wire.protobuf import (
    BYTES,
    VARINT,
    Fields,
    Malformed,
    bytes_field,
    fixed32_field,
    fixed64_field,
    message_field,
    read_fields,
    read_varint,
    varint_field,
)

GENERATE: Final = "/v1/generate"
GRPC_GENERATE: Final = "/zerolayer.v1.Inference/Generate"
MEDIA: Final = "application/x-protobuf"
MOST_MESSAGES: Final = 16  # context.max_messages of a contract that says nothing else
_SCALE: Final = 1_000_000
_ROLES: Final = {"system": 1, "user": 2, "assistant": 3}
_REASONS: Final = {1: "stop", 2: "length"}
_REPLY_BYTES: Final = 1 << 20  # one message; it holds one step
_PREFIX_BYTES: Final = 5
_VARINT_BYTES: Final = 5  # of a length
_STAGES: Final = tuple(Stages.__dataclass_fields__)
# The HTTP status that says the same as a code of gRPC (docs of zerolayer.errors).
_STATUS: Final = {3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 422, 10: 412, 12: 404, 14: 503, 16: 401}
_NOT_SCHEMA: Final = "The reply is not in zerolayer's schema. Check that the address is that of a zerolayer server."


def encode(question: Question, token_ids: Sequence[int] | None) -> bytes | None:
    """A ``GenerateRequest``; None for what the schema cannot say: text that nobody tokenised, roles of tools."""
    options = question.options
    scaled = None if options.temperature is None else round(options.temperature * _SCALE)
    if options.fills_cache or (scaled is not None and (scaled < 0 or scaled / _SCALE != options.temperature)):
        return None
    if options.max_tokens is not None and options.max_tokens < 1:
        return None  # 0 is the default there
    if token_ids is not None:
        parts = [bytes_field(1, _packed(token_ids))]
    elif question.prompt is None and 0 < len(question.messages) <= MOST_MESSAGES:
        encoded = [_message(message) for message in question.messages]
        if None in encoded:
            return None
        parts = [message_field(2, message) for message in encoded if message is not None]
    else:
        return None
    if options.seed is not None:
        parts.append(fixed64_field(8, options.seed))
    parts += [bytes_field(9, options.model.encode()), varint_field(12, options.max_tokens or 0)]
    if scaled is not None:
        parts.append(fixed32_field(13, scaled))
    parts.append(varint_field(15, 1))
    stops = (options.stop,) if isinstance(options.stop, str) else options.stop or ()
    return b"".join([*parts, *[bytes_field(22, stop.encode()) for stop in stops]])


class SchemaForm:
    """Messages over HTTP, each behind its length. A ``forms.Form``."""

    late_status = False

    def ask(self, question: Question, message: bytes) -> Ask:
        """The request that carries ``message``."""
        headers = {**question.headers, "content-type": MEDIA, "accept": MEDIA}
        return Ask(self, GENERATE, message, question.prefix, question.options.model, headers)

    def head(self, status: int, headers: Mapping[str, str], _trailers: Mapping[str, str]) -> Head:
        return read_head(status, headers)

    def refused(self, head: Head, body: bytes, headers: Mapping[str, str], _trailers: Mapping[str, str]) -> Refused:
        if not headers.get("content-type", "").startswith(MEDIA):
            return refused(head, body)
        try:
            return _refused(body, head.status, None if head.retry is False else head.wait_ms)
        except BadReply:
            return refused(head, b"")

    def reader(self, model: str) -> ReplyReader:
        return ReplyReader(model, _delimited)


class GrpcForm:
    """A call of ``zerolayer.v1.Inference``. A ``forms.Form``."""

    late_status = True

    def ask(self, question: Question, message: bytes) -> Ask:
        """The request that carries ``message``."""
        headers = {
            **question.headers,
            "content-type": "application/grpc",
            "te": "trailers",
            "accept": "application/grpc",
        }
        body = b"\0" + len(message).to_bytes(4, "big") + message
        return Ask(self, GRPC_GENERATE, body, question.prefix, question.options.model, headers)

    def head(self, status: int, headers: Mapping[str, str], trailers: Mapping[str, str]) -> Head:
        code = trailers.get("grpc-status", "0")
        if status != 200 or code == "0":
            return read_head(status, headers)
        pushback, ticket = trailers.get("grpc-retry-pushback-ms", ""), trailers.get("zl-ticket", "")
        told = {name: headers[name] for name in ("x-zl-load", "x-server-time") if name in headers}
        if pushback.isascii() and pushback.isdigit():
            told |= {"retry-after-ms": pushback, "x-should-retry": "true", "x-zl-ticket": ticket}
        else:
            told["x-should-retry"] = "false"  # gRFC A6: a negative time; and none at all is no lack of slots
        return read_head(_STATUS.get(int(code), 500) if code.isdigit() else 500, told)

    def refused(self, head: Head, body: bytes, _headers: Mapping[str, str], trailers: Mapping[str, str]) -> Refused:
        if "grpc-message" not in trailers:
            return refused(head, body)
        return Refused(
            unquote(trailers["grpc-message"]),
            status_code=head.status,
            retry_after_ms=None if head.retry is False else head.wait_ms,
        )

    def reader(self, model: str) -> ReplyReader:
        return ReplyReader(model, _prefixed)


class ReplyReader:
    """A ``forms.Reader``. ``cut`` takes the next message out of a buffer, or nothing where it is not complete."""

    def __init__(self, model: str, cut: Callable[[bytearray], bytes | None]) -> None:
        self.outcome: Outcome | None = None
        self._model = model
        self._cut = cut
        self._buffer = bytearray()

    def push(self, data: bytes) -> Iterator[str]:
        self._buffer += data
        while self.outcome is None and (message := self._cut(self._buffer)) is not None:
            fields = _fields(message)
            if _ERROR in fields:
                raise _refused(cast(bytes, fields[_ERROR]), 200, None)
            text = _text(fields, _TEXT)
            if _FINISH in fields:
                self.outcome = self._outcome(fields)
            if text:
                yield text

    def end(self, trailers: Mapping[str, str]) -> None:
        if trailers.get("grpc-status", "0") != "0":
            form = GrpcForm()
            raise form.refused(form.head(200, {}, trailers), b"", {}, trailers)

    def _outcome(self, fields: Fields) -> Outcome:
        usage, account = _fields(_bytes(fields, _USAGE)), _fields(_bytes(fields, _ACCOUNT))
        stages = _fields(_bytes(account, 4 << 3 | BYTES))
        return Outcome(
            self._model,
            _REASONS.get(_number(fields, 4), ""),
            _number(usage, 1),
            _number(usage, 2),
            {name: _number(stages, number) for number, name in enumerate(_STAGES, 1)},
            _text(account, 1 << 3 | BYTES),
            _number(usage, 3),
        )


_TEXT: Final = 2 << 3 | BYTES
_FINISH: Final = 4 << 3 | VARINT
_USAGE: Final = 5 << 3 | BYTES
_ACCOUNT: Final = 6 << 3 | BYTES
_ERROR: Final = 7 << 3 | BYTES


def _refused(error: bytes, status: int, wait_ms: int | None) -> Refused:
    """The error that an ``Error`` tells."""
    fields = _fields(error)
    message = _text(fields, 2 << 3 | BYTES) or f"The server answered with status {status}."
    return Refused(
        message, status_code=status, error_code=_text(fields, 1 << 3 | BYTES) or None, retry_after_ms=wait_ms
    )


def _fields(message: bytes) -> Fields:
    fields: Fields = {}
    try:
        read_fields(message, 0, len(message), fields, frozenset())
    except Malformed:
        raise BadReply(_NOT_SCHEMA) from None
    return fields


def _number(fields: Fields, number: int) -> int:
    return cast(int, fields.get(number << 3 | VARINT, 0))


def _bytes(fields: Fields, tag: int) -> bytes:
    return cast(bytes, fields.get(tag, b""))


def _text(fields: Fields, tag: int) -> str:
    try:
        return _bytes(fields, tag).decode()
    except UnicodeDecodeError:
        raise BadReply(_NOT_SCHEMA) from None


def _message(message: Mapping[str, str]) -> bytes | None:
    role, content = _ROLES.get(message.get("role", "")), message.get("content")
    if role is None or not isinstance(content, str) or len(message) != 2:
        return None
    try:
        return varint_field(1, role) + bytes_field(2, content.encode())
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can carry
        return None


def _packed(ids: Sequence[int]) -> bytes:
    packed = array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _delimited(buffer: bytearray) -> bytes | None:
    """The next message behind its length, a varint, which is taken out of ``buffer``; None where it is not complete."""
    head = bytes(buffer[:_VARINT_BYTES])
    if len(head) < _VARINT_BYTES and all(byte > 0x7F for byte in head):
        return None
    try:
        size, start = read_varint(head, 0, len(head))
    except Malformed:
        raise BadReply(_NOT_SCHEMA) from None
    return _taken(buffer, start, size)


def _prefixed(buffer: bytearray) -> bytes | None:
    """The same behind gRPC's prefix of five bytes."""
    if len(buffer) < _PREFIX_BYTES:
        return None
    if buffer[0]:
        raise BadReply(_NOT_SCHEMA)  # compressed, which was not asked for
    return _taken(buffer, _PREFIX_BYTES, int.from_bytes(buffer[1:_PREFIX_BYTES], "big"))


def _taken(buffer: bytearray, start: int, size: int) -> bytes | None:
    if size > _REPLY_BYTES:
        raise BadReply(_NOT_SCHEMA)
    if len(buffer) < start + size:
        return None
    message = bytes(buffer[start : start + size])
    del buffer[: start + size]
    return message
