"""The simulation with a real cost table, and an engine whose steps get dearer with each row, like the bundled model's.

Quiet, that one takes 3.2 ms a step for one row and 23 ms for 16, and 78 ms for a chunk of 128 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulation import LIMITS, MS, Client, Simulation

from zerolayer.guard.deadline.booking import Booking, Work
from zerolayer.model.cost import CostTable, Prices

CHUNK = 128


@dataclass(frozen=True)
class Engine:
    """Milliseconds of a step with one row, of one with all rows, and what a full chunk adds."""

    one: float = 3.2
    full: float = 23.3
    chunk: float = 78.0
    slots: int = 16

    def step_ms(self, rows: int, chunk: float) -> float:
        """``chunk`` is the share of a full one, 0 without."""
        decode = self.one + (self.full - self.one) * max(0, rows - 1) / max(1, self.slots - 1) if rows else 0.0
        return decode + chunk * self.chunk

    def capacity(self, tokens: int) -> float:
        """Requests of one chunk a second, when all slots always run."""
        return 1000 / (self.chunk + tokens * self.full / self.slots)


class Costed(Simulation):
    """``promised`` tokens of a prompt are booked for each of 127, ``upper`` is what its bytes allow."""

    Work = Work

    def __init__(self, engine: Engine, seed: int, *, tokens: int = 64, promised: int = 127, upper: int = 512) -> None:
        super().__init__(engine.slots, Prices(), seed)
        self.engine, self.tokens = engine, tokens
        self.table = CostTable(slots=engine.slots, chunk_tokens=CHUNK)
        for rows, prompt in ((engine.slots, 0), (engine.slots - 1, CHUNK), (engine.slots - 1, CHUNK // 4)):
            elapsed = int(engine.step_ms(rows, prompt / CHUNK) * MS)
            self.table.observe(decode_rows=rows, prefill_tokens=prompt, elapsed_ns=elapsed)
        self.calendar = self.Calendar(engine.slots, lambda: self.now, self.table.prices)
        self.admission = self.Admission(self.calendar, self.table, lambda: self.now, "in {ms} ms")
        self._lengths = (upper, 100, promised)
        self.slowness = 1.0  # of the machine: what all steps are longer by
        self._elapsed = self._prompt = 0

    def come(self, name: int, when: int, tries: int = 3) -> None:
        """A client that comes back 1 ms after its time."""
        self.arrive(Client(7 * name, self._work(127), LIMITS, 1 * MS, tries=tries), when)

    def _ask(self, client: Client, booked: Booking | None, again: bool = False) -> None:
        self.admission.sweep(self.now)  # as the server does several times a second
        super()._ask(client, booked, again)

    def wish(self, client: Client) -> tuple[Work, Work, Work]:
        upper, lower, promised = map(self._work, self._lengths)
        return upper, lower, promised

    def _work(self, prompt: int) -> Work:
        prices = self.table.prices()
        full, rest = divmod(prompt, CHUNK)
        chunk_ns = full * prices.chunk(CHUNK) + (prices.chunk(rest) if rest else 0)
        return self.Work(full + (rest > 0), chunk_ns, prices.chunk(CHUNK), self.tokens)

    def _step(self) -> None:
        self._stepping = bool(self._slots)
        if not self._stepping:
            self.admission.rest()
            return
        prefill = self._prefilling[0] if self._prefilling else -1
        decode = [slot for slot in self._slots if slot not in self._prefilling]
        self._prompt = CHUNK if prefill >= 0 else 0
        noise = self.random.gauss(1.0, 0.02) + (self.random.random() < 0.002)
        self._elapsed = int(self.engine.step_ms(len(decode), prefill >= 0) * noise * self.slowness * MS)
        self.at(self.now + self._elapsed, self._stepped, prefill, decode, 0)

    def observe(self, prefill: int, decode: list[int]) -> None:
        self.admission.on_step(
            self.now - self._elapsed,
            self.now,
            decode_rows=len(decode),
            prefill_slot=prefill,
            prefill_tokens=self._prompt,
        )
