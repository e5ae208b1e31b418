"""The tests in lanes are all tests, each once; and nothing that fails in a lane is lost."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from lanes import PLANS, ROOT, Lane, Lanes, Plan

HALVES = Plan((), ((Lane("rest"), Lane("half", ("tests/half",))),))
PASSES, FAILS, DIES = "assert True", "assert False", "__import__('os')._exit(3)"


@pytest.fixture(autouse=True)
def _lean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins make most of the time in which so small a pytest starts."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def suite(folder: Path, **bodies: str) -> Path:
    """Tests of these bodies; ``a`` lies in ``tests/half``."""
    for name, body in bodies.items():
        path = folder / "tests" / ("half" if name == "a" else "") / f"test_{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def test_{name}():\n    {body}\n")
    return folder


def run_again(folder: Path) -> str:
    """How ``pytest --last-failed`` ends."""
    command = [sys.executable, "-m", "pytest", "--last-failed", "-q"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout.splitlines()[-1]


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_every_file_of_tests_has_one_lane_and_every_lane_its_files(plan: Plan) -> None:
    lanes = [lane for lanes in plan.rounds for lane in lanes]
    named = [ROOT / path for lane in lanes for path in lane.paths]
    assert all(path.exists() for path in named)
    files = Counter(file for path in named for file in ([path] if path.is_file() else path.rglob("test_*.py")))
    assert max(files.values()) == 1
    assert sum(not lane.paths for lane in lanes) == 1  # which has all others


def test_no_test_is_lost_and_none_runs_twice(tmp_path: Path) -> None:
    lanes = Lanes(HALVES, suite(tmp_path, a=PASSES, b=PASSES, c=PASSES))
    assert lanes.run() == 0
    assert lanes.ends == {"passed": 3}
    assert lanes.codes == {"rest": 0, "half": 0}


def test_what_failed_in_any_lane_fails_the_run_and_is_what_runs_next(tmp_path: Path) -> None:
    lanes = Lanes(HALVES, suite(tmp_path, a=FAILS, b=FAILS, c=PASSES))
    assert lanes.run() == 1
    assert lanes.ends == {"passed": 1, "failed": 2}
    assert run_again(tmp_path).startswith("2 failed in")


@pytest.mark.parametrize("dying", ["a", "b"])
def test_after_a_lane_that_died_all_tests_run_again(tmp_path: Path, dying: str) -> None:
    suite(tmp_path, **{"a": FAILS, "b": FAILS, dying: DIES})
    assert Lanes(HALVES, tmp_path).run() == 1
    suite(tmp_path, a=PASSES, b=PASSES)
    assert run_again(tmp_path).startswith("2 passed in")


def test_a_lane_that_has_no_test_fails(tmp_path: Path) -> None:
    (tmp_path / "tests" / "half").mkdir(parents=True)
    assert Lanes(HALVES, suite(tmp_path, b=PASSES)).run() == 1
