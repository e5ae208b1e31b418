"""What the next step carries: whose tokens it decodes, whose prompt it reads, and the program that covers both.

Pure bookkeeping: no engine, no thread, no clock. Most steps carry what the step before carried, and then nothing is
computed anew: this runs between two steps, when the caches are full of weights and every object that is touched costs
a look into memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from zerolayer.model.program import Programs


class Rows:
    """Open slots, each with the program that it needs. One thread calls."""

    def __init__(self, programs: Programs) -> None:
        self._registry = programs
        self._programs: dict[int, str] = {}
        self._reading: deque[int] = deque()
        self._scored: set[int] = set()
        self._decoding: list[int] = []
        self._decode: tuple[int, ...] | None = ()
        self._covering: str | None = None  # of the slots that decode; None: to be asked for

    def __len__(self) -> int:
        return len(self._programs)

    def __contains__(self, slot: object) -> bool:
        return slot in self._programs

    def __iter__(self) -> Iterator[int]:
        return iter(self._programs)

    @property
    def decode(self) -> tuple[int, ...]:
        """Slots that decode; the same object until they change."""
        if self._decode is None:
            self._decode = tuple(self._decoding)
        return self._decode

    @property
    def reads(self) -> int:
        """The slot whose prompt is read next; -1: none."""
        return self._reading[0] if self._reading else -1

    def scored(self, slot: int) -> bool:
        """Whether the slot's prompt is scored."""
        return slot in self._scored

    def open(self, slot: int, program: str, *, scored: bool = False, apart: bool = False) -> None:
        """A slot whose prompt is read after those that are open. ``apart``: it is in no step but its own."""
        self._programs[slot] = program
        if scored:
            self._scored.add(slot)
        if not apart:
            self._reading.append(slot)

    def read(self) -> None:
        """The prompt of the slot that ``reads`` is complete: it decodes from now on."""
        self._decoding.append(self._reading.popleft())
        self._decode = self._covering = None

    def drop(self, slot: int) -> None:
        """The slot's work is over."""
        del self._programs[slot]
        self._scored.discard(slot)
        if slot in self._decoding:
            self._decoding.remove(slot)
            self._decode = self._covering = None
        elif slot in self._reading:
            self._reading.remove(slot)

    def program(self, reading: int) -> str:
        """The program of a step with the slots that decode and, beside them, the slot ``reading`` (-1: none)."""
        if reading >= 0:
            return self._registry.covering([*(self._programs[slot] for slot in self.decode), self._programs[reading]])
        if self._covering is None:
            self._covering = self._registry.covering(self._programs[slot] for slot in self.decode)
        return self._covering
