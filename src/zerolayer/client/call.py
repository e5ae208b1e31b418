"""One call's attempts as a state machine: what to do next after each thing that can happen. Sans-IO; times are given.

| after | what comes next |
|---|---|
| a refusal with a booking | a node that would start earlier, else the booked time; the later booking of two is left |
| a refusal without one | a booking that is held, else a node that would start now, else a backoff (budget) |
| a refusal that forbids a retry here | if there is no slot, a node that would start in time; else the end |
| 422: too slow for it | one other node, whose measured speed may be another; a booking that is held; else the end |
| 503 | a node not asked yet, else as above; the node is left out until the time it told |
| nothing listens | a node not asked yet, else whichever may be tried first; the node is left out for a pause |
| the connection broke, or brought no HTTP | the same, but drawn from the budget, and counted as ``unanswered`` |
| a node is free while the call waits | that node (``wake``); a booking that is held is kept until it is served |

A reply that began ends the call's attempts: what follows is a stream's business, and is never sent again. A *hedge* is
a second request beside one that has not begun to answer; the first of the two that begins is the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from zerolayer.client.attempt import GiveUp, Head, Promise, Send, Step, Wait
from zerolayer.client.nodes import GAIN_NS, Nodes
from zerolayer.client.retry import NS_PER_MS, RetryBudget, RetryPolicy, backoff_ns, promised_ns
from zerolayer.client.statistics import Attempts, Tally

INFEASIBLE: Final = 422  # the status of a request that a node could not do in time even if it were idle
AWAY_NS: Final = 1_000_000_000  # how long a node is left out that says 503 and no time
LOOK_NS: Final = 20_000_000  # between two looks whether a node is back that another call is trying


class Call:
    """The attempts of one call. ``end_ns`` is the last moment at which an attempt may begin.

    ``next`` says what to do; after a ``Send`` exactly one of ``began``, ``refused``, ``unreachable``, ``expired``
    and ``abandoned`` is told, then ``next`` is asked again. ``take_left`` gives bookings that nobody will come for.
    ``chance`` gives numbers uniform in [0, 1).
    """

    def __init__(
        self,
        nodes: Nodes,
        policy: RetryPolicy,
        budget: RetryBudget,
        tally: Tally,
        chance: Callable[[], float],
        *,
        end_ns: int,
        prefix: bytes = b"",
    ) -> None:
        self.attempts = Attempts()
        self._nodes = nodes
        self._policy = policy
        self._budget = budget
        self._tally = tally
        self._chance = chance
        self._end_ns = end_ns
        self._prefix = prefix
        self._promise: Promise | None = None
        self._wait_until_ns: int | None = None
        self._guesses = 0
        self._given_up: GiveUp | None = None
        self._too_slow = False  # a node said so
        self._move: str | None = None
        self._woken: Send | None = None
        self._asked = ""
        self._ticket: str | None = None  # that was shown to who was asked
        self._hedge: str | None = None
        self._left: list[Promise] = []
        budget.earn()
        tally.add("calls")

    def next(self, now_ns: int) -> Step:
        """What to do at ``now_ns``."""
        if self._given_up is not None:
            return self._given_up
        if (woken := self._woken) is not None:
            self._woken = None
            return woken
        if self._wait_until_ns is not None and now_ns < self._wait_until_ns:
            return Wait(self._wait_until_ns)
        self._wait_until_ns = None
        if self._move is not None:
            node, self._move = self._move, None
            return self._send(node, None)
        if (promise := self._promise) is not None:
            if now_ns < promise.at_ns:
                return Wait(promise.at_ns)
            self._keep(None)
            return self._send(promise.node, promise.ticket)
        chosen = self._nodes.choose(now_ns, self._prefix)
        if chosen is None:
            return self._wait_for_a_node(now_ns)
        return self._send(chosen, None)

    def waits_ns(self, now_ns: int) -> int:
        """For how long it would still wait; 0 when it does not."""
        return 0 if self._wait_until_ns is None else max(0, self._wait_until_ns - now_ns)

    def wake(self, now_ns: int, node: str) -> bool:
        """End the wait, as ``node`` has a free slot; whether that is worth it. ``next`` then says to ask that node.

        A booking is kept until the call is served; where it is that node's own, its ticket goes along.
        """
        left_ns = self.waits_ns(now_ns)
        if left_ns <= GAIN_NS or now_ns > self._end_ns:
            return False
        self._wait_until_ns = None
        waited_ms = self.attempts.waited_ms - left_ns / NS_PER_MS
        self.attempts = replace(self.attempts, waited_ms=waited_ms, woken=self.attempts.woken + 1)
        promise = self._promise
        self._woken = self._send(node, promise.ticket if promise is not None and promise.node == node else None)
        return True

    @property
    def told_waits(self) -> int:
        """How often it has waited, as far as that matters to who is asked: a booking elsewhere is none of theirs."""
        return 0 if self._promise is not None and self._ticket is None else self.attempts.waits

    def began(self, now_ns: int, head: Head) -> None:
        """The reply of 200 began: this is the call's answer."""
        self._nodes.heard(self._asked, now_ns, head.load)
        self.attempts = replace(self.attempts, answered_by=self._asked)
        if self._promise is not None and self._promise.ticket == self._ticket:
            self._keep(None)  # redeemed before its time
        self._leave_promise()
        self._tally.end(self.attempts, answered=True)

    def ended(self) -> None:
        """The answer ended, or its reader left."""
        self._nodes.ended(self._asked)

    def cut(self, now_ns: int) -> None:
        """The answer broke off."""
        self._nodes.cut(self._asked, now_ns)
        self._tally.add("cut")

    def abandoned(self) -> None:
        """The caller left before there was a reply."""
        self._nodes.abandoned(self._asked)
        self._leave_promise()
        self._tally.end(self.attempts, answered=False)

    def left(self) -> None:
        """The caller left between two attempts."""
        if self._woken is not None:
            self._nodes.abandoned(self._woken.node)
        self._leave_promise()
        self._tally.end(self.attempts, answered=False)

    def expired(self, now_ns: int) -> None:
        """The deadline passed before there was a reply. The node may hang, so it is left out for a pause."""
        self._nodes.lost(self._asked, now_ns)
        self._leave_promise()
        self._tally.end(self.attempts, answered=False)

    def hedge(self, now_ns: int) -> Send | None:
        """A second node to ask beside the first, or None. It draws from the budget: whoever is slow is not flooded."""
        node = self._nodes.choose(now_ns, self._prefix, frozenset(self.attempts.nodes))
        if node is None or self._nodes[node].start_in_ns(now_ns) > 0:
            return None
        if now_ns > self._end_ns or not self._budget.draw():
            return None
        first, ticket = self._asked, self._ticket
        send = self._send(node, None)
        self.attempts = replace(self.attempts, hedged=self.attempts.hedged + 1)
        self._hedge, self._asked, self._ticket = node, first, ticket
        return send

    def hedge_won(self, first: Head | None) -> None:
        """The second node began to answer; the first request is cancelled, if ``first`` does not tell how it ended."""
        if self._hedge is not None:
            self._nodes.abandoned(self._asked)
            if first is not None and first.ticket is not None:
                self._left.append(Promise(self._asked, 0, first.ticket))
            self._asked, self._hedge = self._hedge, None
            self._tally.add("hedges_won")

    def hedge_lost(self) -> None:
        """The first node began to answer, or the call ended; the second request is cancelled."""
        if self._hedge is not None:
            self._nodes.abandoned(self._hedge)
            self._hedge = None

    def hedge_failed(self, now_ns: int, head: Head | None) -> None:
        """The second node did not answer (``head`` None), or refused."""
        node, self._hedge = self._hedge, None
        if node is None:
            return
        if head is None:
            self._nodes.lost(node, now_ns)
            return
        self._nodes.heard(node, now_ns, head.load)
        self._nodes.refused(node, now_ns)
        if head.ticket is not None:
            self._left.append(Promise(node, now_ns, head.ticket))

    def take_left(self) -> list[Promise]:
        """Bookings that are of no use any more, so that their nodes may be told. Each is given once."""
        left, self._left = self._left, []
        return left

    def refused(self, sent_ns: int, now_ns: int, wall_ns: int, head: Head) -> None:
        """A reply that is no answer."""
        node = self._asked
        self._nodes.heard(node, now_ns, head.load)
        self._nodes.refused(node, now_ns)
        if head.retry is False or (head.retry is None and head.status not in (429, 503)):
            return self._final(now_ns, head.status)
        at_ns = None
        if head.wait_ms is not None:
            at_ns = promised_ns(
                sent_ns=sent_ns,
                read_ns=now_ns,
                wait_ms=head.wait_ms,
                read_wall_ns=wall_ns,
                server_wall_ns=head.server_wall_ns,
            )
        if head.status == 503:
            self._nodes.away(node, at_ns if at_ns is not None else now_ns + AWAY_NS)
            if not self._elsewhere(now_ns):
                self._booking_or_guess(now_ns, at_ns)
            return None
        if at_ns is not None and head.ticket is not None:
            return self._booked(now_ns, Promise(node, at_ns, head.ticket))
        if self._promise is None and self._earlier(now_ns, self._end_ns):
            return None
        return self._booking_or_guess(now_ns, at_ns)

    def unreachable(self, now_ns: int, *, sent: bool) -> None:
        """No reply, or none of HTTP's. ``sent``: the request was, so the node may have worked on it."""
        self._nodes.lost(self._asked, now_ns)
        if sent:
            if not self._policy.replay_unanswered:
                return self._give_up(GiveUp.FINAL)
            if not self._budget.draw():
                return self._give_up(GiveUp.BUDGET)
            self.attempts = replace(self.attempts, unanswered=self.attempts.unanswered + 1)
        if now_ns > self._end_ns:
            return self._give_up(GiveUp.DEADLINE)
        if self._elsewhere(now_ns):
            return None
        if len(self._nodes) == 1 or not self._nodes.known:
            # The caller knows at once that its server is down, or that all addresses are wrong.
            return self._give_up(GiveUp.FINAL)
        if self._promise is not None:
            return self._booking_or_guess(now_ns, None)
        return None

    def _send(self, node: str, ticket: str | None) -> Send:
        self.attempts = replace(self.attempts, nodes=(*self.attempts.nodes, node))
        self._asked, self._ticket = node, ticket
        self._nodes.sent(node)
        return Send(node, ticket)

    def _booked(self, now_ns: int, promise: Promise) -> None:
        """Keep the earlier of two bookings; ask another node if it seems to start before that."""
        kept, other = promise, self._promise
        if other is not None and other.ticket != promise.ticket and other.at_ns <= promise.at_ns:
            kept, other = other, promise
        else:
            self._keep(promise)
        if other is not None and other.ticket != kept.ticket:
            self._left.append(other)
        if not self._earlier(now_ns, kept.at_ns):
            self._booking_or_guess(now_ns, None)

    def _final(self, now_ns: int, status: int) -> None:
        """The node will not serve this; where only slots are lacking, another one may, or one has booked it."""
        if status == 429 and self._earlier(now_ns, self._end_ns):
            return None
        if status == INFEASIBLE and not self._too_slow:
            self._too_slow = True
            if self._elsewhere(now_ns):
                return None
        if status in (429, INFEASIBLE) and self._promise is not None:
            return self._booking_or_guess(now_ns, None)
        return self._give_up(GiveUp.FINAL)

    def _earlier(self, now_ns: int, than_ns: int) -> bool:
        """Whether a node that this call has not asked is next, because it would start before ``than_ns``."""
        return self._moves_to(self._nodes.earlier(now_ns, than_ns, frozenset(self.attempts.nodes)))

    def _elsewhere(self, now_ns: int) -> bool:
        """Whether a node that this call has not asked is next."""
        return self._moves_to(self._nodes.choose(now_ns, self._prefix, frozenset(self.attempts.nodes)))

    def _moves_to(self, node: str | None) -> bool:
        if node is None:
            return False
        self._move = node
        self.attempts = replace(self.attempts, moved=self.attempts.moved + 1)
        return True

    def _booking_or_guess(self, now_ns: int, at_ns: int | None) -> None:
        """Come at the booked time, where there is one."""
        if self._promise is None:
            return self._guess(now_ns, at_ns)
        if self._promise.at_ns > self._end_ns:
            return self._give_up(GiveUp.DEADLINE)
        self.attempts = replace(self.attempts, booked=self.attempts.booked + 1)
        return self._wait(now_ns, self._promise.at_ns)

    def _guess(self, now_ns: int, at_ns: int | None) -> None:
        """Not before ``at_ns``, a hint without a booking, and spread by chance: others were told the same.

        Chance ends no call: a wait that would pass the deadline is shortened to half of what is left.
        """
        start_ns = max(now_ns, at_ns or 0)
        wait_ns, left_ns = backoff_ns(self._policy, self._guesses, self._chance()), self._end_ns - start_ns
        if wait_ns > left_ns:
            if left_ns < self._policy.base_ms * NS_PER_MS:
                return self._give_up(GiveUp.DEADLINE)
            wait_ns = left_ns // 2
        until_ns = start_ns + wait_ns
        if not self._budget.draw():
            return self._give_up(GiveUp.BUDGET)
        self._guesses += 1
        self.attempts = replace(self.attempts, backed_off=self.attempts.backed_off + 1)
        return self._wait(now_ns, until_ns)

    def _wait_for_a_node(self, now_ns: int) -> Step:
        """All nodes are out, or another call is trying them."""
        until_ns = max(self._nodes.back_ns(), now_ns + LOOK_NS)
        if until_ns > self._end_ns:
            self._give_up(GiveUp.DEADLINE)
            return GiveUp.DEADLINE
        self._wait(now_ns, until_ns)
        return Wait(until_ns)

    def _wait(self, now_ns: int, until_ns: int) -> None:
        self._wait_until_ns = until_ns
        waited = self.attempts.waited_ms + max(0, until_ns - now_ns) / NS_PER_MS
        self.attempts = replace(self.attempts, waited_ms=waited)

    def _keep(self, promise: Promise | None) -> Promise | None:
        """Wait for this one, or for none, from now on; the one before."""
        before, self._promise = self._promise, promise
        if before is not None:
            self._nodes.unbooked(before.node)
        if promise is not None:
            self._nodes.booked(promise.node)
        return before

    def _leave_promise(self) -> None:
        if (left := self._keep(None)) is not None:
            self._left.append(left)

    def _give_up(self, why: GiveUp) -> None:
        self._given_up = why
        self._leave_promise()
        if why is GiveUp.BUDGET:
            self._tally.add("out_of_budget")
        self._tally.end(self.attempts, answered=False)
