"""Server-sent events, receiving side, sans-IO.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html, section 9.2.6. Only ``data`` fields matter
here: OpenAI-compatible servers name no events and send no ids that a client needs.
"""

from __future__ import annotations

from zerolayer.client.errors import BadReply
from zerolayer.client.http1 import CHECK

_OTHER_FIELDS = frozenset({b"", b"event", b"id", b"retry"})  # the first is a comment's
EVENT_BYTES = 1 << 20  # an event is one delta; more is not the protocol


class EventReader:
    """Bytes in any pieces -> the ``data`` of each complete event.

    ``strict``: a field that the format does not know is an error. The format has it ignored; but where it was ``data``
    before a byte went wrong, text would be missing, and nobody would know.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._after_return = False

    def push(self, data: bytes) -> list[bytes]:
        """Take in ``data``; return the events completed. Raises ``BadReply`` over ``EVENT_BYTES`` in an event."""
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]  # the second half of a CR LF pair that came in two pieces
            self._after_return = False
        if data:
            self._after_return = data.endswith(b"\r")
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events: list[bytes] = []
        for line in lines[:-1]:
            self._line += line
            if (event := self._end_line()) is not None:
                events.append(event)
        self._line += lines[-1]
        if self._size + len(self._line) > EVENT_BYTES:
            raise BadReply(f"An event of the stream is larger than {EVENT_BYTES} bytes. {CHECK}")
        return events

    def _end_line(self) -> bytes | None:
        line, self._line = bytes(self._line), bytearray()
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
                self._size += len(value) + 1
            elif self._strict and name not in _OTHER_FIELDS:
                raise BadReply(f"A line of the stream is no field of server-sent events. {CHECK}")
            return None
        event = b"\n".join(self._data) if self._data else None
        self._data, self._size = [], 0
        return event
