"""When a thread of a step offers its core, on scripted times."""

from __future__ import annotations

import pytest

from zerolayer.model._native import Offers

US = 1000
LOOK, EVERY, PATIENCE, LONG = 50 * US, 250 * US, 150 * US, 2000 * US
NONE = -1  # no bell is to be heard
REST = 16


class Script:
    """A thread that computes from 1 s on, and asks after each ``work``."""

    def __init__(self) -> None:
        self.offers = Offers()
        self.now = 1_000_000_000
        self.offer(0)

    def offer(self, away: int) -> None:
        """It yields, and is away for so long."""
        self.offers.due(self.now, NONE)
        self.offers.made(self.now, self.now + away)
        self.now += away

    def work(self, ns: int, unheard: int = NONE) -> bool:
        self.now += ns
        return self.offers.due(self.now, unheard)


@pytest.fixture
def script() -> Script:
    return Script()


def test_a_core_is_offered_from_time_to_time(script: Script) -> None:
    assert not script.work(EVERY - 1)
    assert script.work(1)


def test_the_time_counts_from_when_it_was_back(script: Script) -> None:
    script.offer(LONG - 1)
    assert not script.work(EVERY - 1)
    assert script.work(1)


def test_it_is_offered_at_once_while_a_bell_is_not_heard(script: Script) -> None:
    assert script.work(0, unheard=0)
    assert script.work(LOOK, unheard=LOOK)


def test_nothing_is_looked_at_more_often_than_is_worth_while(script: Script) -> None:
    script.work(EVERY)
    assert not script.offers.looks(script.now + LOOK - 1)
    assert script.offers.looks(script.now + LOOK)


def test_who_was_away_for_long_offers_nothing_for_many_times_as_long(script: Script) -> None:
    script.offer(LONG)
    assert not script.work(REST * LONG - 1)
    assert script.work(1)


def test_but_to_a_loop_that_has_waited_for_long(script: Script) -> None:
    script.offer(LONG)
    assert not script.work(LOOK, unheard=PATIENCE - 1)
    assert script.work(0, unheard=PATIENCE)
