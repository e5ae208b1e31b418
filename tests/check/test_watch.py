"""The live page in a terminal: events to lines."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "front"))

from echo_model import EchoEngine, LastMessage
from echo_service import Service, chat

from zerolayer.check import arguments
from zerolayer.check.errors import TargetError
from zerolayer.check.screen import LATENCIES, Screen, bar, quantile, shade, sparkline
from zerolayer.check.watch import _line, events, watch
from zerolayer.cli import main
from zerolayer.client.errors import NotReachable
from zerolayer.observe.live import BookingView, Moment, SlotView
from zerolayer.observe.live import Service as Told


@pytest.fixture(scope="module")
def echo():
    engine = EchoEngine(slots=4, slot_tokens=512, chunk_tokens=64, step_us=200)
    service = Service({"slots": "4", "slot-tokens": "512"}, engine, None, 0.02, {}, {}, LastMessage)
    yield service
    service.close()


def told(version: int = 1) -> bytes:
    return msgspec.json.encode(Told(version, "m", "1", "mock", 2, 512, "full", {}))


def moment(*, feasible: bool = True) -> bytes:
    slots = [SlotView("running", -500, 1000, 5000), SlotView("free")]
    return msgspec.json.encode(Moment(slots, [BookingView(1, 500, 900, False, False)], feasible, 1, 1))


def test_a_server_is_watched_from_its_own_stream(echo):
    echo.ask(chat("hello"))
    out = io.StringIO()
    assert watch(f"http://127.0.0.1:{echo.server.admin_port}", once=True, out=out) == 0
    assert "4 of 4 slots free, 0 booked, every promise can be kept" in out.getvalue()
    assert out.getvalue().count("|") == 4


@pytest.mark.parametrize("command", [["watch", "--once"], ["sla"], ["simulate", "--measure"]])
def test_the_port_of_the_service_is_no_admin_address(echo, command, capsys):
    assert main([*command, f"http://127.0.0.1:{echo.port}"]) == 1
    assert "is no admin address of zerolayer" in capsys.readouterr().err


def test_nobody_there_is_said_so():
    with pytest.raises(NotReachable):
        watch("http://127.0.0.1:1", once=True, out=io.StringIO())


def test_a_slot_shows_what_ran_what_will_and_what_is_booked():
    screen = Screen(60)
    screen.take("service", told())
    assert screen.take("moment", moment())
    first, second = (line for line in screen.lines() if "|" in line)
    assert first.index("#") < first.index("|") < first.index("=")
    assert second.index("|") < second.index("o")


def test_a_promise_that_cannot_be_kept_is_shouted():
    screen = Screen(80)
    screen.take("service", told())
    screen.take("moment", moment(feasible=False))
    assert "A PROMISE CANNOT BE KEPT" in screen.lines()[1]


@pytest.mark.parametrize("width", [1, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    screen = Screen(width)
    screen.take("service", told())
    screen.take("moment", moment())
    assert max(map(len, screen.lines())) <= max(40, width)


def test_a_newer_server_is_refused():
    with pytest.raises(TargetError, match="newer"):
        Screen(80).take("service", told(version=2))


def test_what_is_no_such_stream_is_refused():
    with pytest.raises(TargetError, match="admin address"):
        Screen(80).take("moment", b'{"slots":1}')


def test_events_are_read_by_name():
    assert list(events([b"event: a\n", b"data: 1\n", b"\n", b"event: b\n", b"data: 2\n"])) == [("a", b"1"), ("b", b"2")]


def test_a_bar_is_as_wide_as_it_is_asked_to_be():
    assert bar({"a": 1, "b": 1, "c": 1}, 31).count("█") + bar({"a": 1, "b": 1, "c": 1}, 31).count("▓") == 21
    assert len(bar({"a": 1, "b": 1, "c": 1}, 31)) == 31
    assert bar({"a": 0}, 31) == ""


def test_a_quantile_lies_within_its_bucket():
    assert quantile([0, 10, 0], [1.0, 3.0], 0.5) == 2.0
    assert quantile([0, 0, 1], [1.0, 3.0], 0.5) == 3.0
    assert quantile([0, 0, 0], [1.0, 3.0], 0.5) is None


def test_a_sparkline_shows_even_the_smallest_bucket():
    assert sparkline([0, 1, 1000]) == " ▁█"


def minute(**changed: object) -> bytes:
    """What the record of a server says after a minute with little in it."""
    counts = {name: [0, 0, 0] for name in LATENCIES}
    told = {
        "seconds": 60.0, "wall_us": {}, "stages_us": {}, "histograms": counts, "finished": {"stop": 3}, "refused": {},
        "steps": {}, "tokens": 60, "bookings": {}, "deadlines": {}, "abandoned": {}, "tenants_us": {}, **changed,
    }  # fmt: skip
    return msgspec.json.encode(told)


def screen_of(*events: tuple[str, bytes], width: int = 100, height: int = 0) -> list[str]:
    bounds = dict.fromkeys(LATENCIES, (0.01, 0.1))
    screen = Screen(width, height)
    screen.take("service", msgspec.json.encode(Told(1, "m", "1", "mock", 2, 512, "full", bounds)))
    for name, data in events:
        screen.take(name, data)
    screen.take("moment", moment())
    return screen.lines()


def test_the_heat_map_has_a_column_a_second_and_a_row_for_each_bucket_in_use():
    columns = {name: [[0, 1, 0], [0, 9, 1]] for name in LATENCIES}
    lines = screen_of(("columns", msgspec.json.encode(columns)), ("minute", minute()))
    rows = [line.split("|")[1] for line in lines if line.strip().startswith(("<=", "> "))]
    assert rows == [" ▒", "▒█"]
    assert any(line.strip().startswith("> 100 ms") for line in lines)


def test_a_new_service_begins_a_new_heat_map():
    columns = msgspec.json.encode({name: [[5, 0, 0]] for name in LATENCIES})
    again = msgspec.json.encode(Told(1, "m", "2", "mock", 2, 512, "full", dict.fromkeys(LATENCIES, (0.01, 0.1))))
    lines = screen_of(("columns", columns), ("service", again), ("minute", minute()))
    assert "first token: nothing in the last 0 s" in lines


def test_refusals_are_told_with_what_became_of_their_retries():
    lines = screen_of(
        ("minute", minute(refused={"slots_busy": 10}, bookings={"kept": 8, "late": 2, "no_show": 1, "early": 0}))
    )
    assert "refused: slots_busy 10" in lines
    assert "booked starts: came and served 8, too late 2, did not come 1" in lines
    assert "retries: 1.00 for a refusal, 80.0 % of those that came served" in lines


def test_tenants_and_the_fullest_budgets_are_told_once_there_are_keys():
    budgets = msgspec.json.encode([["acme 0a1b2c3d", "requests_per_minute", 57, 60]])
    lines = screen_of(("minute", minute(tenants_us={"_idle": 750, "acme": 250})), ("budgets", budgets))
    assert any("idle 75.0 %  acme 25.0 %" in line for line in lines)
    assert "[##########] acme 0a1b2c3d, requests a minute: 57 of 60" in lines


def test_without_keys_nobody_is_told_of_tenants():
    lines = screen_of(("minute", minute(tenants_us={"_idle": 750, "_anyone": 250})))
    assert not any("tenant" in line for line in lines)


@pytest.mark.parametrize("height", [8, 12, 20, 24, 60])
def test_a_picture_is_never_higher_than_the_terminal(height):
    columns = {name: [[1, 1, 1]] * 60 for name in LATENCIES}
    lines = screen_of(("columns", msgspec.json.encode(columns)), ("minute", minute()), height=height)
    assert len(lines) <= height
    assert lines[0].startswith("zerolayer")


def test_a_shade_is_blank_for_nothing_only():
    assert shade(0, 10) == " "
    assert shade(1, 10_000) == "░"
    assert shade(10, 10) == "█"


def test_a_name_that_the_server_tells_cannot_steer_the_terminal():
    screen = Screen(80)
    screen.take("service", msgspec.json.encode(Told(1, "m\x1b[2J\x07", "1", "mo\nck", 2, 512, "full", {})))
    screen.take("moment", moment())
    assert screen.lines()[0] == "zerolayer  m\ufffd[2J\ufffd on mo\ufffdck"
    assert all(line.isprintable() for line in screen.lines())


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([b'event: a","x":"\x1b\n', b"data: 1\n"], {"version": 1, "event": 'a","x":"\x1b', "data": 1}),
        ([b"event: news\n", b'data: {"text": "\\u001b"}\n'], {"version": 1, "event": "news", "data": {"text": "\x1b"}}),
    ],
)
def test_a_line_of_json_is_one_whatever_the_server_sends(lines, told):
    (found,) = [_line(name, data) for name, data in events(lines)]
    assert found.isprintable()
    assert msgspec.json.decode(found) == told


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'"\xff"'])
def test_an_event_that_is_no_json_is_refused(data):
    with pytest.raises(TargetError, match="admin address"):
        _line("news", data)


def test_events_are_lines_of_json_for_programs(echo):
    out = io.StringIO()
    assert watch(f"http://127.0.0.1:{echo.server.admin_port}", once=True, json=True, out=out) == 0
    told = [msgspec.json.decode(line) for line in out.getvalue().splitlines()]
    assert {each["version"] for each in told} == {1}
    assert [each["event"] for each in told][:2] == ["service", "columns"]
    assert told[-1]["event"] == "moment"


def test_the_command_offers_the_latencies_that_there_are():
    assert arguments._LATENCIES == LATENCIES
