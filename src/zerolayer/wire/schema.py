"""The fixed request schema: what a request is, whichever protocol carried it.

Every decoder of this folder produces a ``Request``; nothing behind the wire knows which protocol it came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, StrEnum

import msgspec


class Route(StrEnum):
    """The API that a request came through; it decides the shape of the reply."""

    CHAT = "chat.completions"
    COMPLETIONS = "completions"


class FinishReason(StrEnum):
    """Why a generation ended, in OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"


class Tier(IntEnum):
    """How much a request matters beside others (OpenAI's ``service_tier``); a key may cap it."""

    FLEX = 0
    DEFAULT = 1
    PRIORITY = 2


class Message(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One message of a conversation: a segment border in the context, nothing more.

    Decoded straight from JSON, a message with further members is refused: ``openai`` knows what they mean.
    """

    role: str
    content: str


class Sampling(msgspec.Struct, frozen=True, gc=False):
    """How the next token is chosen. Zero or one means "off" as noted; every field is range-checked by the decoder.

    Order of application: penalties, temperature, min-p, top-k, top-p, one uniform number.
    """

    temperature: float = 1.0  # 0 = greedy
    top_p: float = 1.0  # 1 = off
    top_k: int = 0  # 0 = off
    min_p: float = 0.0  # 0 = off
    repetition_penalty: float = 1.0  # 1 = off; over prompt and output
    presence_penalty: float = 0.0  # 0 = off; over output
    frequency_penalty: float = 0.0  # 0 = off; over output
    seed: int | None = None  # None: a fresh one
    top_logprobs: int | None = None  # None: no logprobs; 0: the chosen token's only


class Request(msgspec.Struct, frozen=True):
    """One request, flat: ``messages`` on the chat route, ``prompt`` (text or token ids) on the completions route.

    Ages in milliseconds, points in time in Unix milliseconds; None and "" where the client said nothing.
    """

    route: Route
    model: str
    messages: tuple[Message, ...] = ()
    prompt: str | Sequence[int] = ""
    sampling: Sampling = Sampling()
    max_tokens: int | None = None  # None: the client named none; the guard applies the contract's default
    stop: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    ignore_eos: bool = False
    echo: bool = False
    deadline_ms: int | None = None
    max_age_ms: int | None = None
    event_time_ms: int | None = None
    ingest_time_ms: int | None = None
    ticket: str = ""
    session: str = ""
    tier: Tier = Tier.DEFAULT


class Alternative(msgspec.Struct, frozen=True):
    """A token and its natural log probability, from the raw logits (before penalties and temperature)."""

    token_id: int
    logprob: float


class TokenLogprob(msgspec.Struct, frozen=True):
    """The chosen token with the most likely alternatives, best first (the chosen one may be among them)."""

    token_id: int
    logprob: float
    top: tuple[Alternative, ...] = ()


class Usage(msgspec.Struct, frozen=True):
    """Token counts of one finished request, from the engine's own ids."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class Account(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the ``zerolayer`` member of a reply says: where the time went and what was applied."""

    stages_us: dict[str, int]  # the nine stages, microseconds
    program: str
    max_tokens: int
    deadline_ms: int
    truncated_messages: int = 0  # oldest ones that were left out because the conversation was too long
    dropped_duplicates: int = 0  # user messages that repeated the one before
    first_token_ms: int = 0  # the other two limits
    per_token_ms: int = 0
    age_ms: int | None = None  # of the input, where its age was told
    compute_us: int = 0  # what it cost: its share of its steps, wall time x cores of the engine
    stale: bool = False  # it is older than allowed, and the contract says to answer nonetheless
