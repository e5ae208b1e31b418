"""The troubleshooting page has a row for whatever can go wrong, and each row says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zerolayer.errors import ZerolayerError
from zerolayer.observe.alerts import ALERTS

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line and "symptom" not in line]


def codes() -> set[str]:
    found, todo = {ZerolayerError.code}, [ZerolayerError]
    while todo:
        for kind in todo.pop().__subclasses__():
            if kind.__module__ == "zerolayer.errors":
                found.add(kind.code)
                todo.append(kind)
    return found


@pytest.mark.parametrize("code", sorted(codes()))
def test_every_error_has_a_row(code):
    assert any(f"`{code}`" in row.split("|")[1] for row in ROWS)


@pytest.mark.parametrize("alert", [alert.name for alert in ALERTS])
def test_every_alert_has_a_row(alert):
    assert any(f"`{alert}`" in row.split("|")[1] for row in ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_symptom_cause_command_and_remedy(row):
    symptom, cause, _, remedy = (cell.strip() for cell in row.strip("|").split("|"))
    assert symptom
    assert cause
    assert remedy


def test_links_lead_somewhere():
    for name in re.findall(r"\]\(([a-z-]+\.md)", PAGE):
        assert (DOCS / name).exists()
