"""What a connection may cost, in the terms of HTTP/2."""

from __future__ import annotations

from typing import Final

from zerolayer.front.site import ConnectionLimits
from zerolayer.wire.http2 import Http2Limits

_HEAD_BYTES: Final = 32_768  # Huffman coding is undone in Python: 6 ms of the loop at most, and only for who sends that
_HELD_BYTES: Final = 16 << 20
_UNSENT_STREAMS: Final = 32  # so many streams of a connection may be at their limit of unsent bytes
_LARGEST: Final = (1 << 31) - 1


def http2_limits(limits: ConnectionLimits) -> Http2Limits:
    """The limits of one connection, in the terms of the protocol."""
    return Http2Limits(
        head_bytes=min(limits.head_bytes, _HEAD_BYTES),
        body_bytes=limits.body_bytes,
        held_bytes=min(max(_HELD_BYTES, 4 * limits.body_bytes), _LARGEST),
        unsent_bytes=limits.unsent_bytes,
        unsent_total_bytes=_UNSENT_STREAMS * limits.unsent_bytes,
    )
