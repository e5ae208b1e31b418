"""What one HTTP/2 connection may cost, and the attack that each limit answers."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from zerolayer.wire.http2_frames import Code, ConnectionFault


class Http2Limits(msgspec.Struct, frozen=True):
    """Sizes in bytes; ``per period`` counts are forgotten at ``Http2Protocol.new_period``, once a second.

    Whatever breaks a limit ends its own connection with ENHANCE_YOUR_CALM, unless it says otherwise.
    """

    # Requests at once; more are refused one by one (REFUSED_STREAM), which every client repeats safely.
    streams: int = 256
    # A header block, compressed and not: HPACK bomb (CVE-2016-6581, CVE-2016-1544). Where no later block depends on it,
    # more is answered 431.
    head_bytes: int = 65_536
    # Fields in a block; more are answered 431. Fields without a name are malformed: CVE-2019-9516 sent endless ones.
    header_count: int = 100
    # CONTINUATION frames in a block: CVE-2024-27316 (httpd), CVE-2023-45288 (Go), CVE-2024-28182 (nghttp2).
    continuations: int = 16
    # A request body; more is answered 413.
    body_bytes: int = 1 << 20
    # Incomplete bodies of all streams together, and the connection's receive window; more is answered 413.
    held_bytes: int = 16 << 20
    # What a client that gives no window may leave unsent of one stream: CVE-2019-9517. Its stream is cancelled.
    unsent_bytes: int = 262_144
    # The same of all streams of a connection, and of frames that wait for its socket: CVE-2019-9512, CVE-2019-9515.
    unsent_total_bytes: int = 32 * 262_144
    # Streams that the client resets, per period: rapid reset, CVE-2023-44487 and CVE-2019-9514.
    resets: int = 256
    # Streams that the client makes us reset, per period: CVE-2025-8671 (MadeYouReset).
    faults: int = 256
    # SETTINGS frames, per period: CVE-2019-9515.
    settings: int = 32
    # PING frames, per period: CVE-2019-9512. Clients that measure their bandwidth send one a round trip.
    pings: int = 1024
    # WINDOW_UPDATE frames, per period: CVE-2019-9511 (data dribble), where each frees a byte or so.
    window_updates: int = 8192
    # DATA frames that bring less than a quarter of a kilobyte and no end, per period: CVE-2019-9518 (empty frames).
    small_data: int = 1024
    # PRIORITY and unknown frames, per period: CVE-2019-9513 (resource loop). There is no priority tree to churn.
    ignored: int = 1024


SMALL_DATA_BYTES: Final = 256


class Toll(IntEnum):
    """What is counted per period."""

    RESET = 0
    FAULT = 1
    SETTINGS = 2
    PING = 3
    WINDOW_UPDATE = 4
    SMALL_DATA = 5
    IGNORED = 6


class Tolls:
    """Counts of one connection in the present period."""

    __slots__ = ("_allowed", "_left")

    def __init__(self, limits: Http2Limits) -> None:
        self._allowed = (
            limits.resets,
            limits.faults,
            limits.settings,
            limits.pings,
            limits.window_updates,
            limits.small_data,
            limits.ignored,
        )
        self._left = list(self._allowed)

    def pay(self, toll: Toll) -> None:
        """Count one. Raises ``ConnectionFault`` beyond the limit."""
        self._left[toll] -= 1
        if self._left[toll] < 0:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM)

    def new_period(self) -> None:
        """Forget the counts."""
        self._left[:] = self._allowed
