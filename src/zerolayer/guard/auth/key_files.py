"""The key set and the revocation list on disk, and whether they have changed. Read at start, then watched.

What cannot be read, is older than what is known, or is signed by another root changes nothing: the last good one
counts until a better one comes. So neither a half-written nor a deleted list brings a revoked key back.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from zerolayer.errors import StartupError, system_reason
from zerolayer.guard.auth.key_set import KeySet, Revocations, read_key_set, read_revocations

_log = logging.getLogger("zerolayer.guard")

KEY_SET: Final = "keyset.json"
REVOKED: Final = "revoked.json"
SIGNING: Final = "signing.key"
FILE_BYTES: Final = 64 << 20
_State = tuple[int, int, int] | None


class KeyDocuments(msgspec.Struct, frozen=True):
    """What both files say, checked."""

    key_set: KeySet
    revocations: Revocations


class KeyFiles:
    """``root`` is the only root that is trusted; None trusts the one that the key set names when it is first read."""

    def __init__(self, key_set: Path, revocations: Path, root: bytes | None = None) -> None:
        self._paths = (key_set, revocations)
        self._root = root
        self._seen: tuple[_State, ...] = ()

    def read(self) -> KeyDocuments:
        """Both, as they are now. Raises ``StartupError``. Pure but for the files: any thread may call it."""
        key_set_path, revoked_path = self._paths
        key_set = read_key_set(_contents(key_set_path), self._root)
        revocations = read_revocations(_contents(revoked_path), key_set.root if self._root is None else self._root)
        return KeyDocuments(key_set, revocations)

    def open(self) -> KeyDocuments:
        """Read for the first time; from here on the root is the one that signed what was read."""
        self._seen = self._states()
        documents = self.read()
        self._root = documents.key_set.root if self._root is None else self._root
        return documents

    def changed(self) -> bool:
        """Whether either file is another one than at the last call: two calls of stat(2)."""
        states = self._states()
        before, self._seen = self._seen, states
        return states != before

    def newer(self, now: KeyDocuments) -> KeyDocuments | None:
        """What is to count instead of ``now``; None if that says the same, or else with the reason in the log."""
        try:
            found = self.read()
        except StartupError as error:
            _log.warning("the keys were not read again; the last good ones count: %s", error.message)
            return None
        older = found.key_set.epoch < now.key_set.epoch or found.revocations.serial < now.revocations.serial
        if older:
            _log.warning("the keys were not read again: the files are older than what was read before")
            return None
        return None if found == now else found

    def _states(self) -> tuple[_State, ...]:
        return tuple(_state(path) for path in self._paths)


def _state(path: Path) -> _State:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _contents(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise StartupError(
            f"{path} cannot be read ({system_reason(error)}). `zerolayer keys new` writes a key set and its list; "
            "tenants.key_set and tenants.revocations say where they are."
        ) from None
    if len(data) > FILE_BYTES:
        raise StartupError(f"{path} is larger than {FILE_BYTES} bytes; check the path")
    return data


def write_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace a file at once, so that whoever reads it sees the old one or the new one. Raises ``StartupError``."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        opened = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(opened, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(opened)
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise StartupError(f"{path} cannot be written ({system_reason(error)}); check the folder") from None
