"""Requests by size and cost, under vLLM's names."""

from __future__ import annotations

from zerolayer.observe.metrics import Gauges, Metrics
from zerolayer.observe.sizes import Sizes
from zerolayer.observe.stages import Stage, StageClock

S = 1_000_000_000


def sums(sizes: Sizes) -> dict[str, float]:
    lines = [line for line in sizes.lines('m="x"') if not line.startswith("#") and "_bucket" not in line]
    return {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def finished(prompt: int, cached: int, generated: int, stages: StageClock) -> dict[str, float]:
    sizes = Sizes()
    spent = stages.spent_ns()
    times = [[spent[stage]] for stage in (Stage.WAIT, Stage.PREFILL, Stage.DECODE)]
    sizes.finished([prompt], [cached], [generated], *times)
    return sums(sizes)


def test_a_finished_answer_is_counted_by_tokens_and_by_time():
    stages = StageClock(0)
    stages.step(1 * S, 3 * S)  # a second of waiting, then its prompt
    stages.first_token()
    stages.step(3 * S, 9 * S)
    told = finished(100, 64, 4, stages)
    assert told["vllm:request_prompt_tokens_sum"] == 100
    assert told["vllm:request_generation_tokens_sum"] == 4
    assert told["vllm:request_queue_time_seconds_sum"] == 1
    assert told["vllm:request_decode_time_seconds_sum"] == 6
    assert told["vllm:request_inference_time_seconds_sum"] == 8
    assert told["vllm:request_time_per_output_token_seconds_sum"] == 2  # the first token belongs to the prompt
    assert (told["vllm:prefix_cache_queries_total"], told["vllm:prefix_cache_hits_total"]) == (100, 64)


def test_an_answer_of_one_token_has_no_time_between_tokens():
    assert finished(1, 0, 1, StageClock(0))["vllm:request_time_per_output_token_seconds_count"] == 0


def test_what_was_asked_for_is_counted():
    sizes = Sizes()
    sizes.asked(3)
    sizes.started(128)
    sizes.steps([17])
    told = sums(sizes)
    assert told["vllm:request_params_n_sum"] == 3
    assert told["vllm:request_params_max_tokens_sum"] == 128
    assert told["vllm:iteration_tokens_total_sum"] == 17


def test_slots_are_told_by_what_they_do_and_sum_to_all():
    page = Metrics("m").render(Gauges(slots=8, free_slots=3, running=4)).decode()
    states = [line for line in page.splitlines() if line.startswith("zerolayer:slots{")]
    assert [line.rsplit(" ", 1)[1] for line in states] == ["3", "4", "1"]


def test_who_leaves_is_counted_by_when():
    metrics, stages = Metrics("m"), StageClock(0)
    metrics.abandoned(stages)
    stages.first_token()
    metrics.abandoned(stages)
    metrics.abandoned(stages)
    page = metrics.render(Gauges()).decode()
    assert 'zerolayer:abandoned_total{model_name="m",phase="prefill"} 1\n' in page
    assert 'zerolayer:abandoned_total{model_name="m",phase="decode"} 2\n' in page


def test_a_refusal_for_lack_of_slots_is_an_admission_rejection_and_a_wrong_request_is_not():
    metrics = Metrics("m")
    for code in ("slots_busy", "beyond_horizon", "invalid_request"):
        metrics.refused(code)
    assert 'vllm:admission_rejections_total{model_name="m"} 2\n' in metrics.render(Gauges()).decode()
