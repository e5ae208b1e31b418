"""The file of one segment as it is written: allocated on the disk ahead of the records, and mapped.

A record is then a copy in memory and no call of the system. The copy is the kernel's the moment it is made, so it
survives the death of the process like any written byte. Room is taken before it is needed, because a full disk must be
an error and not a signal. What is not written yet reads as zeros.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from zerolayer.guard.ledger.record import CONTENT_BYTES, HASH_BYTES

Allocate = Callable[[int, int, int], None]  # descriptor, offset, bytes; raises OSError

_PAGE: Final = mmap.PAGESIZE


class Paper:
    """A segment open for writing. All offsets and sizes in bytes. Raises ``OSError``, when there is no room."""

    def __init__(self, path: Path, size: int, most: int, extent: int, allocate: Allocate) -> None:
        """``size`` bytes are written already, at most ``most`` will be; room is taken by ``extent``."""
        self.size = size
        self._most = -(-most // _PAGE) * _PAGE
        self._extent = extent
        self._allocate = allocate
        self._room = 0
        self._gone = 0  # pages before it were given back
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(self.descriptor, self._most)  # takes no room yet
            self._map = mmap.mmap(self.descriptor, self._most)
            self._take()
        except BaseException:
            os.ftruncate(self.descriptor, size)
            os.close(self.descriptor)
            raise

    def put(self, data: bytes) -> None:
        """Add ``data``, wholly or, with ``OSError``, not at all."""
        at = self.size
        end = at + len(data)
        if end > self._room:
            self._make_room(end)
        self._map[at:end] = data
        self.size = end

    def link(self, data: bytes, digest: bytes) -> None:
        """Add a record, wholly or, with ``OSError``, not at all. ``data`` begins with the hash that stands there."""
        at = self.size
        digest_at = at + CONTENT_BYTES
        end = digest_at + HASH_BYTES
        if end > self._room:
            self._make_room(end)
        self._map[at - HASH_BYTES : digest_at] = data  # over the same hash: cheaper than a copy without it
        self._map[digest_at:end] = digest
        self.size = end

    def finish(self) -> int:
        """No more is written. The descriptor, which the caller brings to the disk and closes."""
        self._map.close()
        os.ftruncate(self.descriptor, self.size)
        return self.descriptor

    def _make_room(self, end: int) -> None:
        self._take()
        if end > self._room:
            raise OSError(errno.ENOSPC, "the segment is full")

    def _take(self) -> None:
        """Room for one extent more, at least for a page."""
        end = min(self._most, self.size + max(self._extent, _PAGE))
        if end <= self.size:
            return
        self._allocate(self.descriptor, self.size, end - self.size)
        self._room = end
        first = self.size // _PAGE * _PAGE
        if first > self._gone:  # else a segment's worth of memory would seem to be this process's
            self._map.madvise(mmap.MADV_DONTNEED, self._gone, first - self._gone)
            self._gone = first
