"""Prometheus' own tool on the rule files: they parse, and every alert fires when it should and only then."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.judge

DEPLOY = Path(__file__).parents[2] / "deploy"

Promtool = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def promtool(tool: Callable[[str, str], str]) -> Promtool:
    """Runs it in a folder, that of the files that are given to people by default."""
    program = tool("promtool", "make judge-tools")

    def run(*arguments: str, folder: Path = DEPLOY) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)

    return run


def test_the_rules_are_valid(promtool):
    done = promtool("check", "rules", "prometheus.rules.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should_and_only_then(promtool):
    done = promtool("test", "rules", "prometheus.rules.test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


BANDS = {
    "ZerolayerRefusesTooMuch": "> 0.03", "ZerolayerRefusesTooLittle": "< 0.005", "ZerolayerRetriesTooOften": "> 1.2",
    "ZerolayerFirstRetryNotServed": "< 0.995", "ZerolayerProgramMisses": "< 0.85", "ZerolayerGlueHigh": "> 0.04",
    "ZerolayerFakeBusy": "< 0.05",
}  # fmt: skip


def test_a_band_that_is_moved_is_noticed(promtool, tmp_path):
    """All of them in one run: the alert of each must then stay quiet in the case in which it should fire."""
    rules = (DEPLOY / "prometheus.rules.yml").read_text()
    for band in BANDS.values():
        assert band in rules
        rules = rules.replace(band, f"{band[0]} {'-1' if band[0] == '<' else '9'}")
    (tmp_path / "prometheus.rules.yml").write_text(rules)
    shutil.copy(DEPLOY / "prometheus.rules.test.yml", tmp_path)
    done = promtool("test", "rules", "prometheus.rules.test.yml", folder=tmp_path)
    assert done.returncode != 0
    assert {name for name in BANDS if f"alertname: {name}" in done.stdout + done.stderr} == set(BANDS)
