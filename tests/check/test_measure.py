"""How much is measured: the plan follows the time that requests take. A service on a clock of its own, no sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from zerolayer.check import target as targets
from zerolayer.check.exchange import Exchange, Planned
from zerolayer.check.live_view import Silent
from zerolayer.check.measure import Measurement
from zerolayer.check.run_file import Run, Settings
from zerolayer.check.session import Session

MS = 1_000_000


class Paper:
    """The client of a service of so many slots that takes ``alone_ms``, on a clock of its own.

    Stands in for ``LoadClient``. ``refuses``: whoever finds no slot is told to come back when one is free.
    """

    def __init__(self, alone_ms: float, slots: int, *, refuses: bool = False) -> None:
        self.now, self.alone_ns, self.slots, self.refuses = 1, int(alone_ms * MS), slots, refuses
        self.in_flight: dict[int, Exchange] = {}
        self.quiet: Callable[[], None] = lambda: None
        self.sent = 0
        self.interrupt_after: int | None = None

    def clock(self) -> int:
        self.now += 1000
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)

    def prepare(self, count: int) -> None:
        """Connections cost nothing."""

    def run(
        self, planned: Iterable[Planned], follow: Callable[[Exchange], Iterator[Planned]] | None = None
    ) -> list[Exchange]:
        due, free, done = sorted(planned, key=lambda each: each.intended_ns), [0] * self.slots, []
        while due:
            each = due.pop(0)
            self.sent += 1
            if self.interrupt_after is not None and self.sent > self.interrupt_after:
                raise KeyboardInterrupt
            exchange = Exchange(each, sent_ns=each.intended_ns)
            slot = free.index(min(free))
            if self.refuses and free[slot] > each.intended_ns:
                exchange.status, exchange.end_ns = 429, each.intended_ns + MS
                exchange.promised_ms = (free[slot] - each.intended_ns) // MS + 1
            else:
                free[slot] = max(free[slot], each.intended_ns) + self.alone_ns
                exchange.status, exchange.end_ns = 200, free[slot]
            exchange.pieces.append((exchange.end_ns, b"ok"))
            self.now = max(self.now, exchange.end_ns)
            done.append(exchange)
            due = sorted([*due, *(follow(exchange) if follow else ())], key=lambda each: each.intended_ns)
        return done


def measured(service: Paper, pace: Callable[[], int] | None = None, **changes: object) -> tuple[Run, float]:
    """The run, and the seconds that it took on the service's clock."""
    settings = Settings(**({"budget_s": 60.0, "timer_probes": 0, "aborts": False} | changes))
    target = targets.parse("http://127.0.0.1:1/", "http", "", ())
    session = Session(target, service, settings, Silent(), service.sleep, pace)  # type: ignore[arg-type]
    run = Measurement(session).measure()
    return run, service.now / 1e9


@pytest.mark.parametrize("alone_ms", [20.0, 250.0, 500.0])
@pytest.mark.parametrize("slots", [2, 16])
@pytest.mark.parametrize("refuses", [False, True])
def test_a_minute_is_enough_whatever_a_request_takes(alone_ms: float, slots: int, refuses: bool) -> None:
    run, seconds = measured(Paper(alone_ms, slots, refuses=refuses))
    assert seconds < 75
    assert run.settings.repeats >= 3
    assert run.settings.largest_pulse > slots or alone_ms > 250


def test_a_quick_service_gets_the_whole_plan() -> None:
    run, _ = measured(Paper(10.0, 8))
    assert (run.settings.probes, run.settings.repeats, run.settings.largest_pulse) == (200, 10, 64)


def test_a_very_slow_service_is_asked_as_little_as_a_verdict_needs() -> None:
    run, seconds = measured(Paper(3000.0, 8))
    assert (run.settings.probes, run.settings.repeats, run.settings.largest_pulse) == (12, 3, 8)
    assert seconds < 38 * 3


def test_a_number_that_was_given_is_kept_whatever_time_it_takes() -> None:
    run, seconds = measured(
        Paper(400.0, 4), probes=50, repeats=4, largest_pulse=16, fixed=("probes", "repeats", "largest_pulse")
    )
    assert (run.settings.probes, run.settings.repeats, run.settings.largest_pulse) == (50, 4, 16)
    assert seconds > 60


def test_without_a_budget_all_is_done() -> None:
    run, _ = measured(Paper(300.0, 4), budget_s=0.0, probes=40, repeats=5, largest_pulse=16)
    assert (run.settings.probes, run.settings.repeats, run.settings.largest_pulse) == (40, 5, 16)


def test_an_interrupt_keeps_what_was_seen() -> None:
    service = Paper(10.0, 4)
    service.interrupt_after = 3 + 200 + 300
    run, _ = measured(service)
    assert run.served.sum() >= 400


def test_an_interrupt_before_the_unloaded_time_is_known_ends_all() -> None:
    service = Paper(10.0, 4)
    service.interrupt_after = 20
    with pytest.raises(KeyboardInterrupt):
        measured(service)
