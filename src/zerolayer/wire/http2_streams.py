"""The receiving half of an HTTP/2 connection: open streams, their bodies, and the room for them (RFC 9113 5, 6.9)."""

from __future__ import annotations

from typing import Final

from zerolayer.errors import BodyTooLarge, ZerolayerError
from zerolayer.wire._native import WholeRequests
from zerolayer.wire.http1_head import Head
from zerolayer.wire.http2_events import Chunk, Event, Gone, Message, Refused
from zerolayer.wire.http2_frames import LARGEST_WINDOW, Code, ConnectionFault, StreamFault, rst_stream, window_update
from zerolayer.wire.http2_limits import Http2Limits
from zerolayer.wire.http2_sending import Sender
from zerolayer.wire.http2_stream import CLOSED, COMPLETE, END_RECEIVED, END_SENT, OPEN, Step, Stream

Whole = tuple[int, Head, bytes]
"""A stream and its request, head and body."""

_whole = WholeRequests(Head, Stream, COMPLETE)
find_whole = _whole.find
_open_whole = _whole.open

_PREFIX_BYTES: Final = 64  # of a body beside what its own limit counts: the prefix of a gRPC message
_FORGOTTEN: Final = 256  # streams ended before their request was complete, whose late frames are still dropped


class Streams:
    """``room`` is the connection's receive window, ``first_room`` that of each new stream, in bytes.

    Room is given back as soon as bytes arrive: windows that waited for whole bodies could lock each other. What is
    held of incomplete bodies has its own limit instead.
    """

    def __init__(self, limits: Http2Limits) -> None:
        self._limits = limits
        self._body_bytes = limits.body_bytes + _PREFIX_BYTES
        self.sender = Sender(self.ended)
        self.open: dict[int, Stream] = {}
        self.last_id = 0
        self.room = min(limits.held_bytes, LARGEST_WINDOW)
        self.first_room = min(self._body_bytes + 1, LARGEST_WINDOW)  # a byte more, so that a body too long shows
        self._events: list[Event] = []
        self._ended_early: dict[int, None] = {}
        self._held = 0
        self._returned = 0  # bytes of room that the peer was not told of yet
        self._give_back = limits.held_bytes // 2

    def tell(self, event: Event) -> None:
        """Keep an event for ``take_events``."""
        self._events.append(event)

    def take_events(self) -> list[Event]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def add(self, stream_id: int, declared: int | None) -> Stream:
        """A new stream whose request has ``declared`` bytes of body, if it said so."""
        window = self.sender.initial_window
        self.open[stream_id] = stream = Stream(stream_id, window, self.first_room, declared, OPEN)
        return stream

    def add_whole(self, requests: list[Whole]) -> None:
        """New streams of one request or more that are complete and break no limit."""
        taken = _open_whole(requests, self.open, self.sender.initial_window, self.first_room)
        self.last_id = requests[-1][0]
        self.room -= taken
        self._returned += taken
        if self._returned >= self._give_back:
            self._return_room(0)

    def must_exist(self, stream_id: int) -> None:
        """A frame for a stream that never was is a fault of the connection."""
        if stream_id > self.last_id or not stream_id & 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR)

    def late(self, stream_id: int) -> None:
        """DATA for a stream that expects none: dropped if it was on its way when we ended the stream."""
        self.must_exist(stream_id)
        if stream_id not in self._ended_early:
            raise StreamFault(stream_id, Code.STREAM_CLOSED)

    def must_be_late(self, stream_id: int) -> None:
        """HEADERS for a stream that is not open: dropped as ``late`` does, else no stream may be opened again."""
        if stream_id not in self._ended_early:
            raise ConnectionFault(Code.STREAM_CLOSED)

    def take_data(self, stream_id: int, data: bytes, size: int, *, ended: bool) -> None:
        """Body bytes; ``size`` is what they cost with their padding. Raises ``ConnectionFault``, ``StreamFault``."""
        self.room -= size
        if self.room < 0:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR)
        self._return_room(size)
        stream = self.open.get(stream_id)
        if stream is None or stream.state is not OPEN:
            self.late(stream_id)
            return
        stream.room -= size
        if stream.room < 0:
            raise StreamFault(stream_id, Code.FLOW_CONTROL_ERROR)
        padding = size - len(data)
        if padding and not ended:  # it is no part of the body that the window was made for
            stream.room += padding
            self.sender.control(window_update(stream_id, padding))
        self._take_body(stream, data, ended=ended)

    def end_request(self, stream: Stream) -> None:
        """The request is complete without further data. Raises ``StreamFault``."""
        self._take_body(stream, b"", ended=True)

    def refuse(self, stream: Stream, error: ZerolayerError) -> None:
        """The host is to answer with ``error``; what still comes of the body is dropped."""
        self._release_body(stream)
        stream.refused = True
        self._events.append(Refused(stream.id, error))

    def refuse_large(self, stream: Stream) -> None:
        """The body is, or will be, longer than the limit."""
        self.refuse(
            stream,
            BodyTooLarge(f"The request body is larger than {self._limits.body_bytes} bytes; send a shorter one."),
        )

    def hand_out(self, stream: Stream) -> bytes:
        """From now on the body comes in ``Chunk``s; the bytes so far."""
        stream.incremental = True
        body = bytes(stream.body)
        self._release_body(stream)
        return body

    def drop(self, stream_id: int) -> None:
        """The stream ended without our doing; events of it that nobody has seen yet are void."""
        stream = self.open.get(stream_id)
        if stream is not None:
            self.forget(stream, Step.RESET)
            self._events = [event for event in self._events if event.stream_id != stream_id]
            self._events.append(Gone(stream_id))
        else:
            self.remember(stream_id)

    def forget(self, stream: Stream, step: Step) -> None:
        """The stream is closed by ``step``."""
        if stream.state is OPEN:
            self.remember(stream.id)
        stream.move(step)
        if stream.body:
            self._release_body(stream)
        if self.sender.blocked:
            self.sender.forget(stream)
        del self.open[stream.id]

    def remember(self, stream_id: int) -> None:
        """Frames of this stream may still be on their way."""
        self._ended_early[stream_id] = None
        if len(self._ended_early) > _FORGOTTEN:
            del self._ended_early[next(iter(self._ended_early))]

    def ended(self, stream: Stream) -> None:
        """Our last frame of the stream is on its way."""
        if stream.state is COMPLETE and not (stream.body or self.sender.blocked):  # nearly every one
            stream.state = CLOSED
            del self.open[stream.id]
            return
        if stream.state is OPEN:  # the rest of the request is not wanted
            self.sender.control(rst_stream(stream.id, Code.NO_ERROR))
        self.forget(stream, END_SENT)

    def _take_body(self, stream: Stream, data: bytes, *, ended: bool) -> None:
        stream.received += len(data)
        declared = stream.declared
        if declared is not None and (stream.received > declared or (ended and stream.received < declared)):
            raise StreamFault(stream.id, Code.PROTOCOL_ERROR)
        if ended:
            stream.move(END_RECEIVED)
        if stream.refused:
            return
        if stream.incremental:
            self._events.append(Chunk(stream.id, data, ended))
            self._return_stream_room(stream)
        elif stream.received > self._body_bytes:
            self.refuse_large(stream)
        elif ended:
            body = data
            if stream.body:
                body = bytes(stream.body) + data
                self._release_body(stream)
            self._events.append(Message(stream.id, body))
        else:
            if not stream.body:
                stream.body = bytearray()
            stream.body += data
            self._held += len(data)
            if self._held > self._limits.held_bytes:
                self.refuse(stream, BodyTooLarge(_TOGETHER.format(self._limits.held_bytes)))

    def _release_body(self, stream: Stream) -> None:
        if stream.body:
            self._held -= len(stream.body)
            stream.body = b""

    def _return_room(self, size: int) -> None:
        """Tell the peer when half a window has gathered, not at every frame (RFC 9113 section 6.9.1)."""
        self._returned += size
        if self._returned >= self._give_back:
            self.sender.control(window_update(0, self._returned))
            self.room += self._returned
            self._returned = 0

    def _return_stream_room(self, stream: Stream) -> None:
        taken = self.first_room - stream.room
        if taken >= self.first_room // 2 and stream.state is OPEN:
            self.sender.control(window_update(stream.id, taken))
            stream.room += taken


_TOGETHER: Final = (
    "The incomplete request bodies of this connection are larger than {} bytes together; send fewer at once."
)
