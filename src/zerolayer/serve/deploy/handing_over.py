"""What the next model room gets from the one before it: the contract with its names, and what was promised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from zerolayer.contract import Contract
from zerolayer.guard.deadline.booking import Terms, Work
from zerolayer.guard.deadline.tickets import Name
from zerolayer.model.cost import Prices
from zerolayer.serve.room import ModelRoom

LONG_NS: Final = 1 << 55  # a year: no limit of a request
_HELD_NS: Final = 1_000_000_000  # a client is held for so long at most for a start that moved
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
    was, now, more = old.admission, new.admission, _more_tokens(old, new)
    for sender, (kept, lapsed) in was.attendance.seen():
        now.attendance.remember(sender, kept, lapsed)
    now.heard_ns, now.told_ns = was.heard_ns, was.told_ns
    here = sorted(was.tickets, key=lambda booking: booking.start_ns)
    fitted = 0
    for booking in here:
        promised = (booking.work, booking.terms, booking.start_ns, booking.soft, booking.key, booking.ticket)
        was.void(booking)
        fitted += _fit(promised, old, new, more)
    return fitted, len(here)


def _fit(
    promised: tuple[Work, Terms, int, bool, tuple[Name | None, Name | None], str],
    old: ModelRoom,
    new: ModelRoom,
    more: float,
) -> bool:
    """Book what was promised before, not earlier than its client was told; with all the time there is, if need be.

    Its own limits are looked at when it comes.
    """
    work, terms, start_ns, soft, (sender, request), ticket = promised
    if sender is None or request is None:
        return False
    tokens = -int(-_prompt_tokens(work, old.guard.chunk_tokens) * more // 1)
    fresh = new.guard.work(tokens, work.tokens)
    patient = Terms(start_ns, LONG_NS, LONG_NS, LONG_NS, urgent=terms.urgent)
    for asked in (terms, patient):
        booking = new.admission.calendar.book(fresh, asked, spaced=lambda start: max(start, start_ns), soft=soft)
        if booking is not None:
            later_ns = max(0, booking.start_ns - start_ns)
            booking.early_ns = booking.early_ns + (later_ns if later_ns <= _HELD_NS else 0)
            new.admission.tickets.file(booking, sender, request, ticket)
            return True
    return False


def _prompt_tokens(work: Work, chunk_tokens: int) -> int:
    """Tokens of a prompt whose chunks cost that, the last of them in its share of a full one."""
    if work.chunks < 1 or work.full_ns <= 0:
        return max(1, work.chunks * chunk_tokens)
    last = min(1.0, max(0.0, work.chunk_ns / work.full_ns - (work.chunks - 1)))
    return max(1, (work.chunks - 1) * chunk_tokens - int(-last * chunk_tokens // 1))


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
