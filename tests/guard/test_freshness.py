"""How old an input may be, and what follows."""

from __future__ import annotations

import pytest

from zerolayer.errors import InvalidRequest, StaleInput
from zerolayer.guard.freshness import Freshness, Stamps

NOW = 1_900_000_000_000


def _judge(policy: str = "refuse", limit: int = 0, **headers: int | str):
    freshness = Freshness(limit, policy)
    table = {f"x-zl-{name.replace('_', '-')}".encode(): str(value).encode() for name, value in headers.items()}
    return freshness.judge(freshness.read(table.get), NOW)


def test_without_stamps_nothing_is_checked():
    assert _judge(limit=10).age_ms is None


def test_the_age_is_that_of_the_older_stamp():
    assert _judge(event_time_ms=NOW - 30, ingest_time_ms=NOW - 10).age_ms == 30


@pytest.mark.parametrize(("age", "refused"), [(100, False), (101, True)])
def test_input_beyond_the_largest_age_is_refused(age, refused):
    if refused:
        with pytest.raises(StaleInput):
            _judge(event_time_ms=NOW - age, max_age_ms=100)
    else:
        assert _judge(event_time_ms=NOW - age, max_age_ms=100).age_ms == age


def test_the_smaller_of_request_and_contract_counts():
    with pytest.raises(StaleInput):
        _judge(limit=50, event_time_ms=NOW - 60, max_age_ms=100)


def test_stale_input_is_flagged_where_the_contract_says_so():
    verdict = _judge("flag", event_time_ms=NOW - 200, max_age_ms=100)
    assert (verdict.age_ms, verdict.stale) == (200, True)


def test_input_ages_while_its_request_is_held():
    freshness, stamps = Freshness(0, "refuse"), Stamps(NOW - 90, 100)
    assert freshness.judge(stamps, NOW).age_ms == 90
    with pytest.raises(StaleInput):
        freshness.judge(stamps, NOW + 20)


def test_a_time_that_has_not_come_is_waited_for_where_the_contract_says_so():
    assert _judge("wait", event_time_ms=NOW + 40).wait_ms == 40
    assert _judge("refuse", event_time_ms=NOW + 40).age_ms == 0


def test_waiting_makes_nothing_younger():
    with pytest.raises(StaleInput):
        _judge("wait", event_time_ms=NOW - 200, max_age_ms=100)


def test_a_time_far_ahead_is_a_wrong_clock():
    with pytest.raises(InvalidRequest):
        _judge("wait", event_time_ms=NOW + 1_001)


@pytest.mark.parametrize("value", ["abc", "-1", "1.5", "", "9" * 16])
@pytest.mark.parametrize("name", ["event_time_ms", "ingest_time_ms", "max_age_ms"])
def test_what_is_no_number_is_400(name, value):
    with pytest.raises(InvalidRequest):
        _judge(**{"event_time_ms": NOW, name: value})


def test_a_largest_age_without_a_time_is_400():
    with pytest.raises(InvalidRequest):
        _judge(max_age_ms=100)
