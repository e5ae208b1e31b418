"""gRPC over HTTP/2: messages with a length before them, status in trailers.

Sources: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, and compression.md beside it for the refusal of
messages that are compressed, for which there is nothing here; pushback: gRFC A6.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from zerolayer.errors import (
    HELP,
    BeyondHorizon,
    BodyTooLarge,
    BudgetSpent,
    InvalidRequest,
    RetryLater,
    Unavailable,
    UnsupportedEncoding,
    ZerolayerError,
)
from zerolayer.wire._native import GrpcLater, grpc_frame, grpc_message
from zerolayer.wire.http2_reply import header_block

Header = tuple[bytes, bytes]

CONTENT_TYPE: Final[Header] = (b"content-type", b"application/grpc")
IDENTITY: Final = b"identity"
"""The only encoding of messages."""
OK_TRAILERS: Final[tuple[Header, ...]] = ((b"grpc-status", b"0"),)
PREFIX_BYTES: Final = 5  # whether the message is compressed, and its length

_TIMEOUT_DIGITS: Final = 8
_UNIT_NS: Final = {
    b"H": 3_600_000_000_000,
    b"M": 60_000_000_000,
    b"S": 1_000_000_000,
    b"m": 1_000_000,
    b"u": 1000,
    b"n": 1,
}
_NOT_PLAIN: Final = re.compile(rb"[^\x20-\x24\x26-\x7e]")
_ONE: Final = "this method takes exactly one message"
PARTIAL: Final = "the call ends within a message"


def is_grpc(content_type: bytes | None) -> bool:
    """Whether a request with this content type is a gRPC call: ``application/grpc``, with or without ``+proto``."""
    if content_type is None or not content_type.startswith(b"application/grpc"):
        return False
    return content_type[16:17] in (b"", b"+", b";")


frame = grpc_frame
"""One message as it travels in DATA."""


class Deframer:
    """Cuts DATA into messages of at most ``message_bytes``."""

    def __init__(self, message_bytes: int) -> None:
        self._message_bytes = message_bytes
        self._buffer = bytearray()

    @property
    def partial(self) -> bool:
        """Whether a message has begun and is not complete: no call may end so."""
        return bool(self._buffer)

    def receive(self, data: bytes) -> list[bytes]:
        """The messages that ``data`` completes. Raises BodyTooLarge, InvalidRequest, UnsupportedEncoding."""
        self._buffer += data
        messages: list[bytes] = []
        at, size = 0, len(self._buffer)
        while size - at >= PREFIX_BYTES:
            length = int.from_bytes(self._buffer[at + 1 : at + PREFIX_BYTES], "big")
            refusal = _refusal(self._buffer[at], length, self._message_bytes)
            if refusal is not None:
                raise refusal
            end = at + PREFIX_BYTES + length
            if end > size:
                break
            messages.append(bytes(self._buffer[at + PREFIX_BYTES : end]))
            at = end
        del self._buffer[:at]
        return messages


only_message = grpc_message
"""The message of a call that has exactly one of at most so many bytes; None where ``not_one`` has something to say."""


def not_one(body: bytes, message_bytes: int) -> ZerolayerError:
    """Why ``body`` is not exactly one message."""
    size = len(body)
    if size < PREFIX_BYTES:
        return InvalidRequest(PARTIAL if size else _ONE)
    flag, length = body[0], int.from_bytes(body[1:PREFIX_BYTES], "big")
    refusal = _refusal(flag, length, message_bytes)
    return refusal or InvalidRequest(PARTIAL if size < PREFIX_BYTES + length else _ONE)


def _refusal(flag: int, length: int, message_bytes: int) -> ZerolayerError | None:
    if flag == 1:
        return UnsupportedEncoding("compressed messages are not supported; send them without grpc-encoding")
    if flag:
        return InvalidRequest("the first byte of a gRPC message must be 0")
    if length > message_bytes:
        return BodyTooLarge(f"the message is larger than {message_bytes} bytes; send a shorter one")
    return None


def parse_timeout(value: bytes) -> int:
    """``grpc-timeout`` in nanoseconds. Raises ``InvalidRequest``."""
    number, unit_ns = value[:-1], _UNIT_NS.get(value[-1:])
    if unit_ns is None or not number.isdigit() or len(number) > _TIMEOUT_DIGITS:
        raise InvalidRequest("grpc-timeout must be up to eight digits and a unit of H, M, S, m, u or n")
    return int(number) * unit_ns


def percent_encoded(text: str) -> bytes:
    """``grpc-message``: UTF-8 with everything but visible ASCII and space escaped, and the escape itself."""
    return _NOT_PLAIN.sub(lambda found: b"%%%02X" % found[0][0], text.encode("utf-8", "replace"))


def status_trailers(error: ZerolayerError) -> tuple[Header, ...]:
    """The trailers of a call that failed; of a busy server with the milliseconds after which to come back."""
    trailers = (
        (b"grpc-status", b"%d" % error.grpc_code),
        (b"grpc-message", percent_encoded(error.message)),
        (b"zl-help", error.help.encode("ascii")),
    )
    if isinstance(error, RetryLater):
        ticket = () if error.ticket is None else ((b"zl-ticket", error.ticket.encode("ascii")),)
        return (*trailers, (b"grpc-retry-pushback-ms", b"%d" % error.retry_after_ms), *ticket)
    if isinstance(error, Unavailable):
        peers = ((b"zl-peers", ",".join(error.peers).encode("ascii")),) if error.peers else ()
        return (*trailers, *peers, (b"grpc-retry-pushback-ms", b"%d" % error.retry_after_ms))
    if isinstance(error, UnsupportedEncoding):
        return (*trailers, (b"grpc-accept-encoding", IDENTITY))
    if isinstance(error, (BeyondHorizon, BudgetSpent)):
        return (*trailers, (b"grpc-retry-pushback-ms", b"-1"))  # gRFC A6: do not retry
    return trailers


def later_fields(error: RetryLater) -> bytes:
    """The head of a call that is refused for now and has no messages (Trailers-Only), as HTTP/2 writes it.

    Under load that is most replies. It says what ``status_trailers`` say.
    """
    return _later(error.template, error.grpc_code, error.code).fields(error.retry_after_ms, error.ticket or "")


@lru_cache(64)
def _later(template: str, grpc_code: int, code: str) -> GrpcLater:
    """What refusals of one kind have in common; the message in the parts between which the milliseconds stand."""
    parts = tuple(percent_encoded(template).split(b"{ms}"))
    constant = (CONTENT_TYPE, (b"grpc-status", b"%d" % grpc_code), (b"zl-help", (HELP + code).encode("ascii")))
    return GrpcLater(header_block(constant), parts)
