"""The metrics page: names that others read, counts that add up."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.observe.exposition import Histogram
from zerolayer.observe.metrics import EngineState, Gauges, Metrics, NodeState, ProgramState
from zerolayer.observe.stages import Stage, StageClock

VLLM = [
    "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "time_to_first_token_seconds",
    "inter_token_latency_seconds", "e2e_request_latency_seconds", "prompt_tokens_total", "generation_tokens_total",
    "request_success_total", "request_prefill_time_seconds",
]  # fmt: skip
SAMPLE = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*\{([a-z_]+="(\\.|[^"\\\n])*",?)+\} [0-9.e+-]+|# (HELP|TYPE) .+')


def test_nodes_and_the_device_are_told():
    page = Metrics("m").render(Gauges(node=NodeState(0.75, True, {"ready": 3, "away": 1}))).decode()
    for line in (
        'zerolayer:nodes{model_name="m",state="ready"} 3',
        'zerolayer:nodes{model_name="m",state="away"} 1',
        'zerolayer:derate_ratio{model_name="m"} 0.75',
        'zerolayer:quarantined{model_name="m"} 1',
    ):
        assert f"\n{line}\n" in page


def test_threads_at_rest_and_the_cores_that_were_had_are_told():
    page = Metrics("m").render(Gauges(engine=EngineState(1, 1, 0.5, True))).decode()
    for line in (
        'zerolayer:engine_threads{model_name="m",state="working"} 1',
        'zerolayer:engine_threads{model_name="m",state="resting"} 1',
        'zerolayer:engine_cores_had{model_name="m"} 0.5',
        'zerolayer:cores_shared{model_name="m"} 1',
    ):
        assert f"\n{line}\n" in page


def test_a_fresh_page_has_the_ten_names_with_help_and_type():
    page = Metrics("m").render(Gauges()).decode()
    for name in VLLM:
        assert f"# HELP vllm:{name} " in page
        assert f"# TYPE vllm:{name} " in page
        assert f'vllm:{name}{{model_name="m"' in page or f'vllm:{name}_count{{model_name="m"}} 0' in page


@given(st.text(max_size=20))
def test_every_line_is_a_sample_or_a_comment_whatever_the_model_is_called(name):
    page = Metrics(name).render(Gauges(glue_share=0.5)).decode()
    assert all(SAMPLE.fullmatch(line) for line in page.rstrip("\n").split("\n"))


@pytest.mark.parametrize("requests", [3, 2500])
def test_what_is_added_up_later_is_what_each_request_was(requests):
    metrics, stages = Metrics("m"), StageClock(0)
    stages.mark(Stage.PREFILL, 20_000_000)
    for _ in range(requests):
        metrics.finished("stop", stages, (7, 4, 1))
        metrics.finished("abort", stages)
    page = metrics.render(Gauges()).decode()
    assert f'vllm:request_success_total{{model_name="m",finished_reason="abort"}} {requests}\n' in page
    assert f'vllm:e2e_request_latency_seconds_count{{model_name="m"}} {2 * requests}\n' in page
    assert f'vllm:request_prefill_time_seconds_bucket{{model_name="m",le="0.025"}} {2 * requests}\n' in page
    assert f'vllm:request_prompt_tokens_sum{{model_name="m"}} {7.0 * requests}\n' in page
    assert f'vllm:prefix_cache_hits_total{{model_name="m"}} {4 * requests}\n' in page
    assert metrics.totals(0, 0).stage_ns[Stage.PREFILL] == 2 * requests * 20_000_000


@given(st.lists(st.floats(0, 10), max_size=50))
def test_buckets_are_cumulative_and_end_with_the_count(values):
    histogram = Histogram((0.5, 1.0, 5.0))
    for value in values:
        histogram.observe(value)
    counts = [int(line.rsplit(" ", 1)[1]) for line in histogram.lines("h", 'a="b"') if "_bucket" in line]
    assert counts == [sum(value <= bound for value in values) for bound in (0.5, 1.0, 5.0, float("inf"))]


def test_a_finished_request_is_counted_by_reason_and_stage():
    metrics = Metrics("m")
    stages = StageClock(0)
    stages.mark(Stage.READ, 2_000_000_000)
    metrics.admitted(7)
    metrics.step("greedy", 3)
    metrics.finished("length", stages)
    metrics.refused("slots_busy")
    page = metrics.render(Gauges(running=1, used_tokens=1, total_tokens=4)).decode()
    assert 'vllm:request_success_total{model_name="m",finished_reason="length"} 1\n' in page
    assert 'vllm:prompt_tokens_total{model_name="m"} 7\n' in page
    assert 'vllm:generation_tokens_total{model_name="m"} 3\n' in page
    assert 'vllm:kv_cache_usage_perc{model_name="m"} 0.25\n' in page
    assert 'zerolayer:stage_seconds_total{model_name="m",stage="read"} 2.0\n' in page
    assert 'zerolayer:refused_total{model_name="m",reason="slots_busy"} 1\n' in page
    assert 'zerolayer:program_steps_total{model_name="m",program="greedy"} 1\n' in page


def test_a_gap_counts_once_for_each_stream_that_had_it():
    metrics = Metrics("m")
    metrics.step("greedy", 3, gap_ns=5_000_000, streams=3)
    page = metrics.render(Gauges()).decode()
    assert 'vllm:inter_token_latency_seconds_count{model_name="m"} 3' in page
    assert 'vllm:inter_token_latency_seconds_sum{model_name="m"} 0.015' in page


def test_programs_tell_their_heartbeats_and_which_of_them_were_dropped():
    page = Metrics("m").render(Gauges(programs=ProgramState(("full", "plain"), ("chat",), 12))).decode()
    assert 'zerolayer:heartbeats_total{model_name="m"} 12\n' in page
    assert 'zerolayer:programs_dropped_total{model_name="m",program="chat"} 1\n' in page
    assert 'zerolayer:programs_dropped_total{model_name="m",program="plain"} 0\n' in page


def test_what_another_model_answers_is_counted_under_its_own_name():
    metrics, stages = Metrics("old"), StageClock(0)
    new = metrics.of("new")
    metrics.finished("stop", stages)
    assert 'model_name="new"' not in metrics.render(Gauges()).decode()  # it is not served yet
    metrics.serve("new", new)
    new.finished("stop", stages)
    metrics.finished("length", stages)  # a stream that ends on the old one
    metrics.refused("slots_busy")
    page = metrics.render(Gauges(running=1)).decode()
    for line in (
        'vllm:request_success_total{model_name="old",finished_reason="stop"} 1',
        'vllm:request_success_total{model_name="old",finished_reason="length"} 1',
        'vllm:request_success_total{model_name="new",finished_reason="stop"} 1',
        'vllm:request_success_total{model_name="new",finished_reason="length"} 0',
        'vllm:num_requests_running{model_name="new"} 1',
        'zerolayer:refused_total{model_name="new",reason="slots_busy"} 1',
    ):
        assert f"\n{line}\n" in page
    assert metrics.totals(0, 0).finished["stop"] == 2
    assert metrics.of("new") is new


def test_all_samples_of_a_metric_stand_together_however_many_models_were_served():
    metrics = Metrics("a")
    for name in "bcb":
        metrics.serve(name, metrics.of(name))
    names = [re.split(r"[ {]", line)[0] for line in metrics.render(Gauges()).decode().splitlines() if line[0] != "#"]
    found = [re.sub("_(bucket|sum|count)$", "", name) for name in names]
    runs = [name for place, name in enumerate(found) if place == 0 or found[place - 1] != name]
    assert len(runs) == len(set(runs))


def test_of_many_models_the_last_ones_are_shown_and_all_are_in_the_totals():
    metrics = Metrics("m0")
    metrics.finished("stop", StageClock(0))
    for number in range(1, 12):
        metrics.serve(f"m{number}", metrics.of(f"m{number}"))
    page = metrics.render(Gauges()).decode()
    assert 'request_success_total{model_name="m11"' in page
    assert 'request_success_total{model_name="m0"' not in page
    assert metrics.totals(0, 0).finished["stop"] == 1


@pytest.mark.parametrize("reason", ["stop", "length", "abort", "error"])
def test_every_reason_is_there_before_it_happens(reason):
    assert f'finished_reason="{reason}"}} 0\n' in Metrics("m").render(Gauges()).decode()
