"""Request line and headers of HTTP/1.1: one complete head to a checked ``Head`` (RFC 9110, RFC 9112)."""

from __future__ import annotations

import re

import httptools
import msgspec

from zerolayer.errors import HeadersTooLarge, InvalidRequest

_TARGET = re.compile(r"[\x21\x22\x24-\x7e]+")  # visible ASCII without "#": a target carries no fragment
_ABSOLUTE_FORM = re.compile(r"https?://(?:[^/?@]*@)?([^/?@]+)", re.IGNORECASE)
# RFC 3986 section 3.2.2 and a port; a path too, which gRPC's older clients name a Unix socket by.
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._~!$&'()*+,;=%/-]*)(?::[0-9]*)?")
_MINOR_VERSIONS = {b"HTTP/1.1": 1, b"HTTP/1.0": 0}
_PARTS_OF_REQUEST_LINE = 3

HTTP2 = 2  # as ``Head.minor``

Headers = tuple[tuple[bytes, bytes], ...]


class Head(msgspec.Struct, frozen=True, weakref=True):
    """Request line and headers of one request.

    ``path`` is as sent, not percent-decoded; of an absolute-form target only the path is kept. ``query`` comes without
    its "?". Header names are lower-case; values are opaque bytes without surrounding white space, and may hold bytes
    above 0x7f. ``content_length`` is None when the body is chunked. ``minor`` is 0 for HTTP/1.0, whose clients know no
    chunked replies, 1 for HTTP/1.1, and 2 stands for HTTP/2. ``values`` has the first value of each name.

    A head may be shared by requests that began with the same bytes. ``like`` is an earlier head from which this one
    differs in nothing that decides where it leads (``head_template``).
    """

    method: str
    path: str
    query: str
    headers: Headers
    minor: int
    keep_alive: bool
    expects_continue: bool
    content_length: int | None
    values: dict[bytes, bytes]
    like: Head | None = None

    def get(self, name: bytes) -> bytes | None:
        """The value of the first header called ``name`` (lower-case), or None."""
        return self.values.get(name)


def is_host(value: bytes) -> bool:
    """Whether a request may name its host so."""
    return _HOST.fullmatch(value) is not None


def first_values(headers: Headers) -> dict[bytes, bytes]:
    """Name -> value; of a header that is repeated the first one counts."""
    return dict(reversed(headers))


NO_HEAD = Head("", "", "", (), 1, True, False, 0, {})  # between requests


class _HeadSink:
    """What llhttp reports of one head."""

    __slots__ = ("headers", "target")

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.rstrip(b" \t")))


def parse_head(raw: bytes, header_count: int) -> Head:
    """Parse one complete head, empty line included. Raises InvalidRequest, HeadersTooLarge."""
    if raw.count(b"\r\n") - 2 > header_count:
        raise HeadersTooLarge(f"There are more than {header_count} headers; send fewer.")
    parts = raw[: raw.index(b"\r\n")].split(b" ")
    minor = _MINOR_VERSIONS.get(parts[-1])
    if minor is None or len(parts) != _PARTS_OF_REQUEST_LINE:
        raise InvalidRequest("The request line must be: method, target, HTTP/1.1, separated by single spaces.")
    sink = _HeadSink()
    try:
        httptools.HttpRequestParser(sink).feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass  # RFC 9110 section 7.8: a server may ignore an upgrade and answer in the protocol that was used
    except httptools.HttpParserError:
        raise InvalidRequest("The request head is malformed; HTTP/1.1 as in RFC 9112 is expected.") from None
    path, query, authority = _split_target(sink.target, parts[0])
    headers = _with_host(sink.headers, authority, minor)
    return _build_head(parts[0].decode("ascii"), path, query, tuple(headers), minor)


def _split_target(target: bytes, method: bytes) -> tuple[str, str, bytes | None]:
    """Path, query, and the host that an absolute target names."""
    text = target.decode("latin-1")
    if _TARGET.fullmatch(text):
        authority = None
        absolute = _ABSOLUTE_FORM.match(text)
        if absolute:
            authority = absolute[1].encode("ascii")
            text = text[absolute.end() :]
            text = text if text.startswith("/") else "/" + text
        if text.startswith("/") or (text == "*" and method == b"OPTIONS"):
            path, _, query = text.partition("?")
            return path, query, authority
    raise InvalidRequest("The request target must be a path that begins with '/', in visible ASCII characters.")


def _with_host(headers: list[tuple[bytes, bytes]], authority: bytes | None, minor: int) -> list[tuple[bytes, bytes]]:
    """The headers with the one host that counts, which is the target's where that has one (RFC 9112 section 3.2)."""
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1 or (minor == 1 and not hosts) or not all(map(is_host, (*hosts, authority or b""))):
        raise InvalidRequest("An HTTP/1.1 request must have exactly one host header: a name, and perhaps a port.")
    if authority is None:
        return headers
    return [(b"host", authority), *[field for field in headers if field[0] != b"host"]]


def _build_head(method: str, path: str, query: str, headers: Headers, minor: int) -> Head:
    """Decide the framing from the headers (RFC 9112 section 6.3); llhttp has refused bad lengths before."""
    length: bytes | None = None
    coding: bytes | None = None
    connection = b""
    expect = b""
    for name, value in headers:
        if name == b"content-length":
            length = value
        elif name == b"transfer-encoding":
            coding = value if coding is None else coding + b"," + value
        elif name == b"connection":
            connection += b"," + value.lower()
        elif name == b"expect":
            expect = value.lower()
    if coding is not None:
        if length is not None or minor == 0:
            raise InvalidRequest("transfer-encoding cannot be used with content-length, nor in HTTP/1.0.")
        if coding.lower() != b"chunked":
            raise InvalidRequest("The only transfer coding that is supported is chunked.")
    content_length = None if coding is not None else int(length or b"0")
    options = {option.strip() for option in connection.split(b",")} if connection else ()
    # A client of HTTP/1.0 that asks to stay must be told that it may, and a proxy between may understand neither.
    keep_alive = minor == 1 and b"close" not in options
    expects_continue = minor == 1 and content_length != 0 and expect == b"100-continue"
    values = first_values(headers)
    return Head(method, path, query, headers, minor, keep_alive, expects_continue, content_length, values)
