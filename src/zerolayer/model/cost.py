"""What a step costs, and how long many of them take at most. Pure: no clock, no tensors.

Step time depends on the number of decode rows and on the tokens of the chunk that rides along. There is a row for each
number of decode rows up to 16, four for each doubling above, and each power of two of tokens. It keeps its last
measurements, as if the machine had its normal speed: their median is what a step *normally* takes, the largest of them,
with a margin, is the *bound* of one step (Clockwork, OSDI 2020, takes the maximum of the last ten). Both count times
the machine's *pace*, which steps of every kind tell. So a full engine, whose steps were last measured in a slow spell,
is not taken for a slow one when the spell is over, though nobody fills it at such prices.

A promise covers hundreds of steps, and the sum of their bounds would be far too long, because outliers are rare.
The sum is bounded as network calculus bounds traffic, by a rate and a burst (Cruz, A calculus for network delay,
1991): ``n`` steps take at most their typical times a rate, plus one reserve. The rate follows the recent mean, the
reserve is the largest backlog over that rate that was seen in the last some thousand steps, less the present one.

What hears of every step is compiled (``native/step_times.hpp``, ``native/step_pace.hpp``);
``tests/model/cost_specification.py`` has the same in Python.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from zerolayer.model._native import StepRow, StepTimes

_YOUNG_RESERVE = 64  # steps for which there is a reserve without experience
_FIRST_RESERVE = 0.5  # of the dearest step, before there is experience
_EXACT = 16  # so many decode rows have each a class of their own
_ANEW, _UNSURE = 1, 2  # StepTimes::Seen
_KNOWN = 8  # measurements of a row that may say what a fuller step takes at least
_RECENT = 1024  # steps for which it may
_bucket, _class = StepTimes.bucket, StepTimes.class_of


class Prices(msgspec.Struct, frozen=True):
    """Nanoseconds at full occupancy. ``n`` steps with ``m`` full chunks last at most n*step + m*chunk + reserve."""

    step_ns: int = 0
    chunk_ns: tuple[int, ...] = (0,)  # added by a chunk of at most 2**i tokens; the last one is a full chunk
    reserve_ns: int = 0
    rate: float = 1.0  # promised over typical
    stall_ns: int = 0  # bound of one step that carries a full chunk: the longest gap between two tokens of a stream
    spent_ns: int = 0  # of the reserve, now: whoever starts later may find it whole

    def chunk(self, tokens: int) -> int:
        """What a chunk of ``tokens`` adds to a step."""
        bucket, prices = _bucket(tokens), self.chunk_ns
        return prices[bucket] if bucket < len(prices) else prices[-1]


def together(own: Prices, other: Prices) -> Prices:
    """What an engine promises with while another one takes turns with it: each step waits for one of the other's."""
    return Prices(
        step_ns=own.step_ns + other.step_ns,
        chunk_ns=own.chunk_ns,
        reserve_ns=own.reserve_ns + other.reserve_ns,
        rate=own.rate,
        stall_ns=own.stall_ns + other.stall_ns,
        spent_ns=own.spent_ns + other.spent_ns,
    )


class CostTable:
    """Step times by occupancy and chunk. One writer."""

    def __init__(self, *, slots: int, chunk_tokens: int) -> None:
        self._slots = slots
        self._chunk_tokens = chunk_tokens
        self._top_chunk = _bucket(chunk_tokens)
        chunks = range(self._top_chunk + 1)  # 0: a step that only decodes
        self._tops = [_class(slots - (chunk > 0)) for chunk in chunks]  # whose prompt is read does not decode
        self._times = StepTimes(slots, chunk_tokens)
        row = self._times.row
        self._rows = [[row(chunk, place) for place in range(top + 1)] for chunk, top in enumerate(self._tops)]
        self.step_bound_ns = self._times.bound_ns
        """Upper bound of one step of so many decode rows and prompt tokens; 0 before one of its kind was measured.

        It is meant to be passed less than once in a thousand steps. Any thread may ask.
        """
        self._normal: list[int] | None = None  # what a full step takes, by chunk
        self._caps: dict[tuple[int, int, bool], int] = {}  # of what the start measured, while ``_normal`` holds
        self._prices: Prices | None = None
        self.beside: Callable[[], Prices] | None = None  # of another engine that takes turns with this one
        self._turn = (Prices(), Prices())  # own prices, and what they make of a turn
        self._joined = (Prices(), Prices(), Prices())  # the last pair, and what it came to
        self.scored_share = 1.0  # of what a full chunk adds to a step: what a chunk of a prompt that is scored adds

    def observe(self, *, decode_rows: int, prefill_tokens: int = 0, elapsed_ns: int) -> None:
        """Record one step, which carried a chunk unless ``prefill_tokens`` is 0."""
        self._prices = None
        seen = self._times.observe(decode_rows, prefill_tokens, elapsed_ns, False)
        if seen == _UNSURE:
            if self._is_refuted(decode_rows, prefill_tokens):
                self._row(decode_rows, prefill_tokens).forget()
            seen = self._times.observe(decode_rows, prefill_tokens, elapsed_ns, True)
        if seen == _ANEW:
            self._changed()

    def rest(self) -> None:
        """The engine has had no work for a while: nothing tells the machine's pace, and its outliers are of the past.

        Whoever is refused for either would never show that it is over. To be called once a second at most.
        """
        if self._times.rest() == _ANEW:
            self._changed()
        self._prices = None

    def _changed(self) -> None:
        """What some kind of step normally takes is another time than it was."""
        self._normal = None
        self._caps.clear()

    @property
    def rate(self) -> float:
        """Promised over typical time of many steps."""
        times = self._times
        return max(1.0, times.scale, times.pace_mean / times.pace) * StepTimes.HEADROOM

    def prices(self) -> Prices:
        """What to promise with; constant between two observations, of the engine ``beside`` too."""
        own = self._prices
        if own is None or self.beside is not None:
            own = self.alone()
        return own if self.beside is None else self._beside(own, self.beside())

    def alone(self) -> Prices:
        """The same for an engine that has its cores for itself."""
        if self._prices is None:
            self._prices = self._price()
        return self._prices

    def as_turns(self) -> Prices:
        """What a step of another engine waits for at most, while this one takes turns with it: for full chunks."""
        own = self.alone()
        if self._turn[0] is not own:
            full = own.step_ns + own.chunk_ns[-1]
            self._turn = (own, msgspec.structs.replace(own, step_ns=full, chunk_ns=(0,), rate=1.0))
        return self._turn[1]

    def _beside(self, own: Prices, other: Prices) -> Prices:
        was = self._joined
        if was[0] is not own or was[1] is not other:
            self._joined = was = (own, other, together(own, other))
        return was[2]

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
        both, alone = self._row(decode_rows, prefill_tokens).normal, self._row(0, prefill_tokens).normal
        decode = self._row(decode_rows, 0).normal
        if not (both and alone and decode):
            return prefill_tokens / (prefill_tokens + decode_rows)
        return min(1.0, max(0.0, (both - decode + alone) / (2 * both)))

    def decode_bound_ns(self) -> int:
        """Upper bound of one step that only decodes, at full occupancy; 0 before the first measurement."""
        return int(self._full(0, bound=True) * self._times.pace)

    def mixed_bound_ns(self) -> int:
        """Upper bound of one step that carries a full chunk, at full occupancy; never below a step without one."""
        return max(int(self._full(self._top_chunk, bound=True) * self._times.pace), self.decode_bound_ns())

    def typical_ns(self, *, prefill_tokens: int = 0) -> int:
        """Typical time of one step at full occupancy."""
        return int(self._full(min(_bucket(prefill_tokens), self._top_chunk)) * self._times.pace)

    @property
    def lone_ns(self) -> int:
        """Typical time of a step in which one slot decodes; 0 = not measured."""
        return int(self._row(1, 0).normal * self._times.pace)

    def usual_ns(self) -> dict[str, int]:
        """Typical time of a step by kind: one slot decodes, all do, all do beside a full chunk. 0 = not measured."""
        pace = self._times.pace
        decode, mixed = int(self._full(0) * pace), int(self._full(self._top_chunk) * pace)
        return {"one": self.lone_ns, "decode": decode, "mixed": max(decode, mixed) if mixed else 0}

    def predict_ns(self, *, prompt_tokens: int, max_tokens: int) -> int:
        """Bound of a whole request from its first step to its last, no other request beginning meanwhile."""
        prices = self.prices()
        full, rest = divmod(prompt_tokens, self._chunk_tokens)
        steps = full + (rest > 0) + max(0, max_tokens - 1)
        chunks = full * prices.chunk(self._chunk_tokens) + (prices.chunk(rest) if rest else 0)
        return steps * prices.step_ns + chunks + prices.reserve_ns

    def _normals(self) -> list[int]:
        """What a full step takes at the usual pace, by the chunk that it carries."""
        top = self._top_chunk
        normal = [self._full(0), *[0] * top]
        for chunk in range(top, 0, -1):  # a row without measurements costs what a larger chunk costs
            normal[chunk] = self._full(chunk) or (normal[chunk + 1] if chunk < top else 0)
        for chunk in range(1, top + 1):  # and none costs less than a smaller one
            normal[chunk] = max(normal[chunk - 1], normal[chunk])
        return normal

    def _price(self) -> Prices:
        if self._normal is None:
            self._normal = self._normals()
        decode, *mixed = self._normal
        times, dearest = self._times, self._normal[-1]
        pace = times.pace
        rate = self.rate * pace
        reserve = max(times.worst, self.decode_bound_ns() - rate * decode)
        if times.steps < _YOUNG_RESERVE:
            reserve = max(reserve, _FIRST_RESERVE * dearest * pace)
        stall = self.mixed_bound_ns()
        least = stall - rate * dearest
        left = int(max(reserve - times.backlog, least))
        return Prices(
            step_ns=int(decode * rate),
            chunk_ns=(0, *[int(rate * (cost - decode)) for cost in mixed]),
            reserve_ns=left,
            rate=self.rate,
            stall_ns=stall,
            spent_ns=int(max(reserve, least)) - left,
        )

    def _row(self, decode_rows: int, prefill_tokens: int) -> StepRow:
        chunk, place = self._kind(decode_rows, prefill_tokens)
        return self._rows[chunk][place]

    def _kind(self, decode_rows: int, prefill_tokens: int) -> tuple[int, int]:
        """Which row is that of such steps."""
        chunk = min(_bucket(prefill_tokens), self._top_chunk)
        return chunk, min(_class(decode_rows), self._tops[chunk])

    def _full(self, chunk: int, *, bound: bool = False) -> int:
        """One step at full occupancy and normal speed, from the fullest row that was measured; 0 when none was."""
        rows, top = self._rows[chunk], self._tops[chunk]
        if rows[top].count:
            value = self._told(chunk, top, bound=bound)
            return value if bound else max(value, self._nearly_full(chunk))
        for place in range(top - 1, -1, -1):
            if rows[place].count:
                value = self._told(chunk, place, bound=bound)
                # A fuller step costs at most as much per row: scale what decoding takes, not what the chunk takes. And
                # it adds at most a full step that only decodes: a prompt that ran alone says nothing about rows.
                part = self._told(0, place, bound=bound) if chunk and self._rows[0][place].count else value
                more = int(part * (_most_of(top) / max(1, _most_of(place)) - 1))
                full = self._full(0, bound=bound) if chunk else 0
                return value + (min(more, full) if full else more)
        return 0

    def _told(self, chunk: int, place: int, *, bound: bool) -> int:
        """What was measured of one kind of step; if at the start only, no more than emptier ones take one by one since.

        Else a table of a start on a busy machine would stay as it is: at such prices nobody fills the engine, and its
        full steps are never measured again. The start's contexts are the shortest, so that no later step is cheaper.
        """
        row = self._rows[chunk][place]
        value = row.bound if bound else row.normal
        if row.seen > StepTimes.YOUNG:
            return value
        kind = (chunk, place, bound)
        if kind not in self._caps:
            self._caps[kind] = self._one_by_one(chunk, place, bound=bound)
        return min(value, self._caps[kind] or value)

    def _is_refuted(self, decode_rows: int, prefill_tokens: int) -> bool:
        """Whether what the start measured of a kind of step is more than emptier ones take one by one."""
        chunk, place = self._kind(decode_rows, prefill_tokens)
        return self._told(chunk, place, bound=False) < self._rows[chunk][place].normal

    def _one_by_one(self, chunk: int, place: int, *, bound: bool) -> int:
        """What so many rows, and then so long a chunk, take in steps of kinds that are known well; 0 without such."""
        wanted = _most_of(place)
        decoding = [
            _in_turn(row, -(-wanted // (_most_of(fewer - 1) + 1)), bound=bound)
            for fewer, row in enumerate(self._rows[0][:place])
            if fewer and row.count >= _KNOWN
        ]
        if not chunk:
            return min(decoding, default=0)
        own = self._rows[0][place]
        decode = self._told(0, place, bound=bound) if own.count else min(decoding, default=0)
        # The shortest chunk of a kind has a little more than half as many tokens as the longest.
        reading = [
            _in_turn(rows[0], 2 << (chunk - shorter), bound=bound)
            for shorter, rows in enumerate(self._rows[: chunk + 1])
            if shorter and rows[0].count >= _KNOWN
        ]
        return decode + min(reading) if reading and (decode or not place) else 0

    def _nearly_full(self, chunk: int) -> int:
        """What a full step takes at least: steps with more than half as many rows say it where full ones are rare."""
        top, recent = self._tops[chunk], self._times.steps - _RECENT
        half = _class(_most_of(top) // 2) + 1
        rows = self._rows[chunk][half:top]
        return max((row.normal for row in rows if row.seen > recent and row.count >= _KNOWN), default=0)


def _in_turn(row: StepRow, steps: int, *, bound: bool) -> int:
    """So many steps of one kind, of which one may be an outlier where it is a ``bound``."""
    return (steps - 1) * row.normal + (row.bound if bound else row.normal)


def _most_of(place: int) -> int:
    """The most rows of a class."""
    if place <= _EXACT:
        return place
    doubling, quarter = divmod(place - _EXACT - 1, 4)
    return (quarter + 5) << (doubling + 2)
