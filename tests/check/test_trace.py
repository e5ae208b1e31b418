"""Published traces are read as they are, and replayed at their times."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerolayer.check.errors import InputFileError
from zerolayer.check.trace import Arrival, read_trace

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n"
    "2023-11-16 18:17:04.0799600,3180,8"
)
MOONCAKE = (
    '{"timestamp": 3000, "input_length": 9, "output_length": 5, "hash_ids": [1]}\n'
    '{"timestamp": 1000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n'
)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace"
    path.write_text(text, newline="")
    return path


def test_azures_csv_is_read(tmp_path: Path) -> None:
    first, second = read_trace(write(tmp_path, AZURE))
    assert first == Arrival(0.0, 4808, 10)
    assert second.at_ms == pytest.approx(100.0, abs=0.01)


def test_mooncakes_lines_are_read_and_sorted(tmp_path: Path) -> None:
    assert read_trace(write(tmp_path, MOONCAKE)) == [Arrival(0.0, 6758, 500), Arrival(2000.0, 9, 5)]


def test_a_trace_is_replayed_faster_and_shorter(tmp_path: Path) -> None:
    path = write(tmp_path, MOONCAKE)
    assert read_trace(path, speed=4.0)[1].at_ms == 500.0
    assert len(read_trace(path, limit=1)) == 1


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "{}\n", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", '{"timestamp": 1']
)
def test_another_file_is_no_trace(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputFileError):
        read_trace(write(tmp_path, text))
