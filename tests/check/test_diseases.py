"""Each disease is found in a real server over real sockets, and nothing else is; a healthy one has none."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from check.conftest import QUICK
from zerolayer.check.figures import retry, stream
from zerolayer.check.findings import Kind
from zerolayer.check.report import analyse, conclude
from zerolayer.check.run_file import Run, Settings

Measured = Callable[..., Run]


def with_settings(**changes: object) -> Settings:
    return msgspec.structs.replace(QUICK, **changes)


def kinds(run: Run) -> set[Kind]:
    return {finding.kind for finding in conclude(run)}


@pytest.mark.parametrize("turn", range(2))
def test_a_healthy_server_has_no_finding(measured: Measured, turn: int) -> None:
    report = analyse(measured("healthy", with_settings(step_shares=(0.5,), step_seconds=1.0, seed=turn + 1)))
    assert (report.findings, report.exit_code) == ([], 0)


def test_a_fifo_queue_is_named_with_its_slots_and_its_drain_rate(measured: Measured) -> None:
    report = analyse(measured("fifo"))
    assert [finding.kind for finding in report.findings] == [Kind.QUEUE]
    assert "about 4 slots" in report.findings[0].text
    assert report.findings[0].figures["drain_per_s"].value == pytest.approx(200, rel=0.25)
    assert report.exit_code == 10


def test_a_short_serial_part_is_no_queue(measured: Measured) -> None:
    """The order effect has the sign of a queue, but not its size: the last waits less than one S0 longer."""
    report = analyse(measured("serial"))
    assert [finding.kind for finding in report.findings] == [Kind.SERIAL]
    assert report.exit_code == 0


def test_a_rate_limit_that_delays_is_told_from_a_queue(measured: Measured) -> None:
    report = analyse(measured("shaper"))
    assert [finding.kind for finding in report.findings] == [Kind.SHAPER]
    assert report.findings[0].figures["drain_per_s"].value == pytest.approx(125, rel=0.2)
    assert report.exit_code == 10


def test_a_batch_tick_is_found_with_its_period(measured: Measured) -> None:
    report = analyse(measured("tick", with_settings(probes=45, largest_pulse=2), rest=1.0))
    assert [finding.kind for finding in report.findings] == [Kind.TICK]
    assert report.findings[0].figures["period_ms"].value == pytest.approx(40, rel=0.02)


def test_processor_sharing_is_found_though_nothing_waits_in_order(measured: Measured) -> None:
    report = analyse(measured("sharing"))
    assert [finding.kind for finding in report.findings] == [Kind.SHARING]
    assert report.findings[0].figures["knee"].value == pytest.approx(4, rel=0.6)


def test_a_stall_is_found_with_its_period(measured: Measured) -> None:
    run = measured("stall", with_settings(largest_pulse=8, step_rates=(100.0,), step_seconds=2.2))
    found = [finding for finding in conclude(run) if finding.kind is Kind.STALL]
    assert found, "the load step shows slow requests in clusters"
    assert found[0].figures["length_ms"].value == pytest.approx(140, rel=0.3)


def test_a_lone_request_that_waits_for_company_is_found(measured: Measured) -> None:
    report = analyse(measured("company", with_settings(largest_pulse=8, repeats=4)))
    assert [finding.kind for finding in report.findings] == [Kind.FIRST_ARRIVAL]
    assert report.findings[0].figures["batch"].value == 4
    assert report.findings[0].figures["wait_ms"].value == pytest.approx(30, rel=0.25)


def test_a_second_mode_is_found_with_its_share(measured: Measured) -> None:
    run = measured("bimodal", with_settings(probes=45, largest_pulse=1))
    assert kinds(run) == {Kind.MODE}


def test_a_refusal_that_keeps_its_word_is_no_finding(measured: Measured) -> None:
    run = measured("honest", with_settings(largest_pulse=8, retries=12))
    assert kinds(run) <= {Kind.LATE_PROMISE}
    assert retry(run).kept.value == 1.0


def test_a_promise_that_nothing_keeps_is_dishonest(measured: Measured) -> None:
    report = analyse(measured("dishonest", with_settings(largest_pulse=8)))
    assert [finding.kind for finding in report.findings] == [Kind.DISHONEST]
    assert report.exit_code == 11


def test_a_refusal_without_a_time_is_noted(measured: Measured) -> None:
    report = analyse(measured("mute", with_settings(largest_pulse=8)))
    assert [finding.kind for finding in report.findings] == [Kind.NO_PROMISE]
    assert report.exit_code == 0


def test_a_stream_that_comes_token_by_token_is_no_finding(measured: Measured) -> None:
    run = measured("streaming", with_settings(largest_pulse=4), api="openai")
    assert Kind.BUFFER not in kinds(run)
    seen = stream(run)
    assert seen is not None
    assert seen.events_per_read.value == pytest.approx(1.0, abs=0.1)


def test_a_buffered_stream_is_found(measured: Measured) -> None:
    report = analyse(measured("buffered", with_settings(largest_pulse=4), api="openai"))
    assert [finding.kind for finding in report.findings] == [Kind.BUFFER]
    assert report.exit_code == 12


def test_slots_that_outlive_their_clients_are_found(measured: Measured) -> None:
    run = measured("leak", with_settings(probes=12, largest_pulse=4, aborts=True), api="openai")
    assert kinds(run) == {Kind.LEAK}


def test_slots_that_end_with_their_clients_are_no_finding(measured: Measured) -> None:
    run = measured("slots", with_settings(probes=12, largest_pulse=4, aborts=True), api="openai")
    assert kinds(run) == set()
