"""Models by their name on Hugging Face's hub: fetched once by ``huggingface_hub`` (extra ``hf``), then on disk."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zerolayer.errors import StartupError

# What ``hf_folder`` and ``source`` read, and nothing else of a repository.
FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*.safetensors",
)
_ABSENT = frozenset({"RepositoryNotFoundError", "RevisionNotFoundError"})


def snapshot(name: str, progress: Callable[[str], None]) -> Path:
    """The folder of the hub's model ``org/name``: from the local cache, or downloaded into it.

    Raises ``StartupError`` that says what to do when the package, the network or the model is missing.
    """
    hub: Any
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        raise StartupError(
            f"model.path: {name} is no file or folder here. To fetch the model of that name from Hugging Face's hub, "
            "run: pip install 'zerolayer[hf]'"
        ) from None
    progress(f"model {name}: from the local cache, or from Hugging Face's hub")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=list(FILES)))
    except Exception as error:  # noqa: BLE001 - the library raises errors of many packages; only their kind is told
        raise StartupError(_what_to_do(name, {kind.__name__ for kind in type(error).__mro__})) from None


def _what_to_do(name: str, kinds: set[str]) -> str:
    if "GatedRepoError" in kinds:
        return f"The model {name} is gated. Accept its terms on huggingface.co, then run: hf auth login"
    if kinds & _ABSENT:
        return f"Hugging Face's hub has no public model {name}. Check it; for a private one run: hf auth login"
    if "OSError" in kinds and not kinds & {"ConnectionError", "LocalEntryNotFoundError", "HTTPError", "HfHubHTTPError"}:
        return f"The model {name} could not be stored. Check the space and the rights of the hub's cache (HF_HOME)."
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "TRUE", "YES", "ON"}:
        return f"The model {name} is not in the local cache, and HF_HUB_OFFLINE forbids the network. {_elsewhere(name)}"
    return f"Hugging Face's hub cannot be reached, and the model {name} is not in the local cache. {_elsewhere(name)}"


def _elsewhere(name: str) -> str:
    return (
        f"On a machine with network run: hf download {name} --local-dir {name.rpartition('/')[2]}. "
        "Copy the folder here and give it to --model."
    )
