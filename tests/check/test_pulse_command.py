"""The commands, from arguments to exit code, against real servers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "front"))

from echo_model import EchoEngine, LastMessage
from echo_service import Service

from check import simulated
from check.test_capture import LONE, pcap
from zerolayer import cli
from zerolayer.check.run_file import read, write

SHORT = ["--probes", "14", "--largest-pulse", "8", "--repeats", "2", "--step-seconds", "0.2", "--retries", "5"]
SHORT += ["--max-lag-ms", "1000"]
Url = Callable[[str], str]


def test_pulse_measures_prints_saves_and_draws(url: Url, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, page = tmp_path / "run.json", tmp_path / "run.html"
    code = cli.main(["pulse", url("mute") + "/", *SHORT, "--api", "http", "--save", str(run), "--html", str(page)])
    assert code == 0
    assert capsys.readouterr().out.startswith("NO HIDDEN WAIT FOUND (exit 0)")
    assert read(run).target.api == "http"
    assert page.read_text().startswith("<!doctype html>")


def test_an_openai_service_is_recognised_by_its_models(url: Url, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["pulse", url("streaming"), *SHORT, "--json", "--no-aborts"])
    target = json.loads(capsys.readouterr().out)["target"]
    assert (target["api"], target["model"]) == ("openai", "toy")
    assert target["address"].endswith("/v1/chat/completions")


def test_a_trace_takes_the_place_of_the_steps(url: Url, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(f'{{"timestamp": {i * 5}, "input_length": 9, "output_length": 3}}\n' for i in range(20)))
    cli.main(["pulse", url("healthy") + "/", *SHORT, "--api", "http", "--trace", str(trace), "--json"])
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [step["sent_per_s"]["n"] for step in steps] == [19]


def test_stages_and_users_take_the_place_of_the_steps(url: Url, capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--stages", "50-100:0.2,100:0.2", "--users", "2", "--think-ms", "5"]
    cli.main(["pulse", url("healthy") + "/", *SHORT, "--api", "http", *shape, "--json"])
    seen = json.loads(capsys.readouterr().out)
    assert seen["steps"] == []
    assert [stage["stage"] for stage in seen["stages"]] == [1, 2]
    assert [level["users"] for level in seen["closed_loop"]] == [2]


def test_a_capture_is_read_in_place_of_a_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "service.pcap").write_bytes(pcap(LONE))
    assert cli.main(["pulse", "--pcap", str(tmp_path / "service.pcap"), "--port", "8000"]) == 0
    assert "request to reply P50 51 ms [" in capsys.readouterr().out


def test_a_service_is_measured_over_http2(capsys: pytest.CaptureFixture[str]) -> None:
    engine = EchoEngine(slots=4, slot_tokens=512, chunk_tokens=64, step_us=200)
    service = Service({"slots": "4", "slot-tokens": "512"}, engine, None, 0.02, {}, {}, LastMessage)
    try:
        shape = ["--largest-pulse", "4", "--http2", "--no-aborts", "--json"]
        cli.main(["pulse", f"http://127.0.0.1:{service.port}", *SHORT, *shape])
    finally:
        service.close()
    seen = json.loads(capsys.readouterr().out)
    assert (seen["target"]["api"], seen["target"]["software"]) == ("openai", "zerolayer")
    assert [(level["at_once"], level["failed"]) for level in seen["pulses"]] == [(size, 0) for size in (1, 2, 4)]


def test_a_service_without_http2_is_told_so(url: Url, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pulse", url("healthy") + "/", *SHORT, "--api", "http", "--http2"]) == 1
    assert "does not speak HTTP/2" in capsys.readouterr().err


def test_a_saved_run_is_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    write(simulated.run(simulated.fifo(8), repeats=4), path)
    assert cli.main(["pulse", "--from", str(path)]) == 10
    assert "A queue: about 8 slots" in capsys.readouterr().out


def test_the_limits_of_a_service_level_are_exit_4(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write(simulated.run(simulated.healthy(0.1), repeats=2), path)
    assert cli.main(["pulse", "--from", str(path), "--slo", "p99=9"]) == 4


def test_a_key_is_sent_and_never_written(url: Url, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-very-secret")
    run, page = tmp_path / "run.json", tmp_path / "run.html"
    arguments = ["pulse", url("mute") + "/?token=sk-query", "--api", "http", *SHORT, "--key-env", "TEST_KEY"]
    cli.main([*arguments, "--save", str(run), "--html", str(page)])
    assert "sk-" not in run.read_text() + page.read_text() + capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Name one thing to look at"),
        (["http://x", "--from", "y"], "Name one thing to look at"),
        (["ftp://x"], "is no HTTP URL"),
        (["http://127.0.0.1:9/\r\nx"], "is no HTTP URL"),
        (["http://x", "--slo", "p42=1"], "--slo takes NAME=MS"),
        (["http://x", "--slo", "p99=nan"], "--slo takes NAME=MS"),
        (["http://x", "--key-env", "NOT_THERE"], "has no NOT_THERE"),
        (["http://x", "--header", "no colon here"], "A header is not written"),
        (["--from", "missing.json"], "cannot be read"),
        (["--pcap", "missing.pcap"], "cannot be read"),
        (["http://127.0.0.1:9", "--save", "/no/such/folder/run.json"], "cannot be written"),
        (["http://127.0.0.1:9", "--html", "/"], "cannot be written"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(arguments: list[str], message: str, capsys) -> None:
    assert cli.main(["pulse", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_nobody_there_is_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pulse", "http://127.0.0.1:9/"]) == 1
    assert "cannot be reached" in capsys.readouterr().err


def test_compare_prints_the_difference_and_says_worse_by_its_exit_code(tmp_path: Path, capsys) -> None:
    for name, service in (("a", simulated.healthy(0.1)), ("b", simulated.fifo(4))):
        write(simulated.run(service, repeats=4), tmp_path / name)
    assert cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 4
    assert "P50 of pulses of 40" in capsys.readouterr().out
    assert cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "a"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reasons"] == []


def test_compare_refuses_what_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_text("{}")
    assert cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "a")]) == 2
    assert "is no result" in capsys.readouterr().err
