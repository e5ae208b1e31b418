"""Programs: the kinds of step that are prepared before the first request.

A step runs the smallest program that covers its active slots. Here a program decides which sampling code the native
step enters; the arithmetic before it is one function for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from zerolayer.wire.schema import Sampling


class Program(IntEnum):
    """Ordered by what they cover: a program covers every smaller one."""

    GREEDY = 0  # the largest logit
    PLAIN = 1  # temperature and seed
    FULL = 2  # top-k, top-p, min-p, penalties, logprobs


def program_of(sampling: Sampling) -> Program:
    """The smallest program that can serve these parameters."""
    if sampling.top_logprobs is not None or _has_penalty(sampling):
        return Program.FULL
    if sampling.temperature == 0.0:
        return Program.GREEDY
    if sampling.top_p < 1.0 or sampling.top_k > 0 or sampling.min_p > 0.0:
        return Program.FULL
    return Program.PLAIN


def smallest_covering(programs: Iterable[Program]) -> Program:
    """The program of a step whose slots need ``programs``."""
    return max(programs, default=Program.GREEDY)


def _has_penalty(sampling: Sampling) -> bool:
    return sampling.repetition_penalty != 1.0 or sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0
