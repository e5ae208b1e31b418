"""What a process that ends writes beside the ledger is in the ledger once, whenever anybody dies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zerolayer.guard.ledger.annex import annexes, join, open_annex, remove
from zerolayer.guard.ledger.ledger import Ledger, Rules
from zerolayer.guard.ledger.record import Entry, Note, NoteKind
from zerolayer.guard.ledger.segment import Chain

RULES = Rules(segment_bytes=4 << 10, extent_bytes=4096)


def entry(name: str) -> Entry:
    return Entry(b"acme", request_id=name.encode())


def opened(folder: Path, time: float = 1.0) -> Ledger:
    return Ledger(folder, lambda: time, RULES)


def names(folder: Path) -> list[str]:
    records = [link.record() for link in Chain(folder)]
    return [record.request_id.decode() for record in records if isinstance(record, Entry)]


def annex_of(folder: Path, *requests: str) -> Path:
    """What an old process wrote in an annex while a new one wrote the ledger."""
    old = opened(folder)
    old.append(entry("before"))
    annex = open_annex(old, lambda: 2.0, RULES)
    old.close()
    for name in requests:
        annex.append(entry(name))
    annex.close()
    return annex.folder


def test_the_records_of_an_annex_follow_in_the_ledgers_own_chain(tmp_path):
    annex = annex_of(tmp_path, "a", "b")
    new = opened(tmp_path)
    new.append(entry("new"))
    assert join(new, annex)
    remove(annex)
    new.append(entry("later"))
    new.close()
    assert names(tmp_path) == ["before", "new", "a", "b", "later"]
    assert annexes(tmp_path) == []


def test_a_record_keeps_the_time_at_which_its_request_ended(tmp_path):
    annex = annex_of(tmp_path, "a")
    new = opened(tmp_path, time=9.0)
    join(new, annex)
    new.close()
    assert [
        link.record().ended_us for link in Chain(tmp_path) if getattr(link.record(), "request_id", b"") == b"a"
    ] == [2_000_000]


def test_an_annex_that_is_written_is_left_alone(tmp_path):
    old = opened(tmp_path)
    annex = open_annex(old, lambda: 2.0, RULES)
    old.close()
    new = opened(tmp_path)
    assert not join(new, annex.folder)
    annex.close()
    assert join(new, annex.folder)
    new.close()


def test_an_annex_that_was_joined_and_not_removed_is_not_joined_again(tmp_path):
    annex = annex_of(tmp_path, "a", "b")
    new = opened(tmp_path)
    join(new, annex)
    new.append(entry("later"))
    assert join(new, annex)
    new.close()
    again = opened(tmp_path)
    assert join(again, annex)
    again.close()
    assert names(tmp_path) == ["before", "a", "b", "later"]


@pytest.mark.parametrize("copied", range(8))
def test_a_copy_that_broke_off_goes_on_where_it_stopped(tmp_path, monkeypatch, copied):
    wanted = [f"r{number}" for number in range(7)]
    annex = annex_of(tmp_path, *wanted)
    for stop in (copied, copied // 2):  # the second try breaks off as well
        writer, left = opened(tmp_path), iter(range(stop))
        with monkeypatch.context() as patched:
            whole = Ledger.copy
            patched.setattr(
                Ledger, "copy", lambda self, content, w=whole, n=left: next(n, None) is not None and w(self, content)
            )
            join(writer, annex)
        writer.append(Note(NoteKind.CLOSED))
        writer.close()
    last = opened(tmp_path)
    assert join(last, annex)
    last.close()
    assert names(tmp_path) == ["before", *wanted]


def test_a_writer_that_was_killed_leaves_an_annex_that_can_be_joined(tmp_path):
    old = opened(tmp_path)
    annex = open_annex(old, lambda: 2.0, RULES)
    old.close()
    annex.append(entry("a"))
    path = annex.folder
    with next(iter(sorted(path.glob("*.zll")))).open("r+b") as file:
        file.seek(448 * 3)  # head, opened, a
        file.write(b"half a record")
    os.close(annex._lock)  # as the death of its process does
    new = opened(tmp_path)
    assert join(new, path)
    new.close()
    assert names(tmp_path) == ["a"]
