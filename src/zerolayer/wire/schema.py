"""The fixed request schema: what a request is, whichever protocol carried it.

Every decoder of this folder produces a ``Request``; nothing behind the wire knows which protocol it came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, StrEnum

import msgspec

_UINT64_MASK = 2**64 - 1


class Route(StrEnum):
    """The API that a request came through; it decides the shape of the reply."""

    CHAT = "chat.completions"
    COMPLETIONS = "completions"
    MESSAGES = "messages"  # Anthropic's
    RESPONSES = "responses"


class FinishReason(StrEnum):
    """Why a generation ended, in OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


class Tier(IntEnum):
    """How much a request matters beside others (OpenAI's ``service_tier``); a key may cap it."""

    FLEX = 0
    DEFAULT = 1
    PRIORITY = 2


class Message(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One message of a conversation: a segment border in the context, nothing more.

    ``CallTurn`` and ``ToolResult`` add what tools need. Decoded straight from JSON, a message
    with further members is refused: ``openai`` knows what they mean.
    """

    role: str
    content: str


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """A call that the assistant made. ``arguments`` is JSON text as the model wrote it: it may be invalid or cut."""

    id: str
    name: str
    arguments: str


class CallTurn(Message, frozen=True):
    """A message of the assistant that calls tools; ``content`` is what it said before."""

    calls: tuple[ToolCall, ...] = ()


class ToolResult(Message, frozen=True):
    """What a tool answered: role "tool". ``name`` is the tool's, "" where neither the client nor the calls tell."""

    call_id: str = ""
    name: str = ""


class Tool(msgspec.Struct, frozen=True, gc=False):
    """A function that the model may call. ``parameters`` is the JSON text of a JSON schema, b"" for none."""

    name: str
    description: str = ""
    parameters: bytes = b""
    strict: bool = False  # calls made of free will follow ``parameters`` too


class ToolMode(StrEnum):
    """Whether the model calls tools."""

    AUTO = "auto"  # as it likes
    NONE = "none"
    REQUIRED = "required"  # at least one


class ToolChoice(msgspec.Struct, frozen=True):
    """``names`` are the tools that may be called, () for all; one named tool is REQUIRED with that name."""

    mode: ToolMode = ToolMode.AUTO
    names: tuple[str, ...] = ()


class OutputFormat(msgspec.Struct, frozen=True, gc=False):
    """The answer is one JSON value that ``schema``, the JSON text of a JSON schema, allows; b"": any object.

    ``param`` is the member of the request that said so.
    """

    schema: bytes = b""
    param: str = "response_format"


class CallDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the call number ``index`` of a reply. The first piece of a call has id and name, all others neither.

    ``arguments`` are the next characters of its JSON text, perhaps none.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class Sampling(msgspec.Struct, frozen=True, gc=False):
    """How the next token is chosen. Zero or one means "off" as noted; every field is range-checked by the decoder.

    Order of application: bias, minimum, penalties, temperature, min-p, top-k, top-p, one uniform number.
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
    logit_bias: tuple[tuple[int, float], ...] = ()  # token id and what is added to its logit; each id once
    min_tokens: int = 0  # no end-of-sequence token before that many


PromptText = str | Sequence[int]
"""A text, or its token ids."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request, flat: ``prompt`` (text or token ids) on the completions route, ``messages`` on all others.

    Ages in milliseconds, points in time in Unix milliseconds; None and "" where the client said nothing.
    """

    route: Route
    model: str
    messages: tuple[Message, ...] = ()
    prompt: PromptText = ""
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
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    output: OutputFormat | None = None  # None: free text
    prefill: str = ""  # what the assistant's answer begins with; the model goes on from there
    fills_slot: bool = False  # an answer that finds no more room in its slot ends there, rather than being refused
    n: int = 1  # answers to each prompt
    further: tuple[PromptText, ...] = ()  # prompts beside the first one
    continuous_usage: bool = False  # every event of a stream tells the usage so far

    @property
    def answers(self) -> int:
        """How many generations this asks for."""
        return self.n * (1 + len(self.further))

    @property
    def fills_cache(self) -> bool:
        """Whether nothing is asked for but that the prompt be read, for a request that will begin like it."""
        return self.max_tokens == 0 and not self.echo and self.answers == 1 and self.output is None

    def each(self) -> list[Request]:
        """A request for every answer, prompt by prompt. The seeds of one prompt's answers follow each other."""
        if self.n == 1 and not self.further:
            return [self]
        replace, sampling, seed = msgspec.structs.replace, self.sampling, self.sampling.seed
        samplings = [
            sampling if seed is None else replace(sampling, seed=(seed + i) & _UINT64_MASK) for i in range(self.n)
        ]
        return [
            replace(self, prompt=prompt, sampling=chosen, n=1, further=())
            for prompt in (self.prompt, *self.further)
            for chosen in samplings
        ]


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
