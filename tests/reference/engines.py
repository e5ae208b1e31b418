"""Tiny models as files and references, and native engines on files, all closed at the end."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from reference.llama import ReferenceModel
from reference.tiny_model import EOS_ID, TinyShape, write_tiny_model
from zerolayer.model.engine_options import EngineOptions
from zerolayer.model.gguf import GgufFile
from zerolayer.model.model_config import ModelConfig
from zerolayer.model.native_engine import NativeEngine


class TinyModels:
    """Files and float32 references of tiny shapes, each made at the first call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: dict[TinyShape, Path] = {}
        self._references: dict[TinyShape, ReferenceModel] = {}

    def path(self, shape: TinyShape) -> Path:
        """The GGUF file of ``shape``."""
        if shape not in self._paths:
            self._paths[shape] = write_tiny_model(self._folder / f"tiny-{len(self._paths)}.gguf", shape)
        return self._paths[shape]

    def reference(self, shape: TinyShape) -> ReferenceModel:
        """The float32 reference of ``shape``."""
        if shape not in self._references:
            self._references[shape] = ReferenceModel.load(self.path(shape))
        return self._references[shape]


class Engines:
    """Native engines that live until ``shutdown``."""

    def __init__(self, models: TinyModels) -> None:
        self.models = models
        self._opened: list[tuple[GgufFile, NativeEngine]] = []

    def open(
        self,
        model: Path | TinyShape,
        *,
        slots: int = 4,
        slot_tokens: int = 256,
        chunk_tokens: int = 32,
        threads: int = 1,
        **options: Any,
    ) -> NativeEngine:
        """A new engine. One thread unless asked: two that spin for each other are slow on a busy machine."""
        file = GgufFile.open(self.models.path(model) if isinstance(model, TinyShape) else model)
        engine = NativeEngine.load(
            file,
            ModelConfig.from_gguf(file.metadata, file.tensors),
            EngineOptions(
                slots=slots,
                slot_tokens=slot_tokens,
                chunk_tokens=chunk_tokens,
                threads=threads,
                stop_ids=(EOS_ID,),
                **options,
            ),
        )
        self._opened.append((file, engine))
        return engine

    def reference(self, shape: TinyShape) -> ReferenceModel:
        """The float32 reference of ``shape``."""
        return self.models.reference(shape)

    def shutdown(self) -> None:
        """Close engines and files."""
        while self._opened:
            file, engine = self._opened.pop()
            engine.shutdown()
            file.close()


def with_type(shape: TinyShape, tensor_type: str, embedding_type: str = "") -> TinyShape:
    """``shape`` with its matrices stored as ``tensor_type``."""
    return dataclasses.replace(shape, tensor_type=tensor_type, embedding_type=embedding_type)
