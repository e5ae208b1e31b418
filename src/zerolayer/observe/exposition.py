"""Prometheus' text format 0.0.4: histograms, and the lines of a metric."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt


class Histogram:
    """Cumulative buckets with upper bounds (inclusive, as Prometheus has it), sum and count.

    ``observe`` counts a value. It only keeps it: whoever reads sorts all of them into their buckets at once, at a
    third of the cost. ``fold`` does so too, now and then, so that what is kept stays little.
    """

    __slots__ = ("_bounds", "_counts", "_edges", "_seen", "_sum", "observe")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._edges = np.array(self._bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        self._seen: list[float] = []
        self.observe: Callable[[float], None] = self._seen.append

    def count(self, value: float, times: int) -> None:
        """Count a value that came so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def add(self, values: npt.NDArray[np.integer | np.floating]) -> None:
        """Count all of ``values`` (one dimension)."""
        found = np.bincount(self._edges.searchsorted(values), minlength=len(self._counts))
        self._counts = [before + more for before, more in zip(self._counts, found.tolist(), strict=True)]
        self._sum += float(values.sum())

    def fold(self) -> None:
        """Sort what was observed since the last time into its buckets."""
        if self._seen:
            self.add(np.fromiter(self._seen, np.float64, len(self._seen)))
            self._seen.clear()

    @property
    def counts(self) -> tuple[int, ...]:
        """Values by bucket, not cumulative; the last bucket is open."""
        self.fold()
        return tuple(self._counts)

    @property
    def bounds(self) -> tuple[float, ...]:
        """Upper bounds of all buckets but the last."""
        return self._bounds

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """The samples, without HELP and TYPE."""
        total = 0
        for bound, count in zip((*map(repr, self._bounds), "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self._sum!r}"
        yield f"{name}_count{{{labels}}} {total}"


def head(name: str, kind: str, about: str) -> Iterator[str]:
    """What stands before the samples of a metric."""
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def single(name: str, kind: str, about: str, labels: str, value: float) -> Iterator[str]:
    """A metric with one sample."""
    yield from head(name, kind, about)
    yield f"{name}{{{labels}}} {value!r}"


def family(
    name: str, kind: str, about: str, labels: str, label: str, values: Iterable[tuple[str, float]]
) -> Iterator[str]:
    """A metric with one sample for each value of a label."""
    yield from head(name, kind, about)
    for key, value in values:
        yield f'{name}{{{labels},{label}="{escape(key)}"}} {value!r}'


def escape(value: str) -> str:
    """A label value (Prometheus exposition format: backslash, quote and line feed are escaped)."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
