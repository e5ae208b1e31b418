"""When the event loop is woken for a report: once, and by whoever has just let go of the interpreter."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest

from reference.engines import Engines
from reference.tiny_model import SMOL, TinyShape
from zerolayer.model.bell import Bell
from zerolayer.model.engine import EngineInfo, Generation, SampledToken, StepPlan
from zerolayer.model.letters import StepReport
from zerolayer.model.mock_engine import MockEngine
from zerolayer.model.step_clock import StepClock
from zerolayer.wire.schema import Sampling

GREEDY = Sampling(temperature=0)
WIDE = TinyShape("tiny wide", layers=1, hidden=1024, intermediate=1024, seed=21)


class CountingBell(Bell):
    """Counts who rang it: the clock, or a step."""

    def __init__(self) -> None:
        super().__init__()
        self.rung = 0

    def ring(self) -> None:
        self.rung += 1
        super().ring()


class Engine(MockEngine):
    """Notes which bell each step was given, and how often the clock had rung by then."""

    def __init__(self, bell: CountingBell, *, rings: bool) -> None:
        super().__init__(slots=4, slot_tokens=64, chunk_tokens=8, step_us=0, vocabulary=100)
        self._bell = bell
        self._does_ring = rings
        self.bells: list[int] = []
        self.rung: list[int] = []
        self.rung_before_closing: list[int] = []

    def describe(self) -> EngineInfo:
        return msgspec.structs.replace(super().describe(), rings=self._does_ring)

    def step(self, plan: StepPlan) -> list[SampledToken]:
        self.bells.append(plan.bell)
        self.rung.append(self._bell.rung)
        return super().step(plan)

    def close(self, slot: int) -> None:
        self.rung_before_closing.append(self._bell.rung)
        super().close(slot)


@pytest.fixture
def bell() -> Iterator[CountingBell]:
    bell = CountingBell()
    yield bell
    bell.close()


@pytest.fixture
def run(bell: CountingBell) -> Callable[..., Engine]:
    """One generation of five tokens on a clock of its own, to the end."""

    def start(*, rings: bool) -> Engine:
        done = threading.Event()
        engine = Engine(bell, rings=rings)

        def deliver(report: StepReport) -> None:
            if report.released:
                done.set()

        clock = StepClock(engine, deliver, lambda: 0, bell=bell)
        clock.start()
        clock.admit(0, Generation([1, 2], GREEDY, 5, ignore_eos=True))
        assert done.wait(10)
        clock.stop()
        return engine

    return start


def heard(bell: Bell) -> bool:
    return bool(select.select([bell.fd], [], [], 0)[0])


def test_a_ring_is_there_until_it_is_heard_however_often_it_rang(bell):
    bell.ring()
    bell.ring()
    assert heard(bell)
    bell.heard()
    assert not heard(bell)


def test_to_hear_what_did_not_ring_does_nothing(bell):
    bell.heard()
    assert not heard(bell)


def test_a_step_of_an_engine_that_rings_is_given_the_bell_when_there_was_a_report(bell, run):
    engine = run(rings=True)
    assert engine.bells == [-1, bell.fd, bell.fd, bell.fd, bell.fd]
    assert engine.rung == [0] * 5  # nobody wakes the loop sooner


def test_the_clock_rings_for_an_engine_that_does_not(bell, run):
    engine = run(rings=False)
    assert engine.bells == [-1] * 5
    assert engine.rung == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("rings", [True, False])
def test_the_clock_rings_for_the_last_report_which_no_step_follows(bell, run, rings):
    engine = run(rings=rings)
    assert bell.rung == (1 if rings else 5)
    assert len(engine.bells) == 5


def test_the_native_engine_rings_in_its_step(engines: Engines, bell: CountingBell) -> None:
    engine = engines.open(SMOL, slots=2, slot_tokens=64, chunk_tokens=8)
    assert engine.describe().rings
    engine.open(0, Generation([50, 51], GREEDY, 4, ignore_eos=True))
    engine.step(StepPlan((), 0, 2))
    assert not heard(bell)
    engine.step(StepPlan((0,), bell=bell.fd))
    assert os.eventfd_read(bell.fd) == 1
    engine.close(0)


def test_a_step_whose_bell_nobody_hears_ends_all_the_same(engines: Engines, bell: CountingBell) -> None:
    engine = engines.open(SMOL, slots=2, slot_tokens=64, chunk_tokens=8)
    engine.open(0, Generation([50, 51], GREEDY, 40, ignore_eos=True))
    engine.step(StepPlan((), 0, 2))
    for _ in range(20):
        assert len(engine.step(StepPlan((0,), bell=bell.fd))) == 1
    engine.close(0)


@pytest.mark.parametrize("rung", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_products_in_pieces_have_the_same_bits(engines: Engines, bell: CountingBell, threads: int, rung: bool) -> None:
    """Those of many rows are long: threads look in between whether to offer their cores, oftener while a bell rings."""
    prompt = [(7 * i) % 250 + 40 for i in range(128)]
    engine = engines.open(WIDE, slots=1, slot_tokens=130, chunk_tokens=128, threads=threads)
    scores = []
    for chunk in (1, 128):
        engine.open(0, Generation(prompt, GREEDY, 1, prompt_logprobs=3))
        tokens: list[SampledToken] = []
        while not tokens:
            tokens = engine.step(StepPlan((), 0, chunk, bell.fd if rung and chunk > 1 else -1))
        scores.append((tokens[0].token_id, tokens[0].prompt))
        engine.close(0)
    assert scores[0] == scores[1]
