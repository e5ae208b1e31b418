"""The same arrivals again and again, each beside what the machine could do just then: that wanders by a tenth."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from lean_client import Record
from queue_figures import OF_CAPACITY, PER_SECOND, STOLEN, Alone, figures


class Rounds:
    """One server's, in their order."""

    def __init__(self) -> None:
        self._rounds: list[Sequence[Record]] = []
        self._alone: list[Alone] = []
        self._stolen_ms: list[int] = []

    def add(self, records: Sequence[Record], alone: Alone, stolen_ms: int) -> None:
        """One more; ``alone``: what the server did before and after it, ``stolen_ms``: by the hypervisor meanwhile."""
        self._rounds.append(records)
        self._alone.append(alone)
        self._stolen_ms.append(stolen_ms)

    @property
    def records(self) -> list[Record]:
        """Of all."""
        return [record for records in self._rounds for record in records]

    def figures(self) -> dict[str, Any]:
        """What depends on how long a round lasts, as the mean of the rounds."""
        each = [figures(records, alone, 0.0) for records, alone in zip(self._rounds, self._alone, strict=True)]
        shares = [one[OF_CAPACITY] for one in each if one[OF_CAPACITY] is not None]
        return {
            PER_SECOND: statistics.fmean(one[PER_SECOND] for one in each),
            OF_CAPACITY: statistics.fmean(shares) if shares else None,
            f"{OF_CAPACITY}, each round": [round(share, 3) for share in shares] or None,
            STOLEN: sum(self._stolen_ms),
        }
