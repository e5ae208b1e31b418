"""Which tokens each slot may have next, where its answer is held to a grammar.

Masks are computed at the start of the step that samples by them, while the tokens of the step before are on their way
to the clients, without the GIL and on several threads when several slots need one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from zerolayer.model.engine import Broken, SampledToken
from zerolayer.text.grammar import Grammar
from zerolayer.wire.schema import FinishReason

if TYPE_CHECKING:
    import llguidance


class Masks:
    """Rows of bits in memory that the engine owns: ``rows`` of ``row_bytes`` at ``address``, one for each slot.

    The step thread calls.
    """

    def __init__(self, address: int, row_bytes: int, rows: int, threads: int) -> None:
        self._address = address
        self._row_bytes = row_bytes
        self._rows = rows
        self._threads = threads
        self._executor: llguidance.LLExecutor | None = None
        self._states: dict[int, llguidance.LLMatcher] = {}

    @property
    def used(self) -> bool:
        """Whether any slot is held to a grammar."""
        return bool(self._states)

    def open(self, slot: int, grammar: Grammar) -> None:
        """Hold the slot's answer to ``grammar``."""
        self._states[slot] = grammar.start()

    def close(self, slot: int) -> None:
        """The slot is free. Idempotent."""
        self._states.pop(slot, None)

    def fill(self, slots: Iterable[int]) -> None:
        """Write the rows of those of ``slots`` that are held to a grammar."""
        wanted = [(self._states[slot], slot) for slot in slots if slot in self._states]
        if len(wanted) == 1:
            state, slot = wanted[0]
            state.unsafe_compute_mask_ptr(self._address + slot * self._row_bytes, self._row_bytes)
        elif wanted:
            if self._executor is None:
                from llguidance import LLExecutor  # who holds a grammar has imported it long since

                self._executor = LLExecutor(self._threads)
            self._executor.unsafe_compute_mask_ptr(wanted, self._address, self._row_bytes, self._rows)

    def advance(self, tokens: Sequence[SampledToken]) -> list[SampledToken]:
        """Take the step's tokens into the states; a token whose row could not be computed comes back broken."""
        return [self._advanced(token) for token in tokens]

    def _advanced(self, token: SampledToken) -> SampledToken:
        state = self._states.get(token.slot)
        if state is None:
            return token
        if state.is_error() or (token.finish is None and not state.consume_token(token.token_id)):
            return msgspec.structs.replace(token, finish=FinishReason.STOP, broken=Broken.GRAMMAR)
        return token
