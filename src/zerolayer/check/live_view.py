"""What a person sees while a measurement runs: one line that grows, and the latencies so far as a tiny histogram."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TextIO

import numpy as np

BLOCKS = " ▁▂▃▄▅▆▇█"
CELLS = 30
PERIOD_S = 0.1  # between redraws after exchanges
CLOCK_S = 0.5  # between redraws of the time alone
_NS: Final = 1e9
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
    """Whoever shows progress. Never called when a request is due."""

    def note(self, text: str) -> None:
        """Something that a person should know, one sentence or more."""

    def begin(self, phase: str, total: int) -> None:
        """A phase of at most ``total`` rounds begins."""

    def show(self, done: int, latencies_ms: list[float]) -> None:
        """``done`` rounds are over; the latencies of those served in the latest one."""

    def wait(self) -> None:
        """Time goes by, while replies are under way."""


class Silent:
    """Nobody watches."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def begin(self, phase: str, total: int) -> None:
        """Say nothing."""

    def show(self, done: int, latencies_ms: list[float]) -> None:
        """Say nothing."""

    def wait(self) -> None:
        """Say nothing."""


class Lines:
    """A ``Watcher`` for files and pipes: a line for each phase, as it begins."""

    def __init__(self, out: TextIO, clock_ns: Callable[[], int]) -> None:
        self._out, self._clock_ns, self._start_ns = out, clock_ns, clock_ns()

    def note(self, text: str) -> None:
        """Write it."""
        self._write(text)

    def begin(self, phase: str, total: int) -> None:
        """Write the time and the phase."""
        seconds = (self._clock_ns() - self._start_ns) / _NS
        most = f", {total} at most" if total > 1 else ""
        self._write(f"{seconds:4.0f} s  {_NAMES.get(phase, phase)}{most}")

    def show(self, done: int, latencies_ms: list[float]) -> None:
        """Nothing: one line a phase is enough in a log."""

    def wait(self) -> None:
        """Nothing."""

    def _write(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


class LiveView:
    """A ``Watcher`` for terminals: redraws one line, at most ten times a second."""

    def __init__(self, screen: TextIO, clock_ns: Callable[[], int]) -> None:
        self._screen, self._clock_ns = screen, clock_ns
        self._start_ns = self._drawn_ns = clock_ns()
        self._phase, self._total = "", 0
        self._latencies: list[float] = []
        self._body = ""

    def note(self, text: str) -> None:
        """Write it on lines of its own."""
        self.close()
        self._screen.write(text + "\n")
        self._screen.flush()

    def begin(self, phase: str, total: int) -> None:
        """Close the former line, start another."""
        self.close()
        self._phase, self._total, self._latencies = phase, total, []
        self._redraw(0)

    def show(self, done: int, latencies_ms: list[float]) -> None:
        """Redraw, if a tenth of a second has gone by or the phase is over."""
        self._latencies += latencies_ms
        if self._clock_ns() - self._drawn_ns >= PERIOD_S * _NS or done >= self._total:
            self._redraw(done)

    def wait(self) -> None:
        """Redraw the time, twice a second."""
        if self._phase and self._clock_ns() - self._drawn_ns >= CLOCK_S * _NS:
            self._draw()

    def _redraw(self, done: int) -> None:
        self._body = self._line(done)
        self._draw()

    def _draw(self) -> None:
        self._drawn_ns = self._clock_ns()
        seconds = (self._drawn_ns - self._start_ns) / _NS
        self._screen.write(f"\r\x1b[K{seconds:4.0f} s  {self._body}")
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
