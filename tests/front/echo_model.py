"""A model whose answer is its prompt: tokens are bytes, so every test says in its prompt what must come back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from zerolayer.model.engine import Engine, SampledToken
from zerolayer.model.mock_engine import MockEngine
from zerolayer.text.grammar import Grammars
from zerolayer.text.tool_format import HERMES, ToolFormat
from zerolayer.text.vocabulary import BYTE_ALPHABET, TokenKind, Vocabulary
from zerolayer.wire.schema import FinishReason, Message, TokenLogprob, Tool

START, END = 256, 257  # control tokens


class EchoEngine(MockEngine):
    """Says the prompt's bytes again, then the end token. ``broken`` fails every step while it is set."""

    def __init__(self, **given: object) -> None:
        super().__init__(vocabulary=258, eos_id=END, **given)  # type: ignore[arg-type]
        self.broken: Exception | None = None
        self.opened = 0
        self.turns: threading.Semaphore | None = None  # while set, a step runs only when a turn is released

    def open(self, slot, generation):
        self.opened += 1
        super().open(slot, generation)

    def step(self, plan):
        if self.broken is not None:
            raise self.broken
        if self.turns is not None:
            self.turns.acquire(timeout=10)
        return super().step(plan)

    def _sample(self, slot: int) -> SampledToken:
        state = self._slots[slot]
        said = [token for token in state.generation.prompt if token < START]
        ends = state.produced >= len(said) and not state.generation.ignore_eos
        token_id = END if ends else said[state.produced % len(said)] if said else 46
        state.produced += 1
        finish = FinishReason.STOP if ends else None
        if finish is None and state.produced >= state.generation.max_tokens:
            finish = FinishReason.LENGTH
        logprob = TokenLogprob(token_id, -0.5) if state.generation.sampling.top_logprobs is not None else None
        return SampledToken(slot, token_id, finish, logprob)


class ByteEncoder:
    """One token a byte. ``before`` runs first, on whichever thread encodes."""

    name = "bytes"

    def __init__(self) -> None:
        self.before: Callable[[], object] = lambda: None
        self.calls = 0

    def encode(self, text: str) -> list[int]:
        self.calls += 1
        self.before()
        return list(text.encode("utf-8", "replace"))


@dataclass
class LastMessage:
    """A template that shows the model the last message only."""

    encoder: ByteEncoder

    def encode(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        return [START, *self.encoder.encode(messages[-1].content)]


@dataclass
class WholeConversation(LastMessage):
    """A template that shows all of it: START, role and content of each message."""

    def encode(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        shown = [f"{message.role}:{message.content}" for message in messages]
        return [token for text in shown for token in (START, *self.encoder.encode(text))]


@dataclass
class Loaded:
    """What ``load_model`` returns."""

    engine: Engine
    encoder: ByteEncoder = field(default_factory=ByteEncoder)
    vocabulary: Vocabulary = field(default_factory=lambda: byte_vocabulary())
    name: str = "echo"
    files: str = ""  # nothing is kept of it from one start to the next
    shows: type[LastMessage] = LastMessage
    remember: Callable[[], None] = lambda: None
    tool_format: ToolFormat = HERMES
    grammars: Grammars = field(init=False)

    def __post_init__(self) -> None:
        self.grammars = Grammars(self.vocabulary, self.encoder, self.tool_format, self.vocabulary.size)

    @property
    def template(self) -> LastMessage:
        return self.shows(self.encoder)


def byte_vocabulary() -> Vocabulary:
    raw = [BYTE_ALPHABET[byte].encode() for byte in range(256)] + [b"<|start|>", b"<|end|>"]
    vocabulary = Vocabulary("gpt2", "default", raw, [TokenKind.NORMAL] * 256 + [TokenKind.CONTROL] * 2)
    vocabulary.eos_ids = frozenset({END})
    return vocabulary
