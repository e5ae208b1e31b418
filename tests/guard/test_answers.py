"""Whole answers that are kept: which, for whom, how many."""

import pytest

from zerolayer.guard.answers import Answer, AnswerCache, AnswerKeeper
from zerolayer.model.engine import SampledToken
from zerolayer.wire.schema import FinishReason, Message, Request, Route, Sampling, Tier

GREEDY = Sampling(temperature=0.0)


def ask(text="hello", sampling=GREEDY, **fields):
    return Request(Route.CHAT, "m", (Message("user", text),), sampling=sampling, **fields)


def answer(tokens=5, max_tokens=64):
    return Answer(tuple(SampledToken(0, number) for number in range(tokens)), [1, 2, 3], 0, 0, max_tokens, "greedy")


@pytest.fixture
def cache():
    return AnswerCache(100_000)


def test_a_kept_answer_is_found_by_an_equal_request(cache):
    cache.keep(cache.key(ask(), b""), b"", answer())
    assert cache.find(cache.key(ask(), b"")) == answer()


@pytest.mark.parametrize(
    "other",
    [
        ask("hello "), ask(max_tokens=3), ask(stop=("x",)), ask(ignore_eos=True), ask(echo=True),
        ask(sampling=Sampling(temperature=0.0, top_logprobs=0)), ask(sampling=Sampling(seed=1)),
    ],
)  # fmt: skip
def test_whatever_may_change_the_answer_makes_another_request(cache, other):
    assert cache.key(other, b"") != cache.key(ask(), b"")


@pytest.mark.parametrize(
    "same",
    [ask(stream=True, include_usage=True), ask(deadline_ms=5), ask(tier=Tier.FLEX, ticket="t"), ask(event_time_ms=9)],
)
def test_how_and_when_an_answer_is_wanted_makes_no_difference(cache, same):
    assert cache.key(same, b"") == cache.key(ask(), b"")


def test_an_answer_of_chance_has_no_name(cache):
    assert cache.key(ask(sampling=Sampling(temperature=1.0)), b"") is None
    assert cache.key(ask(sampling=Sampling(temperature=1.0, seed=7)), b"") is not None


def test_one_tenants_answers_are_nobody_elses(cache):
    assert cache.key(ask(), b"tenant bank") != cache.key(ask(), b"tenant shop")


def test_a_cache_of_no_bytes_names_nothing():
    assert AnswerCache(0).key(ask(), b"") is None


def test_the_least_recently_used_answers_leave_when_it_is_full(cache):
    for number in range(200):
        cache.keep(b"%d" % number, b"", answer())
        cache.find(b"0")
    assert cache.bytes <= 100_000
    assert cache.find(b"0") is not None
    assert cache.find(b"1") is None
    assert cache.find(b"199") is not None


def test_one_tenant_fills_its_share_and_pushes_nobody_out():
    cache = AnswerCache(100_000, share=0.25)
    cache.keep(b"theirs", b"tenant shop", answer())
    for number in range(200):
        cache.keep(b"%d" % number, b"tenant bank", answer())
    assert cache.find(b"theirs") is not None
    assert cache.bytes <= 100_000 * 0.25 + 2000


def test_an_answer_larger_than_the_share_is_not_kept(cache):
    cache.keep(b"large", b"", answer(tokens=1000))
    assert len(cache) == 0


def keep(cache, reason, *, max_tokens, least):
    keeper = AnswerKeeper(cache, b"name", b"", answer(0, max_tokens), least)
    keeper.take(SampledToken(0, 7))
    keeper.complete(reason, "plain")
    return cache.find(b"name")


def test_a_keeper_keeps_what_it_saw(cache):
    kept = keep(cache, FinishReason.STOP, max_tokens=64, least=64)
    assert [token.token_id for token in kept.tokens] == [7]
    assert kept.program == "plain"


def test_an_answer_that_a_tight_deadline_cut_short_is_not_kept(cache):
    assert keep(cache, FinishReason.LENGTH, max_tokens=10, least=64) is None
    assert keep(cache, FinishReason.STOP, max_tokens=10, least=64) is not None
