"""One node on paper: the server's own admission over an engine whose steps take constant times.

The engine is arithmetic: slots run in lockstep, a step carries at most one chunk of one prompt, so any number of steps
is jumped at once. Decisions are ``guard.deadline``'s. Most of them need no calendar: while nothing is booked, a request
starts exactly where a slot is free, its own bounds suit it, and everybody's slack bears its chunks. That is the calm
path (a lower bound of all slacks is kept, and computed anew when it says no). Whatever it cannot grant goes to a
calendar that is built from the state, and stays there until nothing is booked any more. Both paths give the same
decisions: ``tests/check/test_simulated_node.py`` compares them on random traces.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Final

from specification.admission import Admission, Grant, Wish
from specification.booking import JOIN_STEPS, NEVER, Booking, Terms, Work
from specification.calendar import Calendar
from zerolayer.check.simulated_node import INFEASIBLE, REFUSED, SERVED, Rules, Steps
from zerolayer.errors import BeyondHorizon, Infeasible, SlotsBusy
from zerolayer.guard.deadline.limits import Limits
from zerolayer.guard.deadline.tickets import Asker
from zerolayer.model.cost import Prices
from zerolayer.wire.schema import Tier

_FREE: Final = Prices()  # nothing costs anything: for building a calendar in which all that runs is accepted
_ANY: Final = 1 << 60


class _Exact:
    """The server's admission, and what only it needs."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.held: list[tuple[Booking, int]] = []  # booked clients that are here, and their requests
        self.order: deque[list[int]] = deque()  # [slot, chunks left] of prompts, in the order of the steps
        self.quiet_after = 0  # number of the step with which the last booked request ends


class Node:
    """Requests are numbers; ``chunks`` and ``tokens`` hold their work. Calls come in the order of their times.

    ``ended`` lists what was served: (request, start, end, due) in nanoseconds. ``calm=False`` decides everything by the
    calendar.
    """

    def __init__(self, steps: Steps, rules: Rules, chunks: list[int], tokens: list[int], *, calm: bool = True) -> None:
        self.ended: list[tuple[int, int, int, int]] = []
        self._chunks, self._tokens = chunks, tokens
        self._rules, self._model = rules, steps
        self._prices = prices = steps.table.prices()
        self._chunk_ns = prices.chunk(steps.chunk_tokens)
        self._calm = calm and rules.per_token_ns >= prices.stall_ns
        self._decode, self._extra = steps.decode_ns, steps.mixed_ns - steps.decode_ns
        self._free = list(range(steps.slots - 1, -1, -1))
        # The engine: steps done, time of the last border, whether the step in flight began without the chunks that
        # wait, how many chunks wait, and the step with which all is done.
        self._steps = self._border = self._lead = self._pending = self._last = 0
        self._running: list[tuple[int, int, int, int, int]] = []  # heap of (last step, slot, request, start, due)
        self._slack = NEVER  # a lower bound of everybody's
        # By slot: the step with which it is done at the latest when its prompt is not read, 0 = free; and that with
        # which it is done.
        self._bound, self._done = [0] * steps.slots, [0] * steps.slots
        self._due = [NEVER] * steps.slots
        self._chunk_end = [0] * steps.slots  # the step with which its prompt is read
        self._exact: _Exact | None = None
        self._admission: Admission | None = None  # kept while no calendar is: it remembers who comes and who does not
        self._now = 0

    # What the fleet asks.

    @property
    def free(self) -> int:
        """Slots that nobody holds, as of the last call."""
        return len(self._free)

    @property
    def next_step(self) -> int:
        """Steps until the first slot is free."""
        return self._running[0][0] - self._steps if self._running else 0

    def offer(self, request: int, at: int) -> tuple[int, int]:
        """A new request at ``at``: (SERVED, 0), (REFUSED, time to come back at, or -1 for never), (INFEASIBLE, 0)."""
        if self._exact is not None:
            self.advance(at)
        elif self._steps < self._last:
            self._jump(at)
        if self._exact is not None or not self._calm:
            return self.ask(request, at, 0, at)
        free = self._free
        if free:
            rules, chunks, tokens = self._rules, self._chunks[request], self._tokens[request]
            prices, more = self._prices, chunks * self._chunk_ns
            busy, due = len(free) < self._model.slots, at + rules.end_ns
            base = (self._border if busy else at) + prices.reserve_ns
            steps = self._pending + chunks
            first = base + steps * self._chunk_ns + (JOIN_STEPS + steps) * prices.step_ns
            end = first + (tokens - 1) * prices.step_ns
            if first <= at + rules.first_token_ns and end <= due:
                if not busy:
                    self._slack = NEVER
                elif self._slack < more:
                    self._slack = self._least_slack()
                if self._slack >= more:
                    self._slack = min(self._slack - more, due - end)
                    self._add(free.pop(), request, at, due)
                    if self._admission is not None:
                        self._admission.began_unbooked()
                    return SERVED, 0
        elif not self._rules.retries and self._fits_idle(request, self._rules.end_ns):
            return REFUSED, -1
        return self.ask(request, at, 0, at)

    def ask(self, request: int, at: int, attempt: int, since: int) -> tuple[int, int]:
        """The same by the server's admission. ``attempt`` counts from 0, ``since`` is the time of the first one."""
        self.advance(at)
        exact = self._exact = self._exact or self._build(at)
        self._now = at
        rules = self._rules
        end = rules.end_ns - (at - since) if rules.patient else rules.end_ns
        if end <= 0:
            return REFUSED, -1
        if attempt >= rules.retries and not self._free and self._is_refused(exact.admission, request, at, end):
            return REFUSED, -1
        limits = Limits(rules.first_token_ns, rules.per_token_ns, end, end if rules.patient else None)
        chunks = self._chunks[request]
        work = Work(chunks, chunks * self._chunk_ns, self._chunk_ns, self._tokens[request])
        asker = self._asker(request, attempt)
        admission = exact.admission
        wish = Wish(most=work, least=work, promised=work, limits=limits, tier=Tier.DEFAULT, key=request)
        try:
            answer = admission.ask(wish, asker)
            if isinstance(answer, Grant):
                if admission.calendar.confirm(answer.slot, work):
                    self._start(answer.slot, request, at, answer.due_ns)
                    if answer.booked:
                        exact.quiet_after = max(exact.quiet_after, self._last)
                    return SERVED, 0
                admission.calendar.release(answer.slot)
                answer = admission.refuse_longer(wish, asker)
        except Infeasible:
            return INFEASIBLE, 0
        if isinstance(answer, SlotsBusy):
            wait_ms = answer.retry_after_ms or 1
            return REFUSED, at + wait_ms * 1_000_000 if attempt < rules.retries else -1
        if isinstance(answer, BeyondHorizon):
            return REFUSED, -1
        exact.held.append((answer, request))
        return SERVED, 0

    def _asker(self, request: int, attempt: int) -> Asker:
        rules = self._rules
        sender = request % rules.senders if rules.senders else request
        return Asker(sender, retry=attempt > 0, last=attempt >= rules.retries)

    def _fits_idle(self, request: int, end_ns: int) -> bool:
        """Whether an idle node could promise it: a request that will not come back is then refused, not infeasible."""
        chunks, prices = self._chunks[request], self._prices
        first = prices.reserve_ns + chunks * self._chunk_ns + (JOIN_STEPS + chunks) * prices.step_ns
        return first <= self._rules.first_token_ns and first + (self._tokens[request] - 1) * prices.step_ns <= end_ns

    def _is_refused(self, admission: Admission, request: int, at: int, end_ns: int) -> bool:
        """Whether nothing but a refusal can come of a last attempt without a slot: nothing is booked for it then."""
        asker = self._asker(request, self._rules.retries)
        return self._fits_idle(request, end_ns) and admission.tickets.match(asker, request, at) is None

    def advance(self, at: int) -> None:
        """Let time go on to ``at``."""
        exact = self._exact
        if exact is None:
            if self._steps < self._last:
                self._jump(at)
            return
        while True:
            if (count := self._uneventful(exact, at)) > 0:
                self._step(exact, self._border + count * self._decode, count)
                continue
            busy = self._steps < self._last
            step = self._border + self._decode + (0 if self._lead or not self._pending else self._extra)
            wake = min((b.start_ns for b, _ in exact.held if b.start_ns > self._now), default=NEVER)
            if busy and step <= min(wake, at):
                self._step(exact, step)
            elif wake <= at:
                self._now = wake
                self._wake(exact)
            else:
                break
        self._now = at
        quiet = not exact.held and not exact.admission.calendar.bookings and self._steps >= exact.quiet_after
        if quiet and self._calm:
            self._exact = None
            self._slack = self._least_slack()

    def _uneventful(self, exact: _Exact, at: int) -> int:
        """How many steps until ``at``, or until a slot is free, carry no chunk and can let nobody begin."""
        if self._lead or self._pending or self._steps >= self._last:
            return 0
        until = at
        for booking, _ in exact.held:
            if self._free and booking.start_ns <= self._now:
                return 0
            until = min(until, booking.start_ns if booking.start_ns > self._now else booking.terms.due_ns)
        return min((until - self._border) // self._decode, self._running[0][0] - self._steps)

    # The engine.

    def _jump(self, at: int) -> None:
        """All steps that end until ``at``."""
        steps, border, lead, pending, decode = self._steps, self._border, self._lead, self._pending, self._decode
        left = at - border
        if lead:
            if left < decode:
                return
            left -= decode
        run = min(pending, left // (decode + self._extra)) if pending else 0
        count = lead + run
        if run == pending:
            count += (left - run * (decode + self._extra)) // decode
            count = min(count, self._last - steps)
        if not count:
            return
        self._lead, self._pending = 0, pending - run
        self._steps = steps + count
        self._border = border + count * decode + run * self._extra
        running = self._running
        while running and running[0][0] <= self._steps:
            done, slot, request, start, due = heappop(running)
            passed = done - steps
            end = border + passed * decode + min(pending, max(0, passed - lead)) * self._extra
            self.ended.append((request, start, end, due))
            self._bound[slot] = 0
            self._free.append(slot)

    def _add(self, slot: int, request: int, at: int, due: int) -> None:
        """A request joins at the next border."""
        if self._steps >= self._last:  # at rest: it begins at once
            self._border = at
        elif not self._pending:
            self._lead = 1
        tokens = self._tokens[request] - 1
        pending = self._pending = self._pending + self._chunks[request]
        read = self._chunk_end[slot] = self._steps + self._lead + pending
        done = read + tokens
        if done > self._last:
            self._last = done
        self._bound[slot] = self._steps + JOIN_STEPS + pending + tokens
        self._done[slot] = done
        self._due[slot] = due
        heappush(self._running, (done, slot, request, at, due))

    def _latest(self, slot: int) -> int:
        """The step with which a slot is done, as far as the server knows: exactly, once its prompt is read."""
        return self._bound[slot] if self._steps < self._chunk_end[slot] else self._done[slot]

    def _least_slack(self) -> int:
        """How much later everybody's bound could be."""
        base, prices, pending = self._border + self._prices.reserve_ns, self._prices, self._pending * self._chunk_ns
        least = NEVER
        for slot, due in enumerate(self._due):
            if self._bound[slot]:
                left = self._latest(slot) - self._steps
                least = min(least, due - base - left * prices.step_ns - min(pending, left * self._chunk_ns))
        return least

    # The exact path.

    def _step(self, exact: _Exact, ended: int, count: int = 1) -> None:
        slot = -1
        if self._lead:
            self._lead = 0
        elif self._pending:
            self._pending -= 1
            slot = exact.order[0][0]
            exact.order[0][1] -= 1
            if not exact.order[0][1]:
                exact.order.popleft()
        self._steps += count
        self._border = self._now = ended
        calendar = exact.admission.calendar
        calendar.on_step(slot, ended, count)
        while self._running and self._running[0][0] <= self._steps:
            _, done, request, start, due = heappop(self._running)
            self.ended.append((request, start, ended, due))
            self._bound[done] = 0
            self._free.append(done)
            calendar.release(done)
        self._wake(exact)

    def _wake(self, exact: _Exact) -> None:
        for entry in list(exact.held):
            booking, request = entry
            grant = exact.admission.resume(booking) if self._free else None
            if grant is not None:
                exact.held.remove(entry)
                exact.admission.calendar.confirm(grant.slot, booking.work)
                self._start(grant.slot, request, self._now, grant.due_ns)
                exact.quiet_after = max(exact.quiet_after, self._last)
            elif self._now >= booking.terms.due_ns:
                exact.held.remove(entry)
                exact.admission.void(booking)
                self.ended.append((request, self._now, NEVER, booking.terms.due_ns))

    def _start(self, slot: int, request: int, at: int, due: int) -> None:
        exact = self._exact
        self._free.remove(slot)
        self._add(slot, request, at, due)
        if exact is not None:
            exact.order.append([slot, self._chunks[request]])

    def _build(self, at: int) -> _Exact:
        """A calendar in which runs what runs here. Steps are counted from 0 again: only what is left matters."""
        model, prices = self._model, _FREE
        self._now = min(self._border, at)
        calendar = Calendar(
            model.slots,
            lambda: self._now,
            lambda: prices,
            grace_ns=self._rules.grace_ns,
            horizon_ns=self._rules.horizon_ns,
        )
        admission = self._admission or Admission(calendar, model.table, lambda: self._now, "")
        admission.calendar, self._admission = calendar, admission
        exact = _Exact(admission)
        left = self._chunks_left()
        works = [
            Work(left.get(slot, 0), 0, 0, self._done[slot] - self._chunk_end[slot] + 1 if bound else 1)
            for slot, bound in enumerate(self._bound)
        ]
        dues = [due if bound else NEVER for bound, due in zip(self._bound, self._due, strict=True)]
        names = [
            calendar.claim(work, Terms(self._now, _ANY, _ANY, _ANY, due)) for work, due in zip(works, dues, strict=True)
        ]
        for slot, work in enumerate(works):
            if self._bound[slot]:
                true = Work(work.chunks, work.chunks * self._chunk_ns, self._chunk_ns, work.tokens)
                calendar.confirm(names[slot], true)
        prices = self._prices
        calendar.on_step(-1, self._border)
        for slot, bound in enumerate(self._bound):
            if bound:
                calendar.set_left(names[slot], self._latest(slot) - self._steps)
        self._rename(names)
        exact.order.extend([names[slot], count] for slot, count in left.items())
        for slot in self._free:
            calendar.release(slot)
        return exact

    def _chunks_left(self) -> dict[int, int]:
        """By slot: the chunks of its prompt that are not read, in the order in which they will be."""
        read = self._steps + self._lead
        left = {slot: min(self._chunks[each], self._chunk_end[slot] - read) for _, slot, each, _, _ in self._running}
        return {slot: left[slot] for slot in sorted(left, key=self._chunk_end.__getitem__) if left[slot] > 0}

    def _rename(self, names: list[int]) -> None:
        """Call slot ``s`` ``names[s]`` from now on, as the calendar does."""
        old = self._bound, self._done, self._due, self._chunk_end
        self._bound, self._done, self._due, self._chunk_end = (
            [column[names.index(slot)] for slot in range(len(names))] for column in old
        )
        self._running = [(done, names[slot], each, at, due) for done, slot, each, at, due in self._running]
        heapify(self._running)
        self._free = [names[slot] for slot in self._free]
