"""Where load tools were shown wrong: one test for each mistake, with the report that showed it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from check import simulated
from check.conftest import QUICK, measure_scripted
from check.test_load_client import answering, client_of, planned
from zerolayer.check.exchange import Exchange, Planned, ReplyParser, read_tokens
from zerolayer.check.figures import lag, levels, stream, token_gaps
from zerolayer.check.findings import Kind
from zerolayer.check.load_client import READ_BYTES
from zerolayer.check.report import analyse, conclude
from zerolayer.check.run_file import BASELINE, CLOSED, PULSE, REPLAY, STEP, Run
from zerolayer.check.text_report import text
from zerolayer.check.trace import Arrival

Measured = Callable[..., Run]


def test_time_spent_waiting_in_the_client_counts() -> None:
    """Latency runs from the intended time, also when the client could only send later.

    vllm-project/vllm#54101
    """
    run = simulated.run(simulated.healthy(0.05))
    late = replace(run, intended=run.sent - 30_000)
    assert np.nanmedian(late.latency_ms) == pytest.approx(np.nanmedian(run.latency_ms) + 30)
    assert np.nanmedian(late.sent_latency_ms) == pytest.approx(np.nanmedian(run.latency_ms))


def test_the_wait_for_the_first_token_is_no_gap_between_tokens() -> None:
    """vllm-project/vllm#7242"""
    assert token_gaps(np.array([500.0, 510.0, 520.0]), np.array([1, 1, 1])).tolist() == [10.0, 10.0]


@pytest.mark.parametrize("column", ["timer_lag", "lag", "sent"])
def test_a_late_client_gives_no_verdict(column: str) -> None:
    """Its own delays would look like the server's: whatever was found, exit 20.

    llm-d/llm-d-benchmark#261
    """
    run = simulated.run(simulated.fifo(8))
    late = replace(run, **{column: getattr(run, column) + 9_000})
    report = analyse(late)
    assert (report.exit_code, report.findings) == (20, [])
    assert "NO VERDICT" in text(late, report)


def test_the_same_lateness_is_accepted_where_it_is_small_against_s0() -> None:
    run = simulated.run(simulated.fifo(8), lag_ms=4.0)
    assert lag(run).valid
    assert analyse(run).exit_code == 10


def test_a_client_that_is_busy_with_one_reply_says_how_late_it_read_the_next() -> None:
    """What a client's own work adds to the first token is told as its lag, for each request.

    tenstorrent/tt-inference-server#259, #190
    """

    def busy(exchange: Exchange) -> Iterator[Planned]:
        time.sleep(0.04)
        yield from ()

    with client_of(answering(wait_s=0.01)) as (client, _):
        client.prepare(2)
        done = client.run(planned(client, 1) + planned(client, 1, after_ms=5.0), busy)
    assert done[-1].lag_ns > 20_000_000


def test_a_long_reply_is_read_in_large_pieces() -> None:
    """A small read buffer makes the client the slowest part of a long answer.

    vllm-project/vllm#39963
    """
    size = 4_000_000
    reply = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (size, b"x" * size)
    with client_of(answering(reply)) as (client, _):
        exchange = client.run(planned(client))[0]
    assert len(exchange.body) == size
    assert size / len(exchange.pieces) > 16_384
    assert READ_BYTES > 4 * 65_536 - 1


def test_a_closed_loop_is_told_as_one_and_never_turned_into_an_open_one(measured: Measured) -> None:
    """Its latencies stand beside its users, each from its own send; nothing is corrected.

    wg/wrk#485
    """
    shape = msgspec.structs.replace(QUICK, probes=12, largest_pulse=1, users=3, step_seconds=0.5)
    run = measured("healthy", shape)
    report = analyse(run)
    assert report.steps == []
    assert [level.size for level in report.users] == [3]
    assert "closed loop" in text(run, report)
    starts = np.sort(run.intended[run.rows(CLOSED)])
    ends = np.sort(run.end[run.rows(CLOSED)])
    assert (np.searchsorted(starts, starts, side="right") - np.searchsorted(ends, starts, side="right") <= 3).all()


def test_an_empty_stream_has_no_first_token(measured: Measured) -> None:
    """vllm-project/guidellm#216"""
    run = measured("empty", msgspec.structs.replace(QUICK, probes=12, largest_pulse=1), api="openai")
    assert (run.first[run.served] == -1).all()
    assert np.isnan(run.first_ms).all()


def test_failed_requests_are_in_no_latency(measured: Measured) -> None:
    """Half a failing server's errors come at once; its latency is that of what it served.

    vllm-project/guidellm#444
    """
    run = measured("failing", msgspec.structs.replace(QUICK, probes=40, largest_pulse=8))
    report = analyse(run)
    assert (run.status == 500).any()
    assert report.s0.low > 15
    assert Kind.FAILURES in {finding.kind for finding in report.findings}


def test_lumps_are_counted_by_reads_and_not_by_events() -> None:
    """Twelve events in one read are one arrival of twelve, not twelve fast tokens.

    sgl-project/genai-bench#110
    """
    exchange = Exchange(Planned(0, b"", BASELINE, 0, 1, 0))
    parser = ReplyParser(exchange)
    body = b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n' * 12
    parser.feed(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body), 10)
    parser.feed(body, 50)
    assert read_tokens(exchange).reads == [(50, 12)]


def test_many_tokens_in_the_first_event_are_seen_as_a_lump() -> None:
    """sgl-project/genai-bench#81"""
    run = streamed(reads=[(200, 8), (210, 1), (220, 1)])
    seen = stream(run)
    assert seen is not None
    assert seen.events_per_read.value == pytest.approx(10 / 3)


def streamed(reads: list[tuple[int, int]]) -> Run:
    run = simulated.build([(BASELINE, 0, 1, 0, 0.0, 300.0)])
    total = sum(events for _, events in reads)
    return replace(
        run,
        events=np.array([total]),
        first=np.array([reads[0][0] * 1000]),
        read_request=np.zeros(len(reads), dtype=np.int64),
        read_time=np.array([time * 1000 for time, _ in reads]),
        read_events=np.array([events for _, events in reads]),
    )


def test_a_rate_that_was_not_reached_is_told() -> None:
    """Sends that lag behind their schedule show in the rate, and forbid a verdict.

    triton-inference-server/server#3113
    """
    rows = [(STEP, 1, 100, i, i * 20.0, 50.0) for i in range(300)]
    baseline = [(BASELINE, 0, 1, i, -4000.0 + i * 70, 50.0) for i in range(50)]
    run = simulated.build([*baseline, *rows])
    late = replace(run, intended=np.where(run.rows(STEP), run.sent[50] + (run.sent - run.sent[50]) // 2, run.sent))
    assert levels(late, STEP)[0].achieved.value == pytest.approx(50, rel=0.01)
    assert analyse(late).exit_code == 20


def test_the_prompt_is_counted_by_the_server(measured: Measured) -> None:
    """A chat template adds tokens that a client cannot know of.

    tenstorrent/tt-inference-server#4179
    """
    run = measured("streaming", msgspec.structs.replace(QUICK, probes=12, largest_pulse=1), api="openai")
    assert analyse(run).prompt_tokens.value == 17


def test_a_replayed_prompt_is_as_long_as_the_trace_says_with_all_that_a_template_adds() -> None:
    """tenstorrent/tt-inference-server#4179: a few tokens more fall into the next bucket, and cost twice as much."""
    trace = [Arrival(20.0 * i, tokens, 5) for i, tokens in enumerate((64, 512, 3))]
    shape = msgspec.structs.replace(QUICK, probes=12, largest_pulse=1)
    run = measure_scripted("counting", shape, "openai", arrivals=trace)
    counted = run.prompt_tokens[run.rows(REPLAY)]
    question = int(run.prompt_tokens[run.rows(BASELINE)][0])
    assert counted.tolist() == [64, 512, question]  # less than what asks for an answer cannot be sent


def test_corrected_and_raw_latency_are_both_printed() -> None:
    """hatoo/oha#211"""
    run = simulated.run(simulated.healthy(0.15), probes=50, repeats=3)
    printed = text(run, analyse(run))
    assert "from the intended time" in printed
    assert "from the real send" in printed


def test_no_mean_latency_is_printed() -> None:
    """wg/wrk#326"""
    run = simulated.run(simulated.healthy(0.15), probes=50, repeats=3)
    assert "mean" not in text(run, analyse(run)).lower()


def test_a_long_calm_history_does_not_hide_a_queue() -> None:
    """production-stack: avg(_sum)/avg(_count)"""
    calm = simulated.run(simulated.healthy(0.1), repeats=0, sizes=(), probes=100, rate=200, step_s=60)
    busy = simulated.run(simulated.fifo(8), repeats=4, probes=1, rate=1, step_s=0)
    columns = ["phase", "group", "size", "position", "intended", "sent", "first", "end", "status", "promised_ms"]
    columns += ["events", "prompt_tokens", "lag"]
    both = replace(calm, **{name: np.concatenate([getattr(calm, name), getattr(busy, name)]) for name in columns})
    assert len(both.phase) > 10_000
    assert Kind.QUEUE in {finding.kind for finding in conclude(both)}


def test_a_wide_pulse_counts_order_from_the_real_send() -> None:
    """The time that writing a pulse takes the client is no queue of the server."""
    rows = [(BASELINE, 0, 1, i, i * 70.0, 50.0 + i % 3) for i in range(50)]
    rows += [(PULSE, g, 40, i, 5000.0 + g * 300 + i * 0.5, 50.0 + (i * 7) % 5) for g in range(1, 9) for i in range(40)]
    run = simulated.build(rows)
    starts = np.where(run.rows(PULSE), run.sent - run.position * 500, run.sent)
    found = {finding.kind for finding in conclude(replace(run, intended=starts))}
    assert not found & {Kind.QUEUE, Kind.SERIAL}


def test_an_unbounded_quantile_is_not_given_a_bound() -> None:
    run = simulated.run(simulated.healthy(0.15), probes=50, repeats=3)
    assert math.isnan(analyse(run).pulses[0].p99.high)
