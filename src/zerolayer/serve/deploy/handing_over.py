"""What the next model room gets from the one before it: the contract with its names, and what was promised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from zerolayer.contract import Contract
from zerolayer.guard.deadline.booking import Work
from zerolayer.guard.deadline.succession import engagements, take_on
from zerolayer.model.cost import Prices
from zerolayer.serve.room import ModelRoom

_MARGIN: Final = 1.25  # on the tokens of the sample, where vocabularies differ
_SAMPLE: Final = (
    "The quick brown fox jumps over the lazy dog. Der schnelle braune Fuchs; le renard brun, el zorro. "
    'def area(radius: float) -> float: return 3.14159 * radius**2  # {"key": [1, 2, 3]}'
)


def contract_of(room: ModelRoom, path: str) -> Contract:
    """The contract of ``room`` for the model that ``path`` names.

    What the models before it were called stays an alias, so that no client is sent away for the name that it knows.
    """
    was = room.contract.model
    named = msgspec.structs.replace(was, path=path)
    aliases = dict.fromkeys(alias for alias in (*was.aliases, room.name) if alias != named.name)
    return msgspec.structs.replace(room.contract, model=msgspec.structs.replace(named, aliases=tuple(aliases)))


def hand_over(old: ModelRoom, new: ModelRoom) -> tuple[int, int]:
    """Promised starts become the new room's, with all that is known of their senders; how many of how many fitted.

    They are priced anew: where the new model is slower, a start that has to be later is told when its client comes.
    """
    more = _more_tokens(old, new)

    def work_of(prompt_tokens: int, tokens: int) -> Work:
        return new.guard.work(-int(-prompt_tokens * more // 1), tokens)

    given = engagements(old.admission, old.guard.chunk_tokens)
    for booking in old.admission.tickets:
        old.admission.void(booking)
    new.admission.heard_ns = old.admission.heard_ns
    return take_on(new.admission, given, work_of), len(given.promises)


def _more_tokens(old: ModelRoom, new: ModelRoom) -> float:
    """How many tokens a text is to the new model for each that it was to the old one, at least 1."""
    if old.loaded.vocabulary.pieces == new.loaded.vocabulary.pieces:
        return 1.0
    was, now = (len(room.loaded.encoder.encode(_SAMPLE)) for room in (old, new))
    return max(1.0, _MARGIN * now / was)


def turns_of_leaving(old: ModelRoom) -> Callable[[], Prices]:
    """What a step of the new room waits for: a step of the old one, which has prompts to read once, and no more."""
    tokens = old.dispatcher.unread_tokens
    once_ns = -(-tokens // old.guard.chunk_tokens) * old.cost.alone().chunk_ns[-1]
    last = (Prices(), Prices())

    def beside() -> Prices:
        nonlocal last
        own = old.cost.alone()
        if own is not last[0]:
            last = (own, msgspec.structs.replace(own, reserve_ns=own.reserve_ns + once_ns))
        return last[1]

    return beside
