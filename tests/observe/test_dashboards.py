"""Dashboards and rules: the files are what the command writes, and name nothing that no server emits."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "front"))

from echo_model import EchoEngine, LastMessage
from echo_service import Service, chat, get

from zerolayer.cli import main
from zerolayer.errors import UsageError
from zerolayer.observe.alerts import ALERTS, CASES, RECORDS
from zerolayer.observe.dashboard_files import files, write
from zerolayer.observe.dashboards import dashboard, expressions

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = re.compile(r"\b(?:zerolayer|vllm):[a-z0-9_:]+")
LABELS = re.compile(r"([a-z_]+:[a-z0-9_:]+)\{([^}]*)\}")


@pytest.fixture(scope="module")
def page() -> str:
    """What a server emits that has served one request and refused another."""
    engine = EchoEngine(slots=2, slot_tokens=512, chunk_tokens=64, step_us=200)
    service = Service({"slots": "2", "slot-tokens": "512"}, engine, None, 0.02, {}, {}, LastMessage)
    assert service.ask(chat("hello")).status == 200
    assert service.ask(chat("hello", model="nobody")).status == 404
    assert service.ask(chat("hello", temperature=9)).status == 400
    text = service.ask(get("/metrics"), service.server.admin_port).body.decode()
    service.close()
    return text


@pytest.mark.parametrize("name", files())
def test_the_file_is_what_the_command_writes(name):
    assert (DEPLOY / name).read_bytes() == files()[name], "run: zerolayer dashboards"


def test_the_files_that_were_written_are_told_as_json(tmp_path, capsys):
    assert main(["dashboards", "--out", str(tmp_path / "new"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {Path(path).name: Path(path).read_bytes() for path in told["files"]} == files()
    assert told["version"] == 1


def test_every_metric_that_is_named_is_emitted_by_a_running_server(page):
    emitted = {line.split("{")[0] for line in page.split("\n") if line and not line.startswith("#")}
    recorded = {record.name for record in RECORDS}
    used = [*expressions(), *[record.expr for record in RECORDS], *[alert.expr for alert in ALERTS]]
    named = {name for expr in used for name in NAME.findall(expr)}
    assert len(named) > 25
    assert named - recorded - emitted == set()


def test_every_label_that_is_asked_for_is_emitted(page):
    labels = {name: set(re.findall(r'(\w+)="', body)) for name, body in LABELS.findall(page)}
    for expr in [record.expr for record in RECORDS] + [alert.expr for alert in ALERTS]:
        for name, body in LABELS.findall(expr):
            assert set(re.findall(r'(\w+)=~?"', body)) <= labels[name]


def test_each_alert_has_a_case_that_fires_and_one_that_does_not():
    for alert in ALERTS:
        assert {case.fires for case in CASES if case.alert == alert.name} == {True, False}


def test_every_recorded_figure_is_used():
    used = " ".join([*expressions(), *[alert.expr for alert in ALERTS], *[record.expr for record in RECORDS]])
    assert all(used.count(record.name) > 0 for record in RECORDS)


def test_panels_lie_side_by_side_and_have_numbers_of_their_own():
    panels = json.loads(dashboard())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = set()
    for panel in panels:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells
        assert place["x"] + place["w"] <= 24
        cells |= own


def test_a_folder_is_made_where_it_is_missing(tmp_path):
    told = write(str(tmp_path / "a" / "b"))
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == sorted(files())
    assert len(told) == len(files())


def test_a_folder_that_cannot_be_is_the_callers_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--out"):
        write(str(tmp_path / "file"))
