"""Requests of HTTP/2 that came whole, as nearly all do: one HEADERS, at most one DATA, and a head like one before."""

from __future__ import annotations

from collections.abc import Callable

from zerolayer.wire._native import whole_request
from zerolayer.wire.http1_head import Head
from zerolayer.wire.http2_limits import Http2Limits
from zerolayer.wire.http2_streams import Streams

Whole = tuple[int, Head, bytes]
"""A stream and its request, head and body."""


def find_whole(
    data: bytes, streams: Streams, limits: Http2Limits, known: Callable[[bytes], Head | None]
) -> list[Whole] | None:
    """The requests that ``data`` is from the first byte to the last, whose streams are open then.

    None, and nothing was taken, where anything else is in it, a limit is broken, or a client waits for 100 (Continue).
    ``known`` gives the head of a block like one before.
    """
    at, end, room, last_id = 0, len(data), streams.room, streams.last_id
    found: list[Whole] = []
    while at < end:
        request = whole_request(data, at)
        if request is None:
            return None
        stream_id, block, body, at = request
        head, size = known(block), len(body)
        if head is None or head.expects_continue or stream_id <= last_id:
            return None
        declared, room, last_id = head.content_length, room - size, stream_id
        if (declared is not None and declared != size) or size > limits.body_bytes or room < 0:
            return None
        found.append((stream_id, head, body))
    if len(streams.open) + len(found) > limits.streams:
        return None
    for stream_id, head, body in found:
        streams.add_whole(stream_id, head.content_length, len(body))
    return found
