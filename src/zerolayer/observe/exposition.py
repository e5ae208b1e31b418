"""Prometheus' text format 0.0.4: histograms, and the lines of a metric."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence


class Histogram:
    """Cumulative buckets with upper bounds (inclusive, as Prometheus has it), sum and count."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value that came so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    @property
    def counts(self) -> tuple[int, ...]:
        """Values by bucket, not cumulative; the last bucket is open."""
        return tuple(self._counts)

    @property
    def bounds(self) -> tuple[float, ...]:
        """Upper bounds of all buckets but the last."""
        return self._bounds

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """The samples, without HELP and TYPE."""
        total = 0
        for bound, count in zip((*map(repr, self._bounds), "+Inf"), self._counts, strict=True):
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
