"""What runs in the slots, how many steps are left of each, and by when they are done at the latest. Pure."""

from __future__ import annotations

from specification.booking import JOIN_STEPS, NEVER, Terms, Work
from zerolayer.model.cost import Prices

_NO_CHUNKS = (0, 0, 0)


class Occupants:
    """Lists with an entry for each slot. Progress is counted in steps, which nobody can add to."""

    def __init__(self, slots: int) -> None:
        self.steps = 0  # completed
        self.border_ns = 0  # end of the last one
        self.done = [0] * slots  # number of the step with which a slot is done; 0: it is free, or not confirmed
        self.due = [NEVER] * slots
        self.unconfirmed: dict[int, Work] = {}  # claimed, and not with the engine yet
        self.strict: dict[int, int] = {}  # per_token_ns of streams that no foreign chunk may interrupt
        self.pending_steps = 0  # chunks that are admitted and have not run
        self.pending_ns = 0  # what they add
        self._chunks = [_NO_CHUNKS] * slots  # chunks left, what they add, what a full one adds
        self._later = [0] * slots  # steps after the last chunk

    def take(self, slot: int, work: Work, terms: Terms, prices: Prices) -> None:
        """A slot is claimed."""
        self.unconfirmed[slot] = work
        self._chunks[slot] = (work.chunks, work.chunk_ns, work.full_ns)
        self.pending_steps += work.chunks
        self.pending_ns += work.chunk_ns
        self.due[slot] = terms.due_ns
        if terms.per_token_ns < prices.stall_ns:
            self.strict[slot] = terms.per_token_ns

    def confirm(self, slot: int, work: Work) -> Work:
        """The engine gets the request now; returns what was claimed for it."""
        claimed = self.unconfirmed.pop(slot)
        chunks, chunk_ns, _ = self._chunks[slot]
        self._chunks[slot] = (work.chunks, work.chunk_ns, work.full_ns)
        self.pending_steps += work.chunks - chunks
        self.pending_ns += work.chunk_ns - chunk_ns
        behind = sum(self._chunks[other][0] for other in self.unconfirmed)
        self._later[slot] = max(0, work.tokens - 1)
        self.done[slot] = self.steps + JOIN_STEPS + self.pending_steps - behind + self._later[slot]
        return claimed

    def set_left(self, slot: int, steps: int) -> None:
        """What runs there has so many steps left, in a calendar that is made for what runs already."""
        self.done[slot] = self.steps + steps

    def ending(self, slot: int) -> None:
        """What runs there is cancelled: it is gone at the next border."""
        self.due[slot] = NEVER
        if self.done[slot]:
            self.done[slot] = min(self.done[slot], self.steps + JOIN_STEPS)

    def release(self, slot: int) -> None:
        """The slot is free."""
        chunks, chunk_ns, _ = self._chunks[slot]
        self.pending_steps -= chunks
        self.pending_ns -= chunk_ns
        self._chunks[slot] = _NO_CHUNKS
        self.done[slot] = 0
        self.due[slot] = NEVER
        self.unconfirmed.pop(slot, None)
        self.strict.pop(slot, None)

    def skip(self, slot: int, tokens: int, chunk_tokens: int) -> None:
        """The first ``tokens`` of a slot's prompt need no computing: they are attached."""
        chunks, chunk_ns, full_ns = self._chunks[slot]
        skipped = min(tokens // chunk_tokens, chunks - 1)
        if skipped > 0:
            self._chunks[slot] = (chunks - skipped, chunk_ns - skipped * full_ns, full_ns)
            self.pending_steps -= skipped
            self.pending_ns -= skipped * full_ns

    def shorten(self, slot: int, work: Work) -> None:
        """A slot that is confirmed, and of which nothing has run, needs no more than this."""
        chunks, chunk_ns, full_ns = self._chunks[slot]
        fewer, later = max(0, chunks - work.chunks), self._later[slot]
        self._chunks[slot] = (min(chunks, work.chunks), min(chunk_ns, work.chunk_ns), full_ns)
        self.pending_steps -= chunks - self._chunks[slot][0]
        self.pending_ns -= chunk_ns - self._chunks[slot][1]
        self._later[slot] = min(later, max(0, work.tokens - 1))
        fewer += later - self._later[slot]
        self.done[slot] = min(self.done[slot], max(self.done[slot] - fewer, self.steps + JOIN_STEPS))

    def on_step(self, prefill_slot: int, ended_ns: int, steps: int = 1) -> bool:
        """So many steps are done; the last one carried a chunk of ``prefill_slot``, or -1.

        Returns whether that was the last chunk.
        """
        self.steps += steps
        self.border_ns = ended_ns
        if prefill_slot >= 0 and self._chunks[prefill_slot][0]:
            chunks, chunk_ns, full_ns = self._chunks[prefill_slot]
            spent = full_ns if chunks > 1 else chunk_ns
            self._chunks[prefill_slot] = (chunks - 1, chunk_ns - spent, full_ns)
            self.pending_steps -= 1
            self.pending_ns -= spent
            if chunks == 1:  # its first token is there, and each step brings the next one: it has joined
                self.done[prefill_slot] = min(self.done[prefill_slot], self.steps + self._later[prefill_slot])
                return True
        return False

    def left(self, slot: int) -> int:
        """Steps until what runs there is done, at most."""
        work = self.unconfirmed.get(slot)
        if work is None:
            return self.done[slot] - self.steps
        return JOIN_STEPS + self.pending_steps + max(0, work.tokens - 1)

    def last_step(self, slot: int) -> int:
        """Number of the step with which what runs there is done at the latest; 0 if nothing does."""
        return self.steps + self.left(slot) if slot in self.unconfirmed else self.done[slot]

    def interrupts(self, prices: Prices) -> list[int]:
        """Slots whose streams would notice a foreign chunk."""
        return [slot for slot, gap in self.strict.items() if gap < prices.stall_ns] if self.strict else []

    def end(self, slot: int, base_ns: int, prices: Prices) -> int:
        """``ends`` of one slot."""
        last = self.last_step(slot)
        if not last:
            return 0
        left = last - self.steps
        waiting = min(self.pending_ns, max(0, left) * prices.chunk_ns[-1]) if prices.chunk_ns[-1] else self.pending_ns
        return base_ns + prices.reserve_ns + left * prices.step_ns + waiting

    def ends(self, base_ns: int, prices: Prices) -> list[int]:
        """The bound of each slot's end without bookings, 0 where it is free. Steps are counted from ``base_ns``."""
        return [self.end(slot, base_ns, prices) for slot in range(len(self.done))]
