"""The messages that the service sends, read by Google's implementation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.inference_messages import message
from zerolayer.errors import ContextTooLong, SlotsBusy
from zerolayer.wire import protobuf_reply
from zerolayer.wire.protobuf import Malformed, delimited, read_varint, varint
from zerolayer.wire.schema import Account, Alternative, FinishReason, TokenLogprob, Usage

GenerateReply = message("GenerateReply")
ACCOUNT = Account(
    dict(zip(protobuf_reply.STAGES, range(9), strict=True)), "greedy", 64, 60_000, 2, 1, 500, 250, compute_us=9_000_000
)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=5), st.binary(max_size=200))
def test_tokens_and_text_arrive(token_ids: list[int], text: bytes) -> None:
    reply = GenerateReply.FromString(protobuf_reply.piece(token_ids, text))
    assert (list(reply.token_ids), reply.text) == (token_ids, text)


def test_log_probabilities_arrive_with_their_alternatives() -> None:
    chosen = TokenLogprob(5, -0.5, (Alternative(5, -0.5), Alternative(0, -2.0)))
    (entry,) = GenerateReply.FromString(protobuf_reply.piece([5], b"x", [chosen])).logprobs
    assert (entry.token_id, entry.logprob) == (5, -0.5)
    assert [(other.token_id, other.logprob) for other in entry.top] == [(5, -0.5), (0, -2.0)]


def test_the_last_message_has_reason_usage_and_account() -> None:
    raw = protobuf_reply.piece([7], b"end") + protobuf_reply.last(FinishReason.LENGTH, Usage(3, 4, 2), ACCOUNT)
    reply = GenerateReply.FromString(raw)
    assert (reply.text, reply.finish_reason) == (b"end", 2)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.cached_tokens) == (3, 4, 2)
    assert (reply.account.program, reply.account.max_tokens, reply.account.deadline_ms) == ("greedy", 64, 60_000)
    assert (reply.account.truncated_messages, reply.account.dropped_duplicates) == (2, 1)
    assert (reply.account.compute_us, reply.account.first_token_ms, reply.account.per_token_ms) == (9_000_000, 500, 250)
    assert [getattr(reply.account.stages, name) for name in protobuf_reply.STAGES] == list(range(9))


def test_the_stages_are_those_of_every_account() -> None:
    from zerolayer.observe.stages import STAGE_NAMES

    assert protobuf_reply.STAGES == STAGE_NAMES


def test_a_refusal_says_when_to_come_back() -> None:
    error = message("Error").FromString(protobuf_reply.error_message(SlotsBusy("busy", retry_after_ms=250)))
    assert (error.code, error.message, error.retry_after_ms, error.status) == ("slots_busy", "busy", 250, 429)


def test_a_failed_stream_ends_with_its_error() -> None:
    reply = GenerateReply.FromString(protobuf_reply.failed(ContextTooLong("too long", param="messages")))
    assert (reply.error.code, reply.error.param) == ("context_length_exceeded", "messages")


def test_counts_and_health_arrive() -> None:
    count = message("CountTokensReply").FromString(protobuf_reply.count_tokens_reply(12, 2048))
    health = message("HealthReply").FromString(protobuf_reply.health_reply(ready=True, free_slots=3, next_free_ms=9))
    assert (count.prompt_tokens, count.slot_tokens) == (12, 2048)
    assert (health.ready, health.free_slots, health.next_free_ms) == (True, 3, 9)


@given(st.integers(0, 2**64 - 1))
def test_a_number_survives_its_varint(number: int) -> None:
    raw = varint(number)
    assert read_varint(raw, 0, len(raw)) == (number, len(raw))


@given(st.binary(max_size=300))
def test_a_delimited_message_begins_with_its_length(raw: bytes) -> None:
    framed = delimited(raw)
    size, start = read_varint(framed, 0, len(framed))
    assert framed[start:] == raw
    assert size == len(raw)


@pytest.mark.parametrize("raw", [b"", b"\x80", b"\x80" * 10, b"\xff" * 9 + b"\x02"])
def test_a_number_that_does_not_end_or_is_too_large_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        read_varint(raw, 0, len(raw))
