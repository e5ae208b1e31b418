"""What was promised and what became of it: bookings, deadlines and limits, refusals. One writer: the event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal

from zerolayer.observe.exposition import Histogram, family, head, histograms

_NS: Final = 1e-9
_NS_PER_S: Final = 1_000_000_000
_SLACK_S: Final = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0)
_LATENESS_S: Final = (0.0, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_REFUSAL_S: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25)

Outcome = Literal["kept", "early", "late", "no_show", "broken"]
Limit = Literal["first_token", "per_token", "end"]


class Promises:
    """Counted where it happens, rendered on scrape."""

    def __init__(self) -> None:
        self._bookings: dict[str, int] = {"kept": 0, "early": 0, "late": 0, "no_show": 0, "broken": 0}
        self._deadlines: dict[str, int] = {"true": 0, "false": 0}
        self._missed: dict[str, int] = {"first_token": 0, "per_token": 0, "end": 0}
        self._slack = Histogram(_SLACK_S)
        self._lateness = Histogram(_LATENESS_S)
        self._refusals = Histogram(_REFUSAL_S, _NS_PER_S)
        self.refused: Callable[[int], None] = self._refusals.observe
        """A refusal was written, so many nanoseconds after the request's first byte."""

    def booking(self, outcome: Outcome) -> None:
        """One more with this outcome.

        ``kept``: its client came in its window and was served, ``broken``: and was not served. ``early``: it came
        before that and was told the same time again; ``late``: it came after that; ``no_show``: it did not come.
        """
        self._bookings[outcome] += 1

    def came(self, late_ns: int) -> None:
        """Somebody redeems a booking, so long after its start; up to 5 ms before it counts as 0."""
        self._lateness.observe(max(0, late_ns) * _NS)

    def ended(self, slack_ns: int) -> None:
        """An admitted request is complete, so long before its deadline."""
        self._slack.observe(slack_ns * _NS)
        self._deadlines["true" if slack_ns >= 0 else "false"] += 1
        if slack_ns < 0:
            self.missed("end")

    def broken_off(self) -> None:
        """An admitted request was not complete at its deadline."""
        self._deadlines["false"] += 1
        self.missed("end")

    def missed(self, limit: Limit) -> None:
        """A limit of an admitted request did not hold."""
        self._missed[limit] += 1

    def fold(self) -> None:
        """As ``Histogram.fold``."""
        for histogram in (self._slack, self._lateness, self._refusals):
            histogram.fold()

    def outcomes(self) -> dict[str, int]:
        """Bookings by what became of them."""
        return dict(self._bookings)

    def deadlines(self) -> dict[str, int]:
        """Deadlines of admitted requests: ``true`` were kept."""
        return dict(self._deadlines)

    def lines(self, labels: str) -> Iterator[str]:
        """The samples with HELP and TYPE."""
        for name, about, label, values in (
            ("booking_total", "Bookings by what became of them.", "outcome", self._bookings),
            ("promise_total", "Deadlines of admitted requests.", "kept", self._deadlines),
            ("limit_missed_total", "Limits of admitted requests that did not hold.", "limit", self._missed),
        ):
            yield from family(f"zerolayer:{name}", "counter", about, labels, label, values.items())
        shown = (
            ("deadline_slack_seconds", "Time between end and deadline.", self._slack),
            ("booking_lateness_seconds", "From the booked start to the client's arrival.", self._lateness),
        )
        yield from histograms("zerolayer:{}", labels, shown)

    def refusal_lines(self, labels: str) -> Iterator[str]:
        """The same of refusals, which are the service's, whatever model is served."""
        yield from head(
            "zerolayer:refusal_seconds", "histogram", "First byte of a request to its refusal for lack of slots."
        )
        yield from self._refusals.lines("zerolayer:refusal_seconds", labels)
