"""The SLA page: contract and measurement in, what a customer may rely on out."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "front"))

from echo_model import EchoEngine, LastMessage
from echo_service import Service, chat

from zerolayer.check.errors import TargetError
from zerolayer.check.scrape import Scrape
from zerolayer.check.sla import Block, as_html, as_json, markdown, page, sentence
from zerolayer.check.sla_command import run
from zerolayer.contract import Contract, Deadline, load

CONTRACT = load(None, {}, {}).contract
SERVED = """
zerolayer:promise_total{kept="true"} 998
zerolayer:promise_total{kept="false"} 1
zerolayer:limit_missed_total{limit="first_token"} 1
zerolayer:booking_total{outcome="kept"} 40
zerolayer:booking_total{outcome="late"} 10
zerolayer:booking_total{outcome="no_show"} 5
"""


def row(title: str, scrape: Scrape, contract: Contract = CONTRACT) -> list[str]:
    line = next(
        line for line in markdown(page(contract, scrape, "today")).splitlines() if line.startswith(f"| {title}")
    )
    return [cell.strip() for cell in line.strip("|").split("|")]


def histogram(name: str, *counts: int, bounds: tuple[str, ...] = ("0.1", "0.2", "+Inf")) -> str:
    total, lines = 0, []
    for bound, count in zip(bounds, counts, strict=True):
        total += count
        lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
    return "\n".join([*lines, f"{name}_count {total}"])


def test_the_sentence_says_what_is_promised_and_how_often_it_was_kept():
    told = sentence(CONTRACT, Scrape(SERVED))
    assert "its first word comes within 5 s and its last within 60 s" in told
    assert "for 99.80 % of 999 requests" in told
    assert "of 50 who did, 80.00 % were served" in told


def test_a_service_that_has_served_nobody_claims_nothing():
    told = sentence(CONTRACT, Scrape(""))
    assert "%" not in told
    assert "within 5 s" in told
    assert "not measured yet" in row("First token", Scrape(""))


def test_limits_are_those_of_the_contract():
    contract = msgspec.structs.replace(CONTRACT, deadline=Deadline(default_ms=9000, first_token_ms=700))
    assert row("First token", Scrape(""), contract)[1] == "700 ms"
    assert row("Whole reply", Scrape(""), contract)[1] == "9 s"


def test_without_a_horizon_nothing_is_said_of_booked_starts():
    contract = msgspec.structs.replace(CONTRACT, deadline=Deadline(horizon_ms=0))
    assert "nothing is booked" in markdown(page(contract, Scrape(SERVED), "today"))
    assert "millisecond" not in sentence(contract, Scrape(SERVED))


def test_one_miss_in_a_million_is_not_a_hundred_percent():
    text = 'zerolayer:promise_total{kept="true"} 999999\nzerolayer:promise_total{kept="false"} 1'
    assert "99.99 %" in sentence(CONTRACT, Scrape(text))


def test_a_percentile_needs_ten_observations_beyond_it():
    name = "vllm:time_to_first_token_seconds"
    few = markdown(page(CONTRACT, Scrape(histogram(name, 99, 0, 0)), "")).splitlines()
    assert next(line for line in few if line.startswith("| Time to the first")).count("too few") == 3
    many = markdown(page(CONTRACT, Scrape(histogram(name, 10_000, 0, 0)), ""))
    assert "too few" not in next(line for line in many.splitlines() if line.startswith("| Time to the first"))


def test_a_percentile_beyond_the_last_bucket_is_not_made_up():
    scrape = Scrape(histogram("vllm:time_to_first_token_seconds", 0, 0, 100))
    assert row("Time to the first", scrape)[1] == "beyond the buckets"


@given(st.lists(st.integers(0, 50), min_size=3, max_size=3).filter(any), st.floats(0.01, 0.99))
def test_a_quantile_lies_in_the_bucket_that_holds_it(counts, share):
    value = Scrape(histogram("h", *counts)).quantile("h", share)
    bounds, seen = (0.1, 0.2, float("inf")), 0
    for low, high, count in zip((0.0, *bounds), bounds, counts, strict=False):
        seen += count
        if count and seen >= share * sum(counts):
            assert low <= value <= high or value == pytest.approx(high)
            break


def test_a_label_is_read_back_as_it_was():
    scrape = Scrape('vllm:num_requests_running{model_name="a\\"b\\\\c\\nd"} 1')
    assert scrape.label("vllm:num_requests_running", "model_name") == 'a"b\\c\nd'


@pytest.mark.parametrize("text", ["<html>", "name", "name{a} x", "name value"])
def test_what_is_no_page_of_metrics_is_refused(text):
    with pytest.raises(TargetError, match="admin address"):
        Scrape(text)


def test_json_tells_the_same_block_by_block():
    blocks = page(CONTRACT, Scrape(SERVED), "today")
    told = json.loads(as_json(blocks))
    assert told["version"] == 1
    assert msgspec.convert(told["blocks"], list[Block]) == blocks


def test_html_tells_the_same_and_escapes_what_it_tells():
    scrape = Scrape(SERVED + 'vllm:num_requests_running{model_name="<b>"} 0')
    text = as_html(page(CONTRACT, scrape, "today"))
    assert "<h1>Service levels of &lt;b&gt;</h1>" in text
    cells = re.findall(r"<td>(.*?)</td>", text)
    assert cells.count("80.00 %") == 1
    assert "http" not in text


def test_the_page_of_a_running_server_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    engine = EchoEngine(slots=2, slot_tokens=512, chunk_tokens=64, step_us=200)
    service = Service({"slots": "2", "slot-tokens": "512"}, engine, None, 0.02, {}, {}, LastMessage)
    try:
        assert service.ask(chat("hello")).status == 200
        assert run(f"http://127.0.0.1:{service.server.admin_port}", None, "markdown") == 0
    finally:
        service.close()
    told = capsys.readouterr().out
    assert told.startswith("# Service levels of echo\n\n> If we take your request")
    assert "100 % of 1 request." in told


def test_what_was_slower_than_the_contract_is_not_kept_though_a_request_was_granted_more():
    name = "vllm:inter_token_latency_seconds"
    gaps = Scrape(histogram(name, 90, 6, 4, bounds=("0.2", "0.3", "+Inf")))
    assert row("Between two tokens", gaps)[1:] == ["250 ms", "96.00 %", "100"]


@given(st.lists(st.integers(0, 50), min_size=3, max_size=3), st.floats(0, 1))
def test_only_what_is_certainly_beyond_a_bound_counts_as_beyond(counts, bound):
    scrape = Scrape(histogram("m", *counts))
    certainly = sum(counts[1:]) if bound <= 0.1 else counts[2] if bound <= 0.2 else 0
    assert scrape.beyond("m", bound) == certainly
