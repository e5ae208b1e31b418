"""Whether others end so soon that a prompt is better read after that. Pure.

A chunk of a prompt keeps everybody up who decodes. Who has only some tokens before it is done without it in as many
quick steps, and the prompts of who is held wait for these. Read first, one in each step in which a slot is free for it,
they keep up each of those as often as it has tokens before it. So the sum of all waits is smaller after them where that
is clearly more than ``k`` steps for each who is held, and what of ``k`` steps is lost while slots rest: as much as a
step takes however few ride. (Schrage, A proof of the optimality of the shortest remaining processing time discipline,
1968.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

NEAR_STEPS: Final = 16  # who has more before it is not waited for
_CLEARLY: Final = 2


def is_worth_waiting(left: Iterable[int], held: int, free: int, *, step_ns: int, lone_ns: int, chunk_ns: int) -> bool:
    """``left``: tokens that each who decodes has before it; ``held``: who waits; ``free``: slots for them now.

    ``step_ns`` is what a step takes now (0: not known yet), ``lone_ns`` one in which a single one rides.
    """
    if not step_ns:
        return False
    waiting = max(1, held)
    lost_ns = _CLEARLY * waiting * (step_ns + min(lone_ns, step_ns))
    kept_up = 0  # chunks that those looked at so far would sit through
    for ended, tokens in enumerate(sorted([tokens for tokens in left if tokens <= NEAR_STEPS])):
        kept_up += min(tokens, waiting, max(1, free) + ended)
        if kept_up * chunk_ns > max(1, tokens) * lost_ns:
            return True
    return False
