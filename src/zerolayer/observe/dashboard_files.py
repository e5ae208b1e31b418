"""``zerolayer dashboards``: the dashboard, the rules and their tests, written as files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from zerolayer.errors import UsageError, system_reason
from zerolayer.observe.alerts import rule_tests, rules
from zerolayer.observe.dashboards import dashboard

DASHBOARD: Final = "grafana-dashboard.json"
RULES: Final = "prometheus.rules.yml"
RULE_TESTS: Final = "prometheus.rules.test.yml"


def files() -> dict[str, bytes]:
    """Name -> content."""
    return {DASHBOARD: dashboard(), RULES: rules().encode(), RULE_TESTS: rule_tests(RULES).encode()}


def write(folder: str) -> list[str]:
    """Write them into ``folder``, which is made where it is missing; says for each what to do with it."""
    into = Path(folder)
    try:
        into.mkdir(parents=True, exist_ok=True)
        for name, content in files().items():
            (into / name).write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"the folder cannot be written ({system_reason(error)}); name another one with --out"
        ) from None
    return [
        f"{into / DASHBOARD}: import it in Grafana (Dashboards, New, Import)",
        f"{into / RULES}: name it under rule_files in prometheus.yml",
        f"{into / RULE_TESTS}: promtool test rules {into / RULE_TESTS}",
    ]


def as_json(folder: str) -> str:
    """What ``write`` wrote, for programs: ``{"version": 1, "files": [path, ...]}``."""
    return msgspec.json.encode({"version": 1, "files": [str(Path(folder) / name) for name in files()]}).decode()
