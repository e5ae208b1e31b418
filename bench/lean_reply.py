"""One HTTP/1.1 reply as the lean client reads it: counted events and the few header values that matter, sans-IO."""

from __future__ import annotations

import re

TAIL_BYTES = 4096  # the last event of a stream, with its usage and account, fits in this
MAX_HEAD_BYTES = 1 << 16
_FIRST_TOKEN = re.compile(rb"first_token=(\d+)")
_COMPLETION_TOKENS = re.compile(rb'"completion_tokens":\s*(\d+)')


class Reply:
    """Reads one HTTP/1.1 reply from byte strings cut anywhere; ``feed`` returns True when the reply is complete."""

    def __init__(self) -> None:
        self.status = 0
        self.arrivals: list[tuple[int, int]] = []
        self.reusable = True
        self.retry_after_ms: float | None = None
        self.first_token_ms: float | None = None  # promised for this reply
        self.booked = False  # the time to come again is held for this client
        self.error = ""
        self._head = b""
        self._recent: list[bytes] = []  # the last pieces, TAIL_BYTES of them or more
        self._recent_bytes = 0
        self._edge = b""  # the last bytes, too few to hold a whole marker
        self._marker = b""
        self._chunked = False
        self._left: int | None = None  # body bytes to come, of a reply with content-length

    @property
    def begun(self) -> bool:
        """Any byte has arrived."""
        return bool(self._head) or self.status != 0

    @property
    def tokens(self) -> int:
        """By the server's own count where it gives one, else one for each event."""
        counts = _COMPLETION_TOKENS.findall(self._tail())
        return int(counts[-1]) if counts else sum(count for _, count in self.arrivals)

    def feed(self, data: bytes, now_ns: int) -> bool:
        """Take bytes that arrived at ``now_ns``."""
        if self.status == 0:
            head, border, data = (self._head + data).partition(b"\r\n\r\n")
            if not border:
                self._head = head
                if len(head) > MAX_HEAD_BYTES:
                    raise ValueError("the reply's headers do not end")
                return False
            self._read_head(head)
        if data:
            self._read_body(data, now_ns)
        if self._chunked:
            return data.endswith(b"\n") and (b"\r\n" + self._tail()).endswith(b"\r\n0\r\n\r\n")
        return self._left is not None and self._left <= 0

    def end_of_file(self) -> None:
        """The server closed: a body without length is complete, any other one is cut."""
        self.reusable = False
        if self.status == 0 or self._chunked or self._left is not None:
            self.error = "cut"

    def finish(self) -> None:
        """Judge a complete reply: a stream must have said that it is done, and no error."""
        if self.status == 200 and not self.error:
            tail = self._tail()
            if b'data: {"error"' in tail or b"event: error" in tail:
                self.error = "error event"
            elif b"[DONE]" not in tail:
                self.error = "no [DONE]"

    def _read_head(self, head: bytes) -> None:
        self._head = b""
        first, *lines = head.split(b"\r\n")
        self.status = int(first.split(b" ", 2)[1])
        pairs = (line.partition(b":") for line in lines)
        headers = {name.strip().lower(): value.strip().lower() for name, _, value in pairs}
        self._chunked = headers.get(b"transfer-encoding", b"") == b"chunked"
        if not self._chunked and b"content-length" in headers:
            self._left = int(headers[b"content-length"])
        self.reusable = headers.get(b"connection") != b"close" and (self._chunked or self._left is not None)
        self.booked = b"x-zl-ticket" in headers
        promised = _FIRST_TOKEN.search(headers.get(b"x-zl-deadline-ms", b""))
        self.first_token_ms = float(promised[1]) if promised else None
        if b"retry-after-ms" in headers:
            self.retry_after_ms = float(headers[b"retry-after-ms"])
        elif b"retry-after" in headers:
            self.retry_after_ms = 1000 * float(headers[b"retry-after"])

    def _read_body(self, data: bytes, now_ns: int) -> None:
        if self._left is not None:
            self._left -= len(data)
        self._recent.append(data)
        self._recent_bytes += len(data)
        if self._recent_bytes > 16 * TAIL_BYTES:
            self._recent = [self._tail()]
            self._recent_bytes = TAIL_BYTES
        if not self._marker:
            self._choose_marker()
        if self._marker:
            count = (self._edge + data).count(self._marker)
            if count:
                self.arrivals.append((now_ns, count))
        keep = len(self._marker or b"data: {") - 1
        self._edge = data[-keep:] if len(data) >= keep else (self._edge + data)[-keep:]

    def _choose_marker(self) -> None:
        """Servers differ in the blank after the colon; the first event decides."""
        start = self._tail()
        after = start[start.find(b"data:") + 5 :][:1] if b"data:" in start else b""
        if after:
            self._marker = b"data:{" if after == b"{" else b"data: {"
            self._edge = self._edge[1 - len(self._marker) :]

    def _tail(self) -> bytes:
        return b"".join(self._recent)[-TAIL_BYTES:]
