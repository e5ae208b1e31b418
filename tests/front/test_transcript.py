"""Tokens to shown text: the whole path of characters, stop strings and log probabilities."""

from __future__ import annotations

from echo_model import END, byte_vocabulary
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.front.transcript import Transcript
from zerolayer.model.engine import SampledToken
from zerolayer.text.decode import Decoder
from zerolayer.wire.schema import FinishReason, TokenLogprob

VOCABULARY = byte_vocabulary()


def _tokens(text: str, last: FinishReason) -> list[SampledToken]:
    """A byte a token; ``STOP`` adds the end token."""
    tokens = [SampledToken(0, byte, None, TokenLogprob(byte, -1.0)) for byte in text.encode()]
    if last is FinishReason.STOP:
        return [*tokens, SampledToken(0, END, last, TokenLogprob(END, -1.0))]
    return [*tokens[:-1], SampledToken(0, tokens[-1].token_id, last, tokens[-1].logprob)]


def _run(text: str, stops: tuple[str, ...], last: FinishReason = FinishReason.STOP) -> tuple[str, Transcript]:
    transcript = Transcript(Decoder(VOCABULARY), stops)
    shown = ""
    for token in _tokens(text, last):
        shown += transcript.push(token)
        if transcript.reason is not None:
            break
    return shown, transcript


@given(st.text(max_size=40))
def test_without_stop_strings_the_text_comes_whole(text):
    shown, transcript = _run(text, ())
    assert shown == text
    assert transcript.reason is FinishReason.STOP
    assert transcript.completion_tokens == len(text.encode()) + 1


@given(st.text("abé", max_size=30), st.lists(st.text("abé", min_size=1, max_size=4), min_size=1, max_size=3))
def test_a_stop_string_is_cut_wherever_tokens_end(text, stops):
    shown, transcript = _run(text, tuple(stops))
    # The stop string that is completed first ends the text; of several completed at once the longest.
    ends = [(text.find(stop) + len(stop), -len(stop)) for stop in stops if stop in text]
    expected = text[: min(ends)[0] + min(ends)[1]] if ends else text
    assert shown == expected
    assert transcript.reason is FinishReason.STOP


def test_what_might_have_become_a_stop_string_is_shown_at_the_end():
    shown, transcript = _run("say ST", ("STOP",), FinishReason.LENGTH)
    assert shown == "say ST"
    assert transcript.reason is FinishReason.LENGTH


def test_half_a_character_at_the_end_becomes_a_replacement_character():
    transcript = Transcript(Decoder(VOCABULARY), ())
    assert transcript.push(SampledToken(0, "é".encode()[0], FinishReason.LENGTH)) == "\ufffd"


def test_log_probabilities_are_taken_once_and_not_for_the_end_token():
    _, transcript = _run("ab", ())
    assert [entry.token_id for entry in transcript.take_logprobs()] == [97, 98]
    assert transcript.take_logprobs() == ()
