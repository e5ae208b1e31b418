"""Replies of HTTP/1.1 as bytes: one bytes object for each write (RFC 9112).

Headers such as ``server``, ``x-server-time`` and ``x-request-id`` are given by the caller; this folder knows no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus

from zerolayer.errors import Unavailable
from zerolayer.wire._native import Http1Replies, http1_when

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {529: "Overloaded"}  # Anthropic's own
_STATUS_LINES = {status: f"HTTP/1.1 {status} {phrase}\r\n".encode() for status, phrase in _PHRASES.items()}
_SIZE_LINES = tuple(b"%x\r\n" % size for size in range(2048))  # nearly every chunk of a token stream

render = Http1Replies(_STATUS_LINES).render
"""A complete reply: status, rendered headers, headers, body, whether the connection lives on, and whether HEAD asks."""


def response(
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes,
    *,
    keep_alive: bool,
    head_only: bool = False,
    common: bytes = b"",
) -> bytes:
    """A complete reply. ``head_only`` answers HEAD: the length of ``body`` without ``body``.

    ``common`` are headers that were rendered before, by ``header``. Raises ValueError when one of ``headers`` holds a
    line break, whoever wrote it.
    """
    return render(status, common, tuple(headers), body, keep_alive, head_only)


def stream_head(
    headers: Iterable[tuple[bytes, bytes]], *, keep_alive: bool = True, chunked: bool = True, common: bytes = b""
) -> bytes:
    """The head of a 200 whose body follows in ``chunk``s and ends with ``LAST_CHUNK``.

    ``chunked=False`` is for HTTP/1.0 clients: the body follows bare and the end of the connection ends it, so a failed
    stream must be reset, never closed cleanly. ``common`` and ValueError as in ``response``.
    """
    lines = _header_lines(headers)
    framing = b"transfer-encoding: chunked\r\n" if chunked else b""
    connection = b"" if keep_alive and chunked else b"connection: close\r\n"
    return b"%b%b%b%b%b\r\n" % (_STATUS_LINES[200], common, lines, framing, connection)


def chunk(data: bytes) -> bytes:
    """One chunk; nothing for empty ``data``, because an empty chunk would end the body."""
    size = len(data)
    if not size:
        return b""
    return (_SIZE_LINES[size] if size < len(_SIZE_LINES) else b"%x\r\n" % size) + data + b"\r\n"


def server_timing(stages_us: Mapping[str, int]) -> bytes:
    """The value of a ``server-timing`` header (W3C Server Timing): milliseconds with three decimals."""
    return ", ".join(f"{name};dur={us // 1000}.{us % 1000:03d}" for name, us in stages_us.items()).encode("ascii")


def retry_headers(error: Unavailable) -> tuple[tuple[bytes, bytes], ...]:
    """When to come back: whole milliseconds for the SDKs, whole seconds, rounded up, for proxies; and where."""
    ms = error.retry_after_ms
    peers = ((b"x-zl-peers", ",".join(error.peers).encode("ascii")),) if error.peers else ()
    return (
        *peers,
        (b"retry-after-ms", b"%d" % ms),
        (b"retry-after", b"%d" % -(-ms // 1000)),
        (b"x-should-retry", b"true"),
    )


later_lines = http1_when
"""The same of a refusal that passes, of its milliseconds and the ticket of the slot that is kept for the next attempt.

Under load most replies. Raises ValueError when the ticket holds a line break.
"""


def _new_header(name: bytes, value: bytes) -> bytes:
    """One header, line end included. Raises ValueError when ``value`` holds a line break."""
    if b"\n" in value or b"\r" in value:
        raise ValueError("a header must not hold a line break")
    return b"%b: %b\r\n" % (name, value)


header = lru_cache(1024)(_new_header)


def _header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([header(name, value) for name, value in headers])
