"""The prefix cache: what is found, what is kept apart, what leaves."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.model.prefix_cache import BLOCK, Hit, PrefixCache


def prompt(blocks: int, first: int = 0) -> list[int]:
    """``blocks`` whole blocks and one token more."""
    return [first + i for i in range(blocks * BLOCK + 1)]


@pytest.fixture
def cache() -> PrefixCache:
    return PrefixCache(entries=2, entry_tokens=4 * BLOCK)


def test_an_empty_cache_has_nothing(cache: PrefixCache) -> None:
    assert cache.attach(prompt(3)) is None


def test_a_kept_prefix_is_found_again(cache: PrefixCache) -> None:
    kept = cache.admit(prompt(3))
    assert kept is not None
    assert cache.attach(prompt(3)) == Hit(kept.entry, 3 * BLOCK)


def test_a_prompt_that_goes_on_differently_shares_the_blocks_that_agree(cache: PrefixCache) -> None:
    cache.admit(prompt(3))
    hit = cache.attach(prompt(1)[:-1] + prompt(2, first=900))
    assert hit is not None
    assert hit.tokens == BLOCK


def test_a_block_with_one_other_token_is_not_shared(cache: PrefixCache) -> None:
    cache.admit(prompt(1))
    assert cache.attach([7, *prompt(1)[1:]]) is None


def test_one_token_is_always_left_to_compute(cache: PrefixCache) -> None:
    cache.admit(prompt(2))
    hit = cache.attach(prompt(2)[:-1])
    assert hit is not None
    assert hit.tokens == BLOCK


def test_no_more_than_an_entry_holds_is_kept(cache: PrefixCache) -> None:
    kept = cache.admit(prompt(9))
    assert kept is not None
    assert kept.tokens == 4 * BLOCK


def test_a_prompt_below_one_block_is_not_kept(cache: PrefixCache) -> None:
    assert cache.admit([1] * (BLOCK - 1)) is None


def test_what_is_kept_already_takes_no_second_entry(cache: PrefixCache) -> None:
    cache.admit(prompt(3))
    assert cache.admit(prompt(2)) is None


def test_another_salt_never_sees_a_prefix(cache: PrefixCache) -> None:
    cache.admit(prompt(3), b"tenant a")
    assert cache.attach(prompt(3), b"tenant b") is None


def test_salts_that_run_into_the_tokens_stay_apart(cache: PrefixCache) -> None:
    raw = prompt(2)
    cache.admit(raw, b"")
    assert cache.attach(raw[1:], raw[0].to_bytes(4, "little")) is None


def test_a_constant_is_seen_with_every_salt(cache: PrefixCache) -> None:
    cache.admit(prompt(2), constant=True)
    assert cache.attach(prompt(2), b"tenant b") is not None


def test_a_prefix_without_a_salt_is_not_a_constant(cache: PrefixCache) -> None:
    cache.admit(prompt(2), b"")
    assert cache.attach(prompt(2), b"tenant b") is None


def test_a_constant_never_leaves(cache: PrefixCache) -> None:
    cache.admit(prompt(2), constant=True)
    for first in range(1000, 9000, 1000):
        cache.admit(prompt(2, first))
    assert cache.attach(prompt(2)) is not None


def test_an_entry_in_use_never_leaves(cache: PrefixCache) -> None:
    cache.admit(prompt(2))
    cache.attach(prompt(2))
    for first in range(1000, 9000, 1000):
        cache.admit(prompt(2, first))
    assert cache.attach(prompt(2)) is not None


def test_with_every_entry_in_use_nothing_is_kept(cache: PrefixCache) -> None:
    for first in (0, 1000):
        cache.admit(prompt(2, first))
        cache.attach(prompt(2, first))
    assert cache.admit(prompt(2, 2000)) is None


def test_a_detached_entry_can_leave(cache: PrefixCache) -> None:
    for first in (0, 1000):
        cache.admit(prompt(2, first))
        hit = cache.attach(prompt(2, first))
        assert hit is not None
        cache.detach(hit)
    assert cache.admit(prompt(2, 2000)) is not None


def test_the_entry_that_saves_least_leaves_first(cache: PrefixCache) -> None:
    cache.admit(prompt(4))
    cache.admit(prompt(1, 1000))
    cache.admit(prompt(2, 2000))
    assert cache.attach(prompt(1, 1000)) is None


def test_a_prefix_that_is_asked_for_often_outlives_a_longer_one(cache: PrefixCache) -> None:
    cache.admit(prompt(1))
    for _ in range(9):
        hit = cache.attach(prompt(1))
        assert hit is not None
        cache.detach(hit)
    cache.admit(prompt(4, 1000))
    cache.admit(prompt(2, 2000))
    assert cache.attach(prompt(1)) is not None


def test_old_fame_fades(cache: PrefixCache) -> None:
    cache.admit(prompt(1))
    for _ in range(5):
        hit = cache.attach(prompt(1))
        assert hit is not None
        cache.detach(hit)
    for first in range(1000, 40_000, 1000):
        cache.admit(prompt(2, first))
    assert cache.attach(prompt(1)) is None


def test_least_recently_used_forgets_by_age_alone() -> None:
    cache = PrefixCache(entries=2, entry_tokens=4 * BLOCK, policy="lru")
    cache.admit(prompt(4))
    cache.admit(prompt(1, 1000))
    cache.admit(prompt(1, 2000))
    assert cache.attach(prompt(4)) is None


def test_least_recently_used_counts_a_hit_as_a_use() -> None:
    cache = PrefixCache(entries=2, entry_tokens=4 * BLOCK, policy="lru")
    cache.admit(prompt(1))
    cache.admit(prompt(1, 1000))
    hit = cache.attach(prompt(1))
    assert hit is not None
    cache.detach(hit)
    cache.admit(prompt(1, 2000))
    assert cache.attach(prompt(1)) is not None


# Few different blocks, so that prompts agree often.
tokens = st.builds(
    lambda blocks, rest: [token for block in blocks for token in [block] * BLOCK] + [5] * rest,
    st.lists(st.integers(0, 1), max_size=5),
    st.integers(0, BLOCK),
)


@given(st.lists(st.tuples(tokens, st.sampled_from([b"", b"a", b"b"]), st.booleans()), max_size=30))
def test_a_hit_is_always_a_true_prefix_of_the_same_salt_and_no_entry_is_ever_lost(
    requests: list[tuple[list[int], bytes, bool]],
) -> None:
    cache = PrefixCache(entries=3, entry_tokens=4 * BLOCK)
    content: dict[int, tuple[list[int], bytes]] = {}
    held: list[Hit] = []
    for request, salt, keep in requests:
        hit = cache.attach(request, salt)
        if hit is not None:
            kept, kept_salt = content[hit.entry]
            assert (kept[: hit.tokens], kept_salt) == (request[: hit.tokens], salt)
            assert hit.tokens < len(request)
            held.append(hit)
        new = cache.admit(request, salt)
        if new is not None:
            assert all(hit.entry != new.entry for hit in held)
            content[new.entry] = (request[: new.tokens], salt)
        if not keep:
            while held:
                cache.detach(held.pop())
    while held:
        cache.detach(held.pop())
    for first in range(3):
        assert cache.admit([100 + first] * BLOCK) is not None


@pytest.fixture
def shared() -> PrefixCache:
    return PrefixCache(entries=4, entry_tokens=4 * BLOCK, salt_share=0.5)


def test_one_salt_fills_at_most_its_share(shared: PrefixCache) -> None:
    for number in range(6):
        shared.admit(prompt(1, first=1000 * number), b"tenant bank")
    assert shared.free == 2


def test_who_is_beyond_its_share_makes_room_of_its_own_and_pushes_nobody_out(shared: PrefixCache) -> None:
    shared.admit(prompt(1), b"tenant shop")
    for number in range(1, 20):
        shared.admit(prompt(1, first=1000 * number), b"tenant bank")
    assert shared.attach(prompt(1), b"tenant shop") is not None
    assert shared.attach(prompt(1, first=19_000), b"tenant bank") is not None


def test_an_entry_that_left_counts_no_more(shared: PrefixCache) -> None:
    for number in range(2):
        shared.admit(prompt(1, first=1000 * number), b"tenant bank")
    for number in range(2, 9):
        shared.admit(prompt(1, first=1000 * number))  # nobody's: no share, and it pushes out what saves least
    assert shared.attach(prompt(1), b"tenant bank") is None
    assert shared.admit(prompt(1, first=90_000), b"tenant bank") is not None


def test_who_has_no_salt_has_all_entries(shared: PrefixCache) -> None:
    for number in range(4):
        shared.admit(prompt(1, first=1000 * number))
    assert shared.free == 0


def test_an_entry_takes_memory_like_its_tokens() -> None:
    blocks, entries = 256, 16
    cache = PrefixCache(entries=entries, entry_tokens=blocks * BLOCK)
    prompts = [prompt(blocks, first=1 + at) for at in range(entries)]
    tracemalloc.start()
    for at, one in enumerate(prompts):
        assert cache.admit(one, bytes([at])) is not None
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1024 * blocks * entries  # every border's whole beginning would be some 8 KB a block


def test_what_left_leaves_nothing_behind(cache: PrefixCache) -> None:
    for number in range(100):
        cache.admit(prompt(2, first=number), bytes([number]))
        cache.admit([*prompt(1, first=number), *prompt(1, first=number + 1)], bytes([number]))
    assert len(cache._roots) <= 2  # of as many entries
