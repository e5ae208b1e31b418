"""A page of Prometheus' text format 0.0.4, read back: what a server measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from zerolayer.check.errors import TargetError

_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: -?\d+)?")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:\\.|[^"\\])*)",?')
_ESCAPES: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class Sample(msgspec.Struct, frozen=True):
    """One line."""

    labels: Mapping[str, str]
    value: float


class Scrape:
    """``text`` is the page. Raises ``TargetError`` for a line that is none of the format."""

    def __init__(self, text: str) -> None:
        self._samples: dict[str, list[Sample]] = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                self._add(line)

    def _add(self, line: str) -> None:
        found = _SAMPLE.fullmatch(line)
        try:
            if found is None:
                raise ValueError
            value = float(found[3])
        except ValueError:
            raise TargetError("the page is not Prometheus' text format; give the server's admin address") from None
        labels = {name: re.sub(r'\\[\\"n]', _unescaped, text) for name, text in _LABEL.findall(found[2] or "")}
        self._samples.setdefault(found[1], []).append(Sample(labels, value))

    def total(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels; 0 where there is none."""
        return sum(sample.value for sample in self._samples.get(name, ()) if labels.items() <= sample.labels.items())

    def label(self, name: str, label: str) -> str | None:
        """The value of a label of the metric's first sample."""
        samples = self._samples.get(name)
        return samples[0].labels.get(label) if samples else None

    def count(self, name: str) -> int:
        """Observations of a histogram."""
        return int(self.total(f"{name}_count"))

    def beyond(self, name: str, bound: float) -> int:
        """Observations of a histogram that were certainly above ``bound``; those in the bucket around it are not."""
        buckets = self._samples.get(f"{name}_bucket", ())
        upper = min((le for each in buckets if (le := float(each.labels["le"])) >= bound), default=float("inf"))
        within = sum(each.value for each in buckets if float(each.labels["le"]) == upper)
        return self.count(name) - int(within) if buckets else 0

    def quantile(self, name: str, share: float) -> float | None:
        """Read off a histogram's buckets, straight within one; None when it is empty. Beyond all buckets: infinity."""
        buckets: dict[float, float] = {}
        for sample in self._samples.get(f"{name}_bucket", ()):
            bound = float(sample.labels["le"])
            buckets[bound] = buckets.get(bound, 0.0) + sample.value
        if not buckets or not (whole := max(buckets.values())):
            return None
        low, before = 0.0, 0.0
        for bound in sorted(buckets):
            if buckets[bound] > before and buckets[bound] >= share * whole:
                if bound == float("inf"):
                    return bound
                return low + (bound - low) * (share * whole - before) / (buckets[bound] - before)
            low, before = bound, buckets[bound]
        return float("inf")


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPES[found[0]]
