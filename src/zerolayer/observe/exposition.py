"""Prometheus' text format 0.0.4: histograms, and the lines of a metric."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

_HEAD: Final = 2  # lines that stand before a metric's samples: HELP and TYPE


class Histogram:
    """Cumulative buckets with upper bounds (inclusive, as Prometheus has it), sum and count.

    Bounds are in base units (seconds), values in ``per`` of them (1,000,000,000: nanoseconds). ``observe`` counts a
    value. It only keeps it: whoever reads sorts all of them into their buckets at once, at half the cost. ``fold``
    does so too, now and then, so that what is kept stays little.
    """

    __slots__ = ("_bounds", "_counts", "_edges", "_per", "_seen", "_sum", "observe")

    def __init__(self, bounds: Sequence[float], per: int = 1) -> None:
        self._bounds = tuple(bounds)
        # Whole where values are: what is compared most is compared fastest between equal types.
        self._edges = tuple([round(bound * per) for bound in bounds]) if per > 1 else self._bounds
        self._per = per
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        self._seen: list[float] = []
        self.observe: Callable[[float], None] = self._seen.append

    def count(self, value: float, times: int) -> None:
        """Count a value that came so many times."""
        self._counts[bisect_left(self._edges, value)] += times
        self._sum += value * times

    def add(self, values: Sequence[float]) -> None:
        """Count each of ``values``."""
        counts, rising, below = self._counts, sorted(values), 0
        for bucket, edge in enumerate(self._edges):  # a search by bucket, not by value
            if below == len(rising):
                break
            up_to = bisect_right(rising, edge, below)
            counts[bucket] += up_to - below
            below = up_to
        counts[-1] += len(rising) - below
        self._sum += sum(rising)

    def fold(self) -> None:
        """Sort what was observed since the last time into its buckets."""
        if self._seen:
            self.add(self._seen)
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
        yield f"{name}_sum{{{labels}}} {self._sum / self._per!r}"
        yield f"{name}_count{{{labels}}} {total}"


def head(name: str, kind: str, about: str) -> Iterator[str]:
    """What stands before the samples of a metric."""
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def histograms(named: str, labels: str, shown: Iterable[tuple[str, str, Histogram]]) -> Iterator[str]:
    """Histograms with their names, put into ``named`` in place of ``{}``, and what they are about."""
    for name, about, histogram in shown:
        whole = named.format(name)
        yield from head(whole, "histogram", about)
        yield from histogram.lines(whole, labels)


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


def merged(pages: Sequence[Iterable[str]]) -> Iterator[str]:
    """Several pages of the same metrics, in the same order, as one: all samples of a metric stand together."""
    for same in zip(*map(_metrics, pages), strict=True):
        yield from same[0][:_HEAD]
        for metric in same:
            yield from metric[_HEAD:]


def _metrics(lines: Iterable[str]) -> Iterator[list[str]]:
    """A page metric by metric: what ``head`` gives, and the samples."""
    metric: list[str] = []
    for line in lines:
        if line.startswith("# HELP ") and metric:
            yield metric
            metric = []
        metric.append(line)
    yield metric


def escape(value: str) -> str:
    """A label value (Prometheus exposition format: backslash, quote and line feed are escaped)."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
