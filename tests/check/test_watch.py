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

from zerolayer.check.errors import TargetError
from zerolayer.check.watch import Screen, bar, events, quantile, sparkline, watch
from zerolayer.client.errors import NotReachable, Refused
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


def test_the_port_of_the_service_is_no_admin_address(echo):
    with pytest.raises(Refused):
        watch(f"http://127.0.0.1:{echo.port}", once=True, out=io.StringIO())


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
