"""The serving benchmark counts and times right, whatever the peer's framing; nothing here asserts on speed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import serve
from figures import median_rows, percentile, ratios, summarise, table, token_times
from hypothesis import given
from hypothesis import strategies as st
from lean_client import LoadLoop, Record
from lean_reply import Reply
from sse_server import Script, events, scripted_server

WORK = serve.Work(prompt_words=12, output_tokens=8, temperature=0.7, seed=1)


def payloads(url: str, count: int) -> list[bytes]:
    return WORK.payloads(serve.Target("scripted", url, "scripted"), "test", count)


def wire(framing: str, tokens: int, per_event: int) -> bytes:
    body = events(tokens, per_event, True)
    if framing == "chunked":
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in body)
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    data = b"".join(body)
    if framing == "length":
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + data


@given(
    framing=st.sampled_from(["chunked", "length", "eof"]),
    tokens=st.integers(1, 40),
    per_event=st.integers(1, 3),
    cuts=st.lists(st.integers(0, 5000), max_size=30),
)
def test_a_reply_cut_anywhere_is_counted_right(framing: str, tokens: int, per_event: int, cuts: list[int]) -> None:
    data, reply = wire(framing, tokens, per_event), Reply()
    borders = [0, *sorted({cut % len(data) for cut in cuts}), len(data)]
    complete = [reply.feed(data[a:b], b) for a, b in itertools.pairwise(borders) if b > a]
    if framing == "eof":
        reply.end_of_file()
    reply.finish()
    assert complete == [False] * (len(complete) - 1) + [framing != "eof"]
    assert reply.error == ""
    assert reply.tokens == tokens
    assert sum(count for _, count in reply.arrivals) == -(-tokens // per_event) + 1  # and the usage event


@given(st.integers(1, 10_000))
def test_a_reply_that_ends_early_is_never_complete(length: int) -> None:
    data, reply = wire("chunked", 10, 1), Reply()
    assert not reply.feed(data[: length % len(data)], 1) or length % len(data) == 0
    reply.end_of_file()
    assert reply.error == "cut"


def test_events_without_a_blank_after_the_colon_are_counted() -> None:
    reply = Reply()
    for piece in (
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"data:",
        b'{"text":"a"}\n\nda',
        b'ta:{"text":"b"}\n\n',
        b"data:[DONE]\n\n",
    ):
        reply.feed(piece, 1)
    assert sum(count for _, count in reply.arrivals) == 2


def test_an_error_event_makes_a_reply_a_failure() -> None:
    reply = Reply()
    reply.feed(b'HTTP/1.1 200 OK\r\n\r\ndata: {"error":{"message":"x"}}\n\ndata: [DONE]\n\n', 1)
    reply.end_of_file()
    reply.finish()
    assert reply.error == "error event"


def test_arrivals_carry_the_time_of_their_bytes() -> None:
    reply = Reply()
    reply.feed(b"HTTP/1.1 200 OK\r\n\r\n", 1)
    reply.feed(b'data: {"text":"a"}\n\n', 20)
    reply.feed(b'data: {"text":"b"}\n\ndata: {"text":"c"}\n\n', 30)
    assert reply.arrivals == [(20, 1), (30, 2)]


@pytest.mark.parametrize("framing", ["chunked", "eof"])
@pytest.mark.parametrize("per_event", [1, 3])
def test_a_closed_loop_counts_every_token(framing: str, per_event: int) -> None:
    script = Script(framing=framing, tokens_per_event=per_event)
    with scripted_server(script) as url:
        loop = LoadLoop(url)
        records = loop.closed(payloads(url, 10), concurrency=3)
        loop.close()
    assert [record.error for record in records] == [""] * 10
    assert [record.tokens for record in records] == [8] * 10
    assert all(len(token_times(record)) <= 8 for record in records)
    assert script.connections == (10 if framing == "eof" else 3)


def test_all_prompts_are_distinct_and_say_what_the_readme_says() -> None:
    script = Script()
    with scripted_server(script) as url:
        loop = LoadLoop(url)
        loop.closed(payloads(url, 6), concurrency=2)
        loop.close()
    assert len({body["prompt"] for body in script.bodies}) == 6
    assert {len(str(body["prompt"]).split()) for body in script.bodies} == {12}
    assert {(b["ignore_eos"], b["stream"], b["temperature"], b["max_tokens"]) for b in script.bodies} == {
        (True, True, 0.7, 8)
    }


def test_the_same_run_asks_every_server_the_same_and_the_next_run_something_else() -> None:
    one, other = serve.Target("a", "http://h:1", "m"), serve.Target("b", "http://h:1", "m")
    assert WORK.payloads(one, "closed 8 1", 3) == WORK.payloads(other, "closed 8 1", 3)
    assert not set(WORK.payloads(one, "closed 8 1", 3)) & set(WORK.payloads(one, "closed 8 2", 3))


def test_an_open_loop_sends_every_request_and_times_from_the_schedule() -> None:
    with scripted_server(Script(pause_s=0.002)) as url:
        loop = LoadLoop(url)
        records = loop.open(payloads(url, 5), [0.0, 0.0, 0.01, 0.02, 0.02])
        loop.close()
    assert len(records) == 5
    intended = sorted(record.intended_ns for record in records)
    assert [time - intended[0] for time in intended] == [0, 0, 10_000_000, 20_000_000, 20_000_000]
    assert all(record.sent_ns >= record.intended_ns for record in records)
    assert all(record.end_ns > record.arrivals[0][0] for record in records)


def test_a_refusal_is_counted_and_not_tried_again() -> None:
    with scripted_server(Script(refuse_first=2)) as url:
        loop = LoadLoop(url)
        records = loop.closed(payloads(url, 5), concurrency=1)
        loop.close()
    assert sorted(record.status for record in records) == [200, 200, 200, 429, 429]
    assert sum(record.refusals for record in records) == 2


def test_with_retry_a_refusal_is_tried_again_when_the_server_said() -> None:
    with scripted_server(Script(refuse_first=2, retry_after_ms=30)) as url:
        loop = LoadLoop(url, retry=True)
        records = loop.closed(payloads(url, 3), concurrency=1)
        loop.close()
    assert [record.status for record in records] == [200] * 3
    assert sum(record.refusals for record in records) == 2
    waited = next(record for record in records if record.refusals)
    assert waited.end_ns - waited.intended_ns >= 60_000_000


def test_a_pooled_connection_that_was_closed_is_replaced() -> None:
    script = Script(close_after_reply=True)
    with scripted_server(script) as url:
        loop = LoadLoop(url)
        records = loop.closed(payloads(url, 6), concurrency=2)
        loop.close()
    assert all(record.ok for record in records)
    assert script.connections == 6


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (Script(cut_after=3), "cut"),
        (Script(cut_after=3, framing="eof"), "no [DONE]"),
        (Script(done=False), "no [DONE]"),
    ],
    ids=["cut chunked", "cut eof", "no done"],
)
def test_a_broken_stream_is_no_answer(script: Script, error: str) -> None:
    with scripted_server(script) as url:
        loop = LoadLoop(url)
        records = loop.closed(payloads(url, 2), concurrency=1)
        loop.close()
    assert [(record.ok, record.tokens, record.error) for record in records] == [(False, 0, error)] * 2


def test_a_server_that_is_not_there_is_an_error_of_each_request() -> None:
    loop = LoadLoop("http://127.0.0.1:9")
    records = loop.closed(payloads("http://127.0.0.1:9", 2), concurrency=1)
    loop.close()
    assert [record.ok for record in records] == [False, False]


def test_a_reply_that_never_comes_is_a_timeout() -> None:
    with scripted_server(Script(pause_s=30.0)) as url:
        loop = LoadLoop(url, timeout_s=0.1)
        records = loop.closed(payloads(url, 1), concurrency=1)
        loop.close()
    assert [record.error for record in records] == ["timeout"]


def test_percentiles_interpolate() -> None:
    assert [percentile([4, 1, 3, 2], q) for q in (0, 50, 100)] == [1, 2.5, 4]
    assert percentile([], 50) is None


def test_figures_by_hand() -> None:
    ms = 1_000_000
    answered = Record(0, 0, 50 * ms, 200, [(10 * ms, 1), (20 * ms, 1), (40 * ms, 2)], tokens=3)
    refused = Record(0, 0, 5 * ms, 429, refusals=1)
    figures = summarise([answered, refused], 0, cpu_s=0.00006)
    expected = {"sent": 2, "ok": 1, "refused": 1, "tokens": 3, "ttft_p50_ms": 10, "itl_p50_ms": 15, "e2e_p99_ms": 50}
    assert {key: figures[key] for key in expected} == expected
    assert figures["out_tok_s"] == pytest.approx(60)
    assert figures["client_us_per_token"] == pytest.approx(20)


def test_rows_of_several_rounds_become_medians_and_counts_are_added() -> None:
    rows = [
        {"server": "a", "run": "closed 1", "ok": 3, "sent": 4, "refused": 1, "out_tok_s": value}
        for value in (9.0, 5.0, 7.0)
    ]
    (row,) = median_rows(rows)
    assert (row["out_tok_s"], row["ok"], row["sent"], row["refused"]) == (7.0, 9, 12, 3)


def test_ratios_compare_the_first_server_with_the_others() -> None:
    rows = [
        {"server": "a", "run": "closed 1", "out_tok_s": 100.0, "e2e_p50_ms": 10.0},
        {"server": "b", "run": "closed 1", "out_tok_s": 50.0, "e2e_p50_ms": 40.0},
    ]
    assert ratios(rows) == "a / b, closed 1: 2.00x out tok/s, 0.25x E2E p50"
    assert ratios(rows[:1]) == ""
    assert "closed 1" in table(rows)


def test_the_command_prints_a_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "result.json"
    with scripted_server(Script()) as url, scripted_server(Script(framing="eof")) as peer:
        sizes = ["--closed", "1,2", "--open", "20,0.1x", "--duration", "0.2", "--output-tokens", "8", "--rounds", "2"]
        serve.main(["--url", url, "--peer", f"other={peer}", *sizes, "--json", str(out)])
    result = json.loads(out.read_text())
    assert [(row["server"], row["run"]) for row in result["medians"][4:]] == [
        ("other", run) for run in ("closed 1", "closed 2", "open 20", "open 0.1x")
    ]
    assert all(row["ok"] == row["sent"] > 0 for row in result["medians"])
    assert len(result["rounds"]) == 16
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("other ")]) == 4
    assert any("/ other, closed 2:" in line for line in lines)
