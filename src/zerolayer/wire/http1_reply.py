"""Replies of HTTP/1.1 as bytes: one bytes object for each write (RFC 9112).

Headers such as ``server``, ``x-server-time`` and ``x-request-id`` are given by the caller; this folder knows no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus

from zerolayer.errors import RetryLater, Unavailable

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {529: "Overloaded"}  # Anthropic's own
_STATUS_LINES = {status: f"HTTP/1.1 {status} {phrase}\r\n".encode() for status, phrase in _PHRASES.items()}
_SIZE_LINES = tuple(b"%x\r\n" % size for size in range(2048))  # nearly every chunk of a token stream
_WITHOUT_BODY = frozenset({204, 304})


def response(
    status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes, *, keep_alive: bool, head_only: bool = False
) -> bytes:
    """A complete reply. ``head_only`` answers HEAD: the length of ``body`` without ``body``.

    Raises ValueError when a header holds a line break, whoever wrote it.
    """
    lines = _header_lines(headers)
    length = b"" if status in _WITHOUT_BODY else b"content-length: %d\r\n" % len(body)
    connection = b"" if keep_alive else b"connection: close\r\n"
    shown = b"" if head_only or status in _WITHOUT_BODY else body
    return b"%b%b%b%b\r\n%b" % (_STATUS_LINES[status], lines, length, connection, shown)


def stream_head(headers: Iterable[tuple[bytes, bytes]], *, keep_alive: bool = True, chunked: bool = True) -> bytes:
    """The head of a 200 whose body follows in ``chunk``s and ends with ``LAST_CHUNK``.

    ``chunked=False`` is for HTTP/1.0 clients: the body follows bare and the end of the connection ends it, so a failed
    stream must be reset, never closed cleanly. Raises ValueError as ``response`` does.
    """
    lines = _header_lines(headers)
    framing = b"transfer-encoding: chunked\r\n" if chunked else b""
    connection = b"" if keep_alive and chunked else b"connection: close\r\n"
    return b"%b%b%b%b\r\n" % (_STATUS_LINES[200], lines, framing, connection)


def chunk(data: bytes) -> bytes:
    """One chunk; nothing for empty ``data``, because an empty chunk would end the body."""
    size = len(data)
    if not size:
        return b""
    return (_SIZE_LINES[size] if size < len(_SIZE_LINES) else b"%x\r\n" % size) + data + b"\r\n"


def server_timing(stages_us: Mapping[str, int]) -> bytes:
    """The value of a ``server-timing`` header (W3C Server Timing): milliseconds with three decimals."""
    return ", ".join(f"{name};dur={us // 1000}.{us % 1000:03d}" for name, us in stages_us.items()).encode("ascii")


def retry_headers(error: RetryLater | Unavailable) -> tuple[tuple[bytes, bytes], ...]:
    """When to come back: whole milliseconds for the SDKs, whole seconds, rounded up, for proxies; and where."""
    ms = error.retry_after_ms
    return (
        *_where(error),
        (b"retry-after-ms", b"%d" % ms),
        (b"retry-after", b"%d" % -(-ms // 1000)),
        (b"x-should-retry", b"true"),
    )


def _where(error: RetryLater | Unavailable) -> tuple[tuple[bytes, bytes], ...]:
    """The slot that is kept for the next attempt, or who else would take it."""
    if isinstance(error, Unavailable):
        return ((b"x-zl-peers", ",".join(error.peers).encode("ascii")),) if error.peers else ()
    return () if error.ticket is None else ((b"x-zl-ticket", error.ticket.encode("ascii")),)


def _header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    pairs = tuple(headers)
    lines = b"".join([b"%b: %b\r\n" % pair for pair in pairs])
    if lines.count(b"\n") != len(pairs) or lines.count(b"\r") != len(pairs):
        raise ValueError("a header must not hold a line break")
    return lines
