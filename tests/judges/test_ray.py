"""Ray as the judge: a real cluster of several raylets, in a network of its own: Ray listens on all addresses."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.judge
STORY = Path(__file__).parent / "ray_story.py"


@pytest.fixture(scope="module")
def told(alone: list[str], tool: Callable[[str, str], str]) -> dict[str, Any]:
    """What happened to a fleet of two nodes on three machines."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is missing; install it with: pip install 'zerolayer[ray]'")
    tool("ip", "apt-get install iproute2")
    run = subprocess.run(
        [*alone, sys.executable, str(STORY)], capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def test_each_node_answers_at_an_address_of_its_own(told: dict[str, Any]) -> None:
    assert len(set(told["nodes"])) == 2
    assert told["answers"] == [5, 5]


def test_every_node_knows_the_others(told: dict[str, Any]) -> None:
    assert told["known"] == [sorted(told["nodes"])] * 2


def test_a_fleet_that_is_up_is_not_started_twice(told: dict[str, Any]) -> None:
    assert told["second"] == 2


def test_a_server_that_dies_is_replaced(told: dict[str, Any]) -> None:
    assert len(told["after_server"]) == 2
    assert told["nodes"][1] in told["after_server"]


def test_a_node_whose_machine_dies_is_placed_on_another_one(told: dict[str, Any]) -> None:
    assert len(told["after_machine"]) == 2
    assert told["known_after"] == [sorted(told["after_machine"])] * 2


def test_no_server_outlives_its_actor(told: dict[str, Any]) -> None:
    assert told["orphan"] == 0


def test_a_fleet_without_room_is_refused_with_what_is_free(told: dict[str, Any]) -> None:
    assert "no room for 5 nodes" in told["too_many"]


def test_down_ends_all_servers(told: dict[str, Any]) -> None:
    assert told["ended"] == 2
    assert told["left"] == [0, 0]
