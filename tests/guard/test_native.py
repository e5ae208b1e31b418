"""What is compiled for the guard writes the bytes that the Python beside it reads, whatever it is given."""

from __future__ import annotations

import hashlib
import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.guard import _native
from zerolayer.guard.budget.account import DAY_US, Account
from zerolayer.guard.identity import Quota
from zerolayer.guard.ledger.record import (
    CONTENT_BYTES,
    HASH_BYTES,
    RECORD_BYTES,
    Told,
    chained,
    content_of,
    entry_of,
    read_record,
)

U64 = st.integers(0, (1 << 64) - 1)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
TOLD = st.tuples(
    st.integers(1, 4), st.integers(0, 999), st.integers(0, 7), st.binary(min_size=16, max_size=16),
    NAMES.map(str.encode), NAMES.map(str.encode), NAMES, st.just(b"messages"), NAMES,
    U64, U64, U64, U64, U64, U64, U64, st.tuples(*[U64] * 9),
)  # fmt: skip


@given(st.binary(max_size=600))
def test_a_hash_is_that_of_the_standard_library(data: bytes) -> None:
    assert _native.sha256(data) == _native.sha256_portable(data) == hashlib.sha256(data).digest()


@given(TOLD, U64, U64, st.binary(min_size=HASH_BYTES, max_size=HASH_BYTES))
def test_a_request_has_the_bytes_of_its_record_and_the_hash_of_its_chain(
    told: Told, sequence: int, ended_us: int, before: bytes
) -> None:
    memory = mmap.mmap(-1, 2 * RECORD_BYTES)
    memory[:HASH_BYTES] = before
    sheet = _native.Sheet(memory)
    digest = sheet.request(HASH_BYTES, sequence, ended_us, *told)
    sheet.release()
    written, end = memory[HASH_BYTES:], CONTENT_BYTES + HASH_BYTES
    assert written[:CONTENT_BYTES] == content_of(entry_of(told), sequence, ended_us)
    assert written[CONTENT_BYTES:end] == digest == chained(before, written[:CONTENT_BYTES])
    assert not any(written[end:])
    assert read_record(written[:CONTENT_BYTES]) == entry_of(told, sequence, ended_us)


def test_names_that_are_too_long_are_cut() -> None:
    memory = mmap.mmap(-1, 2 * RECORD_BYTES)
    told = (1, 200, 0, b"k" * 16, b"t" * 40, b"m" * 70, "r" * 200, b"w" * 30, "c" * 40, *[0] * 7, (0,) * 9)
    _native.Sheet(memory).request(HASH_BYTES, 1, 1, *told)
    entry = read_record(memory[HASH_BYTES : HASH_BYTES + CONTENT_BYTES])
    lengths = [len(field) for field in (entry.tenant, entry.model, entry.request_id, entry.route, entry.code)]
    assert lengths == [32, 64, 128, 24, 32]


@pytest.mark.parametrize("at", [0, HASH_BYTES - 1, 2 * RECORD_BYTES, (1 << 64) - 1])
def test_nothing_is_written_outside_the_memory(at: int) -> None:
    memory = mmap.mmap(-1, 2 * RECORD_BYTES)
    told = (1, 200, 0, b"", b"", b"", "", b"", "", *[0] * 7, (0,) * 9)
    with pytest.raises(IndexError):
        _native.Sheet(memory).request(at, 1, 1, *told)
    assert not any(memory[:])


def test_memory_that_was_given_back_has_no_room() -> None:
    memory = mmap.mmap(-1, 4096)
    log, sheet = _native.StateLog(memory, 64), _native.Sheet(memory)
    log.release()
    sheet.release()
    memory.close()  # raises while anybody holds it
    assert not log.append(Account(b"k" * 16, "key", Quota(), DAY_US))
    with pytest.raises(IndexError):
        sheet.request(448, 1, 1, 1, 200, 0, b"", b"", b"", "", b"", "", *[0] * 7, (0,) * 9)


@given(st.integers(1, (1 << 32) - 1), st.integers(0, 1 << 40), st.integers(1, 1 << 50))
def test_a_bucket_drains_as_whole_numbers_do(limit: int, tokens: int, elapsed_us: int) -> None:
    account = Account(b"k" * 16, "key", Quota(tokens_per_minute=limit), DAY_US)
    debt = min(tokens, 2 * limit) * 60_000_000
    account.tokens_debt = debt
    account.advance(DAY_US + elapsed_us)
    assert account.tokens_debt == max(0, debt - limit * elapsed_us)
