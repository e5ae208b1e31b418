"""The append log that budgets survive a crash in: fixed records with a checksum, written through a memory map.

A log rather than SQLite in WAL mode: a record is one copy of 64 bytes into pages that belong to the kernel, so that
it outlives the process from the moment it is written (kill -9 included) at a tenth of a microsecond and without a
system call, where a transaction costs tens. The last record of an account counts; a torn one, or what follows it,
does not. A power cut loses at most what ``sync`` has not yet brought to the disk. When the log is full it is written
anew with one record for each account that still holds something.

Layout, big-endian: 64 bytes of header (magic, version), then records of checksum 4 (Adler-32 of the next 52 bytes; in
version 1 their CRC-32), account 16, debts of requests and tokens 8 + 8 (two's complement), their time 8 (Unix
microseconds), UTC day 4, compute used 8; 8 bytes of zero. The checksum tells a torn record; nobody is kept out by it.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import adler32, crc32

from zerolayer.errors import StartupError, system_reason
from zerolayer.guard._native import StateLog
from zerolayer.guard.budget.account import Account, State

RECORDS: Final = 65_536  # 4 MB
_MAGIC: Final = b"zerolayer budget"
_VERSION: Final = 2
_CHECKSUMS: Final = {1: crc32, 2: adler32}
_HEADER: Final = Struct(">16sI44x")
_BODY: Final = Struct(">16sqqqIQ")
_RECORD: Final = Struct(">I52s8x")


class BudgetJournal:
    """One open file, locked for this process. ``states`` gives what a full log is written anew from.

    Raises ``StartupError`` when the file is in use, newer, or cannot be written.
    """

    def __init__(self, path: Path, records: int = RECORDS) -> None:
        self._path = path
        self._records = records
        self.states: Callable[[], Mapping[bytes, State]] = dict
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file, created = _open_locked(path)
            if created:
                self._format(self._file)
        except OSError as error:
            raise StartupError(
                f"{path} cannot be written ({system_reason(error)}). Give tenants.state a path in a folder of your own."
            ) from None
        self._map = mmap.mmap(self._file, 0, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.kept, at = self._replay()
        self._log = StateLog(self._map, at)
        self._synced = at
        if self._version() < _VERSION:
            self._write_anew(self.kept)

    def write(self, account: Account) -> None:
        """Append where an account stands."""
        if not self._log.append(account):
            self._write_anew(self.states())
            self._log.append(account)

    def sync(self) -> None:
        """Bring what was written to the disk. May block; any thread may call it."""
        at = self._log.at
        if at == self._synced:
            return
        with contextlib.suppress(OSError):  # the log was written anew meanwhile, or the disk will say so again
            os.fdatasync(self._file)
            self._synced = at

    def close(self) -> None:
        """Bring everything to the disk and give the file up."""
        self.sync()
        self._log.release()
        self._map.close()
        os.close(self._file)

    def _format(self, file: int) -> None:
        # Written rather than reserved: a full disk is told here, and no page is made on the loop later.
        os.write(file, _HEADER.pack(_MAGIC, _VERSION) + bytes(self._records * _RECORD.size))

    def _version(self) -> int:
        magic, version = _HEADER.unpack_from(self._map, 0) if len(self._map) >= _HEADER.size else (b"", 0)
        return version if magic == _MAGIC and version in _CHECKSUMS else 0

    def _replay(self) -> tuple[dict[bytes, State], int]:
        """The last state of each account, and where the next record goes."""
        kept: dict[bytes, State] = {}
        checksum_of = _CHECKSUMS.get(self._version())
        if checksum_of is None:
            raise StartupError(
                f"{self._path} is no budget log of this version. Give tenants.state another path, or remove that file."
            )
        at = _HEADER.size
        while at + _RECORD.size <= len(self._map):
            checksum, body = _RECORD.unpack_from(self._map, at)
            if checksum_of(body) != checksum:
                break
            account_id, *numbers = _BODY.unpack(body)
            kept[account_id] = State(*numbers)
            at += _RECORD.size
        return kept, at

    def _write_anew(self, states: Mapping[bytes, State]) -> None:
        """Write the log anew beside the old one, then put it in its place."""
        self._records = max(self._records, 4 * len(states))
        scratch = self._path.with_name(f".{self._path.name}.new")
        scratch.unlink(missing_ok=True)
        file, _ = _open_locked(scratch)
        self._format(file)
        fresh = mmap.mmap(file, 0, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        at = _HEADER.size
        for account_id, state in states.items():
            body = _body(account_id, state)
            _RECORD.pack_into(fresh, at, adler32(body), body)
            at += _RECORD.size
        scratch.replace(self._path)
        self._log.release()
        self._map.close()
        os.close(self._file)
        self._file, self._map, self._log, self._synced = file, fresh, StateLog(fresh, at), 0


def _body(account_id: bytes, state: State) -> bytes:
    return _BODY.pack(account_id, state.requests_debt, state.tokens_debt, state.at_us, state.day, state.used_us)


def _open_locked(path: Path) -> tuple[int, bool]:
    """The file's descriptor, and whether it is new. Raises ``StartupError`` when another process has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise StartupError(
            f"{path} is in use by another server. Give each server a tenants.state of its own."
        ) from None
    return file, os.fstat(file).st_size == 0
