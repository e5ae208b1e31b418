"""Prometheus' own tool on the rule files: they parse, and every alert fires when it should and only then."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMTOOL = shutil.which("promtool")

pytestmark = [
    pytest.mark.judge,
    pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing; apt-get install prometheus"),
]


def promtool(*arguments: str, folder: Path = DEPLOY) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PROMTOOL), *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_the_rules_are_valid():
    done = promtool("check", "rules", "prometheus.rules.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should_and_only_then():
    done = promtool("test", "rules", "prometheus.rules.test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("band", ["> 0.03", "< 0.005", "> 1.2", "< 0.995", "< 0.85", "> 0.04", "< 0.05"])
def test_a_band_that_is_moved_is_noticed(tmp_path, band):
    rules = (DEPLOY / "prometheus.rules.yml").read_text()
    assert band in rules
    sign = band[0]
    (tmp_path / "prometheus.rules.yml").write_text(rules.replace(band, f"{sign} {'-1' if sign == '<' else '9'}"))
    shutil.copy(DEPLOY / "prometheus.rules.test.yml", tmp_path)
    assert promtool("test", "rules", "prometheus.rules.test.yml", folder=tmp_path).returncode != 0
