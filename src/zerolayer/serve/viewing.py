"""The live page, joined with what it shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import zerolayer
from zerolayer.front.dispatch import Dispatcher
from zerolayer.front.live import LivePage
from zerolayer.guard.budget.budgets import Budgets
from zerolayer.guard.budget.standing import Standing
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.model.engine import EngineInfo
from zerolayer.model.program import FULL
from zerolayer.observe import live
from zerolayer.observe.compute import ComputeMeter
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.live import BookingView, Moment, Service, SlotView, Totals
from zerolayer.observe.metrics import Metrics

_NS_PER_MS = 1_000_000
_BUDGETS = 12  # as many as a page has room for
_FILES = Path(live.__file__).with_name("page")


class Viewing:
    """Snapshots of one server; called on the loop, times are monotonic nanoseconds."""

    def __init__(
        self,
        calendar: Calendar,
        dispatcher: Dispatcher,
        metrics: Metrics,
        glue: GlueMeter,
        meter: ComputeMeter,
        budgets: Budgets,
    ) -> None:
        self._calendar = calendar
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._glue = glue
        self._meter = meter
        self._budgets = budgets

    def page(self, name: str, info: EngineInfo, clock_ns: Callable[[], int]) -> LivePage:
        """The page of a service of this ``name``."""
        service = Service(
            version=live.VERSION,
            model=name,
            release=zerolayer.__version__,
            engine=info.engine,
            slots=info.slots,
            slot_tokens=info.slot_tokens,
            fallback=FULL,
            bounds_s=self._metrics.bounds_s(),
        )
        files = {path.name: path.read_bytes() for path in _FILES.iterdir()}
        return LivePage(files, service, lambda: self._totals(clock_ns()), self._moment, self._fullest)

    def _totals(self, now_ns: int) -> Totals:
        return self._metrics.totals(self._glue.busy_ns(now_ns), self._glue.arithmetic_ns, self._meter.totals)

    def _fullest(self) -> list[Standing]:
        return self._budgets.fullest(_BUDGETS)

    def _moment(self, now_ns: int) -> Moment:
        calendar = self._calendar
        feasible = calendar.is_feasible()  # which also brings the ends up to date
        since = self._dispatcher.since_ns()
        return Moment(
            slots=[_slot(end, began, now_ns) for end, began in zip(calendar.ends(), since, strict=True)],
            bookings=[
                BookingView(
                    booking.slot,
                    (booking.start_ns - now_ns) // _NS_PER_MS,
                    (booking.start_ns + booking.typical_ns - now_ns) // _NS_PER_MS,
                    booking.held,
                    booking.soft,
                )
                for booking in calendar.bookings
            ],
            feasible=feasible,
            running=self._dispatcher.running,
            free=calendar.free,
        )


def _slot(ends: tuple[int, int] | None, began_ns: int, now_ns: int) -> SlotView:
    if ends is None:
        return SlotView("free")
    if not began_ns:
        return SlotView("changing")
    end_ns, due_ns = ends
    return SlotView(
        "running", (began_ns - now_ns) // _NS_PER_MS, (end_ns - now_ns) // _NS_PER_MS, (due_ns - now_ns) // _NS_PER_MS
    )
