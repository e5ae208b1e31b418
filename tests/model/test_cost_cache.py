"""Step times from one start to the next: of the same engine and machine only, and never in the way of a start."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zerolayer.model.cost_cache import KEPT, StepTimes, place, read, write
from zerolayer.model.engine import EngineInfo

INFO = EngineInfo("native", "vnni", "exact", 2, 32, 512, 128, 49_152, 1 << 29)
TIMES = StepTimes([(16, 0, 12_000_000), (15, 128, 90_000_000)], 0.4, 3_400_000)
NS = st.integers(1, 10**11)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "costs-1.json"


@given(
    st.builds(
        StepTimes,
        st.lists(st.tuples(st.integers(1, 99), st.integers(0, 999), NS), min_size=1, max_size=20),
        st.floats(0, 1),
        NS,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_written_is_read(file: Path, times: StepTimes) -> None:
    write(file, times)
    found = read(file)
    assert found is not None
    assert (found.steps, found.scored_share, found.alone_ns) == (times.steps, times.scored_share, times.alone_ns)


def test_the_file_is_its_owners_alone(file: Path) -> None:
    write(file, TIMES)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\xff",
        b'{"version":1,"steps":[[16,0,1200',
        b'{"version":2,"steps":[[16,0,12]],"scored_share":0.4,"alone_ns":3}',
        b'{"version":1,"steps":[],"scored_share":0.4,"alone_ns":3}',
        b'{"version":1,"steps":[[16,0,-1]],"scored_share":0.4,"alone_ns":3}',
        b'{"version":1,"steps":[[0,0,9]],"scored_share":0.4,"alone_ns":3}',
        b'{"version":1,"steps":[[16,0,9]],"scored_share":7,"alone_ns":3}',
        b'{"version":1,"steps":[[16,0,9]],"scored_share":0.4,"alone_ns":0}',
        b" " * (1 << 17),
    ],
)
def test_what_cannot_be_used_counts_as_nothing(file: Path, data: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(data)
    assert read(file) is None


def test_nothing_was_kept_before_the_first_start(file: Path) -> None:
    assert read(file) is None


def test_a_home_that_cannot_be_written_only_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zerolayer.model")
    (tmp_path / "cache").write_text("a file where the folder should be")
    write(tmp_path / "cache" / "costs-1.json", TIMES)
    assert [record.levelno for record in caplog.records] == [logging.INFO]


def test_the_oldest_files_leave(file: Path) -> None:
    for age in range(KEPT + 3):
        one = file.with_name(f"costs-{age}.json")
        write(one, TIMES)
        os.utime(one, ns=(age, age))
    write(file.with_name("costs-new.json"), TIMES)
    left = {one.name for one in file.parent.iterdir()}
    assert left == {"costs-new.json", *(f"costs-{age}.json" for age in range(4, KEPT + 3))}


@pytest.mark.parametrize(
    "change",
    [
        {"kernels": "avx2"},
        {"weights": "int8"},
        {"threads": 1},
        {"slots": 8},
        {"slot_tokens": 256},
        {"chunk_tokens": 64},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_engine_has_another_file(change: dict[str, object]) -> None:
    assert place({}, "m", msgspec.structs.replace(INFO, **change)) != place({}, "m", INFO)


def test_other_model_files_have_another_file() -> None:
    assert place({}, "model 98 MB, of today", INFO) != place({}, "model 98 MB, of yesterday", INFO)


def test_another_processor_has_another_file(tmp_path: Path) -> None:
    places = set()
    for name in ("EPYC", "Xeon"):
        (tmp_path / "proc").mkdir(exist_ok=True)
        (tmp_path / "proc/cpuinfo").write_text(f"processor\t: 0\nmodel name\t: {name}\n")
        places.add(place({}, "m", INFO, tmp_path))
    assert len(places) == 2
