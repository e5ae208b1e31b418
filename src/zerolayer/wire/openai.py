"""OpenAI request bodies to ``Request``; texts and usual numbers, which nearly every client sends, straight into it.

All checks that do not depend on the contract are made by msgspec while it reads, in C, and those that do with the
request natively (``native/wire_plain.hpp``). Whatever is not known or not accepted here goes the long way, in
``openai_general``, which understands everything and words every refusal; so here is no refusal, only "not plain". Both
ways give the same ``Request`` for the same body.

Replies are in ``openai_reply`` and ``openai_stream``.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from zerolayer.wire._native import PlainBodies
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.openai_general import decode_any_chat, decode_any_completion
from zerolayer.wire.schema import Message, Request, Route, Sampling

_INT32_MAX = 2**31 - 1

_FromTo1 = Annotated[float, Meta(ge=0, le=1)]
_FromTo2 = Annotated[float, Meta(ge=-2, le=2)]
_Positive = Annotated[int, Meta(ge=1)]


class PlainOptions(msgspec.Struct, forbid_unknown_fields=True):
    """``stream_options``."""

    include_usage: bool = False


class _Plain(msgspec.Struct, forbid_unknown_fields=True, gc=False, kw_only=True):
    """What both routes have, as clients usually send it one after the other: a member is looked for behind the last."""

    model: Annotated[str, Meta(min_length=1)]
    max_tokens: _Positive | None = None
    temperature: float = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    stream: bool = False
    stream_options: PlainOptions | None = None
    top_k: Annotated[int, Meta(ge=0, le=_INT32_MAX)] = 0
    min_p: _FromTo1 = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] = 1.0
    presence_penalty: _FromTo2 = 0.0
    frequency_penalty: _FromTo2 = 0.0
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    max_completion_tokens: _Positive | None = None
    ignore_eos: bool = False
    stop: str | None = None
    n: Literal[1] = 1
    user: str = ""


class PlainChat(_Plain, forbid_unknown_fields=True, gc=False):
    """``POST /v1/chat/completions``."""

    messages: Annotated[tuple[Message, ...], Meta(min_length=1)]


class PlainCompletion(_Plain, forbid_unknown_fields=True, gc=False):
    """``POST /v1/completions``."""

    prompt: str


_PARTS = (Message, PlainOptions, BodyLimits, Request, Sampling)
_read_chat, _read_completion = msgspec.json.Decoder(PlainChat).decode, msgspec.json.Decoder(PlainCompletion).decode
chats = PlainBodies(_read_chat, PlainChat, Route.CHAT, *_PARTS)
completions = PlainBodies(_read_completion, PlainCompletion, Route.COMPLETIONS, *_PARTS)
_plain_chat, _plain_completion = chats.decode, completions.decode


def decode_chat(body: bytes, limits: BodyLimits) -> Request:
    """Decode the body of ``POST /v1/chat/completions``. Raises InvalidRequest, BodyTooLarge."""
    return _plain_chat(body, limits) or decode_any_chat(body, limits)


def decode_completion(body: bytes, limits: BodyLimits) -> Request:
    """Decode the body of ``POST /v1/completions``. Raises InvalidRequest, BodyTooLarge."""
    return _plain_completion(body, limits) or decode_any_completion(body, limits)
