"""All memory is taken, and touched, before the first request; what the machine does not have is refused by then."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from reference.engines import Engines
from reference.tiny_model import LLAMA, LLAMA_64, write_tiny_model
from zerolayer.contract import load
from zerolayer.errors import StartupError
from zerolayer.model import load as load_module
from zerolayer.model.engine import Generation, StepPlan
from zerolayer.model.engine_options import EngineOptions
from zerolayer.model.gguf import GgufFile
from zerolayer.model.load import load_model
from zerolayer.model.model_config import ModelConfig
from zerolayer.model.native_engine import needed_bytes
from zerolayer.wire.schema import Sampling

MB = 1 << 20


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_touched_before_the_first_step_and_steps_take_no_more(engines: Engines) -> None:
    before = resident()
    engine = engines.open(LLAMA_64, slots=32, slot_tokens=2048, chunk_tokens=128)
    taken, began = engine.describe().memory_bytes, resident()
    assert taken > 48 * MB
    assert began - before > 0.98 * taken
    for slot in range(0, 32, 4):  # to the end of its context
        engine.open(slot, Generation([20] * 2000, Sampling(temperature=0.0), 48, ignore_eos=True, keep=False))
        for _ in range(0, 2000, 128):
            engine.step(StepPlan((), slot, min(128, engine.prefill_left(slot))))
    assert resident() - began < 2 * MB


def test_what_an_engine_takes_is_what_it_is_said_to_need(engines: Engines) -> None:
    shape = dataclasses.replace(LLAMA_64, layers=6)
    sizes = {"slots": 31, "slot_tokens": 2048, "chunk_tokens": 32, "threads": 1, "prefixes": 4, "prefix_tokens": 512}
    engine = engines.open(shape, **sizes)
    with GgufFile.open(engines.models.path(shape)) as file:
        config = ModelConfig.from_gguf(file.metadata, file.tensors)
        embedding = file.tensors["token_embd.weight"].n_bytes
    needed = needed_bytes(config, embedding, EngineOptions(**sizes))
    block = 32 * MB  # of the arena: of the last one a part may be left
    assert needed > 150 * MB
    assert 0.9 * needed < engine.describe().memory_bytes < 1.1 * needed + block


def test_the_server_around_the_engine_is_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", LLAMA)
    monkeypatch.setattr(load_module.Machine, "read", lambda: load_module.Machine(1, None, 38 * MB))
    with pytest.raises(StartupError, match="this process can take 38 MB"):
        load_model(load(None, {}, {"model": str(path), "slots": "1"}).contract, lambda line: None)


def test_slots_that_the_memory_does_not_hold_are_refused_at_start_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", LLAMA)
    monkeypatch.setattr(load_module.Machine, "read", lambda: load_module.Machine(1, None, 4 * MB))
    flags = {"model": str(path), "slots": "64", "slot-tokens": "256"}
    with pytest.raises(StartupError, match=r"64 slots of 256 tokens need \d+ MB; this process can take 4 MB.*--slots"):
        load_model(load(None, {}, flags).contract, lambda line: None)


def test_a_limit_that_does_not_hold_the_words_is_one_plain_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", LLAMA)

    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(load_module, "open_source", no_memory)
    with pytest.raises(StartupError, match="no memory for the model's words and tables"):
        load_model(load(None, {}, {"model": str(path)}).contract, lambda line: None)
