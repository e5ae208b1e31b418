"""Inputs with their age: what is used, what is waited for, and what takes the place of what is too old."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer import Client
from zerolayer.client.errors import StaleInput
from zerolayer.client.freshness import Input, Policy, Stamps, Verdict, judge
from zerolayer.client.service import Clocks

MS = 1_000_000


class World:
    """A clock that only sleeping moves, and a sensor that is read at given times."""

    def __init__(self, *made_ms: int) -> None:
        self.now_ms = 10_000
        self.made = list(made_ms)  # when each further value is made

    @property
    def clocks(self) -> Clocks:
        return Clocks(lambda: self.now_ms * MS, lambda: self.now_ms * MS, self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    def read(self) -> tuple[str, int]:
        made = max(at for at in self.made if at <= self.now_ms)
        return f"value of {made}", made

    def input(self, **policy) -> Input[str]:
        return Input(self.read, Policy(**policy), self.clocks)


def test_a_fresh_value_is_used_and_stamped() -> None:
    latest = World(9_950).input(max_age_ms=100).latest()
    assert (latest.value, latest.stale) == ("value of 9950", False)
    assert latest.stamps == Stamps(9_950, 10_000, 100)


def test_a_stale_value_is_waited_out_until_a_newer_one_comes() -> None:
    world = World(9_000, 10_070)
    source = world.input(max_age_ms=100, wait_ms=500)
    latest = source.latest()
    assert latest.value == "value of 10070"
    assert (world.now_ms, source.waits) == (10_080, 4)


def test_waiting_ends_and_then_the_fallback_is_taken() -> None:
    world = World(9_000)
    source = world.input(max_age_ms=100, wait_ms=200, otherwise="fallback", fallback="nothing new")
    latest = source.latest()
    assert (latest.value, source.fallbacks) == ("nothing new", 1)
    assert 10_200 <= world.now_ms <= 10_220


def test_without_a_fallback_a_stale_value_is_an_error_that_says_how_old_it_is() -> None:
    with pytest.raises(StaleInput, match="1000 ms old, and 100 ms"):
        World(9_000).input(max_age_ms=100).latest()


def test_a_stale_value_that_is_used_says_so_and_asks_no_limit_of_the_server() -> None:
    latest = World(9_000).input(max_age_ms=100, otherwise="use").latest()
    assert latest.stale
    assert latest.stamps == Stamps(9_000, 10_000)


def test_the_same_with_asyncio() -> None:
    latest = asyncio.run(World(9_000, 10_050).input(max_age_ms=100, wait_ms=500).alatest())
    assert latest.value == "value of 10050"


@given(st.integers(-1000, 1000), st.integers(0, 1000), st.integers(1, 500), st.integers(0, 500))
def test_a_verdict_follows_age_first_and_then_the_wait(age, waited, allowed, wait) -> None:
    verdict = judge(Policy(allowed, wait), age, waited)
    assert (verdict is Verdict.USE) == (age <= allowed)
    assert verdict is not Verdict.WAIT or waited < wait


def test_stamps_travel_with_every_attempt_in_whole_milliseconds(scripted, http) -> None:
    server = scripted(http.busy.replace(b"120", b"1"), http.hello)
    with Client(server.url) as client:
        client.chat([{"role": "user", "content": "Hi"}], model="m", fresh=Stamps(5.9, 7.1, 100)).answer()
    for request in server.requests:
        assert b"x-zl-event-time-ms: 5\r\nx-zl-ingest-time-ms: 7\r\nx-zl-max-age-ms: 100\r\n" in request
