"""What a request says before it is decided, and what it holds afterwards, until it begins."""

from __future__ import annotations

import msgspec

from zerolayer.guard.budget.budgets import Hold
from zerolayer.guard.deadline.admission import Wish
from zerolayer.guard.deadline.booking import Booking
from zerolayer.guard.deadline.limits import Limits
from zerolayer.guard.deadline.tickets import Asker, Name
from zerolayer.guard.freshness import Stamps, Verdict
from zerolayer.guard.identity import ANYONE, Identity
from zerolayer.guard.token_share import TokenShare


class Arrival(msgspec.Struct, frozen=True):
    """What the headers of a request say: its limits, the age of its input, and who asks.

    ``left`` is what is left of the limits when the request is decided.
    """

    limits: Limits
    left: Limits
    stamps: Stamps
    verdict: Verdict
    asker: Asker
    key: Name  # route and the body's SHA-256
    identity: Identity = ANYONE


class Reservation(msgspec.Struct, frozen=True):
    """A claimed slot, held on the upper bound until ``confirm`` or ``release``."""

    slot: int
    long: bool  # tokenise off the loop
    wish: Wish
    arrival: Arrival
    max_tokens: int  # at most; what was asked for, or the default, cut to what the deadline allows
    hold: Hold  # on the budgets of key and tenant
    texts: TokenShare  # what its tenant's texts turned out to be
    size: int = 0  # as many tokens as bytes, at most; 0 where the length was known, or there are several prompts
    presumed: int = 0  # tokens of its prompt, by which the slot is confirmed already
    booked: bool = False
    compiles: bool = False  # its grammar is not known yet: compile off the loop, and off the tokeniser's thread
    others: tuple[int, ...] = ()  # slots of the further answers

    @property
    def slots(self) -> tuple[int, ...]:
        """A slot for each answer, in their order."""
        return (self.slot, *self.others)


class Held(msgspec.Struct, frozen=True):
    """A booked client that came a moment early, or whose slot is not quite free; ``Guard.resume`` has its slot."""

    booking: Booking
    then: Reservation  # without its slot
