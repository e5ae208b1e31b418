"""Segments of a ledger on disk: their names, their chain, and what is left of the last one after a crash.

A ledger is a folder of files ``ledger-NNNNNNNN.zll``. Each begins with a head and goes on with records; a file that
is being written, or was when its process or machine died, may end within a record.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from zerolayer.errors import LedgerDamaged, LedgerError
from zerolayer.guard.ledger.record import (
    COMMON,
    CONTENT_BYTES,
    RECORD_BYTES,
    VERSION,
    Head,
    Record,
    chained,
    read_head,
    read_record,
    version_of,
)

_NAME: Final = re.compile(r"ledger-([0-9]{8})\.zll")
_READ_RECORDS: Final = 2048  # at once


class End(msgspec.Struct, frozen=True):
    """Where a chain stands: the next record's sequence, the last hash, and the bytes of whole records before it."""

    sequence: int
    hash: bytes
    size: int


class Link(msgspec.Struct, frozen=True):
    """One record that follows on the one before it."""

    content: bytes
    hash: bytes
    sequence: int

    def record(self) -> Record | None:
        """What it says; None for a kind of record that this version does not know."""
        return read_record(self.content)


def segment_path(folder: Path, number: int) -> Path:
    """The file of a segment."""
    return folder / f"ledger-{number:08d}.zll"


def segments(folder: Path) -> list[Path]:
    """All segments, oldest first. Raises ``LedgerError`` for a folder that cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    except OSError:
        raise LedgerError(
            f"The ledger {folder} cannot be read. Give --ledger the folder that `zerolayer serve` names."
        ) from None


def read_segment_head(path: Path) -> Head | None:
    """The head of a segment; None if it has no whole one. Raises ``LedgerError`` for a version that is newer."""
    with path.open("rb") as file:
        data = file.read(RECORD_BYTES)
    if version_of(data) > VERSION:
        raise LedgerError(
            f"{path} has version {version_of(data)}; this program reads up to {VERSION}. Use a newer zerolayer."
        )
    return read_head(data)


class Reading:
    """Goes through a segment's records, each checked against the chain. ``end`` is where it stands when it stops."""

    def __init__(self, path: Path, head: Head) -> None:
        self._path = path
        self.end = End(head.sequence, _hash_of(path), RECORD_BYTES)

    def __iter__(self) -> Iterator[Link]:
        """Up to the first record that is not whole, or does not follow on the one before it."""
        sequence, before, size = self.end.sequence, self.end.hash, self.end.size
        with self._path.open("rb") as file:
            file.seek(size)
            while data := file.read(_READ_RECORDS * RECORD_BYTES):
                for at in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
                    content = data[at : at + CONTENT_BYTES]
                    digest = data[at + CONTENT_BYTES : at + RECORD_BYTES]
                    if chained(before, content) != digest or COMMON.unpack_from(content)[4] != sequence:
                        return
                    before, size = digest, size + RECORD_BYTES
                    self.end = End(sequence + 1, digest, size)
                    yield Link(content, digest, sequence)
                    sequence += 1
                if len(data) % RECORD_BYTES:
                    return


class Chain:
    """All records of a ledger, in order, across its segments; ``end`` is set when the iteration is over.

    What hangs behind the last whole record of the last segment is left out and told in ``loose`` (bytes): a server may
    be writing it just now. Zeros are room that was taken. Anything else that does not fit raises ``LedgerDamaged``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.first: Head | None = None
        self.end: End | None = None
        self.loose = 0
        self.segments = 0

    def __iter__(self) -> Iterator[Link]:
        paths = segments(self._folder)
        if not paths:
            raise LedgerError(f"There is no ledger in {self._folder}. Give --ledger the folder that serve names.")
        for path in paths:
            last = path is paths[-1]
            head = read_segment_head(path)
            if head is None:
                self._judge(path, 0, loose_bytes(path, 0), last=last)
                return
            if self.end is not None and (head.before != self.end.hash or head.sequence != self.end.sequence):
                raise LedgerDamaged(f"{path.name} does not follow on the segment before it: a segment is missing")
            self.first = self.first or head
            self.segments += 1
            reading = Reading(path, head)
            yield from self._read(path, reading, last=last)
            self.end = reading.end

    def _read(self, path: Path, reading: Reading, *, last: bool) -> Iterator[Link]:
        """All of a segment; of the last one also what a server writes while this is read."""
        while True:
            yield from reading
            whole = reading.end.size
            loose = loose_bytes(path, whole)
            if last and loose >= RECORD_BYTES:
                yield from reading  # it was written between the two looks, or is damage
                if reading.end.size > whole:
                    continue
            self._judge(path, whole, loose, last=last)
            return

    def _judge(self, path: Path, whole: int, loose: int, *, last: bool) -> None:
        """What follows byte ``whole`` is no record: room for some, the end of what is being written, or damage."""
        self.loose = loose
        if loose and (not last or loose >= RECORD_BYTES):
            number = max(0, whole // RECORD_BYTES - 1)
            raise LedgerDamaged(f"{path.name} was changed or is damaged after its record {number} (byte {whole})")


def repair(path: Path) -> tuple[Head | None, End | None, int]:
    """Cut a segment to its last whole record: its head, where the chain stands, and how many bytes were taken out.

    What is taken out is kept beside the segment, in ``NAME.damaged``, unless it is less than a record. Without a whole
    head the segment is taken out altogether: both are None.
    """
    head = read_segment_head(path)
    if head is None:
        size = loose_bytes(path, 0)
        if size:
            path.rename(path.with_suffix(".zll.damaged"))
        else:
            path.unlink()
        return None, None, size
    reading = Reading(path, head)
    for _ in reading:
        pass
    whole, loose = reading.end.size, loose_bytes(path, reading.end.size)
    with path.open("r+b") as file:
        if loose >= RECORD_BYTES:
            file.seek(whole)
            kept = path.with_suffix(f".zll.damaged-{whole}")
            kept.write_bytes(file.read(loose))
            kept.chmod(0o600)
        file.truncate(whole)
    return head, reading.end, loose


def loose_bytes(path: Path, whole: int) -> int:
    """Bytes from ``whole`` to the last one that is not zero."""
    loose, at = 0, whole
    with path.open("rb", buffering=0) as file:
        while True:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)  # most of it was never written, and takes no time
            except OSError:
                return loose
            data = file.read(1 << 18)
            if not data:
                return loose
            at += len(data)
            written = len(data.rstrip(b"\0"))
            if written:
                loose = at - len(data) + written - whole


def _hash_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(RECORD_BYTES)[CONTENT_BYTES:]
