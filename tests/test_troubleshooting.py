"""The troubleshooting page has a row for whatever can go wrong, and each row says what to do."""

from __future__ import annotations

import contextlib
import importlib
import json
import pkgutil
import re
from pathlib import Path

import pytest

import zerolayer
from zerolayer.client.errors import Refused
from zerolayer.errors import HELP, SlotsBusy, ZerolayerError
from zerolayer.observe.alerts import ALERTS
from zerolayer.wire import anthropic_reply, openai_reply
from zerolayer.wire.grpc import status_trailers

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line and "symptom" not in line]


def kinds() -> set[type[ZerolayerError]]:
    """Every error of the package, wherever it is defined."""
    for module in pkgutil.walk_packages(zerolayer.__path__, "zerolayer."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(module.name)
    found, todo = {ZerolayerError}, [ZerolayerError]
    while todo:
        for kind in todo.pop().__subclasses__():
            if kind.__module__.startswith("zerolayer."):
                found.add(kind)
                todo.append(kind)
    return found


CODES = sorted({kind.code for kind in kinds()})
HELP_PATH, _, _ = HELP.partition("#")


@pytest.mark.parametrize("code", CODES)
def test_every_error_has_a_row_and_an_anchor(code):
    rows = [row for row in ROWS if f'<a id="{code}"></a>' in row]
    assert len(rows) == 1
    assert f"`{code}`" in rows[0].split("|")[1]


def test_what_an_error_points_to_is_the_page_with_the_rows():
    assert (DOCS.parent / HELP_PATH).read_text(encoding="utf-8") == PAGE


@pytest.mark.parametrize("alert", [alert.name for alert in ALERTS])
def test_every_alert_has_a_row_and_points_to_it(alert):
    assert any(f'<a id="{alert}"></a>`{alert}`' in row.split("|")[1] for row in ROWS)
    assert f'runbook: "{HELP}{alert}"' in (DOCS.parent / "deploy" / "prometheus.rules.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_symptom_cause_command_and_remedy(row):
    symptom, cause, _, remedy = (cell.strip() for cell in row.strip("|").split("|"))
    assert symptom
    assert cause
    assert remedy


def test_links_lead_somewhere():
    for name in re.findall(r"\]\(([a-z-]+\.md)", PAGE):
        assert (DOCS / name).exists()


ERRORS = [
    ZerolayerError("no"),
    SlotsBusy("ask again in {ms} ms", retry_after_ms=7),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_every_shape_of_an_error_names_its_row(error):
    row = f"docs/troubleshooting.md#{error.code}"
    assert json.loads(openai_reply.error_body(error))["error"]["help"] == row
    assert json.loads(anthropic_reply.error_body(error, "r"))["error"]["details"]["help"] == row
    assert dict(status_trailers(error))[b"zl-help"] == row.encode()


def test_an_error_of_somebody_elses_server_is_repeated_only_where_it_can_be_a_code_of_ours():
    assert Refused("no", status_code=429, error_code="slots_busy").help.endswith("#slots_busy")
    assert Refused("no", status_code=429, error_code="Something\nelse").help.endswith("#client_error")
