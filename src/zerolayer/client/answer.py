"""The answer to one request, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zerolayer.client.statistics import Attempts


@dataclass(frozen=True)
class Stages:
    """Where the server's time went, in microseconds: nine stages from the first byte read to the last byte written.

    ``write`` is not known before the last byte is written, so it is 0 in a reply.
    """

    read: int = 0
    parse: int = 0
    guard: int = 0
    tokenise: int = 0
    wait: int = 0
    prefill: int = 0
    decode: int = 0
    frame: int = 0
    write: int = 0

    @property
    def arithmetic_us(self) -> int:
        """Steps of the model that held this request."""
        return self.prefill + self.decode

    @property
    def glue_us(self) -> int:
        """Everything else, without ``wait`` for a step's border."""
        return self.read + self.parse + self.guard + self.tokenise + self.frame + self.write


@dataclass(frozen=True)
class Outcome:
    """How a stream ended. ``stages_us`` (microseconds a stage) and ``program`` are zerolayer's own, empty elsewhere.

    ``cached_tokens`` of the prompt were kept from an earlier one.
    """

    model: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stages_us: Mapping[str, int] = field(default_factory=dict)
    program: str = ""
    cached_tokens: int = 0

    @property
    def stages(self) -> Stages:
        """``stages_us``, typed."""
        return Stages(**{name: us for name, us in self.stages_us.items() if name in Stages.__dataclass_fields__})


@dataclass(frozen=True)
class Answer:
    """A complete answer. Times are in milliseconds from the call on, waits and retries included."""

    text: str
    outcome: Outcome
    attempts: Attempts
    first_text_ms: float
    total_ms: float

    @property
    def node(self) -> str:
        """Who answered."""
        return self.attempts.answered_by or self.attempts.nodes[-1]

    @property
    def stages(self) -> Stages:
        """Where the server's time went."""
        return self.outcome.stages
