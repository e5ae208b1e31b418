"""How long a text is taken to be before it is tokenised."""

from __future__ import annotations

from zerolayer.guard.token_share import TokenShare


def _share(*seen: tuple[int, int]) -> TokenShare:
    share = TokenShare()
    for text_bytes, tokens in seen:
        share.observe(text_bytes, tokens)
    return share


def test_without_experience_every_byte_may_be_a_token():
    assert _share().bound(700, 512) == 512


def test_a_few_texts_say_what_share_of_their_bytes_others_have_with_a_margin():
    assert _share(*[(1000, 200)] * 8).bound(100, 101) == 24


def test_many_texts_of_a_size_say_what_one_more_will_have():
    assert _share(*[(700, 127)] * 32).bound(690, 512) == 127


def test_one_longer_text_of_a_size_counts_at_once():
    assert _share(*[(700, 127)] * 40, (690, 300)).bound(700, 512) == 300


def test_texts_of_another_size_do_not_count_as_of_this_one():
    assert _share(*[(7000, 127)] * 40, *[(700, 350)] * 8).bound(700, 512) == 420


def test_what_a_slot_holds_is_never_exceeded():
    assert _share(*[(1000, 900)] * 8).bound(1000, 512) == 512
