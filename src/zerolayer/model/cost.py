"""What a step costs and when a request would be done. Pure: no clock, no tensors.

Step time depends on the number of decode rows and on whether a prefill chunk rides along, so the table has a row for
each power of two of occupancy and for both kinds. A bound is the largest of the last measurements (Clockwork, OSDI
2020, takes the maximum of the last ten; here ``_WINDOW``), because a promise needs an upper value and a mean says
nothing about the tail.
"""

from __future__ import annotations

from collections import deque

_WINDOW = 64
_MARGIN = 1.1  # over the largest seen: the next one may be a little larger


class CostTable:
    """Step times in nanoseconds by kind and occupancy. One writer."""

    def __init__(self, *, slots: int, chunk_tokens: int) -> None:
        self._slots = slots
        self._chunk_tokens = chunk_tokens
        self._top = _bucket(slots)
        self._decode: list[deque[int]] = [deque(maxlen=_WINDOW) for _ in range(self._top + 1)]
        self._mixed: list[deque[int]] = [deque(maxlen=_WINDOW) for _ in range(self._top + 1)]

    def observe(self, *, decode_rows: int, prefill: bool, elapsed_ns: int) -> None:
        """Record one step."""
        table = self._mixed if prefill else self._decode
        table[_bucket(decode_rows)].append(elapsed_ns)

    def step_bound_ns(self, decode_rows: int, prefill_tokens: int) -> int:
        """Upper bound of one step; 0 before a step of its kind and occupancy was measured."""
        measured = (self._mixed if prefill_tokens else self._decode)[_bucket(decode_rows)]
        return int(max(measured) * _MARGIN) if measured else 0

    def decode_bound_ns(self) -> int:
        """Upper bound of a step that only decodes, at full occupancy; 0 before the first measurement."""
        return self._bound(self._decode)

    def mixed_bound_ns(self) -> int:
        """Upper bound of a step that carries a prefill chunk, at full occupancy; never below a step without one."""
        return max(self._bound(self._mixed), self.decode_bound_ns())

    def predict_ns(self, *, prompt_tokens: int, max_tokens: int) -> int:
        """Bound of a whole request from its first step to its last, every other slot being busy.

        Each of them is taken to begin one prompt of one chunk meanwhile, in steps that this request shares.
        """
        chunks = -(-prompt_tokens // self._chunk_tokens)
        decode, mixed = self.decode_bound_ns(), self.mixed_bound_ns()
        return chunks * mixed + max(0, max_tokens - 1) * decode + (self._slots - 1) * (mixed - decode)

    def _bound(self, table: list[deque[int]]) -> int:
        # Fullest bucket that was measured; a fuller one costs at most as much per row, so scale by the ratio of rows.
        for bucket in range(self._top, -1, -1):
            if table[bucket]:
                return int(max(table[bucket]) * _MARGIN) << (self._top - bucket)
        return 0


def _bucket(rows: int) -> int:
    """0 for none, else the position of the power of two that is at least ``rows``, plus one."""
    return 0 if rows == 0 else (rows - 1).bit_length() + 1
