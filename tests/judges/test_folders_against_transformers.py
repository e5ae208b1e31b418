"""transformers as the judge of model folders: checkpoints that it saves itself, its logits, its token ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reference.llama import int8_per_output
from reference.server import running_server
from reference.tiny_folder import LLAMA3_ROPE, tokenizer
from reference.tiny_model import CHATML, CONTROL, LLAMA, QWEN2
from zerolayer.model.engine_options import EngineOptions
from zerolayer.model.native_engine import NativeEngine
from zerolayer.model.source import open_source

pytestmark = pytest.mark.judge
INSTALL = "pip install torch transformers"
IDS = [(7 + 41 * i) % 307 for i in range(64)]
SIZES = {
    "vocab_size": 307,
    "hidden_size": 192,
    "intermediate_size": 352,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.09,  # random logits that are far from flat
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CHECKPOINTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama": ("Llama", {}, "float32"),
    "llama tied, bfloat16": ("Llama", {"tie_word_embeddings": True}, "bfloat16"),
    "llama 3.1": ("Llama", {"rope_theta": 500000.0, "rope_scaling": LLAMA3_ROPE}, "float32"),
    "mistral": ("Mistral", {"head_dim": 64, "sliding_window": None, "rope_theta": 1e6}, "float32"),
    "mistral, float16": ("Mistral", {"sliding_window": 512}, "float16"),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True, "rope_theta": 1e6}, "float32"),
    "qwen2, bfloat16": ("Qwen2", {}, "bfloat16"),
    "qwen3": ("Qwen3", {"head_dim": 64, "tie_word_embeddings": True, "rope_theta": 1e6}, "float32"),
    "qwen3, bfloat16": ("Qwen3", {"head_dim": 32}, "bfloat16"),
}


def save(folder: Path, name: str, shard: str = "1GB") -> Any:
    """A random checkpoint of this kind, saved by ``save_pretrained``; returned as float32 model."""
    torch = pytest.importorskip("torch", reason=f"torch is missing; install it with: {INSTALL}")
    transformers = pytest.importorskip("transformers", reason=f"transformers is missing; install it with: {INSTALL}")
    kind, changes, dtype = CHECKPOINTS[name]
    torch.manual_seed(7)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **changes})
    model = getattr(transformers, f"{kind}ForCausalLM")(config).to(getattr(torch, dtype)).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith(("norm.weight", ".bias")):  # else all ones and zeros, which hides mistakes
                parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder, max_shard_size=shard)
    parsed = tokenizer(QWEN2 if kind.startswith("Qwen") else LLAMA)
    (folder / "tokenizer.json").write_text(json.dumps(parsed))
    named = {"bos_token": CONTROL[1], "eos_token": CONTROL[2], "chat_template": CHATML}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return model.float()


def judged(model: Any) -> np.ndarray:
    import torch

    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0].numpy()


def ours(folder: Path, *, fine: bool = True) -> np.ndarray:
    source = open_source(folder)
    options = EngineOptions(slots=4, slot_tokens=128, chunk_tokens=32, threads=1, fine=fine)
    engine = NativeEngine.load(source.weights, source.config, options)
    try:
        return engine.logits(IDS)
    finally:
        engine.shutdown()
        source.weights.close()


def spread(got: np.ndarray, want: np.ndarray) -> float:
    """Root mean square of the difference in standard deviations of the logits."""
    return float(np.sqrt(np.mean((got - want) ** 2)) / want.std())


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_logits_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    """With the judge's matrices on our int8 grid, only the rounding of activations, keys and values is left."""
    torch = pytest.importorskip("torch", reason=f"torch is missing; install it with: {INSTALL}")
    model = save(tmp_path, name)
    exact = judged(model)
    got = ours(tmp_path, fine=False)
    assert spread(ours(tmp_path), exact) < spread(got, exact) < 0.06
    head = model.lm_head.weight.detach().clone()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("proj.weight"):
                parameter.copy_(torch.from_numpy(int8_per_output(parameter.numpy())))
        model.lm_head.weight = torch.nn.Parameter(torch.from_numpy(int8_per_output(head.numpy())))
    assert spread(got, judged(model)) < 0.015


def test_shards_that_transformers_wrote_are_read(tmp_path: Path) -> None:
    save(tmp_path / "whole", "qwen3")
    save(tmp_path / "parts", "qwen3", shard="500KB")
    assert len(list((tmp_path / "parts").glob("model-*.safetensors"))) > 1
    assert ours(tmp_path / "whole").tobytes() == ours(tmp_path / "parts").tobytes()


def test_token_ids_of_a_conversation_are_those_of_transformers(tmp_path: Path) -> None:
    save(tmp_path, "qwen3")
    import transformers

    judge = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    judge.chat_template = CHATML
    source = open_source(tmp_path)
    encoder = source.build_encoder()
    text = "The hero of the tale, in 1984, went to the sea.\n\nIt's \u00e9t\u00e9!"
    assert encoder.encode(text) == judge(text, add_special_tokens=False)["input_ids"]
    source.weights.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served") / "Tiny-Qwen3"
    save(folder, "qwen3")
    with running_server("--model", str(folder), "--slots", "2", "--slot-tokens", "256", "--threads", "1") as url:
        yield url


def test_a_folder_that_transformers_wrote_is_served(served: str) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=served + "/v1", api_key="none")
    assert [model.id for model in client.models.list()] == ["Tiny-Qwen3"]
    reply = client.chat.completions.create(
        model="Tiny-Qwen3", messages=[{"role": "user", "content": "Hello"}], max_tokens=8
    )
    assert reply.usage.completion_tokens >= 1
