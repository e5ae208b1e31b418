#!/usr/bin/env python3
"""What a decision costs: each operation of the calendar, and a whole refusal from its bytes to its one write.

All slots run, and ``--bookings`` starts are promised. Microseconds of CPU of this thread; the median of many calls.

    python bench/decisions.py                      64 slots, 40 bookings
    python bench/decisions.py --slots 16 --json-out result.json
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from in_process import machine, options, show, write

from zerolayer.guard.deadline.admission import Admission, Grant, Wish
from zerolayer.guard.deadline.booking import Booking, Terms, Work
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.deadline.limits import Limits
from zerolayer.guard.deadline.tickets import Asker
from zerolayer.model.cost import CostTable
from zerolayer.wire.schema import Tier

MS = 1_000_000
STEP_NS, CHUNK_NS = 5 * MS, 20 * MS
LIMITS = Limits(20_000 * MS, 1_000 * MS, 60_000 * MS)


class Full:
    """A calendar whose slots all run and that has bookings; ``now`` stands still but for ``step``."""

    def __init__(self, slots: int, bookings: int) -> None:
        self.now = 1_000 * MS
        self.cost = CostTable(slots=slots, chunk_tokens=128)
        for _ in range(128):
            self.cost.observe(decode_rows=slots, elapsed_ns=STEP_NS)
            self.cost.observe(decode_rows=slots, prefill_tokens=128, elapsed_ns=STEP_NS + CHUNK_NS)
        clock = lambda: self.now  # noqa: E731 - three words
        self.calendar = Calendar(slots, clock, self.cost.prices, grace_ns=250 * MS)
        self.admission = Admission(self.calendar, self.cost, clock, "All slots are busy. Come again in {ms} ms.")
        self.work = Work(1, self.cost.prices().chunk(128), self.cost.prices().chunk(128), 64)
        for number in range(slots):
            grant = self.ask(number)
            assert isinstance(grant, Grant)
            self.calendar.confirm(grant.slot, self.work)
        for number in range(bookings):
            self.refuse(number)
        assert self.calendar.booked == bookings, self.calendar.booked

    def terms(self) -> Terms:
        return Terms(self.now, LIMITS.first_token_ns, LIMITS.per_token_ns, LIMITS.end_ns)

    def ask(self, number: int) -> Grant | Booking:
        wish = Wish(self.work, self.work, self.work, LIMITS, Tier.DEFAULT, number)
        return self.admission.ask(wish, Asker(number % 7, retry=False))

    def refuse(self, number: int) -> None:
        try:
            self.ask(number)
        except Exception:  # noqa: BLE001, S110 - the refusal is what is measured
            pass

    def stale(self) -> None:
        """As after a step: every bound is to be computed anew."""
        self.calendar.skip(0, 0, 128)


def median_us(work: Callable[[], object], before: Callable[[], object] = lambda: None, calls: int = 2_000) -> float:
    """Of ``work``; ``before`` is not counted."""
    taken = []
    for _ in range(calls):
        before()
        start = time.thread_time_ns()
        work()
        taken.append(time.thread_time_ns() - start)
    empty = []
    for _ in range(calls):
        start = time.thread_time_ns()
        empty.append(time.thread_time_ns() - start)
    return (statistics.median(taken) - statistics.median(empty)) / 1000


def operations(slots: int, bookings: int) -> list[dict[str, Any]]:
    """One row an operation, right after a step (all bounds are new) and between two steps."""
    rows = []
    for when in ("after a step", "between steps"):
        full = Full(slots, bookings)
        calendar = full.calendar
        after = full.stale if when == "after a step" else (lambda: None)
        made: list[Booking] = []

        def book() -> None:
            booking = calendar.book(full.work, full.terms())
            assert booking is not None
            made.append(booking)

        def unbook() -> None:
            if made:
                calendar.void(made.pop())
            after()

        rows.append({"operation": "fit", "when": when, "us": median_us(lambda: calendar.claim(full.work, full.terms()), after)})
        rows.append({"operation": "book", "when": when, "us": median_us(book, unbook)})
        unbook()
        rows.append({"operation": "void", "when": when, "us": median_us(lambda: calendar.void(made.pop()), lambda: (book(), after()))})
    return rows


if __name__ == "__main__":
    show({"operation": "operation", "when": "when", "us": "us:.1f"}, operations(64, 40))
