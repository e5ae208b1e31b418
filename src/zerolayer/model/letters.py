"""What the mailbox of the step clock may hold."""

from __future__ import annotations

import msgspec

from zerolayer.model.engine import Generation


class Admit(msgspec.Struct, frozen=True):
    """A free slot gets its work."""

    slot: int
    generation: Generation


class Cancel(msgspec.Struct, frozen=True):
    """The client of the slot is gone."""

    slot: int


class Probe(msgspec.Struct, frozen=True):
    """The next heartbeat is wanted now."""


class Stop(msgspec.Struct, frozen=True):
    """The thread is to end."""
