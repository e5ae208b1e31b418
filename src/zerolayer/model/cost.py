"""What a step costs, and how long many of them take at most. Pure: no clock, no tensors.

Step time depends on the number of decode rows and on the tokens of the chunk that rides along, so there is a row for
each power of two of both. Each row keeps its last measurements: their median is what a step *typically* takes, the
largest of them, with a margin, is the *bound* of one step (Clockwork, OSDI 2020, takes the maximum of the last ten).

A promise covers hundreds of steps, and the sum of their bounds would be far too long, because outliers are rare.
The sum is bounded as network calculus bounds traffic, by a rate and a burst (Cruz, A calculus for network delay,
1991): ``n`` steps take at most their typical times a rate, plus one reserve. The rate follows the recent mean, the
reserve is the largest backlog over that rate that was seen in the last some thousand steps, less the present one.
"""

from __future__ import annotations

from collections import deque

import msgspec

_WINDOW = 64
_MARGIN = 1.1  # over the largest step seen: the next one may be a little larger
_HEADROOM = 1.05  # of the promised rate over the recent mean
_SORT_EVERY = 16  # new measurements before a median is computed anew
_MEAN_OVER = 256  # steps
_FREAK = 30.0  # times typical: beyond that a step says nothing about the others
_GENERATION = 4096  # steps after which the older half of the backlogs is forgotten
_FIRST_RESERVE = 0.5  # of the dearest step, before there is experience


class Prices(msgspec.Struct, frozen=True):
    """Nanoseconds at full occupancy. ``n`` steps with ``m`` full chunks last at most n*step + m*chunk + reserve."""

    step_ns: int = 0
    chunk_ns: tuple[int, ...] = (0,)  # added by a chunk of at most 2**i tokens; the last one is a full chunk
    reserve_ns: int = 0
    rate: float = 1.0  # promised over typical
    stall_ns: int = 0  # bound of one step that carries a full chunk: the longest gap between two tokens of a stream

    def chunk(self, tokens: int) -> int:
        """What a chunk of ``tokens`` adds to a step."""
        bucket, prices = _bucket(tokens), self.chunk_ns
        return prices[bucket] if bucket < len(prices) else prices[-1]


class _Row:
    """The last measurements of one kind of step."""

    __slots__ = ("_new", "bound", "last", "typical")

    def __init__(self) -> None:
        self.last: deque[int] = deque(maxlen=_WINDOW)
        self.typical = 0
        self.bound = 0  # kept, so that another thread may look at it
        self._new = 0

    def add(self, elapsed_ns: int) -> None:
        self.last.append(elapsed_ns)
        self.bound = int(max(self.last) * _MARGIN)
        self._new += 1
        if self._new >= _SORT_EVERY or len(self.last) <= _SORT_EVERY:
            self._new = 0
            self.typical = sorted(self.last)[(len(self.last) - 1) // 2]


class CostTable:
    """Step times by occupancy and chunk. One writer."""

    def __init__(self, *, slots: int, chunk_tokens: int) -> None:
        self._slots = slots
        self._chunk_tokens = chunk_tokens
        self._top = _bucket(slots)
        self._top_chunk = _bucket(chunk_tokens)
        chunks = range(self._top_chunk + 1)  # 0: a step that only decodes
        self._rows = [[_Row() for _ in range(self._top + 1)] for _ in chunks]
        self._scale = 1.0
        self._backlog = 0.0
        self._worst = [0.0, 0.0]  # largest backlog of this generation and of the one before
        self._steps = 0
        self._prices: Prices | None = None
        self.scored_share = 1.0  # of what a full chunk adds to a step: what a chunk of a prompt that is scored adds

    def observe(self, *, decode_rows: int, prefill_tokens: int = 0, elapsed_ns: int) -> None:
        """Record one step, which carried a chunk unless ``prefill_tokens`` is 0."""
        chunk = min(_bucket(prefill_tokens), self._top_chunk)
        row = self._rows[chunk][min(_bucket(decode_rows), self._top)]
        expected = row.typical
        row.add(elapsed_ns)
        self._prices = None
        self._steps += 1
        if not expected:
            return
        self._scale += (min(elapsed_ns / expected, _FREAK) - self._scale) / _MEAN_OVER
        self._backlog = max(0.0, self._backlog + elapsed_ns - self.rate * expected)
        self._worst[0] = max(self._worst[0], self._backlog)
        if self._steps % _GENERATION == 0:
            self._worst = [self._backlog, self._worst[0]]

    @property
    def rate(self) -> float:
        """Promised over typical time of many steps."""
        return max(1.0, self._scale) * _HEADROOM

    def prices(self) -> Prices:
        """What to promise with; constant between two observations."""
        if self._prices is None:
            self._prices = self._price()
        return self._prices

    def step_bound_ns(self, decode_rows: int, prefill_tokens: int) -> int:
        """Upper bound of one step; 0 before a step of its kind and occupancy was measured. Any thread may ask."""
        row = self._rows[min(_bucket(prefill_tokens), self._top_chunk)]
        return row[min(_bucket(decode_rows), self._top)].bound

    def chunk_share(self, decode_rows: int, prefill_tokens: int) -> float:
        """What a chunk costs of the step that it shares with decode rows, 0 to 1: the Shapley value of the two.

        It is the mean of what the chunk adds to the rows and of what it takes alone, over the step, at typical times
        (Shapley, A value for n-person games, 1953): neither side rides for free on weights that are read once. By
        tokens where such steps were not measured yet.
        """
        if not prefill_tokens:
            return 0.0
        if not decode_rows:
            return 1.0
        rows, chunk = min(_bucket(decode_rows), self._top), min(_bucket(prefill_tokens), self._top_chunk)
        both, alone = self._rows[chunk][rows].typical, self._rows[chunk][0].typical
        decode = self._rows[0][rows].typical
        if not (both and alone and decode):
            return prefill_tokens / (prefill_tokens + decode_rows)
        return min(1.0, max(0.0, (both - decode + alone) / (2 * both)))

    def decode_bound_ns(self) -> int:
        """Upper bound of one step that only decodes, at full occupancy; 0 before the first measurement."""
        return self._full(0, typical=False)

    def mixed_bound_ns(self) -> int:
        """Upper bound of one step that carries a full chunk, at full occupancy; never below a step without one."""
        return max(self._full(self._top_chunk, typical=False), self.decode_bound_ns())

    def typical_ns(self, *, prefill_tokens: int = 0) -> int:
        """Typical time of one step at full occupancy."""
        return self._full(min(_bucket(prefill_tokens), self._top_chunk), typical=True)

    def usual_ns(self) -> dict[str, int]:
        """Typical time of a step by kind: one slot decodes, all do, all do beside a full chunk. 0 = not measured."""
        decode = self._full(0, typical=True)
        mixed = self._full(self._top_chunk, typical=True)
        return {"one": self._rows[0][1].typical, "decode": decode, "mixed": max(decode, mixed) if mixed else 0}

    def predict_ns(self, *, prompt_tokens: int, max_tokens: int) -> int:
        """Bound of a whole request from its first step to its last, no other request beginning meanwhile."""
        prices = self.prices()
        full, rest = divmod(prompt_tokens, self._chunk_tokens)
        steps = full + (rest > 0) + max(0, max_tokens - 1)
        chunks = full * prices.chunk(self._chunk_tokens) + (prices.chunk(rest) if rest else 0)
        return steps * prices.step_ns + chunks + prices.reserve_ns

    def _price(self) -> Prices:
        decode, rate = self._full(0, typical=True), self.rate
        mixed = [0] * (self._top_chunk + 1)
        dearest = decode
        for chunk in range(self._top_chunk, 0, -1):  # a row without measurements costs what a larger chunk costs
            mixed[chunk] = self._full(chunk, typical=True) or (mixed[chunk + 1] if chunk < self._top_chunk else 0)
        for chunk in range(1, self._top_chunk + 1):  # and none costs less than a smaller one
            dearest = mixed[chunk] = max(dearest, mixed[chunk])
        reserve = max(*self._worst, self.decode_bound_ns() - rate * decode)
        if self._steps < _WINDOW:
            reserve = max(reserve, _FIRST_RESERVE * dearest)
        return Prices(
            step_ns=int(decode * rate),
            chunk_ns=tuple(int(rate * max(0, cost - decode)) for cost in mixed),
            reserve_ns=int(max(reserve - self._backlog, self.mixed_bound_ns() - rate * dearest)),
            rate=rate,
            stall_ns=self.mixed_bound_ns(),
        )

    def _full(self, chunk: int, *, typical: bool) -> int:
        """One step at full occupancy, taken from the fullest row that was measured; 0 when none was."""
        rows = self._rows[chunk]
        for bucket in range(self._top, -1, -1):
            row = rows[bucket]
            if row.last:
                value = row.typical if typical else row.bound
                if bucket == self._top:
                    return value
                # A fuller step costs at most as much per row: scale what decoding takes, not what the chunk takes. And
                # it adds at most a full step that only decodes: a prompt that ran alone says nothing about rows.
                decode = self._rows[0][bucket]
                part = (decode.typical if typical else decode.bound) if chunk and decode.last else value
                more = part * ((1 << (self._top - bucket)) - 1)
                full = self._full(0, typical=typical) if chunk else 0
                return value + (min(more, full) if full else more)
        return 0


def _bucket(rows: int) -> int:
    """0 for none, else the position of the power of two that is at least ``rows``, plus one."""
    return 0 if rows == 0 else (rows - 1).bit_length() + 1
