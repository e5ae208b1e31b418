"""Many requests that are admitted at once: the report of a step does not wait until all of their slots are open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from zerolayer.errors import EngineFailed
from zerolayer.model.engine import Generation, SampledToken, StepPlan
from zerolayer.model.letters import StepReport
from zerolayer.model.mock_engine import MockEngine
from zerolayer.model.step_clock import StepClock
from zerolayer.wire.schema import Sampling

SLOTS = 5


class Engine(MockEngine):
    """Notes which slots had been opened when each step began; ``before`` is called then."""

    def __init__(self) -> None:
        super().__init__(slots=SLOTS, slot_tokens=64, chunk_tokens=8, step_us=0, vocabulary=100)
        self.opened: list[int] = []
        self.opened_before: list[list[int]] = []
        self.before: Callable[[int], None] = lambda step: None

    def open(self, slot: int, generation: Generation) -> None:
        self.opened.append(slot)
        super().open(slot, generation)

    def step(self, plan: StepPlan) -> list[SampledToken]:
        self.opened_before.append(list(self.opened))
        self.before(len(self.opened_before))
        return super().step(plan)


class Service:
    """A clock on an engine, and what it reports."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.reports: list[StepReport] = []
        self._all_back = threading.Event()
        self.clock = StepClock(self.engine, self._deliver, time.monotonic_ns)

    def _deliver(self, report: StepReport) -> None:
        self.reports.append(report)
        if len(self.released()) == SLOTS:
            self._all_back.set()

    def released(self) -> list[int]:
        return [slot for report in self.reports for slot in report.released]

    def admit(self, slots: range, tokens: int = 30) -> None:
        for slot in slots:
            self.clock.admit(slot, Generation([slot + 1], Sampling(temperature=0.0), tokens, ignore_eos=True))

    def run(self) -> None:
        """Until every slot is free again."""
        self.clock.start()
        assert self._all_back.wait(10)
        self.clock.stop()


@pytest.fixture
def service() -> Service:
    return Service()


def test_one_slot_is_opened_at_each_step_border_in_the_order_of_admission(service: Service) -> None:
    service.admit(range(SLOTS))
    service.run()
    assert [len(opened) for opened in service.engine.opened_before[: SLOTS + 1]] == [1, 2, 3, 4, SLOTS, SLOTS]
    assert service.engine.opened == list(range(SLOTS))


def test_a_request_that_is_cancelled_before_its_slot_is_opened_never_is(service: Service) -> None:
    service.admit(range(SLOTS))
    service.clock.cancel(SLOTS - 1)
    service.run()
    assert service.engine.opened == list(range(SLOTS - 1))
    assert service.reports[0].released == [SLOTS - 1]


def test_a_cancel_does_not_wait_for_those_who_were_admitted_before_it(service: Service) -> None:
    def before(step: int) -> None:
        if step == 2:
            service.admit(range(1, SLOTS))
            service.clock.cancel(0)

    service.engine.before = before
    service.admit(range(1))
    service.run()
    assert [report.released for report in service.reports[:4]] == [[], [], [0], []]


def test_a_step_that_fails_ends_those_whose_slots_are_not_open_yet_too(service: Service) -> None:
    def before(step: int) -> None:
        if step == 1:
            raise EngineFailed("broken on purpose")

    service.engine.before = before
    service.admit(range(SLOTS))
    service.run()
    (failed,) = [report for report in service.reports if report.failure]
    assert sorted(failed.released) == list(range(SLOTS))
    assert len(service.engine.opened) == 1


def test_to_stop_waits_for_no_slot_that_is_not_open(service: Service) -> None:
    stopping = threading.Thread(target=service.clock.stop)

    def before(step: int) -> None:
        if step == 1:
            stopping.start()
            while not service.clock._stopping:
                time.sleep(0.001)

    service.engine.before = before
    service.admit(range(SLOTS))
    service.clock.start()
    service.clock._thread.join(10)
    stopping.join(10)
    assert (service.clock.alive, len(service.engine.opened_before)) == (False, 1)
