"""The live page, joined with what it shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import zerolayer
from zerolayer.front.live import LivePage
from zerolayer.guard.budget.budgets import Budgets
from zerolayer.guard.budget.standing import Standing
from zerolayer.model.program import FULL
from zerolayer.observe import live
from zerolayer.observe.compute import ComputeMeter
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.live import BookingView, Moment, Service, SlotView, Totals
from zerolayer.observe.metrics import Metrics
from zerolayer.serve.rooms import Rooms

_NS_PER_MS = 1_000_000
_BUDGETS = 12  # as many as a page has room for
_FILES = Path(live.__file__).with_name("page")


class Viewing:
    """Snapshots of one server; called on the loop, times are monotonic nanoseconds."""

    def __init__(self, rooms: Rooms, metrics: Metrics, glue: GlueMeter, meter: ComputeMeter, budgets: Budgets) -> None:
        self._rooms = rooms
        self._metrics = metrics
        self._glue = glue
        self._meter = meter
        self._budgets = budgets

    def page(self, clock_ns: Callable[[], int]) -> LivePage:
        """The page of the service."""
        files = {path.name: path.read_bytes() for path in _FILES.iterdir()}
        return LivePage(files, self.service(), lambda: self._totals(clock_ns()), self._moment, self._fullest)

    def service(self) -> Service:
        """What is served."""
        room = self._rooms.current
        info = room.info
        return Service(
            version=live.VERSION,
            model=room.name,
            release=zerolayer.__version__,
            engine=info.engine,
            slots=info.slots,
            slot_tokens=info.slot_tokens,
            fallback=FULL,
            bounds_s=self._metrics.bounds_s(),
        )

    def _totals(self, now_ns: int) -> Totals:
        return self._metrics.totals(self._glue.busy_ns(now_ns), self._glue.arithmetic_ns, self._meter.totals)

    def _fullest(self) -> list[Standing]:
        return self._budgets.fullest(_BUDGETS)

    def _moment(self, now_ns: int) -> Moment:
        room = self._rooms.current
        calendar = room.admission.calendar
        feasible = all(
            each.admission.calendar.is_feasible() for each in self._rooms
        )  # which also brings ends up to date
        since = room.dispatcher.since_ns()
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
            running=self._rooms.running,
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
