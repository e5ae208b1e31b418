"""How long an HTTP/2 client may take to complete a frame, and to give a window to a reply that waits for one."""

from __future__ import annotations

from zerolayer.front.exchange import NEVER
from zerolayer.front.site import ConnectionLimits
from zerolayer.wire.http2 import Http2Protocol


class Patience:
    """Of one connection. ``frame_ns`` is until when the frame or head that has begun must be complete."""

    __slots__ = ("_frames", "_limits", "_waits", "frame_ns")

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._frames = 0
        self._waits: dict[int, tuple[int, int]] = {}  # stream without a window -> bytes it had sent, and since when
        self.frame_ns = NEVER

    def opened(self, now_ns: int) -> None:
        """The connection begins, with a frame that must come."""
        self.frame_ns = now_ns + self._limits.head_ns

    def received(self, core: Http2Protocol, now_ns: int) -> None:
        """Bytes came. A frame that has begun must be complete in time, counted from the last one that was."""
        if not (core.partial or core.reading_head):
            self.frame_ns = NEVER
        elif core.frames != self._frames and not core.reading_head:
            self.frame_ns = now_ns + self._limits.body_ns
        elif self.frame_ns == NEVER:
            self.frame_ns = now_ns + (self._limits.head_ns if core.reading_head else self._limits.body_ns)
        self._frames = core.frames

    def overdue(self, core: Http2Protocol, now_ns: int) -> list[int]:
        """Streams whose client has taken nothing for too long."""
        waits, self._waits = self._waits, {}
        over: list[int] = []
        for stream_id, sent in core.blocked().items():
            before, since = waits.get(stream_id, (-1, now_ns))
            if before != sent:
                since = now_ns
            if now_ns - since < self._limits.stall_ns:
                self._waits[stream_id] = (sent, since)
            else:
                over.append(stream_id)
        return over

    def forget(self, stream_id: int) -> None:
        """The stream is gone."""
        self._waits.pop(stream_id, None)
