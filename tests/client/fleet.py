"""Four nodes and the callers of one client in fake time: the servers' own admission, the client's own calls.

Steps take 5.15 to 5.5 ms, one in a hundred up to 15 ms more; messages 0.3 to 1.5 ms; timers up to 2 ms too long.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, deque
from dataclasses import dataclass
from enum import Enum

from zerolayer.client.attempt import Head, Send, Wait
from zerolayer.client.call import Call
from zerolayer.client.nodes import Nodes
from zerolayer.client.retry import RetryBudget, RetryPolicy
from zerolayer.client.statistics import Tally
from zerolayer.client.waiters import Waiters
from zerolayer.errors import BeyondHorizon, SlotsBusy
from zerolayer.guard.deadline.admission import Admission, Grant, Wish
from zerolayer.guard.deadline.booking import Booking, Work
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.deadline.limits import Limits
from zerolayer.guard.deadline.tickets import Asker
from zerolayer.model.cost import CostTable
from zerolayer.wire.load import Load
from zerolayer.wire.schema import Tier

MS = 1_000_000
SLOTS, PROMPT, CHUNK = 4, 7, 128
STEP_MS = 5.15


class World:
    """What happens next, and chance."""

    def __init__(self, seed: int) -> None:
        self.now = 10**12
        self.random = random.Random(seed)
        self._order = itertools.count()
        self._agenda: list[tuple] = []

    def later(self, ms: float, action, *given) -> None:
        heapq.heappush(self._agenda, (self.now + int(ms * MS), next(self._order), action, given))

    def send(self, action, *given) -> None:
        """A message is on its way."""
        self.later(self.random.uniform(0.3, 1.5), action, *given)

    def run(self, ms: float) -> None:
        until = self.now + int(ms * MS)
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, action, given = heapq.heappop(self._agenda)
            action(*given)
        self.now = until

    def step_ms(self) -> float:
        freak = self.random.uniform(3, 15) if self.random.random() < 0.01 else 0.0
        return self.random.uniform(STEP_MS, 5.5) + freak


class State(Enum):
    UP = "up"
    DRAINS = "drains"
    DOWN = "down"


@dataclass
class Running:
    call: Call
    tokens: int = 0


class Node:
    """A server with a calendar, whose requests are ``tokens`` long."""

    def __init__(self, world: World, callers: Callers, tokens: int) -> None:
        self._world, self._callers, self._tokens = world, callers, tokens
        self.used_ns = 0  # slot time so far
        self._since = world.now
        self.start()

    def start(self) -> None:
        """As a new process: nothing is booked, and prices are as measured."""
        world, cost = self._world, CostTable(slots=SLOTS, chunk_tokens=CHUNK)
        for _ in range(8):
            cost.observe(decode_rows=SLOTS, elapsed_ns=int(STEP_MS * MS))
            cost.observe(decode_rows=SLOTS - 1, prefill_tokens=CHUNK, elapsed_ns=int(STEP_MS * MS))
        self._cost = cost
        self._calendar = Calendar(SLOTS, lambda: world.now, cost.prices)
        self._admission = Admission(self._calendar, cost, lambda: world.now, "")
        self._slots: dict[int, Running] = {}
        self._unread: deque[int] = deque()
        self._held: list[tuple[Booking, Call, Work]] = []
        self._stepping = False
        self.state = State.UP

    @property
    def empty(self) -> bool:
        return not (self._slots or self._held)

    def count(self) -> None:
        """Slot time until now."""
        self.used_ns += len(self._slots) * (self._world.now - self._since)
        self._since = self._world.now

    def ask(self, call: Call, ticket: str | None, waits: int, end_ns: int, sent_ns: int) -> None:
        world, callers = self._world, self._callers
        if self.state is State.DOWN:
            return world.send(callers.unreachable, call)
        if self.state is State.DRAINS:
            return world.send(callers.refused, call, sent_ns, Head(503, Load(0, 0), 1000, True))
        price, left = self._cost.prices().chunk(PROMPT), end_ns - world.now
        work = Work(1, price, price, self._tokens)
        wish = Wish(work, work, work, Limits(5000 * MS, 250 * MS, left, left), Tier.DEFAULT, 1)
        answer = self._admission.ask(wish, Asker(b"", retry=waits > 0, ticket=ticket))
        if isinstance(answer, SlotsBusy):
            head = Head(429, self._load, answer.retry_after_ms, True, answer.ticket)
            return world.send(callers.refused, call, sent_ns, head)
        if isinstance(answer, BeyondHorizon):
            return world.send(callers.refused, call, sent_ns, Head(429, self._load, None, True))
        if isinstance(answer, Grant):
            return self._begin(call, answer, work)
        self._held.append((answer, call, work))
        early_ms = max(0, answer.start_ns - world.now) / MS
        world.later(early_ms, self._wake)
        return world.later(early_ms + 251, self._wake)

    def give_back(self, ticket: str) -> None:
        if self.state is State.UP:
            self._admission.give_back(ticket, b"")

    @property
    def _load(self) -> Load:
        return Load(*self._calendar.standing())

    def _wake(self) -> None:
        for held in list(self._held):
            booking, call, work = held
            if (grant := self._admission.resume(booking)) is not None:
                self._held.remove(held)
                self._begin(call, grant, work)

    def _begin(self, call: Call, grant: Grant, work: Work) -> None:
        self.count()
        assert self._calendar.confirm(grant.slot, work)
        self._slots[grant.slot] = Running(call)
        self._unread.append(grant.slot)
        if not self._stepping:
            self._step()

    def _step(self) -> None:
        self._stepping = bool(self._slots)
        if not self._stepping:
            return self._admission.rest()
        reads = self._unread[0] if self._unread else -1
        decode = [slot for slot in self._slots if slot not in self._unread]
        elapsed_ms = self._world.step_ms()
        return self._world.later(elapsed_ms, self._stepped, reads, decode, self._world.now)

    def _stepped(self, reads: int, decode: list[int], began_ns: int) -> None:
        rows, tokens = len(decode), PROMPT if reads >= 0 else 0
        self._admission.on_step(began_ns, self._world.now, decode_rows=rows, prefill_slot=reads, prefill_tokens=tokens)
        for slot in decode:
            self._token(slot)
        if reads >= 0:
            self._unread.popleft()
            self._world.send(self._callers.began, self._slots[reads].call, Head(200, self._load))
            self._token(reads)
        left = [self._tokens - running.tokens for running in self._slots.values() if running.tokens]
        self._admission.foresee(left, len(self._held))
        self._wake()
        self._step()

    def _token(self, slot: int) -> None:
        running = self._slots[slot]
        running.tokens += 1
        if running.tokens == self._tokens:
            self.count()
            del self._slots[slot]
            self._calendar.release(slot)
            self._world.send(self._callers.ended, running.call)


class Callers:
    """``callers`` who ask again and again, as ``asking.py`` does it. ``done`` holds when answers were complete."""

    def __init__(self, seed: int, callers: int, nodes: int = 4, tokens: int = 16, deadline_ms: float = 3000) -> None:
        self.world = World(seed)
        names = [f"http://10.0.0.{number}" for number in self.world.random.sample(range(1, 255), nodes)]
        self.nodes = {name: Node(self.world, self, tokens) for name in names}
        self.tally = Tally()
        self.requests: Counter[str] = Counter()
        self.done: list[int] = []
        self._deadline_ns = int(deadline_ms * MS)
        self._known = Nodes(names)
        self._policy = RetryPolicy(spare=200)
        self._budget = RetryBudget(self._policy)
        self._waiters = Waiters(self._known)
        self._ends: dict[Call, int] = {}
        self._waits: dict[Call, object] = {}
        self._watches = False
        for number in range(callers):
            self.world.later(number * 6, self._new)

    def used_ns(self) -> int:
        """Slot time of all nodes so far."""
        for node in self.nodes.values():
            node.count()
        return sum(node.used_ns for node in self.nodes.values())

    def _new(self) -> None:
        end_ns = self.world.now + self._deadline_ns
        call = Call(self._known, self._policy, self._budget, self.tally, self.world.random.random, end_ns=end_ns)
        self._ends[call] = end_ns
        self._next(call)

    def _next(self, call: Call) -> None:
        world = self.world
        self._probe()
        match step := call.next(world.now):
            case Send():
                self.requests["asked"] += 1
                given = (call, step.ticket, call.told_waits, self._ends[call], world.now)
                world.send(self.nodes[step.node].ask, *given)
            case Wait():
                mark = self._waits[call] = object()
                self._waiters.add(call, lambda: world.later(0.05, self._resume, call, mark))
                self._watch()
                late_ms = world.random.uniform(0.1, 2)
                world.later((step.until_ns - world.now) / MS + late_ms, self._resume, call, mark)
            case _:
                self._give_back(call)
                world.later(10, self._new)

    def _resume(self, call: Call, mark: object) -> None:
        if self._waits.get(call) is mark:
            del self._waits[call]
            self._waiters.remove(call)
            self._next(call)

    def _give_back(self, call: Call) -> None:
        for promise in call.take_left():
            self.requests["given back"] += 1
            self.world.send(self.nodes[promise.node].give_back, promise.ticket)

    def _heard(self) -> None:
        self._waiters.look(self.world.now)

    def _probe(self) -> None:
        for name in self._known.to_probe(self.world.now):
            self.world.later(2, self._probed, name)

    def _watch(self) -> None:
        """While somebody waits, failed nodes are probed."""
        due_ns = self._known.probe_due_ns()
        if not self._watches and self._waiters and due_ns is not None:
            self._watches = True
            self.world.later(max(0, due_ns - self.world.now) / MS, self._watched)

    def _watched(self) -> None:
        self._watches = False
        self._probe()
        self._watch()

    def _probed(self, name: str) -> None:
        self._known.probed(name, self.world.now, lives=self.nodes[name].state is State.UP)
        self._heard()

    def refused(self, call: Call, sent_ns: int, head: Head) -> None:
        call.refused(sent_ns, self.world.now, self.world.now, head)
        self._give_back(call)
        self._heard()
        self._next(call)

    def unreachable(self, call: Call) -> None:
        call.unreachable(self.world.now, sent=False)
        self._next(call)

    def began(self, call: Call, head: Head) -> None:
        call.began(self.world.now, head)
        self._give_back(call)
        self._heard()

    def ended(self, call: Call) -> None:
        call.ended()
        del self._ends[call]
        self.done.append(self.world.now)
        self.world.later(0.3, self._new)
