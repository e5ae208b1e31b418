"""Which text of an answer is kept, and what is told of it."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.guard.ledger.audit import RULE_NAMES, Audit, Level, MatchWatch, Policy


def found(answer: str, *, prompt=(), rules=RULE_NAMES, logprobs=None):
    """What is kept of an answer of one token a byte."""
    watch = MatchWatch(rules, lambda token: bytes([token]), prompt, tenant="bank", key_id=b"k" * 16, request_id="r")
    for at, token in enumerate(answer.encode()):
        watch.take(token, None if logprobs is None else logprobs[at])
    return watch.matches()


@pytest.mark.parametrize(
    "text",
    ["12", "1,250.00", "1.250,00", "1'000'000", "3.5%", "$12", "€ 9,50", "12 EUR", "9 €", "1 000 000"],
)
def test_an_amount_is_found_whole(text):
    assert [match.text.decode() for match in found(f"It is {text}, no more.")] == [text]


@pytest.mark.parametrize(
    "text",
    ["2026-11-29", "29.11.2026", "11/29/26", "November 29, 2026", "29. November 2026", "29 Nov 2026", "Nov 29"],
)
def test_a_date_is_found_whole_and_is_no_amount(text):
    assert [(match.text.decode(), match.rule) for match in found(f"By {text}, please.")] == [(text, 2)]


@pytest.mark.parametrize("text", ["", "no figures at all", "model4x2b", "v1beta"])
def test_what_is_no_figure_is_not_kept(text):
    assert found(text) == []


def test_only_the_rules_that_were_chosen_hold():
    assert found("12 EUR on 2026-11-29", rules=("amounts",))[0].text == b"12 EUR"
    assert [match.text for match in found("12 EUR on 2026-11-29", rules=("dates",))] == [b"2026-11-29"]


def test_the_log_probability_is_that_of_the_least_likely_token():
    (match,) = found("is 123 now", logprobs=[-9.0, -9.0, -9.0, -0.1, -2.5, -0.3, -9.0, -9.0, -9.0, -9.0])
    assert (match.logprob, match.token, match.tokens, match.offset) == (-2.5, 3, 3, 3)


def test_without_log_probabilities_none_is_told():
    (match,) = found("is 123 now")
    assert math.isnan(match.logprob)


def test_sources_are_the_places_of_the_prompt_that_say_the_same():
    (match,) = found("It is 42.", prompt=["nothing", "42 and 142 and 42"])
    assert [(source.message, source.offset) for source in match.sources] == [(1, 0), (1, 15)]
    assert match.places == 2


def test_a_figure_that_the_prompt_does_not_have_has_no_source():
    (match,) = found("It is 43.", prompt=["42 and 143 and 430"])
    assert match.places == 0


def test_characters_of_several_bytes_do_not_shift_what_is_told():
    (match,) = found("äöü 12", logprobs=[-1.0] * 7 + [-3.0, -2.0])
    assert (match.offset, match.token, match.tokens, match.logprob) == (4, 7, 2, -3.0)


def test_at_most_64_matches_of_an_answer_are_kept():
    assert len(found(" ".join(str(number) for number in range(10, 200)))) == 64


@given(st.text(alphabet="0123456789.,' $€%EURNov-/", max_size=300))
def test_matches_do_not_overlap_and_stand_where_they_are_said_to(answer):
    end = 0
    for match in found(answer):
        text = match.text.decode()
        assert answer[match.offset : match.offset + len(text)] == text
        assert match.offset >= end
        end = match.offset + len(text)


def test_a_long_answer_costs_little_whatever_is_in_it():
    started = time.process_time()
    for answer in ("1" * 20_000, "1,111" * 4_000, "1 " * 10_000, "$" * 20_000, "1/" * 10_000):
        found(answer)
    assert time.process_time() - started < 20  # seconds; a pattern that goes back and forth would take hours


def test_a_tenants_own_level_comes_before_the_usual_one():
    audit = Audit(Policy(Level.OFF), {"bank": Policy(Level.MATCHES, ("dates",)), "shop": Policy()})
    assert [audit.level(name) for name in ("bank", "shop", "mill")] == [Level.MATCHES, Level.METADATA, Level.OFF]
    assert [audit.rules(name) for name in ("bank", "shop", "mill")] == [("dates",), (), ()]
