"""HTTP/2 for a server, without sockets and without a clock (RFC 9113): bytes in, events and bytes out.

Three rules hold this file together. Frames are taken whole, so events never depend on how the network split the
bytes. Whatever the bytes are, ``receive`` returns events: what breaks one stream gives ``Gone``, what breaks the
connection one last ``Closed``. And everything that a peer can make us hold or do has a limit (``http2_limits``).

Server push, priorities and CONNECT do not exist here. Bodies and windows are in ``http2_streams`` and
``http2_sending``, header blocks in ``http2_head`` and ``http2_reply``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from zerolayer.errors import HeadersTooLarge
from zerolayer.wire.http2_control import Control
from zerolayer.wire.http2_events import Closed, Event, Opened
from zerolayer.wire.http2_frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES,
    FRAME_HEADER,
    HEADER_BYTES,
    LARGEST_WINDOW,
    PADDED,
    PREFACE,
    PRIORITY,
    WINDOW,
    Code,
    ConnectionFault,
    Kind,
    Setting,
    StreamFault,
    goaway,
    must_have,
    rst_stream,
    settings,
    window_update,
    without_padding,
)
from zerolayer.wire.http2_head import HeadDecoder, MalformedHead
from zerolayer.wire.http2_limits import SMALL_DATA_BYTES, Http2Limits, Toll, Tolls
from zerolayer.wire.http2_reply import reply_block, status_field, trailer_block
from zerolayer.wire.http2_sending import Sender, put_whole
from zerolayer.wire.http2_stream import State, Step, Stream
from zerolayer.wire.http2_streams import Streams, Whole, find_whole

__all__ = ["Code", "Http2Limits", "Http2Protocol"]

Fields = Sequence[tuple[bytes, bytes]]


class Http2Protocol:
    """One connection of a server. ``take`` gives the bytes that must be written; the first are our SETTINGS."""

    def __init__(self, limits: Http2Limits) -> None:
        self._limits = limits
        self._tolls = Tolls(limits)
        self._decoder = HeadDecoder(limits.head_bytes, limits.header_count)
        self._streams = Streams(limits)
        self.sender = self._streams.sender  # tells what there is to write
        self._control = Control(self._tolls, self._streams)
        self._buffer = bytearray()
        self._wanted = len(PREFACE)  # bytes without which there is nothing to read
        self._preface = False  # it was read
        self._begun = False  # so were the first SETTINGS
        self._block: bytearray | None = None  # of a head that is not complete
        self._block_of = (0, 0)  # its stream and flags
        self._continuations = 0
        self.frames = 0  # that were taken; whoever waits for one to be complete looks here
        self._draining = False
        self._closed = False
        self._greet()

    @property
    def reading_head(self) -> bool:
        """Whether a head, or the beginning of the connection, is not complete."""
        return self._block is not None or not self._begun

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return bool(self._buffer)

    @property
    def streams(self) -> int:
        """Open streams."""
        return len(self._streams.open)

    def blocked(self) -> dict[int, int]:
        """Streams whose data waits for a window -> body bytes that were sent so far."""
        return {stream.id: stream.sent_bytes for stream in self.sender.blocked.values()}

    # Receiving.

    def receive(self, data: bytes) -> list[Event]:
        """Take what the network delivered and return what it completed, possibly nothing. Never raises."""
        if self._closed:
            return []
        if self._buffer or not self._preface:
            self._buffer += data
            if len(self._buffer) < self._wanted:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        try:
            self._read(data)
        except ConnectionFault as fault:
            self._fail(fault.code)
        return self._streams.take_events()

    def whole(self, data: bytes) -> list[Whole] | None:
        """The requests that ``data`` is, if their heads are like ones before; else None, and nothing was taken."""
        if self._closed or self._draining or self._buffer or self._block is not None or not self._begun:
            return None
        streams, limits, decoder = self._streams, self._limits, self._decoder
        most = limits.streams - len(streams.open)
        heads, last_id, room = decoder.heads, streams.last_id, streams.room
        found = find_whole(data, heads, decoder.known, last_id, room, limits.body_bytes, most)
        if found:
            streams.add_whole(found)
            self.frames += len(found)
        return found

    def new_period(self) -> None:
        """Forget what was counted per period; called once a second."""
        self._tolls.new_period()

    def incremental(self, stream_id: int) -> bytes:
        """The body of this stream comes as ``Chunk``s from now on, except a complete one; returns what has come."""
        stream = self._streams.open.get(stream_id)
        return self._streams.hand_out(stream) if stream is not None and stream.state is State.OPEN else b""

    # Sending. Calls for a stream that is closed do nothing.

    def take(self) -> bytes:
        """What must be written now."""
        return self.sender.take()

    def hold(self, *, held: bool) -> None:
        """While ``held``, DATA waits: the socket takes nothing."""
        self.sender.held = held
        if not held:
            self.sender.pump()

    def reply(
        self, stream_id: int, status: int, headers: Fields, body: bytes, trailers: Fields = (), *, common: bytes = b""
    ) -> None:
        """A complete reply; ``common`` as in ``http2_reply``."""
        stream = self._streams.open.get(stream_id)
        if stream is None:
            return
        sender, ending = self.sender, trailer_block(tuple(trailers)) if trailers else b""
        if put_whole(sender, stream, status_field(status), common, tuple(headers), body, ending):
            self._streams.ended(stream)
            return
        sender.head(stream, reply_block(status, headers, common), ended=not (body or ending))
        if body or ending:
            sender.data(stream, body, ending)

    def open_reply(self, stream_id: int, status: int, headers: Fields, common: bytes = b"") -> None:
        """The head of a reply whose body follows in pieces."""
        stream = self._streams.open.get(stream_id)
        if stream is not None:
            self.sender.head(stream, reply_block(status, headers, common), ended=False)

    def send(self, stream_id: int, data: bytes) -> bool:
        """A piece of the body. False when too much of this stream or connection is unsent: it was not taken then."""
        stream = self._streams.open.get(stream_id)
        if stream is None:
            return True
        if stream.pending:
            unsent = stream.pending_bytes + len(data)
            if unsent > self._limits.unsent_bytes or self.sender.pending_bytes > self._limits.unsent_total_bytes:
                return False
        self.sender.piece(stream, data)
        return True

    def sending(self, stream_id: int) -> tuple[Sender, Stream] | None:
        """For whoever collects the pieces of many streams at once: what ``send`` adds to, while the stream is open."""
        stream = self._streams.open.get(stream_id)
        return None if stream is None else (self.sender, stream)

    def end(self, stream_id: int, data: bytes, trailers: Fields = ()) -> None:
        """The last piece."""
        stream = self._streams.open.get(stream_id)
        if stream is not None:
            self.sender.data(stream, data, trailer_block(tuple(trailers)))

    def reset(self, stream_id: int, code: Code) -> None:
        """End a stream without an end; what it had pending is void."""
        stream = self._streams.open.get(stream_id)
        if stream is not None:
            self.sender.control(rst_stream(stream_id, code))
            self._streams.forget(stream, Step.RESET)

    def go_away(self) -> None:
        """Ask the peer to open no more streams here; the open ones go on."""
        if not (self._draining or self._closed):
            self._draining = True
            self.sender.control(goaway(self._streams.last_id, Code.NO_ERROR))

    # Frames.

    def _greet(self) -> None:
        limits, streams = self._limits, self._streams
        self.sender.control(
            settings(
                {
                    Setting.HEADER_TABLE_SIZE: 0,
                    Setting.MAX_CONCURRENT_STREAMS: limits.streams,
                    Setting.INITIAL_WINDOW_SIZE: streams.first_room,
                    Setting.MAX_HEADER_LIST_SIZE: limits.head_bytes,
                }
            )
        )
        if streams.room > WINDOW:
            self.sender.control(window_update(0, streams.room - WINDOW))
        else:
            streams.room = WINDOW  # it can only be raised

    def _read(self, data: bytes) -> None:
        at = 0
        if not self._preface:
            if not data.startswith(PREFACE):
                raise ConnectionFault(Code.PROTOCOL_ERROR)
            self._preface = True
            at = len(PREFACE)
        size = len(data)
        self._wanted = HEADER_BYTES
        unpack = FRAME_HEADER.unpack_from
        while size - at >= HEADER_BYTES:
            high, low, kind, flags, stream_id = unpack(data, at)
            length = high << 8 | low
            if length > FRAME_BYTES:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR)
            end = at + HEADER_BYTES + length
            if end > size:
                self._wanted = end - at
                break
            if self._block is not None or not self._begun:
                self._must_come_next(kind, flags, stream_id)
            handler = self._FRAMES.get(kind)
            stream_id &= LARGEST_WINDOW
            payload = data[at + HEADER_BYTES : end]
            try:
                if handler is None:
                    self._control.take(kind, flags, stream_id, payload)
                else:
                    handler(self, flags, stream_id, payload)
            except StreamFault as fault:
                self._tolls.pay(Toll.FAULT)
                self.sender.control(rst_stream(fault.stream_id, fault.code))
                self._streams.drop(fault.stream_id)
            at = end
            self.frames += 1
        if at < size:
            self._buffer += data[at:]

    def _must_come_next(self, kind: int, flags: int, stream_id: int) -> None:
        """A connection begins with SETTINGS, and a head that has begun goes on."""
        if self._block is not None and (kind != Kind.CONTINUATION or stream_id != self._block_of[0]):
            raise ConnectionFault(Code.PROTOCOL_ERROR)
        if not self._begun and (kind != Kind.SETTINGS or flags & ACK):
            raise ConnectionFault(Code.PROTOCOL_ERROR)
        self._begun = True

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        ended = flags & END_STREAM != 0
        if size < SMALL_DATA_BYTES and not ended:
            self._tolls.pay(Toll.SMALL_DATA)
        data = without_padding(PADDED, payload) if flags & PADDED else payload
        self._streams.take_data(stream_id, data, size, ended=ended)

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = without_padding(flags, payload) if flags & (PADDED | PRIORITY) else payload
        if not stream_id & 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR)
        if flags & END_HEADERS:
            self._on_block(flags, stream_id, block)
        else:
            self._block = bytearray(block)
            self._block_of = (stream_id, flags)
            self._continuations = 0

    def _on_continuation(self, flags: int, _stream_id: int, payload: bytes) -> None:
        if self._block is None:
            raise ConnectionFault(Code.PROTOCOL_ERROR)
        self._continuations += 1
        if self._continuations > self._limits.continuations:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM)
        self._block += payload[: self._limits.head_bytes + 1 - len(self._block)]  # one more shows that it is too long
        if flags & END_HEADERS:
            block, self._block = bytes(self._block), None
            stream_id, first_flags = self._block_of
            self._on_block(first_flags, stream_id, block)

    def _on_block(self, flags: int, stream_id: int, block: bytes) -> None:
        """A complete header block. It is decoded in any case, because others may depend on it."""
        try:
            if stream_id <= self._streams.last_id:
                self._on_trailers(flags, stream_id, block)
                return
            self._streams.last_id = stream_id
            head = self._decoder.request(block)
        except MalformedHead:
            raise StreamFault(stream_id, Code.PROTOCOL_ERROR) from None
        except HeadersTooLarge as error:
            self._on_large_head(flags, stream_id, error)
            return
        if not self._admits(stream_id):
            return
        declared = head.content_length
        stream = self._streams.add(stream_id, declared)
        self._streams.tell(Opened(stream_id, head))
        if flags & END_STREAM:
            self._streams.end_request(stream)
        elif declared is not None and declared > self._limits.body_bytes:
            self._streams.refuse_large(stream)

    def _on_large_head(self, flags: int, stream_id: int, error: HeadersTooLarge) -> None:
        if self._admits(stream_id):
            stream = self._streams.add(stream_id, None)
            self._streams.tell(Opened(stream_id, None))
            self._streams.refuse(stream, error)
            if flags & END_STREAM:
                self._streams.end_request(stream)

    def _admits(self, stream_id: int) -> bool:
        if len(self._streams.open) < self._limits.streams and not self._draining:
            return True
        self._tolls.pay(Toll.FAULT)
        self.sender.control(rst_stream(stream_id, Code.REFUSED_STREAM))
        self._streams.remember(stream_id)
        return False

    def _on_trailers(self, flags: int, stream_id: int, block: bytes) -> None:
        stream = self._streams.open.get(stream_id)
        if stream is None:
            self._streams.must_be_late(stream_id)
        try:
            self._decoder.trailers(block)
        except HeadersTooLarge:
            raise StreamFault(stream_id, Code.ENHANCE_YOUR_CALM) from None
        if stream is None:
            return
        if stream.state is not State.OPEN:
            raise StreamFault(stream_id, Code.STREAM_CLOSED)
        if not flags & END_STREAM:
            raise StreamFault(stream_id, Code.PROTOCOL_ERROR)
        self._streams.end_request(stream)

    def _on_rst_stream(self, _flags: int, stream_id: int, payload: bytes) -> None:
        must_have(4, payload)
        self._streams.must_exist(stream_id)
        self._tolls.pay(Toll.RESET)
        self._streams.drop(stream_id)

    def _fail(self, code: Code) -> None:
        self._closed = True
        self._buffer.clear()
        self._block = None
        for stream in list(self._streams.open.values()):
            self._streams.forget(stream, Step.RESET)
        self.sender.control(goaway(self._streams.last_id, code))
        self._streams.take_events()  # nobody can be answered any more
        self._streams.tell(Closed(code))

    _FRAMES: ClassVar[dict[int, Callable[[Http2Protocol, int, int, bytes], None]]] = {
        Kind.DATA: _on_data,
        Kind.HEADERS: _on_headers,
        Kind.RST_STREAM: _on_rst_stream,
        Kind.CONTINUATION: _on_continuation,
    }
