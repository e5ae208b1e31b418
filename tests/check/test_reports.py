"""What a person and a program are told: the same figures, verdict first, in text, JSON and HTML."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from check import simulated
from zerolayer.check.causes import CAUSES, GATEWAYS, OWNERS, SERVER_HEADERS, recognise
from zerolayer.check.figures import levels
from zerolayer.check.html_report import html
from zerolayer.check.json_report import to_json
from zerolayer.check.live_view import Lines, LiveView, sparkline
from zerolayer.check.report import Limit, Report, analyse
from zerolayer.check.run_file import STEP, Run, TargetInfo
from zerolayer.check.text_report import summary, text

QUEUED = simulated.run(simulated.fifo(8), repeats=4)
REFUSING = simulated.run(simulated.refusing(8), repeats=4, retries=(40, 40))
BROKEN = simulated.run(simulated.refusing(8), repeats=4, retries=(40, 2))


def reported(run: Run, *limits: Limit) -> Report:
    return analyse(run, limits)


def test_the_verdict_is_the_first_line() -> None:
    assert text(QUEUED, reported(QUEUED)).startswith("HIDDEN QUEUE (exit 10)\n")
    assert text(REFUSING, reported(REFUSING)).startswith("NO HIDDEN WAIT FOUND (exit 0)\n")


def test_what_a_service_calls_itself_cannot_steer_the_terminal() -> None:
    run = simulated.run(simulated.healthy(0.1), repeats=2)
    run = replace(run, target=TargetInfo(run.target.address, run.target.api, "\x07x", "m\x1b[2J\n"))
    assert "m\ufffd[2J\ufffd" in text(run, analyse(run))
    assert all(line.isprintable() for line in text(run, analyse(run)).split("\n"))


def test_a_broken_promise_is_exit_11() -> None:
    assert reported(BROKEN).exit_code == 11


def test_the_gravest_finding_gives_the_exit_code() -> None:
    queue_and_promise = replace(QUEUED)
    report = reported(queue_and_promise, Limit("p50", 1.0))
    assert report.exit_code == 10


def test_a_missed_limit_is_exit_4_and_names_the_figure() -> None:
    report = reported(REFUSING, Limit("p99", 10.0))
    assert report.exit_code == 4
    assert "limit p99 10 ms: MISSED" in text(REFUSING, report)


def test_a_kept_limit_passes() -> None:
    assert reported(REFUSING, Limit("p99", 1000.0)).exit_code == 0


def test_the_ratio_to_s0_stands_beside_every_quantile_of_the_pulse() -> None:
    printed = text(QUEUED, reported(QUEUED))
    assert re.search(r"P50 .* = [\d.]+ S0 \[[\d.]+, [\d.]+\]\n", printed)
    assert re.search(r"P99 .* = [\d.]+ S0 \[[\d.]+, .+\]\n", printed)
    assert re.search(r"P99/P50 [\d.]+ \[[\d.]+, .+\] n=\d+\n", printed)


def test_no_figure_stands_without_n_and_its_interval() -> None:
    rows = dict(enumerate(summary(REFUSING, reported(REFUSING))))
    figures = [value for label, value in rows.values() if label not in ("target", "seen up to")]
    assert len(figures) >= 8
    assert all(re.search(r"(\[.+\]) n=\d+| S0 \[.+\]$", value) for value in figures), figures


def test_figures_are_kept_for_programs_with_their_intervals() -> None:
    document = json.loads(to_json(QUEUED, reported(QUEUED)))
    estimates = [
        *document["largest_pulse"].values(),
        document["order"]["tau"],
        document["s0_spread_ms"],
        document["client_lag_p99_ms"]["send"],
    ]
    assert all(each["low"] <= each["value"] and each["n"] > 0 for each in estimates)


def test_a_known_server_has_a_likely_cause() -> None:
    run = replace(QUEUED, target=TargetInfo("http://x", "openai", "vllm", "m"))
    assert "--max-num-queued-reqs" in text(run, reported(run))


@pytest.mark.parametrize(
    ("header", "owner", "name"),
    [
        ("uvicorn", "vllm", "vllm"),
        ("APISIX/3.9.1", "", "apisix"),
        ("openresty", "", "nginx"),
        ("istio-envoy", "", "istio"),
        ("uvicorn", "lmdeploy", "lmdeploy"),
        ("mosec/0.9.4", "", "mosec"),
    ],
)
def test_software_is_recognised_by_its_models_owner_before_its_header(header: str, owner: str, name: str) -> None:
    assert recognise(header, owner) == name


def test_every_cause_is_of_software_that_is_recognised() -> None:
    names = {name for _, name in (*SERVER_HEADERS, *OWNERS, *GATEWAYS)}
    assert {software for software, _ in CAUSES} <= names


def test_an_unknown_server_has_no_cause() -> None:
    assert "likely" not in text(QUEUED, reported(QUEUED))


def test_json_is_versioned_and_holds_no_nan() -> None:
    document = json.loads(to_json(QUEUED, reported(QUEUED)), parse_constant=lambda name: pytest.fail(name))
    assert (document["version"], document["exit_code"]) == (2, 10)
    assert document["findings"][0]["kind"] == "hidden queue"
    assert document["s0_ms"].keys() == {"value", "low", "high", "n"}


@pytest.mark.parametrize("run", [QUEUED, REFUSING], ids=["queued", "refusing"])
def test_the_page_needs_nothing_from_elsewhere(run: Run) -> None:
    page = html(run, reported(run))
    assert not re.search(r"(?:src|href)=|url\(|@import|<script", page)
    assert len(page) < 400_000


def test_every_picture_is_well_formed_and_has_a_name() -> None:
    pictures = re.findall(r"<svg.*?</svg>", html(QUEUED, reported(QUEUED)), re.DOTALL)
    assert len(pictures) == 4
    for picture in pictures:
        root = ET.fromstring(picture)
        assert root.get("aria-label")
        assert "nan" not in picture


def test_the_page_has_a_light_and_a_dark_face() -> None:
    page = html(QUEUED, reported(QUEUED))
    assert "color-scheme:light dark" in page
    assert "prefers-color-scheme:dark" in page


def test_the_page_prints_the_figures_of_the_text() -> None:
    page, report = html(QUEUED, reported(QUEUED)), reported(QUEUED)
    assert all(finding.text in page for finding in report.findings)
    s0 = next(line for line in text(QUEUED, report).splitlines() if line.startswith("S0")).partition(")")[2].strip()
    assert s0 in page


def test_a_hostile_address_stays_text() -> None:
    run = replace(QUEUED, target=TargetInfo("<script>alert(1)</script>", "http", "", "<b>"))
    assert "<script" not in html(run, reported(run))


def test_the_live_line_shows_progress_and_ends_with_a_line_feed() -> None:
    screen = io.StringIO()
    now = iter(range(0, 10**12, 10**9))
    view = LiveView(screen, lambda: next(now))
    view.note("About a minute.")
    view.begin("pulse", 2)
    assert "0/2" in screen.getvalue()
    view.wait()
    view.show(1, [50.0, 60.0])
    view.show(2, [55.0])
    view.close()
    view.close()
    assert "2/2" in screen.getvalue()
    assert screen.getvalue().endswith("ms\n")


def test_the_tiny_histogram_is_as_wide_whatever_it_shows() -> None:
    import numpy as np

    assert {len(sparkline(np.array(values))) for values in ([1.0], [1.0, 900.0], [5.0] * 9, [])} == {30}


def test_steps_of_a_slow_service_are_told_apart_though_their_rates_round_to_the_same() -> None:
    rows = [(STEP, group, 1, i, 10_000.0 * group + i * 900.0, 300.0) for group in (1, 2) for i in range(5)]
    assert [level.achieved.n for level in levels(simulated.build(rows), STEP)] == [4, 4]


def test_a_log_gets_a_line_for_each_phase_as_it_begins() -> None:
    log, now = io.StringIO(), iter(range(0, 10**12, 10**9))
    lines = Lines(log, lambda: next(now))
    lines.begin("pulse", 70)
    lines.show(1, [50.0])
    lines.begin("replay", 1)
    assert log.getvalue() == "   1 s  pulses, 70 at most\n   2 s  trace\n"
