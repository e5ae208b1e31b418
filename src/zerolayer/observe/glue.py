"""The share of a server's busy time that is not arithmetic.

Busy is the wall time with at least one request in flight; arithmetic is the part of it that lies inside step calls.
What is left is the price of everything around the model.
"""

from __future__ import annotations


class GlueMeter:
    """Totals in monotonic nanoseconds. One writer."""

    def __init__(self) -> None:
        self._in_flight = 0
        self._opened_ns = 0
        self._closed_ns = 0
        self._busy_ns = 0
        self._arithmetic_ns = 0

    def enter(self, now_ns: int) -> None:
        """A request's first byte was read."""
        if self._in_flight == 0:
            # A request that starts where another ended may carry a first byte read before that end.
            self._opened_ns = now_ns
            if now_ns < self._closed_ns:
                self._opened_ns = self._closed_ns
        self._in_flight += 1

    def leave(self, now_ns: int) -> None:
        """A request's last byte was written, or it is gone."""
        self._in_flight -= 1
        if self._in_flight == 0:
            opened_ns = self._opened_ns
            if now_ns < opened_ns:
                now_ns = opened_ns
            self._closed_ns = now_ns
            self._busy_ns += now_ns - opened_ns

    def step(self, started_ns: int, ended_ns: int) -> None:
        """A step ran; only the part inside the open (or just closed) busy window counts."""
        if self._in_flight == 0:
            ended_ns = min(ended_ns, self._closed_ns)
        self._arithmetic_ns += max(0, ended_ns - max(started_ns, self._opened_ns))

    def busy_ns(self, now_ns: int) -> int:
        """Wall time with at least one request in flight, up to now."""
        return self._busy_ns + (max(0, now_ns - self._opened_ns) if self._in_flight else 0)

    @property
    def arithmetic_ns(self) -> int:
        """The part of the busy time that lay inside steps."""
        return self._arithmetic_ns

    def share(self, now_ns: int) -> float | None:
        """Fraction of the busy time that was not arithmetic, 0 to 1; None when the server was never busy."""
        busy = self.busy_ns(now_ns)
        return None if busy <= 0 else max(0.0, 1.0 - self._arithmetic_ns / busy)
