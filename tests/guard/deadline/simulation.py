"""A service in fake time: clients that come, come back late or never, and leave; an engine that obeys its prices.

The engine is as bad as its prices allow: ``n`` steps with chunks last up to their price, and once more the reserve.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from dataclasses import dataclass, field

import msgspec

from zerolayer.errors import BeyondHorizon, Infeasible, SlotsBusy
from zerolayer.guard.deadline.admission import Admission, Grant, Wish
from zerolayer.guard.deadline.booking import EARLY_NS, JOIN_STEPS, Booking, Work
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.deadline.limits import Limits
from zerolayer.guard.deadline.tickets import Asker
from zerolayer.model.cost import Prices
from zerolayer.wire.schema import Tier

MS = 1_000_000
LIMITS = Limits(5_000 * MS, 250 * MS, 60_000 * MS)


class Costs:
    """A cost table that never learns, but knows how much of the reserve is spent."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self.backlog = 0

    def prices(self) -> Prices:
        left = self._prices.reserve_ns - self.backlog
        return msgspec.structs.replace(self._prices, reserve_ns=left, spent_ns=self.backlog)

    @property
    def lone_ns(self) -> int:
        return self._prices.step_ns

    def observe(self, **_given: object) -> None:
        pass

    def rest(self) -> None:
        pass


def work(chunks: int, tokens: int, prices: Prices) -> Work:
    full = prices.chunk_ns[-1]
    return Work(chunks, chunks * full, full, tokens)


@dataclass
class Client:
    """One request. ``late_ns`` is how long after its booked start it comes back; None: never."""

    name: int
    work: Work
    limits: Limits = LIMITS
    late_ns: int | None = 0
    stops_after: int | None = None  # tokens, where the text ends early
    tier: Tier = Tier.DEFAULT
    tries: int = 3
    leaves_ns: int | None = None  # so long after it came it goes away, whatever it is doing
    other_limits: Limits | None = None  # of all attempts but the first: it may be decided anew then
    silent: bool = False  # says nothing of its attempts and reads whole seconds, as curl does
    # what became of it
    outcome: str = ""
    gone: bool = False
    booked: int = 0
    came_ns: int | None = None
    due_ns: int = 0
    admitted_ns: int = 0
    ended_ns: int = 0
    waited_ns: int = 0
    refusals: list[str] = field(default_factory=list)


@dataclass
class Running:
    client: Client
    chunks: int
    tokens: int


class Simulation:
    """``report_ns`` is how long a report takes to the loop."""

    Calendar, Admission = Calendar, Admission

    def __init__(
        self, slots: int, prices: Prices, seed: int, *, lazy: float = 1.0, reserved: int = 0, grace_ms: int = 250
    ) -> None:
        self.now = 1_000 * MS
        self.prices = prices
        self.costs = Costs(prices)
        self.calendar = self.Calendar(
            slots, lambda: self.now, self.costs.prices, reserved=reserved, grace_ns=grace_ms * MS
        )
        self.admission = self.Admission(self.calendar, self.costs, lambda: self.now, "in {ms} ms")
        self.random = random.Random(seed)
        self.lazy = lazy  # share of the price that a step takes at least
        self.done: list[Client] = []
        self.broken: list[str] = []
        self.steps_busy_ns = 0
        self._order = itertools.count()
        self._agenda: list[tuple[int, int, object, tuple]] = []
        self._slots: dict[int, Running] = {}
        self._prefilling: deque[int] = deque()
        self._held: list[tuple[Booking, Client, int]] = []
        self._leaving: dict[int, int] = {}  # by slot: steps until the engine has let go of it
        self._stepping = False

    def at(self, when: int, action, *given) -> None:
        heapq.heappush(self._agenda, (when, next(self._order), action, given))

    def arrive(self, client: Client, when: int) -> None:
        self.at(when, self._ask, client, None)
        if client.leaves_ns is not None:
            self.at(when + client.leaves_ns, self._leave, client)

    def run(self, check=lambda: None) -> None:
        while self.next_ns is not None:
            self.go_on()
            check()
        self.admission.sweep(self.now + 10**12)

    def used(self, since_ns: int, until_ns: int) -> float:
        """The share of all slots' time between these that they were taken; runs to the end."""
        busy, total, before = 0, 0, self.now

        def count() -> None:
            nonlocal busy, total, before
            elapsed, before = self.now - before, self.now
            if since_ns < self.now < until_ns:
                busy += elapsed * self.calendar.taken
                total += elapsed * self.calendar.slots

        self.run(count)
        return busy / total

    @property
    def next_ns(self) -> int | None:
        """When something happens next."""
        return self._agenda[0][0] if self._agenda else None

    def go_on(self) -> None:
        """To what happens next."""
        when, _, action, given = heapq.heappop(self._agenda)
        self.now = max(self.now, when)
        action(*given)

    def coming(self) -> list[tuple[int, Client, Booking | None, bool]]:
        """Clients that come elsewhere from now on: when, what was booked for them, and whether they have asked."""
        mine = [entry for entry in self._agenda if entry[2] == self._ask]
        self._agenda = [entry for entry in self._agenda if entry[2] != self._ask]
        heapq.heapify(self._agenda)
        return [(when, *given, *([False] if len(given) == 2 else [])) for when, _, _, given in sorted(mine)]

    def wish(self, client: Client) -> tuple[Work, Work, Work]:
        """Upper and lower bound of its work, and what is promised."""
        return client.work, client.work, client.work

    def _ask(self, client: Client, booked: Booking | None, again: bool = False) -> None:
        if client.gone:
            self._end(client, "left")
            return
        if again and client.other_limits is not None:
            client.limits, booked = client.other_limits, None
        asker = Asker(
            client.name % 7,
            retry=None if client.silent else again,
            ticket=booked.ticket if booked and not booked.soft and not client.silent else None,
            last=client.tries == 1,
            reads_ms=not client.silent,
        )
        wish = Wish(*self.wish(client), self._left(client), client.tier, client.name)
        client.tries -= 1
        is_its_time = booked is not None and -EARLY_NS <= self.now - booked.start_ns <= self.calendar.grace_ns
        is_booked = is_its_time and booked in self.calendar.bookings
        try:
            answer = self.admission.ask(wish, asker)
        except Infeasible as refusal:
            answer = refusal
        if isinstance(answer, SlotsBusy):
            client.refusals.append("busy")
            if is_booked or (is_its_time and not booked.soft):  # else it gave way
                self.broken.append(f"{client.name}: a promise was not kept")
            self._come_back(client, answer)
        elif isinstance(answer, (BeyondHorizon, Infeasible)):
            client.refusals.append(type(answer).__name__)
            self._end(client, "refused")
            if is_booked or (is_its_time and not booked.soft):
                self.broken.append(f"{client.name}: a promise ended in {answer.code}")
        elif isinstance(answer, Grant):
            if is_booked and not answer.booked:
                self.broken.append(f"{client.name}: was served, but not by its booking")
            self._start(client, answer, self.now)
        else:
            self._held.append((answer, client, self.now))
            self.at(max(self.now, answer.start_ns), self._wake)
            for ahead in self.calendar.bookings:  # who does not come is not waited for, whether steps run or not
                if ahead.slot == answer.slot and ahead.start_ns <= answer.start_ns:
                    self.at(max(self.now, ahead.start_ns + self.calendar.grace_ns) + MS, self._wake)

    def _left(self, client: Client) -> Limits:
        """Its limits; of a deadline that holds for all its attempts, what is left."""
        client.came_ns = self.now if client.came_ns is None else client.came_ns
        if client.limits.patience_ns is None:
            return client.limits
        left = client.limits.patience_ns - (self.now - client.came_ns)
        return msgspec.structs.replace(client.limits, end_ns=left, patience_ns=left)

    def _come_back(self, client: Client, refusal: SlotsBusy) -> None:
        booking = next((b for b in self.calendar.bookings if b.key == (client.name % 7, client.name)), None)
        assert (refusal.ticket is None) == (booking is None or booking.soft)
        assert not client.silent or refusal.retry_after_ms % 1000 == 0
        if client.late_ns is None or client.tries == 0:
            self._end(client, "away")
            return
        client.booked += booking is not None and not booking.soft
        when = self.now + refusal.retry_after_ms * MS + max(0, client.late_ns)
        if booking is not None:
            assert when >= booking.start_ns
            when = booking.start_ns + client.late_ns
        self.at(max(when, self.now), self._ask, client, booking, True)

    def _wake(self) -> None:
        for held in list(self._held):
            booking, client, since = held
            grant = self.admission.resume(booking)
            if grant is not None:
                self._held.remove(held)
                client.waited_ns = self.now - max(since, booking.start_ns)
                if self.now > max(since, booking.start_ns + max(self.calendar.grace_ns, booking.hold_ns)) + MS:
                    self.broken.append(f"{client.name}: was held for too long")
                self._start(client, grant, since)

    def _leave(self, client: Client) -> None:
        """It is gone, and gives back what is its own."""
        if client.outcome:
            return
        client.gone = True
        slot = next((slot for slot, running in self._slots.items() if running.client is client), -1)
        held = next((held for held in self._held if held[1] is client), None)
        mine = None if held is None else held[0]
        before = self._others(slot, mine)
        if held is not None:
            self._held.remove(held)
            self.admission.void(held[0])
        elif slot >= 0:
            del self._slots[slot]
            if slot in self._prefilling:
                self._prefilling.remove(slot)
            self.calendar.ending(slot)
            self._leaving[slot] = self.random.randint(1, JOIN_STEPS)
        else:
            return  # it is away, and will not come back
        self._end(client, "left")
        if self._others(slot, mine) != before:
            self.broken.append(f"{client.name}: took something along that was not its own")

    def _others(self, slot: int, mine: Booking | None) -> tuple[object, ...]:
        """What others have: slots with their deadlines, bookings, and what is free."""
        calendar = self.calendar
        dues = [calendar.due_ns(each) for each in range(calendar.slots) if each != slot]
        return dues, [each for each in calendar.bookings if each is not mine], calendar.free

    def _let_go(self) -> None:
        """A step is done: of those who left the engine lets go at a border, and it tells that a moment later."""
        for slot in list(self._leaving):
            self._leaving[slot] -= 1
            if not self._leaving[slot] or not self._slots:
                del self._leaving[slot]
                self.calendar.release(slot)

    def _end(self, client: Client, outcome: str) -> None:
        client.outcome = outcome
        self.done.append(client)

    def _start(self, client: Client, grant: Grant, arrived: int) -> None:
        client.admitted_ns = arrived
        client.due_ns = grant.due_ns
        if not self.calendar.confirm(grant.slot, client.work):
            self.broken.append(f"{client.name}: was admitted and did not fit")
        assert grant.slot not in self._slots
        assert grant.slot not in self._leaving
        self._slots[grant.slot] = Running(client, client.work.chunks, 0)
        self._prefilling.append(grant.slot)
        if not self._stepping:
            self._step()

    def _step(self) -> None:
        self._stepping = bool(self._slots)
        if not self._stepping:
            return
        prefill = self._prefilling[0] if self._prefilling else -1
        decode = [slot for slot in self._slots if slot not in self._prefilling]
        price = self.prices.step_ns
        if prefill >= 0:
            for client in (self._slots[slot].client for slot in decode):
                if client.limits.per_token_ns < self.prices.stall_ns:
                    self.broken.append(f"{client.name}: a prompt was read though its cadence does not allow it")
            price += self.prices.chunk_ns[-1]
        elapsed = int(price * self.random.uniform(self.lazy, 1.0))
        if self.random.random() < 0.02:
            elapsed = price + self.prices.reserve_ns - self.costs.backlog
        self.at(self.now + elapsed, self._stepped, prefill, decode, elapsed - price)

    def _stepped(self, prefill: int, decode: list[int], over: int) -> None:
        self.costs.backlog = max(0, self.costs.backlog + over)
        self.observe(prefill, decode)
        for slot in decode:
            if slot in self._slots:
                self._token(slot)
        if prefill in self._slots:
            running = self._slots[prefill]
            running.chunks -= 1
            if running.chunks == 0:
                self._prefilling.popleft()
                client = running.client
                if self.now > client.admitted_ns + client.limits.first_token_ns:
                    self.broken.append(f"{client.name}: its first token was late")
                self._token(prefill)
        self._let_go()
        left = [each.client.work.tokens - each.tokens for each in self._slots.values() if each.tokens]
        self.admission.foresee(left, len(self._held))
        self._wake()
        self._step()

    def observe(self, prefill: int, decode: list[int]) -> None:
        """Report a step."""
        tokens = 1 if prefill >= 0 else 0
        self.admission.on_step(
            self.now - 1, self.now, decode_rows=len(decode), prefill_slot=prefill, prefill_tokens=tokens
        )

    def _token(self, slot: int) -> None:
        running = self._slots[slot]
        running.tokens += 1
        client = running.client
        if running.tokens >= min(client.work.tokens, client.stops_after or client.work.tokens):
            del self._slots[slot]
            self.calendar.release(slot)
            client.ended_ns = self.now
            if self.now > client.due_ns:
                self.broken.append(f"{client.name}: ended {(self.now - client.due_ns) / MS} ms late")
            self._end(client, "served")
