"""Whether others end so soon that a prompt is better read after that. Pure.

A chunk of a prompt keeps everybody up who decodes. Who has only some tokens before it is done without it in as many
quick steps, and the prompt waits for these. Read first, the chunk is waited for by each of those; so the sum of all
waits is smaller after them where ``n`` who end within ``k`` steps save ``n`` chunks, and those who are held lose ``k``
steps each, and the engine their rows. (Schrage, A proof of the optimality of the shortest remaining processing time
discipline, 1968.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

NEAR_STEPS: Final = 16  # who has more before it is not waited for
_LOST: Final = 2  # times a step: for who is held, and for the engine, whose slot rests


def is_worth_waiting(left: Iterable[int], held: int, step_ns: int, chunk_ns: int) -> bool:
    """``left``: tokens that each who decodes has before it; ``held``: who waits; ``step_ns`` 0: not known yet."""
    if not step_ns:
        return False
    lost_ns = _LOST * max(1, held) * step_ns
    near = sorted([tokens for tokens in left if tokens <= NEAR_STEPS])
    return any(number * chunk_ns > max(1, tokens) * lost_ns for number, tokens in enumerate(near, 1))
