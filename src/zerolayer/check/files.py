"""The files that these commands are given and that they write; what the system says when it refuses one."""

from __future__ import annotations

import os
from pathlib import Path

from zerolayer.check.errors import InputFileError
from zerolayer.errors import system_reason


def read_bytes(path: Path, *, most: int | None = None, remedy: str = "") -> bytes:
    """A whole file, of ``most`` bytes at most; ``remedy`` is for one that is longer. Raises ``InputFileError``."""
    try:
        if most is not None and path.stat().st_size > most:
            raise InputFileError(f"{path} is larger than {most >> 20} MB. {remedy}")
        return path.read_bytes()
    except OSError as error:
        raise InputFileError(f"{path} cannot be read ({system_reason(error)}). Name another file.") from None


def check_writable(path: Path) -> None:
    """Refuse what could not be written, before the work whose result it is for. Raises ``InputFileError``."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise InputFileError(f"{path} cannot be written. Name a file in a folder that is there and that is yours.")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a result. Raises ``InputFileError``."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputFileError(f"{path} cannot be written ({system_reason(error)}). Name another file.") from None
