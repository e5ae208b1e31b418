"""lm-eval as the judge of prompts that are scored: a small local task, against the float32 reference of its file."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from judges.client_environments import HERE, python_with
from reference.engines import Engines, TinyModels
from reference.llama import ReferenceModel
from reference.server import running_server
from reference.tiny_folder import write_tiny_folder
from reference.tiny_model import LLAMA_64, write_tiny_model

pytestmark = pytest.mark.judge
PROSE = (Path(__file__).parents[1] / "data" / "prose.txt").read_text().split()
ITEMS = [(" ".join(PROSE[i : i + 12]), " " + " ".join(PROSE[i + 12 : i + 16])) for i in range(0, 320, 16)]
WEIGHTS = 0.01  # of a log likelihood: what int8 weights may move it by


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, Path]]:
    """URL, model file and folder of its tokeniser."""
    folder = tmp_path_factory.mktemp("lm-eval")
    model = write_tiny_model(folder / "tiny.gguf", LLAMA_64)
    tokenizer = write_tiny_folder(folder / "tokenizer", LLAMA_64)
    named = tokenizer / "tokenizer_config.json"  # transformers takes names of special tokens, not descriptions
    settings = json.loads(named.read_text())
    named.write_text(json.dumps(settings | {"eos_token": settings["eos_token"]["content"]}))
    with running_server("--model", str(model), "--slots", "8", "--slot-tokens", "512", "--threads", "1") as url:
        yield url, model, tokenizer


def test_log_likelihoods_are_those_of_the_reference(served: tuple[str, Path, Path], tmp_path: Path) -> None:
    url, file, tokenizer = served
    named = {"ZEROLAYER_TEST_URL": url, "ZEROLAYER_TEST_MODEL": "tiny", "ZEROLAYER_TEST_TOKENIZER": str(tokenizer)}
    run = subprocess.run(
        [python_with("requirements-lm-eval.txt", large=True), HERE / "lm_eval_client.py"],
        input=json.dumps(ITEMS), env=os.environ | named | {"HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "none"},
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    said = json.loads(run.stdout.splitlines()[-1])
    engines = Engines(TinyModels(tmp_path))
    engine, reference = engines.open(file, slot_tokens=512), ReferenceModel.load(file)
    assert len(said["scores"]) == len(ITEMS)
    for (score, greedy), (context, continuation) in zip(said["scores"], said["ids"], strict=True):
        wanted, likeliest = scored(engine.logits([*context, *continuation]), context, continuation)
        assert score == pytest.approx(wanted, abs=1e-3)  # the same engine, asked without a server between
        assert greedy == likeliest
        exact, _ = scored(reference.logits([*context, *continuation]), context, continuation)
        assert score == pytest.approx(exact, rel=WEIGHTS)
    engines.shutdown()


def scored(logits: NDArray[np.float32], context: list[int], continuation: list[int]) -> tuple[float, bool]:
    """Log likelihood of a continuation, and whether it is the likeliest one."""
    rows = logits.astype(np.float64)[len(context) - 1 : -1]
    logprobs = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    likeliest = (logprobs.argmax(axis=1) == continuation).all()
    return float(logprobs[np.arange(len(continuation)), continuation].sum()), bool(likeliest)
