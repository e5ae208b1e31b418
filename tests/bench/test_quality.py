"""The quality figures: known distributions give known numbers, and the script runs on a small model."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import quality

from reference.engines import with_type
from reference.tiny_model import LLAMA, write_tiny_model

HALF = np.log(np.array([0.5, 0.5], dtype=np.float32))
SKEWED = np.log(np.array([0.25, 0.75], dtype=np.float32))


def figures(ids: list[int], want: np.ndarray, got: np.ndarray) -> dict[str, float]:
    score = quality.Score()
    score.add(ids, want, got)
    return score.figures()


def test_the_same_logits_cost_nothing() -> None:
    logits = np.random.default_rng(1).standard_normal((200, 7)).astype(np.float32)
    found = figures([i % 7 for i in range(200)], logits, logits + 3)
    assert found["kl"] == pytest.approx(0, abs=1e-9)
    assert found["top1"] == 1
    assert found["perplexity_ratio"] == pytest.approx(1)


def test_divergence_is_from_the_reference_to_the_engine() -> None:
    found = figures([0, 0, 0], np.tile(HALF, (3, 1)), np.tile(SKEWED, (3, 1)))
    assert found["kl"] == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))


def test_perplexity_counts_the_tokens_that_follow() -> None:
    found = figures([1, 0, 0], np.tile(HALF, (3, 1)), np.tile(SKEWED, (3, 1)))
    assert found["perplexity_reference"] == pytest.approx(2)
    assert found["perplexity_engine"] == pytest.approx(4)
    assert found["perplexity_ratio"] == pytest.approx(2)


def test_the_likeliest_token_is_compared_at_every_position() -> None:
    assert figures([0, 0, 0, 0], np.tile(SKEWED, (4, 1)), np.array([SKEWED, SKEWED, -SKEWED, SKEWED]))["top1"] == 0.75


def test_chunks_leave_out_a_short_rest_only() -> None:
    assert [len(chunk) for chunk in quality.chunks_of(range(1100), 512)] == [512, 512, 76]
    assert [len(chunk) for chunk in quality.chunks_of(range(1050), 512)] == [512, 512]


def test_the_script_prints_one_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf", with_type(LLAMA, "Q8_0"))
    texts = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for text in texts:
        text.write_text("The hero of the tale went to the sea in a boat. " * 20)
    wanted = ["--model", str(model), "--chunk", "128", "--tokens-per-text", "200", "--threads", "1"]
    quality.main([*wanted, "--text", *map(str, texts), "--json", str(tmp_path / "out.json")])
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [(row["text"], row["tokens"]) for row in rows if row["mode"] == "int8"] == [
        ("a.txt", 200),
        ("b.txt", 200),
        ("all", 400),
    ]
    assert {row["mode"] for row in rows} == {"int8", "exact"}
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(rows)
    assert all(0 <= row["kl"] < 0.1 for row in rows)
