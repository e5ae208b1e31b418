"""The writer: one write per record, before the reply ends; what the kernel holds goes to the disk later, off the loop.

A record that ``append`` has taken survives the death of the process, because the kernel has it. The death of the
machine costs at most what ``sync`` had not brought to the disk; how long that is, is the contract's ``fsync_ms``.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from zerolayer.errors import LedgerError
from zerolayer.guard.ledger.record import (
    CONTENT_BYTES,
    MODEL_BYTES,
    NO_HASH,
    RECORD_BYTES,
    Entry,
    Head,
    Note,
    NoteKind,
    Record,
    entry_content,
    fit,
    head_bytes,
    record_content,
)
from zerolayer.guard.ledger.segment import End, read_segment_head, repair, segment_path, segments

_log = logging.getLogger("zerolayer.ledger")

_HELD: Final = 8192  # records that wait in memory while the disk takes none; 3.5 MB


class Rules(msgspec.Struct, frozen=True):
    """``keep`` = 0 keeps all segments; otherwise the oldest ones are removed when a new one begins."""

    segment_bytes: int = 64 << 20
    keep: int = 0
    node: str = ""
    server: str = ""


class Ledger:
    """One writer per folder, held by a lock. All methods are called on one thread, but for what ``due`` returns.

    ``wall_s`` gives Unix seconds; ``write`` takes the place of ``os.write``, for tests. Raises ``LedgerError``.
    """

    def __init__(
        self,
        folder: Path,
        wall_s: Callable[[], float],
        rules: Rules | None = None,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self.folder = folder
        self._wall_s = wall_s
        self._rules = rules or Rules()
        self._full_at = max(2 * RECORD_BYTES, self._rules.segment_bytes - RECORD_BYTES + 1)
        self._write = write
        self._fd = -1
        self._number = 0
        self._size = 0
        self._sequence = 1
        self._hash = NO_HASH
        self._id = secrets.token_bytes(16)
        self._dirty = False
        self._full: list[int] = []  # finished segments, to be brought to the disk and closed
        self._held: list[Record] = []
        self._lost = 0
        self._told = False
        self.failed = False  # the disk takes nothing; nobody should be admitted
        self._lock = self._take(folder)
        try:
            self._open()
        except OSError:
            os.close(self._lock)
            raise LedgerError(
                f"The ledger {folder} cannot be written. Give --ledger another folder, or off to go without."
            ) from None
        except LedgerError:
            os.close(self._lock)
            raise

    @property
    def records(self) -> int:
        """Records written so far, by earlier servers too."""
        return self._sequence - 1

    @property
    def head(self) -> bytes:
        """The last hash: whoever keeps it can prove later that nothing before it was changed."""
        return self._hash

    def append(self, record: Record) -> None:
        """Give the record to the kernel. While the disk takes none, it waits in memory, and ``failed`` says so."""
        if self.failed:
            self._hold(record)
            return
        if self._size >= self._full_at:
            self._rotate()
        now_us = int(self._wall_s() * 1_000_000)
        make = entry_content if type(record) is Entry else record_content
        content = make(record, self._sequence, now_us)  # type: ignore[arg-type]
        digest = sha256(self._hash + content).digest()  # as ``record.chained``; a call costs as much as the sum
        try:
            written = self._write(self._fd, content + digest)
        except OSError:
            written = 0
        if written == RECORD_BYTES:
            self._hash = digest
            self._sequence += 1
            self._size += RECORD_BYTES
            self._dirty = True
        else:
            self._fail()
            self._hold(record)

    def due(self) -> Callable[[], None] | None:
        """What brings everything written so far to the disk; for another thread. None if there is nothing to do."""
        if not self._dirty and not self._full:
            return None
        full, self._full = self._full, []
        current = os.dup(self._fd) if self._dirty else -1
        self._dirty = False

        def bring() -> None:
            for descriptor in (*full, current):
                if descriptor >= 0:
                    try:
                        os.fdatasync(descriptor)
                    except OSError:
                        _log.error("the disk refused to keep the ledger; records may be lost if the machine dies")
                    finally:
                        os.close(descriptor)

        return bring

    def retry(self) -> None:
        """Try again what the disk did not take. Called now and then."""
        if not self.failed:
            return
        held, self._held = self._held, []
        lost, self._lost = self._lost, 0
        self.failed = False
        if lost:
            held.append(Note(NoteKind.GAP, lost))
        for at, record in enumerate(held):
            self.append(record)
            if self.failed:
                self._held += held[at + 1 :]
                return
        self._told = False
        _log.warning("the ledger is written again", extra={"records": len(held), "lost": lost})

    def close(self) -> None:
        """The last note, and everything on the disk. Idempotent."""
        if self._fd < 0:
            return
        self.retry()
        self.append(Note(NoteKind.CLOSED))
        bring = self.due()
        if bring is not None:
            bring()
        os.close(self._fd)
        os.close(self._lock)
        self._fd = -1

    def _take(self, folder: Path) -> int:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            raise LedgerError(
                f"The ledger {folder} cannot be made. Give --ledger another folder, or off to go without."
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise LedgerError(
                f"Another server writes the ledger {folder}. Give --ledger a folder of its own."
            ) from None
        return descriptor

    def _open(self) -> None:
        """Go on where the last server stopped; what it left unfinished is cut, with a note."""
        cut = 0
        end: End | None = None
        for path in reversed(segments(self.folder)):
            head, end, loose = repair(path)
            cut += loose
            if head is not None and end is not None:
                self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                self._number, self._id = head.number, head.ledger_id
                self._size, self._sequence, self._hash = end.size, end.sequence, end.hash
                break
        if self._fd < 0:
            self._begin_segment()
        if cut:
            _log.warning("the ledger's last write was incomplete and was cut", extra={"bytes": cut})
            self.append(Note(NoteKind.REPAIRED, cut))
        self.append(Note(NoteKind.OPENED, text=fit(self._rules.server, 128)))
        if self.failed:
            raise OSError

    def _begin_segment(self) -> None:
        head = Head(
            self._number + 1,
            self._sequence,
            int(self._wall_s() * 1_000_000),
            self._hash,
            self._id,
            fit(self._rules.node, MODEL_BYTES),
            fit(self._rules.server, MODEL_BYTES),
        )
        path = segment_path(self.folder, head.number)
        data = head_bytes(head)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        if self._write(descriptor, data) != len(data):
            os.close(descriptor)
            path.unlink()
            raise OSError
        os.fsync(self._lock)  # the folder: a file that has no name is lost
        self._fd, self._number, self._size, self._hash = descriptor, head.number, len(data), data[CONTENT_BYTES:]
        self._dirty = True

    def _rotate(self) -> None:
        """The next segment, if the disk has room for it; else this one grows until it has."""
        before = self._fd
        try:
            self._begin_segment()
        except OSError:
            _log.error("the ledger cannot begin a segment; the last one goes on")
            return
        self._full.append(before)
        if self._rules.keep:
            for path in segments(self.folder)[: -self._rules.keep]:
                path.unlink(missing_ok=True)

    def _fail(self) -> None:
        self.failed = True
        if not self._told:
            _log.critical("the ledger cannot be written; no request is admitted until it can")
            self._told = True
        try:
            os.ftruncate(self._fd, self._size)  # no half record stays
        except OSError:
            _log.error("a half record stays in the ledger until it can be cut")

    def _hold(self, record: Record) -> None:
        if len(self._held) < _HELD:
            self._held.append(record)
        else:
            self._lost += 1


def newest_head(folder: Path) -> Head | None:
    """The head of the newest segment: whose ledger it is."""
    for path in reversed(segments(folder)):
        head = read_segment_head(path)
        if head is not None:
            return head
    return None
