"""The simulation of the prefix cache on a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prefix_policy import hit_rate, prompts, unlimited


@pytest.fixture
def trace(tmp_path: Path) -> list[list[int]]:
    """One long prompt that comes again, among short ones that do not."""
    path = tmp_path / "trace.jsonl"
    lines = [[1, 2, 3, 4], [90], [91], [92], [1, 2, 3, 4]]
    path.write_text("".join(json.dumps({"hash_ids": line}) + "\n" for line in lines))
    return prompts(path)


def test_the_policy_keeps_what_saves_most_where_lru_keeps_what_came_last(trace: list[list[int]]) -> None:
    assert hit_rate(trace, entries=2, entry_tokens=2048, policy="saves-least") == pytest.approx(3 / 11)
    assert hit_rate(trace, entries=2, entry_tokens=2048, policy="lru") == 0.0


def test_with_room_for_all_both_find_what_there_is_to_find(trace: list[list[int]]) -> None:
    for policy in ("saves-least", "lru"):
        assert hit_rate(trace, entries=9, entry_tokens=2048, policy=policy) == unlimited(trace, 2048)


def test_an_entry_holds_no_more_than_its_tokens(trace: list[list[int]]) -> None:
    assert hit_rate(trace, entries=9, entry_tokens=1024, policy="saves-least") == pytest.approx(2 / 11)
