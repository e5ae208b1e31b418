"""What other threads ask of the step thread: letters in its mailbox, read at step borders."""

from __future__ import annotations

import msgspec

from zerolayer.model.engine import Generation


class Admit(msgspec.Struct, frozen=True):
    """Begin this work in a free slot."""

    slot: int
    generation: Generation


class Cancel(msgspec.Struct, frozen=True):
    """Drop a slot's work."""

    slot: int


class Probe(msgspec.Struct, frozen=True):
    """Run the next heartbeat now."""


class Stop(msgspec.Struct, frozen=True):
    """End the thread."""
