"""Files that one run leaves for the next: in the user's cache, replaced at once, readable by their owner only.

They never keep a server from starting or ending: whoever reads takes a damaged file for a missing one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def folder(environ: Mapping[str, str]) -> Path:
    """Under ``$XDG_CACHE_HOME`` (an absolute path, else ``~/.cache``): XDG Base Directory Specification."""
    given = Path(environ.get("XDG_CACHE_HOME", ""))
    cache = given if given.is_absolute() else Path(environ.get("HOME", "/")) / ".cache"
    return cache / "zerolayer"


def replace(path: Path, data: bytes) -> None:
    """Write ``data`` so that a reader sees the old file or the new one. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
