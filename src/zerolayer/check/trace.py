"""Arrival traces: when requests came and how large they were, in the formats that are published.

Azure LLM inference traces 2023 (CSV: TIMESTAMP, ContextTokens, GeneratedTokens) and Mooncake's (JSON lines: timestamp
in ms, input_length, output_length).
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from zerolayer.check.errors import InputFileError
from zerolayer.check.files import read_bytes
from zerolayer.check.run_file import Stage


@dataclass(frozen=True)
class Arrival:
    """One request of a trace: ms since the first, and its tokens in and out."""

    at_ms: float
    prompt_tokens: int
    output_tokens: int


class _Mooncake(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int


def read_trace(path: Path, *, speed: float = 1.0, limit: int | None = None) -> list[Arrival]:
    """The first ``limit`` requests in order of time, ``speed`` times as fast. Raises ``InputFileError``."""
    data = read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
        lines = text.splitlines()
        rows = _mooncake(lines) if text.lstrip().startswith("{") else _azure(lines)
    except (KeyError, ValueError, TypeError, msgspec.DecodeError):
        raise InputFileError(
            f"{path.name} is no trace in Azure's format (CSV with TIMESTAMP, ContextTokens, GeneratedTokens) "
            "or Mooncake's (JSON lines with timestamp, input_length, output_length)."
        ) from None
    rows.sort(key=lambda row: row.at_ms)
    rows = rows[:limit]
    if not rows:
        raise InputFileError(f"{path.name} holds no request.")
    start = rows[0].at_ms
    return [Arrival((row.at_ms - start) / speed, row.prompt_tokens, row.output_tokens) for row in rows]


def _azure(lines: list[str]) -> list[Arrival]:
    return [
        Arrival(_milliseconds(row["TIMESTAMP"]), int(row["ContextTokens"]), int(row["GeneratedTokens"]))
        for row in csv.DictReader(lines)
    ]


def _milliseconds(text: str) -> float:
    """Azure's stamps have seven decimals; ``fromisoformat`` cuts the seventh."""
    moment = datetime.fromisoformat(text)
    return (moment - datetime(2000, 1, 1, tzinfo=moment.tzinfo)).total_seconds() * 1000


def _mooncake(lines: list[str]) -> list[Arrival]:
    decoder = msgspec.json.Decoder(_Mooncake)
    rows = [decoder.decode(line) for line in lines if line.strip()]
    return [Arrival(row.timestamp, row.input_length, row.output_length) for row in rows]


def poisson(rng: random.Random, stage: Stage) -> Iterator[float]:
    """Times in seconds of Poisson arrivals whose rate goes evenly from one value to the other (by thinning)."""
    top = max(stage.start_rate, stage.end_rate, 1e-3)
    at = 0.0
    while (at := at + rng.expovariate(top)) < stage.seconds:
        rate = stage.start_rate + (stage.end_rate - stage.start_rate) * at / stage.seconds
        if rate >= top or rng.random() * top < rate:
            yield at
