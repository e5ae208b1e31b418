"""The messages of ``proto/zerolayer/v1/inference.proto`` that the service sends, as bytes. Framing is the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from zerolayer.errors import RetryLater, ZerolayerError
from zerolayer.wire._native import later_message
from zerolayer.wire.protobuf import bytes_field, float_field, message_field, varint, varint_field
from zerolayer.wire.schema import Account, FinishReason, TokenLogprob, Usage

STAGES: Final = ("read", "parse", "guard", "tokenise", "wait", "prefill", "decode", "frame", "write")
"""Names of the fields of ``Stages``, in the order of their numbers."""

# What other protocols call a field in their own way.
_FIELDS: Final = {"prompt": "token_ids", "x-zl-max-age-ms": "max_age_ms"}
FINISH_NUMBERS: Final = {FinishReason.STOP: 1, FinishReason.LENGTH: 2}


def piece(token_ids: Sequence[int], text: bytes, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
    """A ``GenerateReply`` of some tokens; also the beginning of the last one, which ``last`` completes."""
    message = bytes_field(1, b"".join([varint(token_id) for token_id in token_ids])) + bytes_field(2, text)
    if logprobs:
        message += b"".join([message_field(3, _logprob(logprob)) for logprob in logprobs])
    return message


def last(reason: FinishReason, usage: Usage, account: Account) -> bytes:
    """What the last ``GenerateReply`` has behind its ``piece``."""
    counts = (
        varint_field(1, usage.prompt_tokens)
        + varint_field(2, usage.completion_tokens)
        + varint_field(3, usage.cached_tokens)
    )
    stages = [varint_field(number, account.stages_us.get(name, 0)) for number, name in enumerate(STAGES, 1)]
    applied = (
        bytes_field(1, account.program.encode())
        + varint_field(2, account.max_tokens)
        + varint_field(3, account.deadline_ms)
        + message_field(4, b"".join(stages))
        + varint_field(5, account.truncated_messages)
        + varint_field(6, account.dropped_duplicates)
        + varint_field(7, account.compute_us)
        + varint_field(8, account.first_token_ms)
        + varint_field(9, account.per_token_ms)
    )
    return varint_field(4, FINISH_NUMBERS[reason]) + message_field(5, counts) + message_field(6, applied)


def failed(error: ZerolayerError) -> bytes:
    """The last ``GenerateReply`` of a stream that failed."""
    return message_field(7, error_message(error))


def error_message(error: ZerolayerError) -> bytes:
    """An ``Error``."""
    if isinstance(error, RetryLater):
        code, parts, status = _later_parts(error.template, error.code, error.status)
        return later_message(code, parts, error.retry_after_ms, status)
    return (
        bytes_field(1, error.code.encode())
        + bytes_field(2, error.message.encode())
        + bytes_field(3, _FIELDS.get(error.param or "", error.param or "").encode())
        + varint_field(5, error.status)
    )


@lru_cache(64)
def _later_parts(template: str, code: str, status: int) -> tuple[bytes, tuple[bytes, ...], bytes]:
    """What refusals of one kind have in common; the message in the parts between which the milliseconds stand."""
    return bytes_field(1, code.encode()), tuple(template.encode().split(b"{ms}")), varint_field(5, status)


def count_tokens_reply(prompt_tokens: int, slot_tokens: int) -> bytes:
    """A ``CountTokensReply``."""
    return varint_field(1, prompt_tokens) + varint_field(2, slot_tokens)


def health_reply(*, ready: bool, free_slots: int, next_free_ms: int) -> bytes:
    """A ``HealthReply``."""
    return varint_field(1, ready) + varint_field(2, free_slots) + varint_field(3, next_free_ms)


def _logprob(chosen: TokenLogprob) -> bytes:
    top = [message_field(3, _pair(other.token_id, other.logprob)) for other in chosen.top]
    return _pair(chosen.token_id, chosen.logprob) + b"".join(top)


def _pair(token_id: int, logprob: float) -> bytes:
    return varint_field(1, token_id) + float_field(2, logprob)
