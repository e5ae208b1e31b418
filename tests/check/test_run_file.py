"""The result file: what is written is read again, and nothing else is taken for it."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from check import simulated
from zerolayer.check.errors import InputFileError
from zerolayer.check.run_file import VERSION, read, write

RUN = replace(
    simulated.run(simulated.refusing(4), probes=12, repeats=2, sizes=(1, 8), step_s=1.0),
    pace_phase=np.array([0, 1]),
    pace_took=np.array([9_000, 11_000]),
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    write(RUN, path)
    return path


def test_a_run_is_read_as_it_was_written(saved: Path) -> None:
    again = read(saved)
    for field in fields(RUN):
        assert np.array_equal(getattr(again, field.name), getattr(RUN, field.name)), field.name


def test_the_file_says_what_it_is(saved: Path) -> None:
    head = json.loads(saved.read_text())
    assert (head["format"], head["version"]) == ("zerolayer pulse", VERSION)


def test_a_newer_version_is_refused_with_the_remedy(saved: Path) -> None:
    saved.write_text(saved.read_text().replace(f'"version":{VERSION}', f'"version":{VERSION + 1}', 1))
    with pytest.raises(InputFileError, match=rf"version {VERSION + 1}, newer than {VERSION}.*Update"):
        read(saved)


def test_a_file_that_is_older_than_the_machine_s_pace_is_read(saved: Path) -> None:
    file = json.loads(saved.read_text())
    del file["pace"]
    saved.write_text(json.dumps(file | {"version": 3}))
    assert len(read(saved).pace_took) == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format":"other","version":1}', "\x00"])
def test_another_file_is_no_result(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InputFileError, match="is no result"):
        read(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file["requests"]["sent"].pop(),
        lambda file: file["requests"]["phase"].__setitem__(0, 99),
        lambda file: file["requests"]["sent"].__setitem__(0, "x"),
        lambda file: file["requests"]["sent"].__setitem__(0, 1 << 70),
        lambda file: file["reads"].update(request=[10**6], time=[1], events=[1]),
        lambda file: file["pace"]["took"].pop(),
        lambda file: file.pop("settings"),
    ],
)
def test_a_damaged_file_is_refused(saved: Path, damage) -> None:
    file = json.loads(saved.read_text())
    damage(file)
    saved.write_text(json.dumps(file))
    with pytest.raises(InputFileError, match="is damaged"):
        read(saved)


def test_a_missing_file_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="cannot be read"):
        read(tmp_path / "none.json")
