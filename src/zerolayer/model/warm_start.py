"""Kept prompt prefixes, from one run of a service to the next: their token ids in a file, nothing that was computed.

Only where the contract asks for it (``context.warm_start``), because token ids are people's text. The file is JSON,
readable by its owner only: ``{"version": 1, "prefixes": [{"salt": base64, "token_ids": [...]}, ...]}``, best first.
It never keeps a server from starting or ending: what cannot be read or written is a warning.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from zerolayer.model.cache_file import folder, replace
from zerolayer.model.prefix_cache import Kept

_log = logging.getLogger("zerolayer.model")

VERSION = 1
_MOST_BYTES = 1 << 28
_LONGEST_SALT = 4096  # far more than any that this server makes


class _Version(msgspec.Struct):
    version: int


class _File(msgspec.Struct):
    version: int
    prefixes: list[Kept]


def place(environ: Mapping[str, str], name: str, pieces: Sequence[bytes]) -> Path:
    """The file of the model called ``name``; another vocabulary has another file, because its ids mean other text."""
    digest = hashlib.sha256(name.encode())
    for piece in pieces:
        digest.update(len(piece).to_bytes(4, "big") + piece)
    return folder(environ) / f"prefixes-{digest.hexdigest()[:32]}.json"


def read(path: Path, vocabulary: int) -> list[Kept]:
    """What the last run wrote; nothing where it wrote nothing, or nothing that can be used."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("too long")
        data = path.read_bytes()
        version = msgspec.json.decode(data, type=_Version).version
        if version > VERSION:
            _log.warning("kept prefixes were written by a newer version; this start is without them")
            return []
        prefixes = msgspec.json.decode(data, type=_File).prefixes
        if any(len(prefix.salt) > _LONGEST_SALT for prefix in prefixes):
            raise ValueError("no sender's")
    except FileNotFoundError:
        return []
    except (OSError, ValueError):  # msgspec's errors are ValueErrors
        _log.warning("kept prefixes cannot be read; this start is without them")
        return []
    if any(not 0 <= token_id < vocabulary for prefix in prefixes for token_id in prefix.token_ids):
        _log.warning("kept prefixes have token ids outside the vocabulary; this start is without them")
        return []
    return prefixes


def write(path: Path, prefixes: Sequence[Kept]) -> None:
    """Replace the file at once, so that a reader sees the old one or the new one."""
    try:
        replace(path, msgspec.json.encode(_File(VERSION, list(prefixes))))
    except OSError:
        _log.warning("kept prefixes cannot be written; the next start is without them")
