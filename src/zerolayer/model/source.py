"""A model as found on disk, whatever its format: weights, shape, vocabulary and chat template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from zerolayer.errors import ModelFileError
from zerolayer.model.gguf import GgufFile
from zerolayer.model.hf_folder import HfFolder, read_json
from zerolayer.model.model_config import ModelConfig
from zerolayer.model.weights import Weights
from zerolayer.text.encode import Encoder, build_encoder
from zerolayer.text.hf_tokenizer import HfTokenizer, TokenizerFiles
from zerolayer.text.vocabulary import Vocabulary


class ModelSource(msgspec.Struct, frozen=True):
    """An open model; whoever opens it closes ``weights``.

    ``build_encoder``: for a bare prompt; it takes a moment, so it may run beside the packing of the weights.
    ``inner_encoder``: of that one, the encoder for text between the control tokens of a chat template.
    """

    weights: Weights
    config: ModelConfig
    vocabulary: Vocabulary
    build_encoder: Callable[[], Encoder]
    inner_encoder: Callable[[Encoder], Encoder]


def open_source(path: Path) -> ModelSource:
    """A GGUF file, or a folder in Hugging Face's format.

    Raises ``ModelFileError`` and ``StartupError`` for what is missing, damaged or not supported.
    """
    weights: GgufFile | HfFolder = HfFolder.open(path) if path.is_dir() else GgufFile.open(path)
    try:
        return _gguf(weights) if isinstance(weights, GgufFile) else _folder(weights)
    except BaseException:
        weights.close()
        raise


def _gguf(file: GgufFile) -> ModelSource:
    config = ModelConfig.from_gguf(file.metadata, file.tensors)
    vocabulary = Vocabulary.from_gguf(file.metadata)
    return ModelSource(file, config, vocabulary, lambda: build_encoder(vocabulary), lambda encoder: encoder)


def _folder(folder: HfFolder) -> ModelSource:
    tokenizer = HfTokenizer.read(_tokenizer_files(folder))
    vocabulary = tokenizer.vocabulary
    metadata = {**folder.metadata, "tokenizer.ggml.tokens": vocabulary.raw}
    config = ModelConfig.from_gguf(metadata, folder.tensors, rope_layout="halves")
    config = msgspec.structs.replace(config, chat_template=folder.chat_template())
    return ModelSource(folder, config, vocabulary, tokenizer.encoder, tokenizer.inner_encoder)


def _tokenizer_files(folder: HfFolder) -> TokenizerFiles:
    parsed = read_json(folder.folder / "tokenizer.json")
    if parsed is None:
        raise ModelFileError(
            f"{folder.folder} has no tokenizer.json. Save the model's fast tokenizer into it "
            "(transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...)), or use a GGUF file of the model."
        )
    generation = read_json(folder.folder / "generation_config.json") or {}
    return TokenizerFiles(
        tokenizer=parsed,
        config=read_json(folder.folder / "tokenizer_config.json") or {},
        bos_id=next(iter(_ids(folder.config, "bos_token_id")), None),
        eos_ids=tuple(dict.fromkeys((*_ids(generation, "eos_token_id"), *_ids(folder.config, "eos_token_id")))),
    )


def _ids(config: Mapping[str, object], key: str) -> tuple[int, ...]:
    """One token id or several; none where the field is missing or null."""
    value = config.get(key)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in ids):
        raise ModelFileError(f"The model's {key} is no token id and no list of them. Download the model again.")
    return tuple(ids)
