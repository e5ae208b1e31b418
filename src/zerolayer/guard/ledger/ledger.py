"""The writer: one copy per record, before the reply ends; what the kernel holds goes to the disk later, off the loop.

A record that ``append`` has taken survives the death of the process, because the kernel has it. The death of the
machine costs at most what ``sync`` had not brought to the disk; how long that is, is the contract's ``fsync_ms``.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from zerolayer.errors import LedgerError
from zerolayer.guard.ledger.paper import Allocate, Paper
from zerolayer.guard.ledger.record import (
    CONTENT_BYTES,
    MODEL_BYTES,
    NO_HASH,
    RECORD_BYTES,
    Head,
    Note,
    NoteKind,
    Record,
    Told,
    chained,
    content_of,
    entry_of,
    fit,
    head_bytes,
    in_sequence,
)
from zerolayer.guard.ledger.segment import End, read_segment_head, repair, segment_path, segments

_log = logging.getLogger("zerolayer.ledger")

_HELD: Final = 8192  # records that wait in memory while the disk takes none; 3.5 MB


class Rules(msgspec.Struct, frozen=True):
    """``keep`` = 0 keeps all segments; otherwise the oldest ones are removed when a new one begins."""

    segment_bytes: int = 64 << 20
    extent_bytes: int = 256 << 10  # taken from the disk at once
    keep: int = 0
    node: str = ""
    server: str = ""


class Ledger:
    """One writer per folder, held by a lock. All methods are called on one thread, but for what ``due`` returns.

    ``wall_s`` gives Unix seconds; ``allocate`` takes room on the disk (posix_fallocate(3)). Raises ``LedgerError``.
    """

    def __init__(
        self,
        folder: Path,
        wall_s: Callable[[], float],
        rules: Rules | None = None,
        allocate: Allocate = os.posix_fallocate,
    ) -> None:
        self.folder = folder
        self._wall_s = wall_s
        self._rules = rules or Rules()
        self._full_at = max(2 * RECORD_BYTES, self._rules.segment_bytes - RECORD_BYTES + 1)
        self._allocate = allocate
        self._paper: Paper | None = None
        self._number = 0
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
        if not self._put(content_of(record, self._sequence, int(self._wall_s() * 1e6))):
            self._hold(record)

    def copy(self, content: bytes) -> bool:
        """Append a record of another ledger as it is, but for its sequence. False while the disk takes none."""
        return self._put(in_sequence(content, self._sequence))

    def _put(self, content: bytes) -> bool:
        """Chain the next record, and give it to the kernel. False while the disk takes none."""
        paper = self._paper
        if paper is None or self.failed:
            return False
        if paper.size >= self._full_at:
            paper = self._rotate(paper)
        digest = chained(self._hash, content)
        try:
            paper.put(content + digest)
        except OSError:
            self._fail()
            return False
        self._hash = digest
        self._sequence += 1
        self._dirty = True
        return True

    def request(self, told: Told) -> None:
        """``append`` for a request, once each: without an object on the way."""
        paper = self._paper
        if paper is None or self.failed:
            self._hold(entry_of(told))
            return
        if paper.size >= self._full_at:
            paper = self._rotate(paper)
        try:
            self._hash = paper.request(self._sequence, int(self._wall_s() * 1e6), told)
        except OSError:
            self._fail()
            self._hold(entry_of(told))
            return
        self._sequence += 1
        self._dirty = True

    def due(self) -> Callable[[], None] | None:
        """What brings everything written so far to the disk; for another thread. None if there is nothing to do."""
        if not self._dirty and not self._full:
            return None
        full, self._full = self._full, []
        current = os.dup(self._paper.descriptor) if self._dirty and self._paper is not None else -1
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

    def close(self, later: Callable[[Callable[[], None]], object] | None = None) -> None:
        """The last note, and everything on the disk, for which ``later`` is called if it is given. Idempotent."""
        if self._paper is None:
            return
        self.retry()
        self.append(Note(NoteKind.CLOSED))
        self._full.append(self._paper.finish())
        self._paper, self._dirty = None, False
        bring = self.due()
        if bring is not None:
            bring() if later is None else later(bring)
        os.close(self._lock)

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
                self._paper = self._open_paper(path, end.size)
                self._number, self._id = head.number, head.ledger_id
                self._sequence, self._hash = end.sequence, end.hash
                break
        if self._paper is None:
            self._paper = self._begin_segment()
        if cut:
            _log.warning("the ledger's last write was incomplete and was cut", extra={"bytes": cut})
            self.append(Note(NoteKind.REPAIRED, cut))
        self.append(Note(NoteKind.OPENED, text=fit(self._rules.server, 128)))
        if self.failed:
            raise OSError

    def _open_paper(self, path: Path, size: int) -> Paper:
        most = max(size, self._full_at) + RECORD_BYTES
        return Paper(path, size, most, self._rules.extent_bytes, self._allocate)

    def _begin_segment(self) -> Paper:
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
        try:
            paper = self._open_paper(path, 0)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        paper.put(data)
        with contextlib.suppress(OSError):  # not every file system can
            os.fsync(self._lock)  # the folder: a file that has no name is lost
        self._number, self._hash, self._dirty = head.number, data[CONTENT_BYTES:], True
        return paper

    def _rotate(self, full: Paper) -> Paper:
        """The next segment. Without room for it the full one is returned, which takes no more."""
        try:
            self._paper = self._begin_segment()
        except OSError:
            return full
        self._full.append(full.finish())
        if self._rules.keep:
            for path in segments(self.folder)[: -self._rules.keep]:
                path.unlink(missing_ok=True)
        return self._paper

    def _fail(self) -> None:
        self.failed = True
        if not self._told:
            _log.critical("the ledger cannot be written; no request is admitted until it can")
            self._told = True

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
