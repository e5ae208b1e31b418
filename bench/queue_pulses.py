"""What differs from pulse to pulse, for the zero-queue bench: a shared machine has good and bad seconds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from figures import percentile
from lean_client import Record
from queue_causes import steal_ms
from queue_figures import STOLEN, ratio, whole_ms


class Pulses:
    """One server's, in their order."""

    def __init__(self) -> None:
        self._pulses: list[list[Record]] = []
        self._stolen_ms: list[int] = []

    def add(self, pulse: Callable[[], list[Record]]) -> None:
        """Make one more."""
        before = steal_ms()
        self._pulses.append(pulse())
        self._stolen_ms.append(steal_ms() - before)

    @property
    def records(self) -> list[Record]:
        """Of all."""
        return [record for pulse in self._pulses for record in pulse]

    def figures(self, first_ms: float) -> dict[str, Any]:
        """What each pulse was like, and the medians; ``first_ms`` is the time to read one prompt.

        All pulses together would tell how the machine's speed differed between them, beside what load does to who was
        admitted: so P99/P50 is that of a pulse.
        """
        within = [ratio(whole_ms(_at_once(pulse)), 99, 50) for pulse in self._pulses]
        known = [each for each in within if each is not None]
        return {
            "P99/P50 within a pulse": statistics.median(known) if known else None,
            "P99/P50 of each pulse": [round(each, 3) for each in known] or None,
            "spread": spread(self._pulses, first_ms),
            "refusal p99 of each pulse, ms": self.refusal_p99(),
            STOLEN: sum(self._stolen_ms),
            "taken during each pulse, ms": self._stolen_ms,
        }

    def refusal_p99(self) -> list[float]:
        """Of each pulse, in milliseconds."""
        return [round(_refusal_p99(pulse), 2) for pulse in self._pulses]

    def beside(self, control: Pulses) -> dict[str, Any]:
        """Refusals beside those of the stub, whose pulses were made in turn with these.

        What the machine is like lasts for seconds: it makes both of a pair slower, and each server's slowest pulse
        comes from another one.
        """
        pairs = list(zip(self.refusal_p99(), control.refusal_p99(), strict=True))
        return {
            "refusal p99 of each pulse and its control's, ms": [f"{own:.2f} / {stub:.2f}" for own, stub in pairs],
            "refusal p99 over its control's, median of the pulses, ms": statistics.median(
                own - stub for own, stub in pairs
            ),
        }


def spread(pulses: Sequence[Sequence[Record]], first_ms: float) -> float | None:
    """How much later the last of those admitted at once ended than the first, in times of reading one prompt."""
    ends = [[record.end_ns for record in _at_once(pulse)] for pulse in pulses]
    found = [(max(each) - min(each)) / 1e6 / first_ms for each in ends if len(each) > 1]
    return max(found, default=None)


def _at_once(pulse: Sequence[Record]) -> list[Record]:
    return [record for record in pulse if record.ok and not record.attempts]


def _refusal_p99(pulse: Sequence[Record]) -> float:
    return percentile([(answered - sent) / 1e6 for record in pulse for sent, answered, _ in record.attempts], 99) or 0.0
