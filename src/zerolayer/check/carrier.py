"""What carries exchanges over one connection, sans-IO: HTTP/1.1 one at a time, HTTP/2 (RFC 9113) many at once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Protocol

import hpack

from zerolayer.check.exchange import Exchange, ReplyParser, fill_head
from zerolayer.wire.http2_frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES,
    HEADER_BYTES,
    LARGEST_WINDOW,
    PREFACE,
    WINDOW,
    Code,
    ConnectionFault,
    Kind,
    Setting,
    frame,
    head_frames,
    read_settings,
    rst_stream,
    settings,
    window_update,
    without_padding,
    word,
)

STREAMS: Final = 1000  # at once, on a connection whose server names no limit
_REFILL: Final = LARGEST_WINDOW // 2  # bytes read before the connection's window is opened again


class Carrier(Protocol):
    """One connection's protocol. Bytes and times in; bytes to send and ended exchanges out."""

    greeted: bool  # whether the peer has said what this carrier must know before the first request

    @property
    def room(self) -> int:
        """How many exchanges may begin now."""

    def begin(self, exchange: Exchange) -> bytes:
        """The bytes that ask for ``exchange``."""

    def feed(self, data: bytes, now_ns: int) -> list[Exchange]:
        """Take one read; the exchanges that it ended."""

    def answer(self) -> bytes:
        """What the carrier itself has to send after a read, or at the start of a connection."""

    def end_of_file(self, now_ns: int) -> list[Exchange]:
        """The connection ended; what ended with it."""

    def leave(self, exchange: Exchange) -> bytes | None:
        """Break an exchange off: the bytes that say so, or None where only closing the connection does."""


class Http1Carrier:
    """One exchange at a time; a request's payload is its bytes."""

    greeted = True

    def __init__(self) -> None:
        self._parser: ReplyParser | None = None
        self._open = True

    @property
    def room(self) -> int:
        return int(self._open and self._parser is None)

    def begin(self, exchange: Exchange) -> bytes:
        self._parser = ReplyParser(exchange)
        return exchange.planned.payload

    def feed(self, data: bytes, now_ns: int) -> list[Exchange]:
        parser = self._parser
        if parser is None or not parser.feed(data, now_ns):
            return []
        self._parser, self._open = None, parser.reusable and not parser.exchange.error
        return [parser.exchange]

    def answer(self) -> bytes:
        return b""

    def end_of_file(self, now_ns: int) -> list[Exchange]:
        parser, self._parser, self._open = self._parser, None, False
        if parser is None:
            return []
        if not parser.exchange.error:
            parser.end_of_file(now_ns)
        return [parser.exchange]

    def leave(self, exchange: Exchange) -> bytes | None:  # noqa: ARG002 - there is only one
        return None


@dataclass
class _Stream:
    exchange: Exchange
    window: int  # bytes of DATA that the peer takes
    unsent: bytes
    parts: list[bytes] = field(default_factory=list)  # body bytes of the present read


class Http2Carrier:
    """Many exchanges at once; a request's payload is ``http2_payload``. Breaks with the connection, never alone."""

    def __init__(self) -> None:
        self.greeted = False
        self._decoder = hpack.Decoder()
        self._streams: dict[int, _Stream] = {}
        self._next_id = 1
        self._most = STREAMS
        self._first_window = self._window = WINDOW
        self._unread = b""
        self._block: tuple[int, int, bytes] | None = None  # stream, flags and bytes of a head that goes on
        self._taken = 0
        self._waiting: deque[int] = deque()  # streams with bytes that no window has let through
        self._ended: list[Exchange] = []
        self._out = [
            PREFACE,
            settings({Setting.ENABLE_PUSH: 0, Setting.INITIAL_WINDOW_SIZE: LARGEST_WINDOW}),
            window_update(0, LARGEST_WINDOW - WINDOW),
        ]
        self._open = True

    @property
    def room(self) -> int:
        return max(0, self._most - len(self._streams)) if self._open else 0

    def begin(self, exchange: Exchange) -> bytes:
        stream_id, self._next_id = self._next_id, self._next_id + 2
        heads, body = _split(exchange.planned.payload, stream_id)
        self._streams[stream_id] = _Stream(exchange, self._first_window, body)
        if body:
            self._waiting.append(stream_id)
        return heads + self._flush()

    def feed(self, data: bytes, now_ns: int) -> list[Exchange]:
        buffer, at = self._unread + data, 0
        try:
            while len(buffer) - at >= HEADER_BYTES:
                size = int.from_bytes(buffer[at : at + 3], "big")
                if size > FRAME_BYTES:
                    raise ConnectionFault(Code.FRAME_SIZE_ERROR)
                end = at + HEADER_BYTES + size
                if end > len(buffer):
                    break
                stream_id = word(buffer[at + 5 : at + 9]) & LARGEST_WINDOW
                self._frame(buffer[at + 3], buffer[at + 4], stream_id, buffer[at + HEADER_BYTES : end], now_ns)
                at = end
        except (ConnectionFault, hpack.HPACKError):
            self._fail("not HTTP/2")
        self._unread = buffer[at:]
        for stream in self._streams.values():
            _keep(stream, now_ns)
        ended, self._ended = self._ended, []
        return ended

    def answer(self) -> bytes:
        self._out.append(self._flush())
        data = b"".join(self._out)
        self._out.clear()
        return data

    def end_of_file(self, now_ns: int) -> list[Exchange]:  # noqa: ARG002 - no end is whole
        self._fail("closed")
        ended, self._ended = self._ended, []
        return ended

    def leave(self, exchange: Exchange) -> bytes | None:
        for stream_id, stream in self._streams.items():
            if stream.exchange is exchange:
                del self._streams[stream_id]
                return rst_stream(stream_id, Code.CANCEL)
        return b""

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes, now_ns: int) -> None:
        if not self.greeted and kind != Kind.SETTINGS:
            raise ConnectionFault(Code.PROTOCOL_ERROR)
        if kind == Kind.DATA:
            self._data(flags, stream_id, payload, now_ns)
        elif kind in (Kind.HEADERS, Kind.CONTINUATION):
            self._head(kind, flags, stream_id, payload, now_ns)
        elif kind in (Kind.SETTINGS, Kind.PING) and flags & ACK:
            self.greeted = True
        else:
            self._control(kind, stream_id, payload)

    def _control(self, kind: int, stream_id: int, payload: bytes) -> None:
        match kind:
            case Kind.SETTINGS:
                self._settings(payload)
            case Kind.PING:
                self._out.append(frame(Kind.PING, ACK, 0, payload))
            case Kind.RST_STREAM:
                self._end(stream_id, "reset")
            case Kind.WINDOW_UPDATE:
                self._more_window(stream_id, word(payload) & LARGEST_WINDOW)
            case Kind.GOAWAY:
                self._open = False
                for each in [each for each in self._streams if each > word(payload) & LARGEST_WINDOW]:
                    self._end(each, "closed")

    def _data(self, flags: int, stream_id: int, payload: bytes, now_ns: int) -> None:
        self._taken += len(payload)
        if self._taken > _REFILL:
            self._out.append(window_update(0, self._taken))
            self._taken = 0
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.parts.append(without_padding(flags & ~0x20, payload))
            self._end_if(flags, stream_id, stream, now_ns)

    def _head(self, kind: int, flags: int, stream_id: int, payload: bytes, now_ns: int) -> None:
        if kind == Kind.HEADERS:
            self._block = (stream_id, flags, without_padding(flags, payload))
        elif self._block is not None:
            stream_id, first, block = self._block
            self._block = (stream_id, first | flags & END_HEADERS, block + payload)
        if self._block is None or not self._block[1] & END_HEADERS:
            return
        stream_id, flags, block = self._block
        self._block = None
        fields = dict(self._decoder.decode(block, raw=True))  # also for streams that are gone: the table is shared
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        status = fields.get(b":status", b"")
        if status.isdigit() and int(status) >= 200:
            fill_head(stream.exchange, int(status), fields)
        self._end_if(flags, stream_id, stream, now_ns)

    def _end_if(self, flags: int, stream_id: int, stream: _Stream, now_ns: int) -> None:
        if flags & END_STREAM:
            _keep(stream, now_ns)
            stream.exchange.end_ns = now_ns
            self._end(stream_id)

    def _end(self, stream_id: int, error: str = "") -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            stream.exchange.error = stream.exchange.error or error
            self._ended.append(stream.exchange)

    def _fail(self, error: str) -> None:
        self._open = False
        for stream_id in list(self._streams):
            self._end(stream_id, error)

    def _settings(self, payload: bytes) -> None:
        self.greeted = True
        window = read_settings(payload)
        if window is not None:
            for stream in self._streams.values():
                stream.window += window - self._first_window
            self._first_window = window
        for at in range(0, len(payload), 6):
            if word(b"\0\0" + payload[at : at + 2]) == Setting.MAX_CONCURRENT_STREAMS:
                self._most = min(STREAMS, word(payload[at + 2 : at + 6]))
        self._out.append(frame(Kind.SETTINGS, ACK, 0, b""))

    def _more_window(self, stream_id: int, increment: int) -> None:
        if stream_id == 0:
            self._window += increment
        elif (stream := self._streams.get(stream_id)) is not None:
            stream.window += increment

    def _flush(self) -> bytes:
        """DATA frames of waiting bodies, as far as the windows let them through."""
        out: list[bytes] = []
        for _ in range(len(self._waiting)):
            stream_id = self._waiting.popleft()
            stream = self._streams.get(stream_id)
            while stream is not None and stream.unsent and (room := min(stream.window, self._window, FRAME_BYTES)) > 0:
                part, stream.unsent = stream.unsent[:room], stream.unsent[room:]
                stream.window -= len(part)
                self._window -= len(part)
                out.append(frame(Kind.DATA, 0 if stream.unsent else END_STREAM, stream_id, part))
            if stream is not None and stream.unsent:
                self._waiting.append(stream_id)
        return b"".join(out)


def _keep(stream: _Stream, now_ns: int) -> None:
    """What one read brought is one piece, however many frames it was."""
    if stream.parts:
        stream.exchange.pieces.append((now_ns, b"".join(stream.parts)))
        stream.parts.clear()


def http2_payload(fields: list[tuple[str, str]], body: bytes) -> bytes:
    """A request as frames of its head on stream 0, then its body's bytes. The head is the same on every connection.

    Every field is a literal that is never indexed (RFC 7541 section 6.2.3), so that it reads no table of a connection.
    """
    block = hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*each) for each in fields])
    return head_frames(0, block, ended=not body) + body


def _split(payload: bytes, stream_id: int) -> tuple[bytes, bytes]:
    """Head frames with their stream's number, and the body."""
    number, frames, at, last = stream_id.to_bytes(4, "big"), [], 0, False
    while not last:
        end = at + HEADER_BYTES + int.from_bytes(payload[at : at + 3], "big")
        last = bool(payload[at + 4] & END_HEADERS)
        frames += [payload[at : at + 5], number, payload[at + HEADER_BYTES : end]]
        at = end
    return b"".join(frames), payload[at:]
