"""A model on disk becomes everything that a server needs, whatever its format."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract_file import write
from reference.tiny_folder import write_tiny_folder
from reference.tiny_model import LLAMA, QWEN3, TinyShape, write_tiny_model
from zerolayer.contract import Contract, load
from zerolayer.errors import StartupError
from zerolayer.model import load as load_module
from zerolayer.model.engine import Generation, StepPlan
from zerolayer.model.load import Beside, LoadedModel, load_model
from zerolayer.model.shared_cores import SharedCores
from zerolayer.wire.schema import Message, Sampling


def contract(path: Path | str) -> Contract:
    flags = {"model": str(path), "slots": "2", "slot-tokens": "128", "threads": "1"}
    return load(None, {}, flags).contract


def loaded(path: Path) -> LoadedModel:
    return load_model(contract(path), lambda line: None)


def reply(model: LoadedModel, tokens: int = 8) -> list[int]:
    """Greedy answer to one user message."""
    prompt = model.template.encode([Message("user", "Tell me of the sea.")])
    model.engine.open(0, Generation(prompt, Sampling(temperature=0), tokens, ignore_eos=True))
    said = []
    while model.engine.prefill_left(0):
        said = model.engine.step(StepPlan((), 0, min(model.engine.prefill_left(0), 16)))
    ids = [token.token_id for token in said]
    while len(ids) < tokens:
        ids += [token.token_id for token in model.engine.step(StepPlan((0,)))]
    model.engine.shutdown()
    return ids


@pytest.mark.parametrize("shape", [LLAMA, QWEN3], ids=lambda shape: shape.name)
def test_a_folder_answers_like_the_gguf_file_of_the_same_weights(tmp_path: Path, shape: TinyShape) -> None:
    file = loaded(write_tiny_model(tmp_path / "tiny.gguf", shape))
    folder = loaded(write_tiny_folder(tmp_path / "tiny-1.5", shape))
    assert reply(folder) == reply(file)
    assert folder.name == "tiny-1.5"


def test_a_name_on_the_hub_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_tiny_folder(tmp_path / "0123456789abcdef", LLAMA)
    monkeypatch.setattr(load_module, "snapshot", lambda name, progress: folder)
    model = load_model(contract("org/Tiny-1.5"), lambda line: None)
    model.engine.shutdown()
    assert model.name == "org/Tiny-1.5"


def test_what_else_lies_in_a_folder_does_no_harm(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path / "tiny", LLAMA)
    (folder / "onnx").mkdir()
    (folder / "flax_model.msgpack").symlink_to("not_fetched")
    model = loaded(folder)
    model.engine.shutdown()
    assert "config.json" in model.files
    assert "not_fetched" not in model.files


def test_a_folder_that_is_no_model_names_what_a_model_is(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"Give --model a folder with config\.json and model\.safetensors"):
        loaded(tmp_path)


def test_the_first_request_with_a_constant_system_text_starts_behind_it(tmp_path: Path) -> None:
    told = "You answer questions about our product in two sentences, and say so where you do not know."
    file = write(tmp_path, f'[[system]]\nname = "support"\ntext = "{told}"\n')
    flags = {"model": str(write_tiny_model(tmp_path / "tiny.gguf", LLAMA)), "slots": "1", "threads": "1"}
    model = load_model(load(file, {}, flags | {"slot-tokens": "256"}).contract, lambda line: None)
    prompt = model.template.encode([Message("system", told), Message("user", "What is it?")])
    constant = len(model.template.encode([Message("system", told)]))
    model.engine.open(0, Generation(prompt, Sampling(temperature=0), 1, ignore_eos=True))
    left = model.engine.prefill_left(0)
    model.engine.shutdown()
    assert len(prompt) - left >= constant - 16 - 16  # whole blocks, and where the assistant's turn would begin


@pytest.mark.parametrize("limit", ["system_tokens", "slot_tokens"])
def test_a_constant_that_fits_nowhere_is_refused_with_what_to_do(tmp_path: Path, limit: str) -> None:
    sizes = {"system_tokens": 512, "slot_tokens": 256} | {limit: 32}
    lines = "".join(f"{key} = {value}\n" for key, value in sizes.items())
    file = write(tmp_path, f'[context]\n{lines}[[system]]\nname = "long"\ntext = "{"the sea and " * 8}"\n')
    flags = {"model": str(write_tiny_model(tmp_path / "tiny.gguf", LLAMA)), "slots": "1", "threads": "1"}
    with pytest.raises(StartupError, match=rf"'long' has \d+ tokens with its template; context\.{limit} is 32"):
        load_model(load(file, {}, flags).contract, lambda line: None)


def test_a_second_model_is_refused_before_anything_is_taken_where_memory_does_not_hold_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", LLAMA)
    monkeypatch.setattr(load_module.Machine, "read", lambda: load_module.Machine(1, None, 8 << 20))
    asked = []
    beside = Beside(SharedCores(), lambda memory, largest: asked.append(memory))
    with pytest.raises(StartupError, match="The memory does not hold both models"):
        load_model(contract(path), lambda line: None, beside=beside)
    assert asked == []
    monkeypatch.setattr(load_module.Machine, "read", lambda: load_module.Machine(1, None, 1 << 30))
    loaded(path).engine.shutdown()


def test_a_second_model_asks_before_its_first_turn_and_gives_way_between_its_parts(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", LLAMA)
    cores, told = SharedCores(), []
    beside = Beside(cores, lambda memory, largest: told.append(("begin", memory > 0)))
    model = load_model(contract(path), lambda line: None, show=lambda what, *_: told.append(what), beside=beside)
    model.engine.shutdown()
    assert told.index(("begin", True)) < told.index("memory") < told.index("weights")
    with cores:  # nobody has it any more
        assert told.count("weights") > 4


def test_what_grammars_are_compiled_with_is_there_before_a_server_starts_but_not_beside_one_that_serves(
    tmp_path: Path,
) -> None:
    """Making it stops all threads of the process for 0.1 s: whoever is served would wait."""
    path = write_tiny_model(tmp_path / "tiny.gguf", LLAMA)
    first = loaded(path)
    second = load_model(contract(path), lambda line: None, beside=Beside(SharedCores(), lambda *_: None))
    assert (first.grammars.prepared, second.grammars.prepared) == (True, False)
    for model in (first, second):
        model.engine.shutdown()


def test_the_memory_beside_another_model_is_taken_in_parts_that_its_steps_can_wait_for(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", LLAMA)

    def parts(beside: Beside | None) -> int:
        shown: list[str] = []
        model = load_model(contract(path), lambda line: None, show=lambda what, *_: shown.append(what), beside=beside)
        model.engine.shutdown()
        return shown.count("memory")

    assert parts(None) < parts(Beside(SharedCores(), lambda *_: None))
