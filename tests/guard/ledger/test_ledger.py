"""The writer: what it was given is there, in order, whatever happens to process, disk and machine."""

import itertools
import os
import random
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.ledger import Wall, entry, small
from zerolayer.errors import LedgerDamaged, LedgerError
from zerolayer.guard.ledger.ledger import Ledger, Rules, newest_head
from zerolayer.guard.ledger.record import CONTENT_BYTES, RECORD_BYTES, Entry, Flag, Note, NoteKind, Outcome
from zerolayer.guard.ledger.segment import Chain, repair, segments

PAGEWISE = Rules(extent_bytes=4096)  # room for nine records at a time


def read(folder):
    return [link.record() for link in Chain(folder)]


def entries(folder):
    return [record for record in read(folder) if isinstance(record, Entry)]


def names(folder):
    return [record.request_id for record in entries(folder)]


def test_a_record_is_there_as_soon_as_it_was_appended(ledger, folder):
    ledger.append(entry(7))
    assert names(folder) == [b"request-7"]


def test_a_record_says_everything_that_was_put_into_it(ledger, folder):
    given_entry = Entry(
        b"bank", b"k" * 16, b"smollm2", b"r" * 128, b"completions", b"length", Outcome.ABORTED, 200,
        int(Flag.STREAMED | Flag.ANSWER_CACHED), 1, 2, 3, 4, 1 << 40, 6, 7, tuple(range(9)),
    )  # fmt: skip
    ledger.append(given_entry)
    (found,) = entries(folder)
    given_entry.sequence, given_entry.ended_us = found.sequence, found.ended_us
    assert found == given_entry
    assert found.ended_us == 1_790_000_000_000_000


def test_numbers_that_do_not_fit_are_the_largest_that_does(ledger, folder):
    ledger.append(entry(stages_us=(1 << 40,) * 9, first_token_us=1 << 40))
    assert entries(folder)[0].stages_us == ((1 << 32) - 1,) * 9


def test_a_ledger_begins_and_ends_with_a_note(folder, wall):
    Ledger(folder, wall, Rules(server="0.1")).close()
    assert read(folder) == [
        Note(NoteKind.OPENED, 0, b"0.1", 1, 1_790_000_000_000_000),
        Note(NoteKind.CLOSED, 0, b"", 2, 1_790_000_000_000_000),
    ]


def test_the_next_server_goes_on_in_the_same_chain(folder, wall):
    for number in range(3):
        ledger = Ledger(folder, wall)
        ledger.append(entry(number))
        ledger.close()
    assert names(folder) == [b"request-0", b"request-1", b"request-2"]
    assert [record.sequence for record in read(folder)] == list(range(1, 10))


def test_only_its_owner_can_read_a_ledger(ledger, folder):
    assert stat.S_IMODE(segments(folder)[0].stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_ledger_has_one_writer(ledger, folder, wall):
    with pytest.raises(LedgerError, match="Another server writes the ledger"):
        Ledger(folder, wall)


def test_a_folder_that_cannot_be_made_is_told_with_the_remedy(tmp_path, wall):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"--ledger another folder, or off"):
        Ledger(tmp_path / "file" / "ledger", wall)


def test_a_full_segment_is_followed_by_another_one(folder, wall):
    ledger = Ledger(folder, wall, small(4))
    for number in range(10):
        ledger.append(entry(number))
    ledger.close()
    assert len(segments(folder)) == 3
    assert len(names(folder)) == 10


def test_old_segments_are_removed_where_only_some_are_kept(folder, wall):
    ledger = Ledger(folder, wall, Rules(segment_bytes=3 * RECORD_BYTES, keep=2))
    for number in range(10):
        ledger.append(entry(number))
    ledger.close()
    chain = Chain(folder)
    assert len(list(chain)) == 4
    assert chain.first is not None
    assert chain.first.sequence == 9


def test_a_ledger_keeps_its_identity_over_segments_and_servers(folder, wall):
    ids = set()
    for _ in range(2):
        ledger = Ledger(folder, wall, small(2))
        ledger.append(entry())
        ledger.close()
        ids.add(newest_head(folder).ledger_id)
    assert len(ids) == 1


@pytest.mark.parametrize("byte", [0, 5, 40, CONTENT_BYTES - 1, CONTENT_BYTES, RECORD_BYTES - 1])
def test_a_changed_byte_is_found(folder, wall, byte):
    ledger = Ledger(folder, wall)
    for number in range(5):
        ledger.append(entry(number))
    ledger.close()
    (path,) = segments(folder)
    data = bytearray(path.read_bytes())
    data[3 * RECORD_BYTES + byte] ^= 1
    path.write_bytes(data)
    with pytest.raises(LedgerDamaged, match=r"after its record 2 \(byte 1344\)"):
        read(folder)


def test_a_record_that_was_taken_out_is_missed(folder, wall):
    ledger = Ledger(folder, wall)
    for number in range(5):
        ledger.append(entry(number))
    ledger.close()
    (path,) = segments(folder)
    data = path.read_bytes()
    path.write_bytes(data[: 3 * RECORD_BYTES] + data[4 * RECORD_BYTES :])
    with pytest.raises(LedgerDamaged):
        read(folder)


def test_a_segment_that_was_taken_out_is_missed(folder, wall):
    ledger = Ledger(folder, wall, small(2))
    for number in range(8):
        ledger.append(entry(number))
    ledger.close()
    segments(folder)[1].unlink()
    with pytest.raises(LedgerDamaged, match="a segment is missing"):
        read(folder)


def test_a_segment_of_a_newer_version_is_refused(ledger, folder):
    (path,) = segments(folder)
    data = bytearray(path.read_bytes())
    data[8:10] = (2).to_bytes(2, "little")
    path.write_bytes(data)
    with pytest.raises(LedgerError, match="has version 2; this program reads up to 1"):
        read(folder)


def test_what_another_version_of_this_format_adds_is_skipped(ledger, folder):
    link = next(iter(Chain(folder)))
    assert type(link)(bytes([99]) + link.content[1:], link.hash, 1).record() is None


def written(folder, count=6):
    """The bytes of a ledger of ``count`` requests whose server has just died."""
    ledger = Ledger(folder, Wall(), Rules(node="n"))
    for number in range(count):
        ledger.append(entry(number))
    data = segments(folder)[0].read_bytes().rstrip(b"\0")
    ledger.close()
    return data.ljust(-(-len(data) // RECORD_BYTES) * RECORD_BYTES, b"\0")


def revived(folder, data):
    """What the next server finds and leaves, after the last one left ``data`` on the disk."""
    for path in folder.iterdir():
        path.unlink()
    (folder / "ledger-00000001.zll").write_bytes(data)
    ledger = Ledger(folder, Wall(), PAGEWISE)
    ledger.append(entry(99))
    ledger.close()
    return read(folder)


@pytest.fixture
def memory_folder(tmp_path):
    """A folder in memory where there is such a place: a thousand files are written to it."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as folder:
        yield Path(folder) / "ledger"


def test_killed_at_any_byte_no_record_is_lost_that_was_whole(memory_folder):
    """1,000 kills and more: after every byte of the last two records, and after random ones before them."""
    folder = memory_folder
    data = written(folder)
    lengths = random.Random(1).sample(range(RECORD_BYTES, len(data) - 2 * RECORD_BYTES), 110)
    lengths += range(len(data) - 2 * RECORD_BYTES, len(data) + 1)
    assert len(lengths) > 1000
    path = segments(folder)[0]
    for length in lengths:
        # The process died while it copied a record: the rest of the room that it had taken reads as zeros.
        left = data[:length].ljust(len(data) + 4096, b"\0")
        path.write_bytes(left)
        repair(path)
        whole = next(end for end in range(len(data), 0, -RECORD_BYTES) if left[:end] == data[:end])
        assert path.read_bytes() == data[:whole], length
    assert names(folder) == [b"request-%d" % number for number in range(6)]  # the last length was all of it


@pytest.mark.parametrize("short", [1, 31, 32, 33, 447])
def test_the_next_server_goes_on_after_the_last_whole_record(folder, short):
    data = written(folder)
    left = revived(folder, data[:-short].ljust(len(data) + 4096, b"\0"))
    found = [record.request_id for record in left if isinstance(record, Entry)]
    assert found == [*[b"request-%d" % number for number in range(5)], b"request-99"]


def test_a_file_that_ends_within_a_record_is_cut_to_the_last_whole_one(folder):
    data = written(folder)
    left = revived(folder, data[:-1])
    found = [record.request_id for record in left if isinstance(record, Entry)]
    assert found == [*[b"request-%d" % number for number in range(5)], b"request-99"]


def test_what_was_cut_is_noted(folder):
    data = written(folder)
    left = revived(folder, data[:-100])
    notes = [record for record in left if isinstance(record, Note)]
    assert [note.number < RECORD_BYTES for note in notes if note.what is NoteKind.REPAIRED] == [True]


def test_nothing_is_noted_where_nothing_was_cut(folder):
    left = revived(folder, written(folder))
    notes = {record.what for record in left if isinstance(record, Note)}
    assert notes == {NoteKind.OPENED, NoteKind.CLOSED}


@pytest.fixture(scope="module")
def dead(tmp_path_factory):
    """The only segment of a ledger whose server has died, and its bytes."""
    folder = tmp_path_factory.mktemp("dead") / "ledger"
    return folder / "ledger-00000001.zll", written(folder)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_a_machine_that_died_leaves_the_records_before_the_first_bad_byte(dead, data):
    path, original = dead
    at = data.draw(st.integers(RECORD_BYTES, len(original) - 1))
    later = data.draw(st.integers(at, len(original)))
    path.write_bytes(original[:at] + bytes(later - at) + original[later:])  # pages that never came read as zeros
    repair(path)
    whole = at // RECORD_BYTES * RECORD_BYTES
    assert path.read_bytes()[:whole] == original[:whole]
    assert len(path.read_bytes()) % RECORD_BYTES == 0


def test_what_is_cut_after_damage_is_kept_beside_the_ledger(folder):
    data = bytearray(written(folder))
    data[3 * RECORD_BYTES] ^= 1
    revived(folder, bytes(data))
    (kept,) = folder.glob("*.damaged-*")
    assert kept.read_bytes() == bytes(data[3 * RECORD_BYTES :])


def test_a_segment_that_died_before_its_head_was_written_is_put_aside(folder):
    data = written(folder)
    (folder / "ledger-00000002.zll").write_bytes(b"ZLL")
    ledger = Ledger(folder, Wall())
    ledger.append(entry(99))
    ledger.close()
    assert names(folder)[-1] == b"request-99"
    assert len(data) < sum(path.stat().st_size for path in segments(folder))


class Disk:
    """Has room for what it is asked for, until told to be full."""

    def __init__(self) -> None:
        self.full = False

    def __call__(self, descriptor: int, offset: int, size: int) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        os.posix_fallocate(descriptor, offset, size)


def fill(ledger: Ledger) -> int:
    """Append until the disk takes no more; how many the ledger was given."""
    number = 0
    while not ledger.failed:
        ledger.append(entry(number))
        number += 1
    return number


def test_a_full_disk_leaves_no_half_record_and_loses_none(folder, wall):
    disk = Disk()
    ledger = Ledger(folder, wall, PAGEWISE, disk)
    disk.full = True
    given_records = fill(ledger) + 1
    ledger.append(entry(given_records - 1))
    assert len(names(folder)) == given_records - 2
    disk.full = False
    ledger.retry()
    assert not ledger.failed
    ledger.close()
    assert names(folder) == [b"request-%d" % number for number in range(given_records)]


def test_a_disk_that_is_still_full_is_tried_again_later(folder, wall):
    disk = Disk()
    ledger = Ledger(folder, wall, PAGEWISE, disk)
    disk.full = True
    given_records = fill(ledger)
    ledger.retry()
    assert ledger.failed
    disk.full = False
    ledger.retry()
    ledger.close()
    assert names(folder) == [b"request-%d" % number for number in range(given_records)]


def test_without_room_for_another_segment_records_wait_for_it(folder, wall):
    disk = Disk()
    ledger = Ledger(folder, wall, small(3), disk)
    disk.full = True
    given_records = fill(ledger)
    disk.full = False
    ledger.retry()
    ledger.close()
    assert names(folder) == [b"request-%d" % number for number in range(given_records)]
    assert len(segments(folder)) > 1


def test_records_beyond_what_memory_may_hold_are_counted_as_a_gap(folder, wall):
    disk = Disk()
    ledger = Ledger(folder, wall, PAGEWISE, disk)
    disk.full = True
    fill(ledger)
    for number in range(8192 - 1 + 5):
        ledger.append(entry(number))
    disk.full = False
    ledger.retry()
    ledger.close()
    gaps = [record for record in read(folder) if isinstance(record, Note) and record.what is NoteKind.GAP]
    assert [gap.number for gap in gaps] == [5]


def test_what_was_written_is_due_for_the_disk_once(ledger):
    ledger.append(entry())
    bring = ledger.due()
    assert bring is not None
    bring()
    assert ledger.due() is None


def test_a_finished_segment_is_closed_once_it_is_on_the_disk(folder, wall):
    ledger = Ledger(folder, wall, small(2))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(20):
        ledger.append(entry(number))
    bring = ledger.due()
    assert bring is not None
    bring()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    ledger.close()


def test_a_ledger_may_be_read_at_any_moment_while_it_is_written(folder, wall):
    ledger, found = Ledger(folder, wall), []
    chain = iter(Chain(folder))
    for number in range(200):
        ledger.append(entry(number))
        found += [link.sequence for link in itertools.islice(chain, 1)]
    ledger.close()
    found += [link.sequence for link in chain]
    assert found == list(range(1, 203))
