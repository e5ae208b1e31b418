"""Programs: the kinds of step that are prepared before the first request.

A step runs the smallest program that covers its active slots: greedy, plain temperature, one of the contract's named
parameter sets, or the full one, which covers everything and is the fallback. The arithmetic before sampling is one
function for all; a program decides which sampling code the step enters, so its gain is what that code saves
(docs/programs.md has the measurement).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import msgspec

from zerolayer.contract import Program
from zerolayer.wire.schema import Sampling

GREEDY, PLAIN, FULL = "greedy", "plain", "full"


class Named(msgspec.Struct, frozen=True):
    """A parameter set of the contract, bound in advance."""

    name: str
    temperature: float
    top_p: float
    top_k: int
    repetition_penalty: float

    @classmethod
    def of(cls, program: Program) -> Self:
        """A program as the contract writes it."""
        return cls(program.name, program.temperature, program.top_p, program.top_k, program.repetition_penalty)


class Programs:
    """Finds programs. ``drop`` takes one out of use, for good; what it served then runs on the fallback."""

    def __init__(self, named: Sequence[Named] = ()) -> None:
        self._named = {_key(named_set): named_set.name for named_set in named}
        self._samplings = {GREEDY: Sampling(temperature=0.0), PLAIN: Sampling(), FULL: Sampling(top_p=0.9)}
        for named_set in named:
            self._samplings[named_set.name] = Sampling(
                named_set.temperature, named_set.top_p, named_set.top_k, repetition_penalty=named_set.repetition_penalty
            )
        self._dropped: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """Programs in use; the fallback is always among them."""
        return tuple(name for name in self._samplings if name not in self._dropped)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Programs that failed their heartbeat."""
        return tuple(sorted(self._dropped))

    def sampling(self, name: str) -> Sampling:
        """Parameters that run on program ``name``."""
        return self._samplings[name]

    def drop(self, name: str) -> None:
        """Take a program out of use. The fallback stays: there is nothing below it."""
        if name != FULL:
            self._dropped.add(name)

    def of(self, sampling: Sampling) -> str:
        """The smallest program in use that serves these parameters."""
        name = self._smallest(sampling)
        return FULL if name in self._dropped else name

    def covering(self, names: Iterable[str]) -> str:
        """The program of a step whose slots need ``names``."""
        needed = set(names)
        if len(needed) == 1:
            return needed.pop()
        if needed <= {GREEDY, PLAIN}:
            return PLAIN if needed and PLAIN not in self._dropped else GREEDY if not needed else FULL
        return FULL

    def _smallest(self, sampling: Sampling) -> str:
        if sampling.top_logprobs is None and not _needs_full(sampling):
            name = self._named.get(_key(sampling))
            if name is not None:
                return name
            if sampling.repetition_penalty == 1.0:
                if sampling.temperature == 0.0:
                    return GREEDY
                if sampling.top_p >= 1.0 and sampling.top_k == 0:
                    return PLAIN
        return FULL


def _key(values: Named | Sampling) -> tuple[float, float, int, float]:
    return values.temperature, values.top_p, values.top_k, values.repetition_penalty


def _needs_full(sampling: Sampling) -> bool:
    penalised = sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0
    return penalised or sampling.min_p != 0.0 or sampling.min_tokens > 0 or bool(sampling.logit_bias)
