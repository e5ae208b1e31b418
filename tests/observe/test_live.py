"""The last minute: its parts sum to it, and it forgets what is older."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.observe.live import SECONDS, LiveRecord
from zerolayer.observe.metrics import Metrics
from zerolayer.observe.stages import STAGE_NAMES, Stage, StageClock

S = 1_000_000_000


def test_there_is_no_minute_before_the_second_sample():
    record = LiveRecord()
    record.sample(0, Metrics("m").totals(0, 0))
    assert record.minute() is None


@given(st.lists(st.tuples(st.integers(0, 3 * S), st.integers(0, 3 * S)), min_size=2, max_size=70))
def test_the_parts_of_the_wall_clock_sum_to_it_whatever_was_measured(times):
    record, metrics = LiveRecord(), Metrics("m")
    for second, (busy, arithmetic) in enumerate(times):
        record.sample(second * S, metrics.totals(busy, arithmetic))
    minute = record.minute()
    assert sum(minute.wall_us.values()) == round(minute.seconds * 1e6)
    assert min(minute.wall_us.values()) >= 0


def test_only_the_last_minute_counts():
    record, metrics = LiveRecord(), Metrics("m")
    metrics.refused("slots_busy")
    record.sample(0, metrics.totals(0, 0))
    for second in range(1, SECONDS + 2):
        record.sample(second * S, metrics.totals(0, 0))
    assert record.minute().refused == {"slots_busy": 0}
    assert record.minute().seconds == SECONDS


def test_stages_and_programs_and_refusals_are_those_of_the_minute():
    record, metrics = LiveRecord(), Metrics("m")
    record.sample(0, metrics.totals(0, 0))
    stages = StageClock(0)
    stages.mark(Stage.READ, 2_000_000)
    metrics.finished("stop", stages)
    metrics.step("greedy", 4)
    metrics.refused("slots_busy")
    record.sample(S, metrics.totals(S // 2, S // 4))
    minute = record.minute()
    assert minute.stages_us == {**dict.fromkeys(STAGE_NAMES, 0), "read": 2000}
    assert minute.steps == {"greedy": 1}
    assert minute.tokens == 4
    assert minute.refused == {"slots_busy": 1}
    assert minute.wall_us == {"arithmetic": 250_000, "glue": 250_000, "idle": 500_000}


def test_each_second_is_a_column_of_its_own():
    record, metrics = LiveRecord(), Metrics("m")
    record.sample(0, metrics.totals(0, 0))
    for second in (1, 2):
        for _ in range(second):
            metrics.first_token.observe(0.02)
        record.sample(second * S, metrics.totals(0, 0))
    assert [sum(column) for column in record.columns()["first_token"]] == [1, 2]
    assert [sum(column) for column in record.columns(1)["first_token"]] == [2]


def test_its_size_does_not_grow_with_time():
    record, metrics = LiveRecord(), Metrics("m")
    for second in range(200):
        record.sample(second * S, metrics.totals(0, 0))
    assert len(record.columns()["end_to_end"]) == SECONDS


def test_a_sample_is_due_once_a_second():
    record = LiveRecord()
    assert record.due(0)
    record.sample(0, Metrics("m").totals(0, 0))
    assert not record.due(S // 2)
    assert record.due(S)


def test_totals_are_a_copy():
    metrics = Metrics("m")
    totals = metrics.totals(0, 0)
    metrics.step("greedy", 1)
    assert msgspec.to_builtins(totals)["steps"] == {}
