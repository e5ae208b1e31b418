"""Heartbeats: every program is tried on a known input now and then, between and among requests.

A result does not depend on what runs beside it, so the known output is what the first beat gave, when the server
started. Pure bookkeeping: the step clock runs the beats in a slot of the engine's own and reports their tokens here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Final

from zerolayer.model.engine import Generation, SampledToken
from zerolayer.model.program import FULL, Programs
from zerolayer.wire.schema import Sampling

_log = logging.getLogger("zerolayer.model")

_TOKENS = 3
_PROMPT: Final = 16
_SEED = 20_250_301
_AGAIN_NS: Final = 100_000_000  # after a beat that came to nothing
_OUTCOMES: Final = 64  # that nobody has looked at yet


def known_prompt(slot_tokens: int) -> range:
    """Token ids that a vocabulary has in any case, as many as leave room for a beat's output in the shortest slot."""
    return range(1, min(_PROMPT, slot_tokens - _TOKENS) + 1)


class Outcome(Enum):
    """What a beat showed."""

    RIGHT = "right"  # the known output, of whatever program
    WRONG = "wrong"  # another one, and there is no program below this one
    MISSED = "missed"  # a step failed


class Heartbeat:
    """Beats one program every ``interval_ns``, each in turn; the first round, which sets what is expected, at once."""

    def __init__(self, programs: Programs, prompt: Sequence[int], interval_ns: int) -> None:
        self._programs = programs
        self._prompt = tuple(prompt)
        self._interval_ns = interval_ns
        self._due_ns = 0
        self._turn = 0
        self._beating = ""
        self._tokens: list[int] = []
        self._expected: dict[str, list[int]] = {}
        self.unsound = False  # whether the model's logits were no finite numbers in any beat
        self.beats = 0
        self.outcomes: deque[Outcome] = deque(maxlen=_OUTCOMES)  # appended by the step thread, taken by the loop

    @property
    def due_ns(self) -> int:
        """When the next beat should begin, monotonic nanoseconds; 0: at once."""
        return self._due_ns

    @property
    def expects_all(self) -> bool:
        """Whether the first round is over."""
        return all(name in self._expected for name in self._programs.names)

    @property
    def refuted(self) -> bool:
        """Whether a program gave another output than it was known to give, as far as nobody has looked yet."""
        return Outcome.WRONG in self.outcomes or bool(self._programs.dropped)

    @property
    def programs(self) -> int:
        """How many are beaten in turn."""
        return len(self._programs.names)

    @property
    def beating(self) -> bool:
        """Whether a beat has begun and is not over."""
        return self._beating != ""

    def begin(self) -> tuple[str, Generation]:
        """The next program and what its beat runs."""
        names = self._programs.names
        self._beating = names[self._turn % len(names)]
        self._turn += 1
        self._tokens = []
        given = self._programs.sampling(self._beating)
        sampling = Sampling(
            given.temperature, given.top_p, given.top_k, repetition_penalty=given.repetition_penalty, seed=_SEED
        )
        return self._beating, Generation(self._prompt, sampling, _TOKENS, ignore_eos=True, keep=False)

    def token(self, token: SampledToken) -> None:
        """A token of the running beat."""
        self._tokens.append(token.token_id)
        self.unsound |= token.broken is not None

    def hasten(self) -> None:
        """The next beat is due."""
        self._due_ns = 0

    def missed(self, now_ns: int) -> None:
        """A step failed for all, whether a beat was in it or not: this says nothing of the program."""
        self._beating = ""
        self._due_ns = now_ns + _AGAIN_NS
        self.outcomes.append(Outcome.MISSED)

    def end(self, now_ns: int) -> None:
        """The beat is over; a wrong output drops its program."""
        name, self._beating = self._beating, ""
        self.beats += 1
        expected = self._expected.setdefault(name, self._tokens)
        self._due_ns = now_ns + self._interval_ns if self.expects_all else 0
        if self._tokens != expected:
            _log.error("program %s failed its heartbeat: a known input gave another output", name)
            self._programs.drop(name)
            if name == FULL:
                self.outcomes.append(Outcome.WRONG)
            else:
                self._due_ns = 0  # is it the program alone?
        else:
            self.outcomes.append(Outcome.RIGHT)
