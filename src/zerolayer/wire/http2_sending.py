"""The sending half of an HTTP/2 connection: both flow-control windows, and frames waiting for them (RFC 9113 5.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from zerolayer.wire._native import SenderNumbers, WholeReplies
from zerolayer.wire.http2_frames import (
    END_STREAM,
    FRAME_BYTES,
    FRAME_HEADER,
    LARGEST_WINDOW,
    WINDOW,
    Code,
    ConnectionFault,
    Kind,
    StreamFault,
    data_header,
    frame_header,
    head_frames,
)
from zerolayer.wire.http2_stream import Stream

_PACK = FRAME_HEADER.pack
_ENOUGH: Final = 131_072  # bytes of a write, from which on whole bodies wait for the next one: they may be shared


class Sender(SenderNumbers):
    """Collects frames until ``take``. ``on_end`` is told each stream whose last frame was collected.

    While ``held`` is set no DATA leaves: the socket takes nothing, and a window is no reason to buffer in its place.
    ``place`` is for whoever collects frames of many connections at once: where those of this one are; 0: nowhere.
    ``free`` is what he was told last of where he may send them, 0 when he is to ask.
    ``block_start`` is what the next header block must begin with. ``more``: DATA that may leave waits for the next
    ``take``, so that a client whose windows are wide cannot have all that it asked for copied at once.
    """

    __slots__ = ("_on_end", "block_start", "blocked", "held", "initial_window", "more", "out", "pending_bytes")

    def __init__(self, on_end: Callable[[Stream], None]) -> None:
        self._on_end = on_end
        self.block_start = b""
        self.more = False
        self.out: list[bytes | memoryview] = []
        self.window = WINDOW
        self.initial_window = WINDOW
        self.pending_bytes = 0
        self.blocked: dict[int, Stream] = {}  # streams with pending data; those served last stand last
        self.held = False

    def take(self) -> bytes:
        """What must be written now."""
        if self.more:
            self.more = False
            self.pump()
        data = b"".join(self.out)
        self.out.clear()
        self.out_bytes = 0
        return data

    def control(self, data: bytes) -> None:
        """A frame that no window governs."""
        self.out.append(data)
        self.out_bytes += len(data)

    def head(self, stream: Stream, block: bytes, *, ended: bool) -> None:
        """The head of a reply; ``ended`` when that is all."""
        self._block(stream, block, ended=ended)
        if ended:
            self._on_end(stream)

    def piece(self, stream: Stream, data: bytes) -> None:
        """A piece of a reply that goes on. Nearly every token is one, so nothing is called here."""
        size, window = len(data), stream.window
        if stream.pending or self.held or not 0 < size <= window or size > self.window or size > FRAME_BYTES:
            self.data(stream, data, None)
            return
        stream.window = window - size
        self.window -= size
        stream.sent_bytes += size
        self.out_bytes += size
        self.out += (_PACK(size >> 8, size & 0xFF, 0, 0, stream.id), data)

    def data(self, stream: Stream, data: bytes, ending: bytes | None) -> None:
        """A piece of a reply. ``ending`` ends it: with trailers, or with END_STREAM when empty."""
        size = len(data)
        fits = not size or (size <= stream.window and size <= self.window and size <= FRAME_BYTES)
        fits = fits and self.out_bytes < _ENOUGH
        if fits and not (stream.pending or self.held):
            stream.window -= size
            self.window -= size
            last = END_STREAM if ending == b"" else 0
            if size or last:
                self.out += (data_header(size, last, stream.id), data)
                self.out_bytes += size
                stream.sent_bytes += size
            if ending is not None:
                self._end(stream, ending)
            return
        if size:
            if stream.pending is None:
                stream.pending = deque()
            stream.pending.append(data)
            stream.pending_bytes += size
            self.pending_bytes += size
        stream.ending = ending
        self.blocked[stream.id] = stream
        self.pump()

    def forget(self, stream: Stream) -> None:
        """The stream is closed: what it had pending is void."""
        if self.blocked.pop(stream.id, None) is not None:
            self.pending_bytes -= stream.pending_bytes
        stream.pending = None
        stream.pending_bytes = 0

    def pump(self) -> None:
        """Send what the windows allow, a frame a stream in turn. An end alone needs no window."""
        while not self.held:
            blocked = self.blocked.values()
            served = [stream for stream in blocked if not stream.pending or min(stream.window, self.window) > 0]
            if not served:
                return
            for stream in served:
                if self.out_bytes >= _ENOUGH:
                    self.more = True
                    return
                if self.window > 0 or not stream.pending:
                    self._send_piece(stream)

    def widen(self, stream: Stream | None, increment: int) -> None:
        """The peer takes more. Raises ``ConnectionFault`` or ``StreamFault`` when a window grows past 2^31 - 1."""
        if stream is None:
            self.window += increment
            if self.window > LARGEST_WINDOW:
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR)
        else:
            stream.window += increment
            if stream.window > LARGEST_WINDOW:
                raise StreamFault(stream.id, Code.FLOW_CONTROL_ERROR)
        if self.blocked:
            self.pump()

    def set_initial_window(self, size: int, streams: dict[int, Stream]) -> None:
        """A new first window for streams; the open ones are moved by the difference. Raises ``ConnectionFault``."""
        change, self.initial_window = size - self.initial_window, size
        for stream in streams.values():
            stream.window += change
            if stream.window > LARGEST_WINDOW:
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR)
        self.pump()

    def _send_piece(self, stream: Stream) -> None:
        pending = stream.pending
        if pending:
            piece = pending[0]
            size = min(len(piece), stream.window, self.window, FRAME_BYTES)
            if size == len(piece):
                pending.popleft()
            else:
                view = memoryview(piece)
                piece, pending[0] = view[:size], view[size:]
            stream.window -= size
            self.window -= size
            stream.pending_bytes -= size
            self.pending_bytes -= size
            stream.sent_bytes += size
            last = END_STREAM if not pending and stream.ending == b"" else 0
            self.out += (frame_header(size, Kind.DATA, last, stream.id), piece)
            self.out_bytes += size
        elif stream.ending == b"":
            self.control(frame_header(0, Kind.DATA, END_STREAM, stream.id))
        del self.blocked[stream.id]
        if pending:
            self.blocked[stream.id] = stream
        elif stream.ending is not None:
            self._end(stream, stream.ending)

    def _end(self, stream: Stream, ending: bytes) -> None:
        if ending:
            self._block(stream, ending, ended=True)
        self._on_end(stream)

    def _block(self, stream: Stream, block: bytes, *, ended: bool) -> None:
        self.control(head_frames(stream.id, self.block_start + block, ended=ended))
        self.block_start = b""


put_whole: Final = WholeReplies(Sender, Stream, _ENOUGH).put
"""A whole reply, if its body may leave now, in one frame, and its head as it is; else False, and nothing was done.

Whoever calls it tells ``on_end``.
"""
