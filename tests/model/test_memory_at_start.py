"""All memory is taken, and touched, before the first request; what the machine does not have is refused by then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reference.engines import Engines
from reference.tiny_model import LLAMA, LLAMA_64, write_tiny_model
from zerolayer.contract import load
from zerolayer.errors import StartupError
from zerolayer.model import load as load_module
from zerolayer.model.engine import Generation, StepPlan
from zerolayer.model.load import load_model
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
