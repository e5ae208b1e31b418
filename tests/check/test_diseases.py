"""Each disease is found in a real server over real sockets, and nothing else is; a healthy one has none."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from check.conftest import QUICK, measure_scripted
from zerolayer.check.figures import retry, stream
from zerolayer.check.findings import Kind
from zerolayer.check.report import analyse, conclude
from zerolayer.check.run_file import Run, Settings, Stage

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


def test_a_rate_limit_that_lets_a_burst_pass_is_told_from_a_queue(measured: Measured) -> None:
    report = analyse(measured("bucket", with_settings(repeats=4)))
    assert [finding.kind for finding in report.findings] == [Kind.SHAPER]
    assert report.findings[0].figures["drain_per_s"].value == pytest.approx(125, rel=0.2)
    assert "undelayed" in report.findings[0].text


def test_anthropics_streams_are_read_token_by_token(measured: Measured) -> None:
    run = measured("anthropic", with_settings(largest_pulse=4), api="anthropic")
    assert run.target.address.endswith("/v1/messages")
    assert (run.events[run.served] == 12).all()
    assert analyse(run).prompt_tokens.value == 17
    assert Kind.BUFFER not in kinds(run)


def test_an_anthropic_service_is_recognised_by_its_list_of_models(measured: Measured) -> None:
    run = measured("anthropic", with_settings(probes=12, largest_pulse=1), api="auto")
    assert (run.target.api, run.target.model) == ("anthropic", "toy")


def test_a_gateway_is_recognised_by_its_answers(measured: Measured) -> None:
    run = measured("gateway", with_settings(probes=12, largest_pulse=1), api="openai")
    assert run.target.software == "litellm"


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


def test_users_who_think_wait_for_their_replies(measured: Measured) -> None:
    """Four users, each busy for 20 of about 40 ms: about 100 requests/s, however many could be sent."""
    shape = with_settings(probes=12, largest_pulse=1, users=4, think_ms=20.0, step_seconds=1.5)
    users = analyse(measured("healthy", shape)).users
    assert [level.size for level in users] == [4]
    assert users[0].achieved.value == pytest.approx(100, rel=0.3)


def test_stages_keep_their_order_and_their_rates(measured: Measured) -> None:
    stages = (Stage(100.0, 100.0, 1.0), Stage(100.0, 0.0, 1.0), Stage(20.0, 20.0, 1.0))
    run = measured("healthy", with_settings(probes=12, largest_pulse=1, stages=stages))
    counts = [level.p50.n for level in analyse(run).stages]
    assert counts == [pytest.approx(mean, abs=4 * mean**0.5) for mean in (100, 50, 20)]


def test_a_retry_brings_the_same_bytes_again(measured: Measured) -> None:
    """Only so can a service know for whom it kept a place: this one refuses every request that it has not seen."""
    run = measured("remembering", with_settings(probes=12, largest_pulse=4, retries=8), api="openai", tries=1)
    assert retry(run).kept.value == 1.0


@pytest.mark.parametrize(
    ("disease", "api", "code"),
    [("healthy", "http", 0), ("slots", "openai", 0), ("fifo", "http", 10), ("stall", "http", 13)],
)
def test_with_all_that_is_done_by_default_the_verdict_is_the_same(disease: str, api: str, code: int) -> None:
    settings = Settings(timer_probes=20, step_seconds=4.0, retries=60)
    report = analyse(measure_scripted(disease, settings, api))
    assert (report.exit_code, {finding.exit_code for finding in report.findings} - {0}) == (code, {code} - {0})
