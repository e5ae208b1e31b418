"""``zerolayer usage``: sums, windows, forms, prices, verification."""

import csv
import io
import json

import pytest

from reference.ledger import NOON, entry, small
from zerolayer.cli import main
from zerolayer.guard.ledger.ledger import Ledger
from zerolayer.guard.ledger.record import RECORD_BYTES, Flag, Match, Meter, Outcome, Source
from zerolayer.guard.ledger.segment import Chain, segments
from zerolayer.guard.ledger.usage import Window, prices, rows

HOUR_S = 3600
KEY = bytes(range(16))


@pytest.fixture
def told(folder, capsys):
    """Run the command on the ledger; its exit code and what it printed."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["usage", "--ledger", str(folder), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def day(ledger, wall):
    """A ledger with requests of two tenants on two days."""
    ledger.append(entry(10, "bank", key_id=KEY, core_ns=5_000_000))
    ledger.append(entry(0, "bank", outcome=Outcome.REFUSED, status=404, prompt_tokens=0, core_ns=0))
    ledger.append(entry(3, "shop", outcome=Outcome.ABORTED))
    wall.now_s = NOON + 86_400
    ledger.append(entry(7, "shop", flags=int(Flag.ANSWER_CACHED), core_ns=0, cached_tokens=20))
    ledger.append(Meter(b"shop", 2_000))
    return ledger


def test_rows_are_summed_by_tenant_and_model(day, told):
    code, out, _ = told("--json")
    report = json.loads(out)
    assert code == 0
    assert (report["version"], report["by"]) == (1, ["tenant", "model"])
    bank = next(row for row in report["rows"] if row["tenant"] == "bank")
    assert bank == {
        "tenant": "bank", "model": "smollm2", "requests": 2, "finished": 1, "refused": 1, "aborted": 0, "failed": 0,
        "from_cache": 0, "prompt_tokens": 20, "cached_tokens": 0, "completion_tokens": 10, "core_us": 5000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("day", [["2026-09-21"], ["2026-09-22"]]),
        ("key", [[""], [KEY.hex()]]),
        ("tenant,day", [["bank", "2026-09-21"], ["shop", "2026-09-21"], ["shop", "2026-09-22"]]),
    ],
)
def test_rows_may_be_by_key_model_or_day(day, told, by, keys):
    report = json.loads(told("--json", "--by", by)[1])
    assert [[row[name] for name in by.split(",")] for row in report["rows"]] == keys


def test_a_table_ends_with_the_sums(day, told):
    lines = told("--by", "tenant")[1].splitlines()
    assert lines[0].split()[:3] == ["tenant", "requests", "finished"]
    assert lines[-1].split()[:2] == ["all", "4"]


def test_csv_is_read_by_csv(day, told):
    table = list(csv.DictReader(io.StringIO(told("--format", "csv", "--by", "tenant")[1])))
    assert [(row["tenant"], row["requests"]) for row in table] == [("bank", "2"), ("shop", "2")]


def test_a_name_that_looks_like_a_formula_is_no_formula_in_csv(ledger, told):
    ledger.append(entry(1, "=cmd|calc"))
    assert list(csv.reader(io.StringIO(told("--format", "csv")[1])))[1][0] == "'=cmd|calc"


def test_no_name_of_a_ledger_reaches_the_terminal_unescaped(ledger, told):
    ledger.append(entry(1, "a\x1b[31m\nb"))
    assert "\x1b" not in told()[1]


@pytest.mark.parametrize(
    ("window", "requests"),
    [
        (["--since", "2026-09-22"], 1),
        (["--until", "2026-09-21"], 3),
        (["--since", "2026-09-22", "--until", "2026-09-22"], 1),
        (["--tenant", "bank"], 2),
    ],
)
def test_a_window_leaves_the_rest_out(day, told, window, requests):
    report = json.loads(told("--json", *window)[1])
    assert sum(row["requests"] for row in report["rows"]) == requests


def test_cloud_events_are_one_json_object_a_line_with_an_identity_for_good(day, told, folder):
    events = [json.loads(line) for line in told("--format", "cloudevents")[1].splitlines()]
    first = events[0]
    assert {event["specversion"] for event in events} == {"1.0"}
    assert len({(event["source"], event["id"]) for event in events}) == len(events) == 5
    assert (first["type"], first["subject"], first["time"]) == ("zerolayer.inference", "bank", "2026-09-21T14:13:20Z")
    assert first["data"]["input_tokens"] == 20
    assert first["data"]["output_tokens"] == 10
    assert first["data"]["core_us"] == 5000.0
    assert first["data"]["key"] == KEY.hex()


def test_a_match_is_an_event_with_its_text_and_sources(ledger, told):
    ledger.append(Match(b"bank", b"r1", 1, "9,50 €".encode(), -0.25, 3, 2, 8, (Source(0, 4),), 1))
    data = json.loads(told("--format", "cloudevents")[1])["data"]
    assert data == {
        "request_id": "r1", "rule": "amounts", "text": "9,50 €", "logprob": -0.25, "token": 3, "tokens": 2, "offset": 8,
        "sources": [{"message": 0, "offset": 4}], "places": 1,
    }  # fmt: skip


def test_a_chain_that_holds_is_said_to_hold_with_its_head(day, told):
    code, out, _ = told("--verify")
    assert code == 0
    assert "the chain holds, from record 1 to record 6 (segments: 1)" in out
    assert f"head  6:{day.head.hex()}" in out


def test_a_chain_that_was_changed_fails_with_exit_code_3(day, told, folder):
    (path,) = segments(folder)
    data = bytearray(path.read_bytes())
    data[2 * RECORD_BYTES + 100] ^= 1
    path.write_bytes(data)
    code, out, err = told("--verify")
    assert (code, out) == (3, "")
    assert "the chain does not hold" in err


def test_a_report_on_a_damaged_ledger_tells_what_stands_before_the_damage(day, told, folder):
    (path,) = segments(folder)
    data = bytearray(path.read_bytes())
    data[4 * RECORD_BYTES + 100] ^= 1
    path.write_bytes(data)
    code, out, err = told("--json")
    assert code == 3
    assert sum(row["requests"] for row in json.loads(out)["rows"]) == 2
    assert "What is told is what stands before it" in err


def test_an_anchor_proves_that_nothing_was_cut_off(day, told, folder):
    anchor = f"6:{day.head.hex()}"
    assert told("--verify", "--anchor", anchor)[0] == 0
    (path,) = segments(folder)
    path.write_bytes(path.read_bytes().rstrip(b"\0")[: -RECORD_BYTES + 10])
    assert told("--verify")[0] == 0  # a chain alone cannot know where it ended
    assert told("--verify", "--anchor", anchor)[0] == 3


def test_a_ledger_that_is_being_written_can_be_read(day, told, folder):
    with segments(folder)[0].open("r+b") as file:
        file.seek(7 * RECORD_BYTES)
        file.write(b"half a record")
    assert told("--verify")[0] == 0


def test_removed_old_segments_are_told(folder, wall, told):
    ledger = Ledger(folder, wall, small(2))
    for number in range(6):
        ledger.append(entry(number))
    ledger.close()
    segments(folder)[0].unlink()
    code, out, _ = told("--verify")
    assert code == 0
    assert "older segments were removed" in out


def load(ledger, wall):
    """Two cores for two hours; the bank uses a quarter of an hour of one, in one clock hour, the shop a little."""
    ledger.append(entry(1, "bank", core_ns=900 * 10**9))
    wall.now_s += HOUR_S
    ledger.append(entry(1, "shop", core_ns=10**6))
    wall.now_s += HOUR_S
    ledger.append(entry(1, "shop", core_ns=10**6))
    ledger.append(Meter(b"_idle", (4 * HOUR_S - 900) * 10**9 - 2 * 10**6, 2 * HOUR_S * 10**6, 2))


def test_a_price_is_compared_by_microsecond_and_by_started_hour(ledger, wall, folder):
    load(ledger, wall)
    found = prices(Window().of(link.record() for link in Chain(folder)), 2.0)
    assert found.cores == 2
    assert found.server_hours == pytest.approx(2.0)
    assert found.busy == pytest.approx(900 / (4 * HOUR_S), rel=1e-3)
    bank, shop = found.bills
    assert (bank.tenant, bank.hours, bank.by_hour) == ("bank", 1, 2.0)
    assert bank.by_us == pytest.approx(0.25)  # a quarter of an hour of one of two cores, at 2.0 an hour
    assert (shop.hours, shop.by_hour) == (2, 4.0)
    assert shop.by_us == pytest.approx(2000 * 2.0 / HOUR_S / 1e6 / 2)


def test_the_price_table_has_both_bills(ledger, wall, told):
    load(ledger, wall)
    out = told("--price", "2.0")[1]
    assert "2 an hour for 2 cores" in out
    assert [line.split()[0] for line in out.splitlines()[-2:]] == ["bank", "shop"]


def test_no_price_is_compared_where_no_hours_are_recorded(day, told):
    code, _, err = told("--price", "2.0")
    assert code == 2
    assert "no hours to compare with" in err


@pytest.mark.parametrize("arguments", [["--price", "0"], ["--price", "nan"], ["--since", "today"]])
def test_what_is_no_price_or_day_is_refused(told, arguments):
    with pytest.raises(SystemExit):
        told(*arguments)


def test_an_unknown_key_is_refused_with_those_that_exist(day, told):
    code, _, err = told("--by", "colour")
    assert code == 2
    assert "tenant, key, model, day" in err


def test_without_a_ledger_the_remedy_is_told(told):
    code, _, err = told()
    assert code == 1
    assert "--ledger" in err


def test_the_compute_of_all_rows_is_that_of_all_records(day, folder):
    found = list(Window().of(link.record() for link in Chain(folder)))
    assert sum(use.core_ns for _, use in rows(found, ["day", "key"])) == sum(record.core_ns for record in found)
