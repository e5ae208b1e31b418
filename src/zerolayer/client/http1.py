"""Replies of HTTP/1.1, receiving side, sans-IO (RFC 9112). One reply a reader; nothing of it is kept but the head.

Standard library only: the client installs without the server's parser.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from zerolayer.client.errors import BadReply, BrokenReply

HEAD_BYTES: Final = 1 << 16
CHECK: Final = "Check that the address is that of an OpenAI-compatible server."
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_LINE_BYTES: Final = 4096  # of a chunk's size and its extensions, and of a trailer


class _At(Enum):
    HEAD = "head"
    LENGTH = "a body of known length"
    CLOSE = "a body that ends with the connection"
    SIZE = "the size of a chunk"
    CHUNK = "a chunk"
    CHUNK_END = "the line end after a chunk"
    TRAILER = "trailers"
    DONE = "the end"


class ReplyReader:
    """Bytes in any pieces -> ``status``, ``headers`` (lower case; the last of a name counts), pieces of the body.

    ``begun`` once the head is there, ``complete`` once the body is.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._at = _At.HEAD
        self._data = bytearray()
        self._left = 0

    @property
    def begun(self) -> bool:
        """Whether the head is there."""
        return self._at is not _At.HEAD

    @property
    def complete(self) -> bool:
        """Whether the body is there to its end."""
        return self._at is _At.DONE

    def push(self, data: bytes) -> bytes:
        """Take in ``data``; return what it holds of the body. Raises ``BadReply``."""
        self._data += data
        body = bytearray()
        while self._step(body):
            pass
        return bytes(body)

    def end(self) -> None:
        """The connection ended. Raises ``BrokenReply`` unless the reply did, too."""
        if self._at is _At.CLOSE:
            self._at = _At.DONE
        if self._at is not _At.DONE:
            raise BrokenReply("The connection ended before the reply did.")

    def _step(self, body: bytearray) -> bool:
        """One piece of the reply; False when more bytes are needed."""
        match self._at:
            case _At.HEAD:
                return self._head()
            case _At.LENGTH | _At.CHUNK:
                return self._counted(body)
            case _At.CLOSE:
                body += self._data
                self._data.clear()
                return False
            case _At.SIZE | _At.CHUNK_END | _At.TRAILER:
                return self._line()
            case _At.DONE:
                return False

    def _head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if end > HEAD_BYTES or (end < 0 and len(self._data) > HEAD_BYTES):
            raise BadReply(f"The head of the reply is larger than {HEAD_BYTES} bytes. {CHECK}")
        if not b"HTTP/1.".startswith(self._data[:7]):
            raise BadReply(f"The other side did not answer in HTTP/1.1. {CHECK}")
        if end < 0:
            return False
        lines = self._data[:end].decode("latin-1").split("\r\n")
        del self._data[: end + 4]
        version, _, rest = lines[0].partition(" ")
        code = rest[:3]
        if version not in ("HTTP/1.0", "HTTP/1.1") or len(code) != 3 or not (code.isascii() and code.isdigit()):
            raise BadReply(f"The other side did not answer in HTTP/1.1. {CHECK}")
        if 100 <= int(code) < 200:
            return True  # an interim reply
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise BadReply(f"A header of the reply has no name. {CHECK}")
            headers[name.lower()] = value.strip(" \t")
        self.status, self.headers = int(code), headers
        self._at = self._framing()
        return True

    def _framing(self) -> _At:
        """How the body ends (RFC 9112 section 6.3)."""
        if self.status in (204, 304):
            return _At.DONE
        coding = self.headers.get("transfer-encoding")
        if coding is not None:
            if coding.lower() != "chunked":
                raise BadReply(f"The reply's transfer encoding is not chunked. {CHECK}")
            return _At.SIZE
        length = self.headers.get("content-length")
        if length is None:
            return _At.CLOSE
        if not (length.isascii() and length.isdigit() and len(length) <= 15):
            raise BadReply(f"The reply's length is no number. {CHECK}")
        self._left = int(length)
        return _At.LENGTH if self._left else _At.DONE

    def _counted(self, body: bytearray) -> bool:
        taken = self._data[: self._left]
        body += taken
        del self._data[: len(taken)]
        self._left -= len(taken)
        if self._left:
            return False
        self._at = _At.DONE if self._at is _At.LENGTH else _At.CHUNK_END
        return True

    def _line(self) -> bool:
        end = self._data.find(b"\r\n")
        if end > _LINE_BYTES or (end < 0 and len(self._data) > _LINE_BYTES):
            raise BadReply(f"The reply's chunks are not well formed. {CHECK}")
        if end < 0:
            return False
        line = bytes(self._data[:end])
        del self._data[: end + 2]
        if self._at is _At.SIZE:
            size = line.partition(b";")[0].strip(b" \t")
            if not size or len(size) > 8 or not _HEX.issuperset(size):
                raise BadReply(f"The reply's chunks are not well formed. {CHECK}")
            self._left = int(size, 16)
            self._at = _At.CHUNK if self._left else _At.TRAILER
        elif self._at is _At.CHUNK_END:
            if line:
                raise BadReply(f"The reply's chunks are not well formed. {CHECK}")
            self._at = _At.SIZE
        elif not line:
            self._at = _At.DONE
        return True
