"""HTTP/1.1 range by range (RFC 9112): start lines, headers, chunks, and what the bodies hold.

More lenient than a server: it goes on after a fault as long as anything can be told apart.
"""

from __future__ import annotations

import re
from typing import Final

from zerolayer.check.wire_content import content_ranges, media_of
from zerolayer.check.wire_range import Body, ByteRange, Ranges, shown

_REQUEST: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) (HTTP/1\.[01])")
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_WITHOUT_BODY: Final = frozenset({b"204", b"304"})


def looks_like_http1(data: bytes) -> bool:
    """Whether ``data`` begins with a request line or a status line."""
    line = data.lstrip(b"\r\n").partition(b"\n")[0].rstrip(b"\r")
    return bool(_REQUEST.fullmatch(line) or _STATUS.fullmatch(line))


class Http1Dump:
    """One direction of a connection, or a request followed by its reply, as ``curl --trace`` and proxies keep them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._headers: dict[bytes, bytes] = {}
        self._path = b""
        self._status = b""  # of a reply

    def ranges(self) -> Ranges:
        """Every message of the capture."""
        while self._at < len(self._data):
            before = self._at
            yield from self._start_line()
            yield from self._header_lines()
            yield from self._body()
            if self._at == before:
                return

    def _line(self) -> tuple[int, bytes, str]:
        """Where the line begins, its text, and what is wrong with its end."""
        start = self._at
        end = self._data.find(b"\n", start)
        if end < 0:
            self._at = len(self._data)
            return start, self._data[start:], "the capture ends inside this line"
        self._at = end + 1
        line = self._data[start:end]
        if line.endswith(b"\r"):
            return start, line[:-1], ""
        return start, line, "the line ends with LF alone, not CR LF"

    def _start_line(self) -> Ranges:
        start, line, fault = self._line()
        while not line and self._at < len(self._data):
            yield ByteRange(start, self._at - start, "empty line", "http1", "", fault)
            start, line, fault = self._line()
        request, status = _REQUEST.fullmatch(line), _STATUS.fullmatch(line)
        if request:
            self._path, self._status = request[2].partition(b"?")[0], b""
            yield ByteRange(start, len(line), "request line", "http1", shown(line), fault)
        elif status:
            self._status = status[1]
            yield ByteRange(start, len(line), "status line", "http1", shown(line), fault)
        else:
            self._status = b""
            wrong = "neither a request line nor a status line"
            yield ByteRange(start, len(line), "start line", "http1", shown(line), fault or wrong)

    def _header_lines(self) -> Ranges:
        self._headers = {}
        while self._at < len(self._data):
            start, line, fault = self._line()
            if not line:
                yield ByteRange(start, self._at - start, "end of head", "http1", "", fault or self._framing_fault())
                return
            header = _HEADER.fullmatch(line)
            if header is None:
                wrong = "a folded line is not allowed" if line[:1] in (b" ", b"\t") else "no header"
                yield ByteRange(start, len(line), "header", "http1", shown(line), fault or wrong, 1)
                continue
            name, value = header[1].lower(), header[2]
            if name in self._headers and name in (b"content-length", b"transfer-encoding", b"host", b"content-type"):
                fault = fault or "this header is there twice"
            self._headers.setdefault(name, value)
            yield ByteRange(start, len(line), name.decode("ascii"), "header", shown(value), fault, 1)
        yield ByteRange(self._at, 0, "end of head", "http1", "", "the capture ends inside the head")

    def _framing_fault(self) -> str:
        length, coding = self._headers.get(b"content-length"), self._headers.get(b"transfer-encoding")
        if length is not None and coding is not None:
            return "content-length and transfer-encoding contradict each other"
        if coding is not None and coding.lower() != b"chunked":
            return "the only transfer coding is chunked"
        if length is not None and not length.isdigit():
            return "content-length is no number"
        return "" if self._status or b"host" in self._headers else "no host header"

    def _body(self) -> Ranges:
        if self._status in _WITHOUT_BODY:
            return
        if self._headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            pieces: list[tuple[int, bytes]] = []
            yield from self._chunks(pieces)
            yield from content_ranges(self._path, self._status, self._content_type, Body(pieces))
            return
        given = self._headers.get(b"content-length", b"")
        if given.isdigit() and len(given) < 16:
            size = int(given)
        elif self._status and not self._status.startswith(b"1"):
            size = len(self._data) - self._at  # a reply without a length ends with its connection
        else:
            size = 0
        start, self._at = self._at, min(self._at + size, len(self._data))
        early = start + size - self._at
        if size:
            fault = f"the body ends {early} bytes early" if early else ""
            yield ByteRange(
                start, self._at - start, "body", media_of(self._content_type).decode("latin-1"), f"{size} bytes", fault
            )
            whole = Body([(start, self._data[start : self._at])])
            yield from content_ranges(self._path, self._status, self._content_type, whole)

    def _chunks(self, pieces: list[tuple[int, bytes]]) -> Ranges:
        while True:
            start, line, fault = self._line()
            size = _CHUNK.fullmatch(line)
            if size is None:
                early = start >= len(self._data)
                wrong = "no last chunk: the body is incomplete" if early else "no chunk size"
                yield ByteRange(start, len(line), "chunk", "http1", shown(line), wrong, 1)
                return
            length = int(size[1], 16)
            yield ByteRange(start, len(line), "chunk", "http1", f"{length} bytes", fault, 1)
            if length == 0:
                break
            pieces.append((self._at, self._data[self._at : self._at + length]))
            self._at += length
            if self._at > len(self._data):
                yield ByteRange(len(self._data), 0, "chunk", "http1", "", "the capture ends inside this chunk", 1)
                self._at = len(self._data)
                return
            if not self._data.startswith(b"\r\n", self._at):
                wrong = "the chunk does not end where its size says"
                yield ByteRange(self._at, 0, "chunk", "http1", shown(self._data[self._at : self._at + 8]), wrong, 1)
                return
            self._at += 2
        start, line, fault = self._line()
        while line:  # trailers
            yield ByteRange(start, len(line), "trailer", "http1", shown(line), fault, 1)
            start, line, fault = self._line()

    @property
    def _content_type(self) -> bytes:
        return self._headers.get(b"content-type", b"")
