"""The share of a server's busy time that is not arithmetic.

Busy is the wall time with at least one request in flight; arithmetic is the part of it that lies inside step calls.
What is left is the price of everything around the model.
"""

from __future__ import annotations

from zerolayer.observe._native import BusySums


class GlueMeter(BusySums):
    """Totals in monotonic nanoseconds. One writer."""

    __slots__ = ()

    def share(self, now_ns: int) -> float | None:
        """Fraction of the busy time that was not arithmetic, 0 to 1; None when the server was never busy."""
        busy = self.busy_ns(now_ns)
        return None if busy <= 0 else max(0.0, 1.0 - self.arithmetic_ns / busy)
