"""Rows of the front bench: the least of all rounds, and what is above the floor of the same round."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from front_rows import UNARY, Row, Rows


def rows(*kept: tuple[str, str, float]) -> dict[tuple[str, str], dict[str, object]]:
    found = Rows()
    for server, what, value in kept:
        found.keep(server, what, value, "us")
    return {(row["server"], row["what"]): row for row in found.as_json()}


def test_a_row_is_its_least_round():
    assert Row("a", "b", "us", [3.0, None, 2.0]).value == 2.0
    assert Row("a", "b", "us", [None]).value is None


def test_the_floor_of_the_same_round_is_taken_off():
    found = rows(("zerolayer", UNARY, 20.0), ("floor", UNARY, 15.0), ("zerolayer", UNARY, 18.0), ("floor", UNARY, 8.0))
    assert found["zerolayer", UNARY]["over_floor"] == 5.0  # the machine was busy in both: what is ours was no more


def test_streams_are_compared_with_streams_and_refusals_with_requests():
    token = "token, SSE, 128 connections"
    found = rows(
        ("zerolayer", "refusal, HTTP/1.1, JSON", 30.0), ("zerolayer", token, 9.0), ("floor", UNARY, 10.0),
        ("floor", token, 6.0),
    )  # fmt: skip
    assert found["zerolayer", "refusal, HTTP/1.1, JSON"]["over_floor"] == 20.0
    assert found["zerolayer", token]["over_floor"] == 3.0


def test_what_no_floor_does_has_none():
    found = rows(("zerolayer", "HTTP/2, 1 connection", 10.0), ("floor", UNARY, 8.0), ("in process", "JSON", 1.0))
    assert found["zerolayer", "HTTP/2, 1 connection"]["over_floor"] is None
    assert found["in process", "JSON"]["over_floor"] is None
    assert found["floor", UNARY]["over_floor"] is None


def test_a_peer_has_its_ratio():
    found = rows(("zerolayer", UNARY, 10.0), ("uvicorn", UNARY, 25.0))
    assert found["uvicorn", UNARY]["ratio"] == 2.5
    assert found["zerolayer", UNARY]["ratio"] is None


def test_every_row_is_a_line():
    found = Rows()
    found.keep("zerolayer", UNARY, 10.0, "us")
    found.keep("zerolayer", "gap", None, "ms")
    assert len(list(found.lines())) == 3
