"""HTTP/2 for a client, without sockets and without a clock (RFC 9113): requests to bytes, bytes to events.

Frames are those of ``wire.http2_frames``. Request heads are literals that read no table; reply heads need the package
``hpack``: without it the client speaks HTTP/1.1 (``http2_connection``). Server push and priorities do not exist here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from zerolayer.client.errors import BadReply
from zerolayer.wire.http2_frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES,
    HEADER_BYTES,
    LARGEST_WINDOW,
    NO_TABLE,
    PREFACE,
    WINDOW,
    Code,
    ConnectionFault,
    Kind,
    Setting,
    frame,
    goaway,
    head_frames,
    must_have,
    read_settings,
    rst_stream,
    settings,
    window_update,
    without_padding,
    word,
)

STREAM_ROOM: Final = 1 << 20  # bytes of a reply that wait for their reader, at most
CONNECTION_ROOM: Final = 1 << 24
BLOCK_BYTES: Final = 1 << 16
STREAMS: Final = 100  # at once, until the server has said how many it takes (RFC 9113 section 6.5.2 recommends no less)

Fields = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Head:
    """A reply begins; ``headers`` have lower case names, the last of a name counts."""

    stream_id: int
    status: int
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Data:
    """A piece of a reply's body."""

    stream_id: int
    data: bytes


@dataclass(frozen=True)
class Done:
    """A reply is complete."""

    stream_id: int
    trailers: Mapping[str, str]


@dataclass(frozen=True)
class Broken:
    """A reply will not come, or not to its end. ``unseen``: the server says that it never looked at the request."""

    stream_id: int
    unseen: bool


Event = Head | Data | Done | Broken


@dataclass
class _Stream:
    window: int  # bytes of the request's body that the server takes
    unsent: memoryview
    begun: bool = False
    read: int = 0  # bytes of the reply that were read, and whose room was not given back
    room: int = STREAM_ROOM  # bytes that the server may still send


@dataclass
class _Block:
    """A head that is not complete."""

    stream_id: int
    flags: int
    data: bytearray = field(default_factory=bytearray)


class Http2Client:
    """One connection. ``take`` gives the bytes to write; the first are the preface.

    ``open``: it takes more requests, ``most`` at once. ``greeted``: the server has said what it takes.
    """

    def __init__(self, decoder: Any) -> None:
        """``decoder`` is an ``hpack.Decoder``."""
        self.open = True
        self.most = STREAMS
        self._decoder = decoder
        self._streams: dict[int, _Stream] = {}
        self._next_id = 1
        self.greeted = False
        self._first_window = self._window = WINDOW
        self._unread = b""
        self._block_start = b""  # what the next request's block must begin with
        self._block: _Block | None = None
        self._returned = 0  # bytes of the connection's room that were read and not given back
        self._waiting: deque[int] = deque()  # streams with bytes that no window has let through
        self._events: list[Event] = []
        self._out = bytearray(PREFACE)
        self._out += settings({Setting.ENABLE_PUSH: 0, Setting.INITIAL_WINDOW_SIZE: STREAM_ROOM})
        self._out += window_update(0, CONNECTION_ROOM - WINDOW)

    @property
    def streams(self) -> int:
        """Requests under way."""
        return len(self._streams)

    def take(self) -> bytes:
        """What must be written now."""
        data = bytes(self._out)
        self._out.clear()
        return data

    def request(self, fields: Fields, body: bytes) -> int:
        """Ask; the number of the request, which is in its events. ``fields`` begin with the pseudo-headers."""
        return self.ask(head_block(fields), body)

    def ask(self, block: bytes, body: bytes) -> int:
        """The same for fields that are a ``head_block`` already."""
        stream_id, self._next_id = self._next_id, self._next_id + 2
        if self._next_id > LARGEST_WINDOW:
            self.open = False
        self._out += head_frames(stream_id, self._block_start + block, ended=not body)
        self._block_start = b""
        self._streams[stream_id] = _Stream(self._first_window, memoryview(body))
        if body:
            self._waiting.append(stream_id)
            self._pump()
        return stream_id

    def consumed(self, stream_id: int, size: int) -> None:
        """``size`` bytes of a reply were read: the server may send as many more."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        stream.read += size
        if stream.read >= STREAM_ROOM // 2:
            self._out += window_update(stream_id, stream.read)
            stream.room += stream.read
            stream.read = 0

    def ping(self) -> None:
        """Ask the server for a sign of life."""
        self._out += frame(Kind.PING, 0, 0, b"zerolayr")

    def cancel(self, stream_id: int) -> None:
        """Nobody waits for this reply any more. Of a reply that ended nothing is sent."""
        if self._streams.pop(stream_id, None) is not None:
            self._out += rst_stream(stream_id, Code.CANCEL)

    def receive(self, data: bytes) -> list[Event]:
        """Take what the network delivered. Raises ``BadReply`` for what is no HTTP/2; the connection is then over."""
        buffer, at = self._unread + data if self._unread else data, 0
        try:
            while len(buffer) - at >= HEADER_BYTES:
                size, kind = int.from_bytes(buffer[at : at + 3]), buffer[at + 3]
                if size > FRAME_BYTES or (not self.greeted and kind != Kind.SETTINGS):
                    raise ConnectionFault(Code.FRAME_SIZE_ERROR)
                end = at + HEADER_BYTES + size
                if end > len(buffer):
                    break
                stream_id = int.from_bytes(buffer[at + 5 : at + HEADER_BYTES]) & LARGEST_WINDOW
                self._on_frame(kind, buffer[at + 4], stream_id, buffer[end - size : end])
                at = end
        except ConnectionFault as fault:
            self._out += goaway(0, fault.code)
            self.open = False
            raise BadReply("The other side does not speak HTTP/2 as it should.") from None
        self._unread = buffer[at:]
        events, self._events = self._events, []
        return events

    def lost(self) -> list[Event]:
        """The connection is gone; what ended with it."""
        self.open = False
        for stream_id in list(self._streams):
            self._break(stream_id, unseen=False)
        events, self._events = self._events, []
        return events

    def _on_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        block = self._block
        if block is not None and (kind != Kind.CONTINUATION or stream_id != block.stream_id):
            raise ConnectionFault(Code.PROTOCOL_ERROR)
        match kind:
            case Kind.DATA:
                self._on_data(flags, stream_id, payload)
            case Kind.HEADERS:
                self._block = _Block(stream_id, flags)
                self._on_block(self._block, flags, without_padding(flags, payload))
            case Kind.CONTINUATION if block is not None:
                self._on_block(block, flags, payload)
            case Kind.CONTINUATION | Kind.PUSH_PROMISE:
                raise ConnectionFault(Code.PROTOCOL_ERROR)
            case Kind.RST_STREAM:
                must_have(4, payload)
                self._break(stream_id, unseen=word(payload) == Code.REFUSED_STREAM)
            case Kind.SETTINGS:
                self._on_settings(flags, payload)
            case Kind.PING:
                must_have(8, payload)
                if not flags & ACK:
                    self._out += frame(Kind.PING, ACK, 0, payload)
            case Kind.GOAWAY:
                self.open = False
                for unseen in [each for each in self._streams if each > word(payload) & LARGEST_WINDOW]:
                    self._break(unseen, unseen=True)
            case Kind.WINDOW_UPDATE:
                must_have(4, payload)
                self._widen(stream_id, word(payload) & LARGEST_WINDOW)
            case _:
                pass  # priorities, and frames that nobody knows

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._returned += len(payload)
        if self._returned >= CONNECTION_ROOM // 2:
            self._out += window_update(0, self._returned)
            self._returned = 0
        stream = self._streams.get(stream_id)
        if stream is None:
            return  # it was cancelled, and these bytes were on their way
        if not stream.begun:
            raise ConnectionFault(Code.PROTOCOL_ERROR)
        stream.room -= len(payload)
        if stream.room < 0:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR)
        data = without_padding(flags & ~0x20, payload)
        if data:
            self._events.append(Data(stream_id, data))
        stream.read += len(payload) - len(data)
        if flags & END_STREAM:
            self._end(stream_id, {})

    def _on_block(self, block: _Block, flags: int, payload: bytes) -> None:
        block.data += payload
        if len(block.data) > BLOCK_BYTES:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM)
        if not flags & END_HEADERS:
            return
        self._block = None
        stream = self._streams.get(block.stream_id)
        headers = self._fields(bytes(block.data))  # also of streams that are gone: the table is shared
        if stream is None:
            return
        if stream.begun:
            self._end(block.stream_id, headers)
            return
        status = headers.pop(":status", "")
        if not (len(status) == 3 and status.isascii() and status.isdigit()):
            raise ConnectionFault(Code.PROTOCOL_ERROR)
        if int(status) >= 200:  # else an interim reply
            stream.begun = True
            self._events.append(Head(block.stream_id, int(status), headers))
        if block.flags & END_STREAM:
            # A reply of gRPC that is nothing but its trailers has them here.
            self._end(block.stream_id, headers)

    def _fields(self, block: bytes) -> dict[str, str]:
        try:
            pairs: Iterable[tuple[bytes, bytes]] = self._decoder.decode(block, raw=True)
            return {bytes(name).decode("latin-1"): bytes(value).decode("latin-1") for name, value in pairs}
        except Exception:  # noqa: BLE001 - whatever hpack raises, the table is lost for all later heads
            raise ConnectionFault(Code.COMPRESSION_ERROR) from None

    def _on_settings(self, flags: int, payload: bytes) -> None:
        self.greeted = True
        if flags & ACK:
            return
        window, smaller_table = read_settings(payload)
        if smaller_table:
            self._block_start = NO_TABLE
        if window is not None:
            for stream in self._streams.values():
                stream.window += window - self._first_window
            self._first_window = window
        for at in range(0, len(payload), 6):
            if int.from_bytes(payload[at : at + 2], "big") == Setting.MAX_CONCURRENT_STREAMS:
                self.most = word(payload[at + 2 : at + 6])
        self._out += frame(Kind.SETTINGS, ACK, 0, b"")
        self._pump()

    def _widen(self, stream_id: int, increment: int) -> None:
        if stream_id == 0:
            self._window += increment
        elif (stream := self._streams.get(stream_id)) is not None:
            stream.window += increment
        self._pump()

    def _pump(self) -> None:
        """DATA of waiting bodies, as far as the windows let it through."""
        for _ in range(len(self._waiting)):
            stream_id = self._waiting.popleft()
            stream = self._streams.get(stream_id)
            while stream is not None and stream.unsent and (room := min(stream.window, self._window, FRAME_BYTES)) > 0:
                part, stream.unsent = stream.unsent[:room], stream.unsent[room:]
                stream.window -= len(part)
                self._window -= len(part)
                self._out += frame(Kind.DATA, 0 if stream.unsent else END_STREAM, stream_id, bytes(part))
            if stream is not None and stream.unsent:
                self._waiting.append(stream_id)

    def _end(self, stream_id: int, trailers: Mapping[str, str]) -> None:
        stream = self._streams.pop(stream_id)
        if stream.unsent:  # the reply came before the whole request was wanted
            self._out += rst_stream(stream_id, Code.NO_ERROR)
        self._events.append(Done(stream_id, trailers))

    def _break(self, stream_id: int, *, unseen: bool) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            self._events.append(Broken(stream_id, unseen and not stream.begun))


def head_block(fields: Fields) -> bytes:
    """A header block of literals that are never indexed and not compressed (RFC 7541 section 6.2.3)."""
    block = bytearray()
    for name, value in fields:
        block.append(0x10)
        for text in (name.encode("latin-1"), value.encode("latin-1")):
            block += _length(len(text)) + text
    return bytes(block)


def _length(size: int) -> bytes:
    """A string's length with a prefix of seven bits (RFC 7541 section 5.1)."""
    if size < 0x7F:
        return bytes([size])
    out, size = bytearray([0x7F]), size - 0x7F
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)
