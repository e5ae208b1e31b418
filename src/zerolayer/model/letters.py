"""What the event loop writes to the step clock: letters of its mailbox, read at step borders."""

from __future__ import annotations

import msgspec

from zerolayer.model.engine import Generation


class Admit(msgspec.Struct, frozen=True):
    """A free slot gets its work."""

    slot: int
    generation: Generation


class Cancel(msgspec.Struct, frozen=True):
    """A slot's work is dropped."""

    slot: int


class Probe(msgspec.Struct, frozen=True):
    """The next heartbeat is due."""


class Stop(msgspec.Struct, frozen=True):
    """The thread ends."""


Letter = Admit | Cancel | Probe | Stop
