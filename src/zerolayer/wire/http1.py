"""HTTP/1.1 for a server, without sockets and without a clock (RFC 9112): bytes in, requests out.

Two rules hold this file together. Bytes are cut here, not in the parser: a head is handed to llhttp (``httptools``)
only when it is complete, so limits are exact and the events never depend on how the network split the bytes. And
whatever the bytes are, ``receive`` returns events; the only failure is one last ``Fault``.

Rendering of replies is in ``http1_reply``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum, auto
from typing import ClassVar

import msgspec

from zerolayer.errors import BodyTooLarge, HeadersTooLarge, InvalidRequest, ZerolayerError
from zerolayer.wire.head_template import remember
from zerolayer.wire.http1_head import NO_HEAD, Head, parse_head
from zerolayer.wire.http1_memory import OF_ONE_CONNECTION, HeadMemory
from zerolayer.wire.http1_template import Habits

__all__ = ["Event", "Fault", "Head", "Http1Protocol", "Message"]

# Bytes that no head may hold: controls other than TAB, CR and LF; LF without CR before it; CR without LF after it.
_MALFORMED = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?=[^\n])")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILERS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*")

_HEADS = 4  # that a connection remembers, and the longest of them
_REMEMBERED_BYTES = 4096
_CHUNK_LINE_BYTES = 256  # a size and its extensions, which are ignored
# Size lines and line ends may add up to this, and an eighth of the body: chunks of 64 bytes always pass.
_CHUNK_FRAMING_BYTES = 65_536


class Message(msgspec.Struct, frozen=True):
    """A complete request. Its ``head`` was an event before, unless ``whole`` gave the request."""

    head: Head
    body: bytes


class Fault(msgspec.Struct, frozen=True):
    """The last event of a connection: answer with ``error``, then close. Later bytes are ignored."""

    error: ZerolayerError


Event = Head | Message | Fault


def _malformed() -> InvalidRequest:
    return InvalidRequest("The request is malformed; HTTP/1.1 as in RFC 9112 is expected.")


class _State(IntEnum):
    HEAD = auto()
    SIZED_BODY = auto()
    CHUNK_SIZE = auto()
    CHUNK_DATA = auto()
    CHUNK_END = auto()
    TRAILERS = auto()
    CLOSED = auto()


_HEAD = _State.HEAD  # for every request: a member of an enumeration is dearer to name


class Http1Protocol:
    """One connection of a server: bytes in, events out, in the order of the requests.

    ``head_bytes`` limits request line and headers together, ``header_count`` the number of headers, ``body_bytes`` a
    body. A body that announces more than ``body_bytes`` gives its ``Head``, then ``Fault(BodyTooLarge)``, before any of
    it is read. At most one head, one body and what the last ``receive`` brought are held. ``memory`` is shared by
    connections with the same limits.
    """

    # What most connections never change, or not before their first request: many begin at once.
    _state: _State = _HEAD
    _searched = 0  # bytes of the buffer in which no end of head was found
    _blank_line = False  # the one empty line that may come before a request line was skipped
    _head: Head = NO_HEAD
    _habits: Habits | None = None  # heads that came before but for some values
    _last_raw = b""  # the last head that was found in the memory
    _usual: Head | None = None  # the last head that came again, of these bytes
    _usual_raw = b"\0"  # which no head begins with
    _contributions = OF_ONE_CONNECTION  # that are left
    _left = 0  # bytes of the body, or of the chunk, that are still to come
    _framing = 0

    def __init__(
        self, head_bytes: int, body_bytes: int, header_count: int = 100, memory: HeadMemory | None = None
    ) -> None:
        self._head_bytes = head_bytes
        self._body_bytes = body_bytes
        self._header_count = header_count
        self._events: list[Event] = []
        self._buffer = bytearray()
        self._heads: dict[bytes, Head] = {}  # that came before: most clients send the same one each time
        self._memory = memory or HeadMemory()
        self._body = bytearray()  # decoded chunks

    @property
    def idle(self) -> bool:
        """True when no request is in progress: not a byte of a next one has arrived."""
        return self._state is _State.CLOSED or (self._state is _State.HEAD and not self._buffer)

    def whole(self, data: bytes) -> Message | None:
        """The request that ``data`` is from the first byte to the last, if its head is like one before.

        None for everything else; nothing was taken then, and ``receive`` must be given the bytes.
        """
        if self._state is not _HEAD or self._buffer:
            return None
        head, raw = self._usual, self._usual_raw
        if data.startswith(raw):
            end = len(raw)
        else:
            end = data.find(b"\r\n\r\n") + 4
            raw = data[:end]
            known = self._heads.get(raw)
            if known is not None:
                self._usual, self._usual_raw = known, raw
            head = known or (self._known(raw) if end <= self._head_bytes else None)
        if head is None or head.content_length != len(data) - end or not head.keep_alive:
            return None
        if head.content_length > self._body_bytes:
            return None
        self._blank_line = False
        return Message(head, data[end:])

    def receive(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Take what the network delivered and return what it completed, possibly nothing. Never raises."""
        if self._state is _State.CLOSED:
            return []
        self._buffer += data
        try:
            while self._STEPS[self._state](self):
                pass
        except ZerolayerError as error:
            self._events.append(Fault(error))
            self._close()
        events, self._events = self._events, []
        return events

    def _close(self) -> bool:
        self._state = _State.CLOSED
        self._buffer.clear()
        self._body.clear()
        return False

    def _read_head(self) -> bool:
        buffer = self._buffer
        if not self._blank_line and buffer.startswith(b"\r\n"):
            del buffer[:2]
            self._blank_line = True
        if not buffer:
            return False
        if not ord("A") <= buffer[0] <= ord("Z") and buffer != b"\r":
            raise InvalidRequest("The request line must begin with a method; this port speaks HTTP/1.1.")
        end = self._find_end()
        if not end:
            return False
        raw = bytes(buffer[:end])
        del buffer[:end]
        self._blank_line = False
        self._head = head = self._heads.get(raw) or self._parse(raw)
        self._events.append(head)
        if head.content_length is None:
            self._framing = 0
            self._state = _State.CHUNK_SIZE
            return True
        if head.content_length > self._body_bytes:
            raise self._body_too_large()
        self._left = head.content_length
        self._state = _State.SIZED_BODY
        return True

    def _parse(self, raw: bytes) -> Head:
        head = self._known(raw)
        if head is not None:
            return head
        if _MALFORMED.search(raw):  # llhttp ends a request line at a bare line feed, and we do not
            raise _malformed()
        head = parse_head(raw, self._header_count)
        if len(raw) <= _REMEMBERED_BYTES:
            remember(self._heads, raw, head, _HEADS)
            if self._habits is None:
                self._habits = Habits()
            self._habits.learn(raw, head)
            if self._contributions:
                self._contributions -= 1
                self._memory.learn(raw, head)
        return head

    def _known(self, raw: bytes) -> Head | None:
        """The head that ``raw`` is, if one like it came before; ``_heads`` was looked at."""
        head = None if self._habits is None else self._habits.head(raw)
        if head is None:
            head = self._memory.head(raw)
            if head is not None:
                if head.like is None or raw == self._last_raw:
                    remember(self._heads, raw, head, _HEADS)
                self._last_raw = raw
        return head

    def _find_end(self) -> int:
        """Length of the head, or trailer section, that the buffer begins with; 0 while it is incomplete."""
        buffer = self._buffer
        found = buffer.find(b"\r\n\r\n", self._searched)
        if found < 0 and _MALFORMED.search(buffer, self._searched):
            # What can only fail later fails at once: a peer that speaks another protocol may wait for an answer.
            raise _malformed()
        if (found + 4 if found >= 0 else len(buffer)) > self._head_bytes:
            raise HeadersTooLarge(
                f"Request line and headers are larger than {self._head_bytes} bytes; send fewer or shorter headers."
            )
        self._searched = max(0, len(buffer) - 3) if found < 0 else 0
        return found + 4 if found >= 0 else 0

    def _body_too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"The request body is larger than {self._body_bytes} bytes; send a shorter one.")

    def _complete(self, body: bytes) -> bool:
        self._events.append(Message(self._head, body))
        if not self._head.keep_alive:
            return self._close()
        self._head = NO_HEAD
        self._state = _State.HEAD
        return bool(self._buffer)

    def _read_sized_body(self) -> bool:
        # The buffer itself collects the body: memory is taken for what has arrived, not for what was announced.
        buffer, length = self._buffer, self._left
        if len(buffer) < length:
            return False
        if len(buffer) == length:
            body = bytes(buffer)
            buffer.clear()
        else:
            body = bytes(buffer[:length])
            del buffer[:length]
        return self._complete(body)

    def _read_chunk_size(self) -> bool:
        buffer = self._buffer
        end = buffer.find(b"\r\n", 0, _CHUNK_LINE_BYTES + 2)
        if end < 0 and len(buffer) < _CHUNK_LINE_BYTES + 2 and not _MALFORMED.search(buffer):
            return False
        line = _CHUNK_LINE.fullmatch(buffer, 0, max(end, 0))
        if line is None:
            raise InvalidRequest("A chunk size of the request body is malformed.")
        size = int(line[1], 16)
        if len(self._body) + size > self._body_bytes:
            raise self._body_too_large()
        self._framing += end + 4  # the line, its CRLF, and the CRLF after the data
        if self._framing > _CHUNK_FRAMING_BYTES + len(self._body) // 8:
            raise InvalidRequest("The request body is cut into too many chunks; send larger ones, or a content-length.")
        del buffer[: end + 2]
        self._left = size
        self._state = _State.CHUNK_DATA if size else _State.TRAILERS
        return True

    def _read_chunk_data(self) -> bool:
        part = self._buffer[: self._left]
        self._body += part
        del self._buffer[: len(part)]
        self._left -= len(part)
        if self._left:
            return False
        self._state = _State.CHUNK_END
        return True

    def _read_chunk_end(self) -> bool:
        if not b"\r\n".startswith(self._buffer[:2]):
            raise InvalidRequest("A chunk of the request body does not end where its size says.")
        if len(self._buffer) < len(b"\r\n"):
            return False
        del self._buffer[:2]
        self._state = _State.CHUNK_SIZE
        return True

    def _read_trailers(self) -> bool:
        # Trailers are checked and dropped: nothing here may be decided after the body.
        buffer = self._buffer
        end = 2 if buffer.startswith(b"\r\n") else self._find_end()
        if not end:
            return False
        section = bytes(buffer[: end - 2])
        if not _TRAILERS.fullmatch(section):
            raise InvalidRequest("The trailer section of the request body is malformed.")
        del buffer[:end]
        body = bytes(self._body)
        self._body.clear()
        return self._complete(body)

    # Each step consumes from the buffer and says whether another step can be tried at once.
    _STEPS: ClassVar[dict[_State, Callable[[Http1Protocol], bool]]] = {
        _State.HEAD: _read_head,
        _State.SIZED_BODY: _read_sized_body,
        _State.CHUNK_SIZE: _read_chunk_size,
        _State.CHUNK_DATA: _read_chunk_data,
        _State.CHUNK_END: _read_chunk_end,
        _State.TRAILERS: _read_trailers,
        _State.CLOSED: _close,
    }
