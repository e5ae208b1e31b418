"""What a person sees while a measurement runs: one line that grows, and the latencies so far as a tiny histogram."""

from __future__ import annotations

import time
from typing import Protocol, TextIO

import numpy as np

BLOCKS = " ▁▂▃▄▅▆▇█"
CELLS = 30
PERIOD_S = 0.1  # between redraws
_NAMES = {
    "baseline": "lone probes",
    "pulse": "pulses",
    "step": "load steps",
    "retry": "retries",
    "shadow": "shadow probes",
    "abort": "aborts",
    "replay": "trace",
    "stage": "stages",
    "closed": "closed loop",
}


class Watcher(Protocol):
    """Whoever shows progress. Called between exchanges, never while a pulse is in flight."""

    def begin(self, phase: str, total: int) -> None:
        """A phase of ``total`` rounds begins."""

    def show(self, done: int, latencies_ms: list[float]) -> None:
        """``done`` rounds are over; the latencies of those served in the latest one."""


class Silent:
    """Nobody watches."""

    def begin(self, phase: str, total: int) -> None:
        """Say nothing."""

    def show(self, done: int, latencies_ms: list[float]) -> None:
        """Say nothing."""


class LiveView:
    """A ``Watcher`` for terminals: redraws one line, at most ten times a second, and only between exchanges."""

    def __init__(self, screen: TextIO) -> None:
        self._screen = screen
        self._phase, self._total = "", 0
        self._latencies: list[float] = []
        self._drawn = 0.0

    def begin(self, phase: str, total: int) -> None:
        """Close the former line, start another."""
        self.close()
        self._phase, self._total, self._latencies, self._drawn = phase, total, [], 0.0

    def show(self, done: int, latencies_ms: list[float]) -> None:
        """Redraw, if a tenth of a second has gone by or the phase is over."""
        self._latencies += latencies_ms
        now = time.monotonic()
        if now - self._drawn < PERIOD_S and done < self._total:
            return
        self._drawn = now
        self._screen.write(f"\r\x1b[K{self._line(done)}")
        self._screen.flush()

    def _line(self, done: int) -> str:
        head = f"{_NAMES.get(self._phase, self._phase):<13} {done:>4}/{self._total:<4}"
        if not self._latencies:
            return head
        values = np.array(self._latencies)
        p50, p99 = np.quantile(values, [0.5, 0.99])
        return f"{head} {sparkline(values)}  P50 {p50:.1f}  P99 {p99:.1f} ms"

    def close(self) -> None:
        """End the line. Idempotent."""
        if self._phase:
            self._screen.write("\n")
            self._screen.flush()
        self._phase = ""


def sparkline(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    """A histogram over log latency from the smallest to the largest value, 30 cells wide."""
    positive = values[values > 0]
    if not len(positive):
        return " " * CELLS
    low, high = float(positive.min()), float(positive.max())
    counts, _ = np.histogram(positive, np.geomspace(low, max(high, low * 1.2), CELLS + 1))
    levels = np.ceil(counts / counts.max() * (len(BLOCKS) - 1)).astype(int)
    return "".join(BLOCKS[level] for level in levels)
