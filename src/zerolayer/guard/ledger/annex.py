"""A ledger beside the ledger, for a process that ends while the next one writes already.

Two processes write at once for the seconds in which the old one's replies finish, and a ledger has one writer. So the
old one writes an annex, ``annex-*`` in the ledger's folder: a ledger in every respect, with its own lock and chain, so
that what is in it outlives any death. When its writer is gone, whoever writes the ledger copies the annex into it and
removes it. A copy that was interrupted goes on where it stopped: it begins with a note of the annex's name and of how
many records came before, nothing else is written between its records, and what opens a ledger again leaves a note.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Final

from zerolayer.guard.ledger.ledger import Ledger, Rules
from zerolayer.guard.ledger.record import CONTENT_BYTES, RECORD_BYTES, Kind, Note, NoteKind, read_record
from zerolayer.guard.ledger.segment import Chain, Link, read_segment_head, repair, segments

_PREFIX: Final = "annex-"
_OWN: Final = frozenset({NoteKind.OPENED, NoteKind.CLOSED, NoteKind.REPAIRED})  # of the annex itself


def open_annex(ledger: Ledger, wall_s: Callable[[], float], rules: Rules) -> Ledger:
    """A new annex of ``ledger``, named by where that stands: what is copied later stands behind it.

    Raises ``LedgerError``.
    """
    return Ledger(ledger.folder / f"{_PREFIX}{ledger.records + 1:016d}-{secrets.token_hex(8)}", wall_s, rules)


def annexes(folder: Path) -> list[Path]:
    """All that were not joined yet, whether they are still written or not."""
    return sorted(path for path in folder.glob(f"{_PREFIX}*") if path.is_dir())


def join(ledger: Ledger, annex: Path) -> bool:
    """Copy an annex that nobody writes any more. False when somebody does, or the disk takes no more; then later again.

    ``remove`` it once ``ledger`` is on the disk. Raises ``LedgerDamaged``.
    """
    lock = _lock(annex)
    if lock < 0:
        return False
    try:
        for path in segments(annex)[-1:]:
            repair(path)
        there = [link for link in Chain(annex) if not _is_own(link)] if segments(annex) else []
        have = _joined(ledger.folder, annex)
        if have >= len(there):
            return True
        ledger.append(Note(NoteKind.JOINED, have, annex.name.encode()))
        if all(ledger.copy(link.content) for link in there[have:]):
            return True
        ledger.append(Note(NoteKind.JOINED))  # the first thing that is written then, so that the count stops there
        return False
    finally:
        os.close(lock)


def remove(annex: Path) -> None:
    """Everything of it is in the ledger, and on the disk."""
    shutil.rmtree(annex, ignore_errors=True)


def _lock(annex: Path) -> int:
    """The descriptor that holds it; -1 when somebody else does."""
    descriptor = os.open(annex, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return -1
    return descriptor


def _is_own(link: Link) -> bool:
    record = link.record()
    return isinstance(record, Note) and record.what in _OWN


def _joined(folder: Path, annex: Path) -> int:
    """How many records of the annex the ledger has: those behind the last note of its name, and those before that."""
    contents = list(_since(folder, int(annex.name.split("-")[1])))
    for place in range(len(contents) - 1, -1, -1):
        record = _note(contents[place])
        if record is not None and record.what is NoteKind.JOINED and record.text == annex.name.encode():
            copied = takewhile(_is_copied, contents[place + 1 :])
            return record.number + sum(1 for _ in copied)
    return 0


def _since(folder: Path, sequence: int) -> Iterator[bytes]:
    """The contents of all whole records from ``sequence`` on; their chain is not looked at."""
    heads = [(path, head) for path in segments(folder) if (head := read_segment_head(path)) is not None]
    for place, (path, head) in enumerate(heads):
        if place + 1 < len(heads) and heads[place + 1][1].sequence <= sequence:
            continue
        with path.open("rb") as file:
            file.seek(RECORD_BYTES * (1 + max(0, sequence - head.sequence)))
            while len(data := file.read(RECORD_BYTES)) == RECORD_BYTES and any(data[:1]):
                yield data[:CONTENT_BYTES]


def _note(content: bytes) -> Note | None:
    if content[0] != Kind.NOTE:
        return None
    record = read_record(content)
    return record if isinstance(record, Note) else None


def _is_copied(content: bytes) -> bool:
    """Not a note of the ledger's own, which would be written once the copy was over, or had broken off."""
    note = _note(content)
    return note is None or note.what is NoteKind.GAP
