"""All tests in lanes: what computes runs beside what waits for sockets; beside what measures time, nothing computes.

    python tests/lanes.py test|judges

A lane is one pytest. The first of a round is shown; those beside it report when all have ended, and what computes is
niced. What failed in any lane is what ``pytest --last-failed`` runs next. Each lane's seconds are told at the end: in a
round they should be about the same, and a file that makes one too long goes to another.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
RAN = (0, 1)  # pytest's exit codes when all tests of a lane ran
COLOURS = re.compile(rb"\x1b\[[\d;]*m")
ENDS = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warning", "error")
SUMMARY = re.compile(rb"^=+ (.*) in ([\d.]+)s.* =+$", re.MULTILINE)


@dataclass(frozen=True)
class Lane:
    """The tests under ``paths``; without any, those that no other lane has. ``computes``: others come before it."""

    name: str
    paths: tuple[str, ...] = ()
    computes: bool = False


@dataclass(frozen=True)
class Plan:
    """Rounds, one after another: the lane that is shown, and those beside it. All with ``options``."""

    options: tuple[str, ...]
    rounds: tuple[tuple[Lane, ...], ...]


COMPUTATION = Lane(
    "computation",
    (
        "tests/guard", "tests/model", "tests/observe", "tests/reference", "tests/text", "tests/wire",
        "tests/check/test_compare.py", "tests/check/test_detector_power.py", "tests/check/test_diseases.py",
        "tests/check/test_statistics.py", "tests/test_architecture.py",
    ),
    computes=True,
)  # fmt: skip
DOORS = Lane("doors", ("tests/client", "tests/front"))
BUILDS = Lane(
    "builds",
    ("tests/judges/test_sanitizers.py", "tests/judges/test_arm64.py", "tests/test_packaging.py"),
    computes=True,
)
FIGURES = Lane(  # on one core each, while builds wait for the longest compiler
    "figures",
    (
        "tests/check/test_detector_power.py", "tests/judges/test_structured_output.py",
        "tests/model/test_native_accuracy.py",
    ),
    computes=True,
)  # fmt: skip
FAULTS = Lane(
    "faults",
    (
        "tests/judges/test_cancels.py", "tests/judges/test_faults.py", "tests/judges/test_keys.py",
        "tests/judges/test_kill.py", "tests/judges/test_live_page.py", "tests/judges/test_ray.py",
        "tests/judges/test_takeovers.py",
    ),
)  # fmt: skip
TIME = Lane(
    "time",
    (
        "tests/check/test_diseases.py", "tests/check/test_traps.py", "tests/judges/test_overload.py",
        "tests/judges/test_pulse.py", "tests/judges/test_real_nodes.py",
    ),
)  # fmt: skip
PACED = Lane("paced", ("tests/judges/test_simulate.py",))  # waits for a mock's steps while TIME waits for its sockets
PLANS = {
    "test": Plan((), ((Lane("servers"), DOORS, COMPUTATION),)),
    "judges": Plan(("-m", "judge", "-rs"), ((Lane("clients"), FAULTS, BUILDS, FIGURES), (TIME, PACED))),
}


class Lanes:
    """Runs a plan in ``root``. ``codes`` has each lane's exit code, ``ends`` how many tests came to which end.

    ``seconds`` is what each lane said that it took.
    """

    def __init__(self, plan: Plan, root: Path = ROOT) -> None:
        self._plan, self._root = plan, root
        self._cache = root / ".pytest_cache"
        self.codes: dict[str, int] = {}
        self.ends: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}

    def run(self) -> int:
        """0 when no lane failed. A lane without a test is one that failed."""
        begun_s = time.monotonic()
        shutil.rmtree(self._cache / "lanes", ignore_errors=True)
        for lanes in self._plan.rounds:
            self._round(lanes)
        self._keep_failures()
        ends = ", ".join(f"{self.ends[end]} {end}" for end in sorted(self.ends, key=_place))
        took = ", ".join(f"{name} {self.seconds.get(name, math.nan):.0f} s" for name in self.codes)
        print(f"All lanes ({took}):")
        print(f"========= {ends} in {time.monotonic() - begun_s:.2f}s =========")
        return 1 if any(self.codes.values()) else 0

    def _round(self, lanes: tuple[Lane, ...]) -> None:
        shown, *others = lanes
        reports = []
        with contextlib.ExitStack() as running:
            for lane in others:
                report = running.enter_context(tempfile.TemporaryFile())
                command = [*(["nice"] if lane.computes else []), *self._command(lane)]
                process = subprocess.Popen(command, cwd=self._root, stdout=report)
                running.callback(process.kill)  # where this one is interrupted; else it has ended
                reports.append((lane, process, report))
            self._show(shown)
            for lane, process, report in reports:
                self.codes[lane.name] = process.wait()
                report.seek(0)
                said = report.read()
                self._write(said)
                self._count(lane, said)

    def _show(self, lane: Lane) -> None:
        colour = "yes" if sys.stdout.isatty() else "no"
        command = [*self._command(lane), f"--color={colour}"]
        with subprocess.Popen(command, cwd=self._root, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            said = bytearray()
            while piece := os.read(process.stdout.fileno(), 65536):  # a test's dot comes long before its line is whole
                self._write(piece)
                said += piece
        self.codes[lane.name] = process.returncode
        self._count(lane, said)

    def _command(self, lane: Lane) -> list[str]:
        taken = [path for each in self._others(lane) for path in each.paths]
        where = lane.paths or ("tests", *(f"--ignore={path}" for path in taken))
        cache = f"cache_dir={self._cache / 'lanes' / lane.name}"
        return [sys.executable, "-m", "pytest", "-o", cache, *self._plan.options, *where]

    def _others(self, lane: Lane) -> list[Lane]:
        return [each for lanes in self._plan.rounds for each in lanes if each is not lane]

    @staticmethod
    def _write(said: bytes) -> None:
        sys.stdout.flush()
        sys.stdout.buffer.write(said)
        sys.stdout.buffer.flush()

    def _count(self, lane: Lane, said: bytes | bytearray) -> None:
        for summary, seconds in SUMMARY.findall(COLOURS.sub(b"", said))[-1:]:
            self.seconds[lane.name] = float(seconds)
            for count, end in re.findall(r"(\d+) (\w+)", summary.decode()):
                self.ends[end.removesuffix("s") if end.startswith("error") else end] += int(count)

    def _keep_failures(self) -> None:
        """As pytest keeps its own. None where a lane did not come to its end: ``--last-failed`` then runs all tests."""
        failed: dict[str, bool] = {}
        for name in self.codes:
            kept = self._cache / "lanes" / name / "v" / "cache" / "lastfailed"
            failed |= json.loads(kept.read_text()) if kept.exists() else {}
        kept = self._cache / "v" / "cache" / "lastfailed"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(failed if all(code in RAN for code in self.codes.values()) else {}))


def _place(end: str) -> int:
    """Where pytest's own summary has it."""
    return ENDS.index(end) if end in ENDS else len(ENDS)


if __name__ == "__main__":
    sys.exit(Lanes(PLANS[sys.argv[1]]).run())
