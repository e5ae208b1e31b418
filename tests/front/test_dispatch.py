"""Slots to requests: who gets a token, when a slot is free again."""

from __future__ import annotations

import pytest

from zerolayer.errors import DeadlineMissed, EngineFailed
from zerolayer.front.dispatch import Dispatcher, Running
from zerolayer.front.step_account import Charges
from zerolayer.guard.deadline.booking import Terms, Work
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.model.cost import Prices
from zerolayer.model.engine import Broken, Generation, SampledToken
from zerolayer.model.letters import StepReport
from zerolayer.observe.compute import IDLE, ComputeMeter
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.metrics import Gauges, Metrics
from zerolayer.observe.stages import Stage, StageClock
from zerolayer.wire.schema import FinishReason, Sampling

WORK = Generation([1, 2, 3], Sampling(), 10)


class Steps:
    def __init__(self) -> None:
        self.letters: list[tuple[str, int]] = []

    def admit(self, slot: int, generation: Generation) -> None:
        self.letters.append(("admit", slot))

    def cancel(self, slot: int) -> None:
        self.letters.append(("cancel", slot))


class Request(Running):
    used_tokens = 5
    tenant = "bank"

    left = 0

    def __init__(self, ends_after: int = 100) -> None:
        self.stages = StageClock(0)
        self.tokens: list[int] = []
        self.failure: Exception | None = None
        self._ends_after = ends_after

    def push(self, token, report) -> bool:
        self.tokens.append(token.token_id)
        return token.finish is not None or len(self.tokens) >= self._ends_after

    def fail(self, error) -> None:
        self.failure = error


class Bench:
    def __init__(self, slots: int = 2) -> None:
        self.steps = Steps()
        self.slots = Calendar(slots, lambda: 0, lambda: Prices(step_ns=10))
        self.meter = ComputeMeter(cores=2, slots=slots, now_ns=0)
        charges = Charges(self.meter, lambda rows, tokens: 0.5 if tokens else 0.0)
        self.metrics = Metrics("m")
        self.dispatcher = Dispatcher(self.slots, self.steps, self.metrics, GlueMeter(), charges)

    def start(self, request: Request, due_ns: int = 10_000) -> int:
        work = Work(1, 0, 0, 10)
        slot = self.slots.claim(work, Terms(0, 10_000, 10_000, due_ns))
        assert self.slots.confirm(slot, work)
        self.dispatcher.start(slot, WORK, request)
        return slot

    def report(self, *tokens: SampledToken, **members: object) -> None:
        self.dispatcher.on_step(StepReport(10, 20, "greedy", tokens=tokens, **members))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_time_between_tokens_is_that_between_the_ends_of_steps(bench):
    slot = bench.start(Request())
    bench.dispatcher.on_step(StepReport(0, 1_000_000, "plain", tokens=[SampledToken(slot, 1)], prefill_slot=slot))
    bench.dispatcher.on_step(StepReport(1_000_000, 4_000_000, "plain", tokens=[SampledToken(slot, 2)], decode=(slot,)))
    page = bench.metrics.render(Gauges()).decode()
    assert 'vllm:inter_token_latency_seconds_sum{model_name="m"} 0.003' in page


def test_each_token_goes_to_the_request_of_its_slot(bench):
    first, second = Request(), Request()
    one, two = bench.start(first), bench.start(second)
    bench.report(SampledToken(two, 7), SampledToken(one, 8), decode=(one, two))
    assert (first.tokens, second.tokens) == ([8], [7])


def test_a_finished_slot_is_free_when_the_report_says_released(bench):
    slot = bench.start(Request())
    bench.report(SampledToken(slot, 1, FinishReason.LENGTH), decode=(slot,), released=(slot,))
    assert (bench.slots.free, bench.dispatcher.running) == (2, 0)
    assert bench.steps.letters == [("admit", slot)]


def test_a_text_that_ends_before_the_engine_cancels_its_slot_and_waits_for_the_release(bench):
    slot = bench.start(Request(ends_after=1))
    bench.report(SampledToken(slot, 1), decode=(slot,))
    assert bench.steps.letters[-1] == ("cancel", slot)
    assert bench.slots.free == 1
    bench.report(SampledToken(slot, 2), decode=(slot,), released=(slot,))
    assert bench.slots.free == 2


def test_tokens_of_a_cancelled_request_go_nowhere(bench):
    request = Request()
    slot = bench.start(request)
    bench.dispatcher.cancel(slot)
    bench.report(SampledToken(slot, 1), decode=(slot,))
    assert request.tokens == []


def test_cancelling_twice_is_one_letter(bench):
    slot = bench.start(Request())
    bench.dispatcher.cancel(slot)
    bench.dispatcher.cancel(slot)
    assert bench.steps.letters == [("admit", slot), ("cancel", slot)]


def test_a_cancelled_slot_is_refused_with_the_shortest_wait(bench):
    slots = [bench.start(Request()) for _ in range(2)]
    bench.dispatcher.cancel(slots[0])
    assert bench.slots.next_open_ms() == 1


def test_a_failed_step_fails_its_requests_and_frees_their_slots(bench):
    request = Request()
    slot = bench.start(request)
    failure = EngineFailed("a step failed")
    bench.report(released=(slot,), failure=failure)
    assert request.failure is failure
    assert bench.slots.free == 2


@pytest.mark.parametrize(("broken", "told"), [(Broken.GRAMMAR, "JSON schema"), (Broken.NUMBERS, "no finite numbers")])
def test_a_broken_token_is_not_shown_and_ends_its_request_alone_with_what_happened(bench, broken, told):
    bad, good = Request(), Request()
    slots = [bench.start(bad), bench.start(good)]
    ended = SampledToken(slots[0], 1, FinishReason.STOP, broken=broken)
    bench.report(ended, SampledToken(slots[1], 1), decode=slots, released=(slots[0],))
    assert isinstance(bad.failure, EngineFailed)
    assert told in bad.failure.message
    assert (bad.tokens, good.tokens, bench.slots.free) == ([], [1], 1)


def test_a_request_that_cannot_take_its_token_fails_alone(bench):
    class Defective(Request):
        def push(self, token, report) -> bool:
            raise ValueError("secret")

    bad, good = Defective(), Request()
    slots = [bench.start(bad), bench.start(good)]
    bench.report(*[SampledToken(slot, 1) for slot in slots], decode=slots)
    assert isinstance(bad.failure, EngineFailed)
    assert good.tokens == [1]
    assert ("cancel", slots[0]) in bench.steps.letters


def test_a_prefill_step_is_arithmetic_of_the_slot_that_is_filled(bench):
    filled, waiting = Request(), Request()
    slot = bench.start(filled)
    bench.start(waiting)
    bench.report(prefill_slot=slot)
    assert filled.stages.spent_ns()[Stage.PREFILL] == 10
    assert waiting.stages.elapsed_ns == 0


def test_when_the_engine_is_gone_every_request_fails_and_every_slot_comes_back(bench):
    requests = [Request(), Request()]
    for request in requests:
        bench.start(request)
    bench.dispatcher.fail_all(EngineFailed("gone"))
    assert all(isinstance(request.failure, EngineFailed) for request in requests)
    assert bench.slots.free == 2


def test_tokens_in_use_are_those_of_running_requests(bench):
    slot = bench.start(Request())
    bench.start(Request())
    assert bench.dispatcher.used_tokens == 10
    bench.dispatcher.cancel(slot)
    assert bench.dispatcher.used_tokens == 5


def test_a_request_that_is_not_done_at_its_deadline_ends_with_a_typed_error(bench):
    late, early = Request(), Request()
    slot = bench.start(late, due_ns=500)
    bench.start(early, due_ns=5_000)
    bench.dispatcher.expire(501)
    assert isinstance(late.failure, DeadlineMissed)
    assert early.failure is None
    assert bench.steps.letters[-1] == ("cancel", slot)


def test_a_deadline_is_missed_once(bench):
    bench.start(Request(), due_ns=500)
    bench.dispatcher.expire(501)
    bench.dispatcher.expire(502)
    assert [letter for letter, _ in bench.steps.letters].count("cancel") == 1


def test_a_step_is_charged_to_the_requests_in_it_before_their_tokens_are_pushed(bench):
    first, second = Request(), Request(ends_after=1)
    one, two = bench.start(first), bench.start(second)
    seen = []
    second.push = lambda token, report: seen.append(second.compute_ns) or True
    bench.report(SampledToken(two, 7, FinishReason.STOP), decode=(one, two), released=(two,))
    assert seen == [10]  # ten nanoseconds of two cores, by two
    assert first.compute_ns == 10


def test_a_chunk_is_charged_its_share(bench):
    first, second = Request(), Request()
    one, two = bench.start(first), bench.start(second)
    bench.report(decode=(one,), prefill_slot=two, prefill_tokens=8)
    assert (first.compute_ns, second.compute_ns) == (10, 10)


def test_what_runs_on_after_its_client_left_is_charged_to_its_tenant_and_to_no_request(bench):
    request = Request()
    slot = bench.start(request)
    bench.dispatcher.cancel(slot)
    bench.report(decode=(slot,), released=(slot,))
    assert request.compute_ns == 0
    assert bench.meter.take_unrecorded() == {"bank": 20}
    assert bench.meter.totals == {IDLE: 20, "bank": 20}


def test_a_step_that_failed_is_charged_to_nobody(bench):
    request = Request()
    slot = bench.start(request)
    bench.report(failure=EngineFailed("broken"), released=(slot,))
    bench.meter.rest(20)
    assert bench.meter.totals == {IDLE: 40}
