"""What the event loop and the step clock write to each other: letters for its mailbox, and its reports."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.model.engine import Generation, SampledToken


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


class StepReport(msgspec.Struct, frozen=True):
    """What one step border hands to the event loop. Times are monotonic nanoseconds around the native call.

    ``released`` lists slots that are free again: finished, cancelled or failed. ``shared`` lists (slot, tokens) of
    prompts whose first tokens were kept from an earlier one. A report without rows carries only such news, or tells of
    a step that only ``beats``: no request had a part in it.
    """

    started_ns: int
    ended_ns: int
    program: str
    decode: Sequence[int] = ()
    prefill_slot: int = -1
    prefill_tokens: int = 0  # of whatever chunk made the step longer, a heartbeat's included
    tokens: Sequence[SampledToken] = ()
    released: Sequence[int] = ()
    shared: Sequence[tuple[int, int]] = ()
    failure: ZerolayerError | None = None
    faults: int = 0  # page faults of the thread that steps, so far
    beats: bool = False  # a heartbeat took part
    beat_rows: int = 0  # rows that it decoded, which ``decode`` does not have

    @property
    def concerns(self) -> bool:
        """Whether it tells of any request."""
        return bool(self.decode or self.prefill_slot >= 0 or self.released or self.shared or self.failure)
