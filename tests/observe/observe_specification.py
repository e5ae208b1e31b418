"""What is compiled of the accounts, in Python: slower, and to be read."""

from __future__ import annotations

from collections import Counter

IDLE, OTHER, TENANTS = "_idle", "_other", 1000
WAIT, PREFILL, DECODE, STAGES = 4, 5, 6, 9


class SharedSteps:
    """Sums of the steps that many requests are in together."""

    def __init__(self) -> None:
        self.last_ns = self.wait_ns = self.arithmetic_ns = self.core_ns = 0

    def step(self, started_ns: int, ended_ns: int, row_ns: int) -> None:
        if started_ns > self.last_ns:
            self.wait_ns += started_ns - self.last_ns
            self.last_ns = started_ns
        if ended_ns > self.last_ns:
            self.arithmetic_ns += ended_ns - self.last_ns
            self.last_ns = ended_ns
        self.core_ns += row_ns


class StageSums:
    """One request's account."""

    def __init__(self, first_byte_ns: int) -> None:
        self.started_ns = self.last_ns = first_byte_ns
        self.computes = PREFILL
        self._spent = [0] * STAGES
        self._shared: SharedSteps | None = None
        self._rides = 0
        self._from = (0, 0, 0)  # the shared sums that are in this account, and the time up to which they are

    def ride(self, steps: SharedSteps) -> None:
        self.settle()
        self._rides += 1
        if self._rides == 1:
            self._shared = steps
            self._from = (steps.wait_ns, steps.arithmetic_ns, steps.last_ns)

    def alight(self) -> None:
        self.settle()
        self._rides -= 1
        if not self._rides:
            self._shared = None

    def settle(self) -> None:
        shared = self._shared
        if shared is None or shared.last_ns <= self.last_ns:
            return
        wait_ns, arithmetic_ns, last_ns = self._from
        wait, arithmetic = shared.wait_ns - wait_ns, shared.arithmetic_ns - arithmetic_ns
        known = min(self.last_ns - last_ns, wait)  # a mark came after the last step that was added
        self._spent[WAIT] += wait - known
        self._spent[self.computes] += arithmetic - (self.last_ns - last_ns - known)
        self.last_ns = shared.last_ns
        self._from = (shared.wait_ns, shared.arithmetic_ns, shared.last_ns)

    def mark(self, stage: int, now_ns: int) -> None:
        self.settle()
        if now_ns > self.last_ns:
            self._spent[stage] += now_ns - self.last_ns
            self.last_ns = now_ns

    def step(self, started_ns: int, ended_ns: int) -> None:
        self.mark(WAIT, started_ns)
        self.mark(self.computes, ended_ns)

    def first_token(self) -> None:
        self.computes = DECODE

    def spent_ns(self) -> tuple[int, ...]:
        return tuple(self._spent)


class BusySums:
    """Busy time, and the part of it inside steps."""

    def __init__(self) -> None:
        self.in_flight = self.opened_ns = self.closed_ns = self.ended_ns = self.arithmetic_ns = 0

    def enter(self, now_ns: int) -> None:
        if not self.in_flight:  # a first byte may have been read before another request ended
            self.opened_ns = max(now_ns, self.closed_ns)
        self.in_flight += 1

    def leave(self, now_ns: int) -> None:
        self.in_flight -= 1
        if not self.in_flight:
            self.closed_ns = max(now_ns, self.opened_ns)
            self.ended_ns += self.closed_ns - self.opened_ns

    def step(self, started_ns: int, ended_ns: int) -> None:
        if not self.in_flight:
            ended_ns = min(ended_ns, self.closed_ns)
        self.arithmetic_ns += max(0, ended_ns - max(started_ns, self.opened_ns))

    def busy_ns(self, now_ns: int) -> int:
        return self.ended_ns + (max(0, now_ns - self.opened_ns) if self.in_flight else 0)


class ComputeMeter:
    """Whose compute it was: each step is added up at once."""

    def __init__(self, cores: int, slots: int, now_ns: int) -> None:
        self.cores = cores
        self.started_ns = self.until_ns = now_ns
        self._owners = [IDLE] * slots
        self.totals = {IDLE: 0}

    def begin(self, slot: int, tenant: str) -> None:
        self._owners[slot] = tenant if tenant in self.totals or len(self.totals) < TENANTS else OTHER

    def rest(self, now_ns: int) -> None:
        if now_ns > self.until_ns:
            self.totals[IDLE] += (now_ns - self.until_ns) * self.cores
            self.until_ns = now_ns

    def step(
        self, started_ns: int, ended_ns: int, decode: list[int], chunk_slot: int, chunk_share: float
    ) -> tuple[int, int]:
        self.rest(started_ns)
        begun = max(started_ns, self.until_ns)
        if ended_ns <= begun:
            return 0, 0
        self.until_ns = ended_ns
        whole, rows = (ended_ns - begun) * self.cores, len(decode)
        chunk_ns = round(whole * chunk_share) if rows else whole
        row_ns = (whole - chunk_ns) // rows if rows else 0
        chunk_ns = whole - row_ns * rows
        for owner, count in Counter(self._owners[slot] for slot in decode).items():
            self._charge(owner, row_ns * count)
        self._charge(self._owners[chunk_slot] if chunk_slot >= 0 else IDLE, chunk_ns)
        return row_ns, chunk_ns

    def rows(self, started_ns: int, ended_ns: int, decode: list[int]) -> int:
        return self.step(started_ns, ended_ns, decode, -1, 0.0)[0]

    def _charge(self, owner: str, core_ns: int) -> None:
        if core_ns:
            self.totals[owner] = self.totals.get(owner, 0) + core_ns
