"""A model folder as Hugging Face's ``transformers`` saves it: ``config.json``, safetensors, tokenizer files.

Weights are one ``model.safetensors``, or shards that ``model.safetensors.index.json`` lists. Tensors get GGUF's names.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from zerolayer.errors import ModelFileError
from zerolayer.model.gguf import open_to_read, printable
from zerolayer.model.hf_config import gguf_metadata, rope_factors, ties_embedding
from zerolayer.model.safetensors import SafetensorsFile
from zerolayer.model.tensor_type import TensorType
from zerolayer.model.weights import TensorInfo

MAX_JSON_BYTES = 1 << 27  # tokenizer.json of the largest vocabularies has 35 MB
MAX_TEMPLATE_BYTES = 1 << 24
MAX_SHARDS = 1024

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_REMEDY = "Download the model again, or use a GGUF file of it."
_TYPES = {"F32": TensorType.F32, "F16": TensorType.F16, "BF16": TensorType.BF16}
_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = re.compile(r"model\.layers\.(0|[1-9]\d{0,3})\.(.+)")
_LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
_COMPUTED = ".rotary_emb.inv_freq"  # older checkpoints keep what follows from the configuration
_ROPE_FACTORS = "rope_freqs.weight"


class HfFolder:
    """An open folder. Implements ``Weights``; ``metadata`` is what a GGUF file would say of the model's shape."""

    def __init__(self, folder: Path, config: Mapping[str, object], files: Mapping[str, SafetensorsFile]) -> None:
        """``files``: the open file of each tensor, by the folder's own tensor names."""
        self.folder = folder
        self.config = config
        self.metadata = gguf_metadata(config, folder.name)
        self._files = set(files.values())
        self._places: dict[str, tuple[SafetensorsFile, str]] = {}
        self.tensors: dict[str, TensorInfo] = {}
        self._factors: array[float] | None = None
        tied = ties_embedding(config, "lm_head.weight" in files)
        for name, file in files.items():
            if not name.endswith(_COMPUTED) and not (tied and name == "lm_head.weight"):
                self._add(name, file)
        self._add_factors()

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read the configuration and map the weights.

        Raises ``ModelFileError`` for what is missing, damaged or not supported.
        """
        config = read_json(folder / "config.json")
        if config is None:
            raise ModelFileError(f"{folder} holds no model: it has no config.json. {_hint(folder)}")
        opened: dict[str, SafetensorsFile] = {}
        try:
            return cls(folder, config, _tensor_files(folder, opened))
        except BaseException:
            for file in opened.values():
                file.close()
            raise

    def data(self, name: str) -> memoryview:
        """See ``Weights``."""
        if name == _ROPE_FACTORS and self._factors is not None:
            return memoryview(self._factors).cast("B")
        if name not in self._places:
            raise ModelFileError(f"The model has no tensor {printable(name)}. {_REMEDY}")
        file, theirs = self._places[name]
        return file.data(theirs)

    def close(self) -> None:
        """Let go of all files. Idempotent."""
        for file in self._files:
            file.close()

    def chat_template(self) -> str | None:
        """From ``chat_template.jinja``, else from ``tokenizer_config.json``, as older versions save it."""
        path = self.folder / "chat_template.jinja"
        raw = _read(path, MAX_TEMPLATE_BYTES)
        if raw is not None:
            try:
                return raw.decode() or None
            except UnicodeDecodeError:
                raise ModelFileError(f"{path.name} is not valid UTF-8. {_REMEDY}") from None
        template = (read_json(self.folder / "tokenizer_config.json") or {}).get("chat_template")
        if isinstance(template, list):  # several, by name
            named = [item for item in template if isinstance(item, dict) and item.get("name") == "default"]
            template = named[0].get("template") if named else None
        if template is not None and not isinstance(template, str):
            raise ModelFileError(f"The chat_template of tokenizer_config.json is no text. {_REMEDY}")
        return template or None

    def _add(self, theirs: str, file: SafetensorsFile) -> None:
        name = _our_name(theirs)
        stored = file.tensors[theirs]
        if name is None:
            raise ModelFileError(
                f"Tensor {printable(theirs)} belongs to a variant of the architecture, which this build does not run. "
                "Use a plain Llama, Mistral, Qwen2 or Qwen3 model."
            )
        if stored.dtype not in _TYPES:
            raise ModelFileError(
                f"Tensor {printable(theirs)} is stored as {stored.dtype}; of safetensors this build reads "
                f"{', '.join(_TYPES)}. Use the BF16 or F16 model, or a GGUF file of it."
            )
        self._places[name] = file, theirs
        self.tensors[name] = TensorInfo(name, stored.shape, _TYPES[stored.dtype], stored.offset, stored.n_bytes)

    def _add_factors(self) -> None:
        head_dim = self.metadata.get(f"{self.metadata['general.architecture']}.attention.key_length")
        hidden, heads = self.config.get("hidden_size"), self.config.get("num_attention_heads")
        if not isinstance(head_dim, int) and isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
            head_dim = hidden // heads
        if isinstance(head_dim, int) and 0 < head_dim <= 1 << 16:  # otherwise the configuration is refused
            self._factors = rope_factors(self.config, head_dim)
        if self._factors is not None:
            count = len(self._factors)
            self.tensors[_ROPE_FACTORS] = TensorInfo(_ROPE_FACTORS, (count,), TensorType.F32, 0, 4 * count)


def read_json(path: Path) -> dict[str, object] | None:
    """The object in a JSON file, None if there is no such file; ``ModelFileError`` if it is anything else."""
    raw = _read(path, MAX_JSON_BYTES)
    if raw is None:
        return None
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path.name} is not valid JSON. {_REMEDY}") from None
    if not isinstance(parsed, dict):
        raise ModelFileError(f"{path.name} is no JSON object. {_REMEDY}")
    return parsed


def _read(path: Path, limit: int) -> bytes | None:
    try:
        with open_to_read(path) as file:
            raw = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except OSError:
        raise ModelFileError(f"Cannot read {path}. Check who owns it and what it is.") from None
    if len(raw) > limit:
        raise ModelFileError(f"{path.name} is larger than {limit >> 20} MB. {_REMEDY}")
    return raw


def _our_name(theirs: str) -> str | None:
    layer = _LAYER.fullmatch(theirs)
    if layer is None:
        return _NAMES.get(theirs)
    ours = _LAYER_NAMES.get(layer[2])
    return None if ours is None else f"blk.{int(layer[1])}.{ours}"


def _tensor_files(folder: Path, opened: dict[str, SafetensorsFile]) -> dict[str, SafetensorsFile]:
    """The file of each tensor. Every file that is opened is entered into ``opened``, also when a later one fails."""
    index = read_json(folder / INDEX)
    if index is None:
        if not (folder / SINGLE).is_file():
            raise ModelFileError(f"{folder} has neither {SINGLE} nor {INDEX}. {_hint(folder)}")
        opened[SINGLE] = SafetensorsFile.open(folder / SINGLE)
        return dict.fromkeys(opened[SINGLE].tensors, opened[SINGLE])
    listed = index.get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(shard, str) for shard in listed.values()):
        raise ModelFileError(f"{INDEX} has no weight_map from tensors to files. {_REMEDY}")
    shards = sorted(set(listed.values()))
    if len(shards) > MAX_SHARDS:
        raise ModelFileError(f"{INDEX} names {len(shards)} files, the limit is {MAX_SHARDS}. {_REMEDY}")
    for shard in shards:
        if shard != Path(shard).name or not shard.endswith(".safetensors"):
            raise ModelFileError(f"{INDEX} names {printable(shard)}, which is no safetensors file beside it. {_REMEDY}")
        opened[shard] = SafetensorsFile.open(folder / shard)
    for name, shard in listed.items():
        if name not in opened[shard].tensors:
            raise ModelFileError(f"Tensor {printable(name)} is not in {shard}, where {INDEX} says it is. {_REMEDY}")
    return {name: opened[shard] for name, shard in listed.items()}


def _hint(folder: Path) -> str:
    if any(folder.glob("*.gguf")):
        return "Give --model the .gguf file in it."
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        return "This build reads safetensors only, no pickled weights; use a safetensors copy of the model."
    return "Give --model a folder with config.json and model.safetensors, or a GGUF file."
