"""The load of ``failover.py``: as many callers as there are slots, one fault in the middle, and what came of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from failover_faults import SLOTS, Fault, Struck

from zerolayer import AsyncClient
from zerolayer.client.errors import BadReply, ClientError, CutStream, Refused
from zerolayer.client.retry import RetryPolicy
from zerolayer.client.service import Clocks

TOKENS = 16
PATIENCE_S = 1.0  # for a reply to begin, and for a sign of life of whoever answers
SETTLE_S, BEFORE_S, AFTER_S = 2.0, 5.0, 8.0
OWN_S = 10.0  # of the survivor alone, and again afterwards: a real node gives fewer answers a second
LOSS = 0.05  # of the rate before, beyond what the fault itself takes
RECOVERY_S = 2.0
_WINDOW_S, _STEP_S = 0.5, 0.1


@dataclass
class Run:
    """What happened; times are seconds from the beginning of the load. A fault lasts from ``fault_s`` to ``over_s``."""

    way: str
    fault: str
    real: bool
    share: float
    lasts: bool
    deadline_ms: int
    fault_s: float = SETTLE_S + BEFORE_S
    over_s: float = 0.0
    end_s: float = 0.0
    own_req_s: float | None = None  # of the survivor alone
    ends: list[tuple[float, str]] = field(default_factory=list)  # when a call ended, and how
    worst_ms: float = 0.0  # of those that were answered
    causes: dict[str, int] = field(default_factory=dict)  # of those that failed
    answered: int = 0
    lost: int = 0  # calls that failed before there was an answer
    unanswered: int = 0  # were sent again, and counted
    executed: int = 0

    def rate(self, begin_s: float, end_s: float) -> float:
        """Whole answers a second."""
        return sum(how == "ok" and begin_s <= at < end_s for at, how in self.ends) / (end_s - begin_s)

    def row(self) -> dict[str, Any]:
        """Of the table."""
        before = self.rate(SETTLE_S, self.fault_s)
        rest = (self.fault_s, self.over_s) if self.lasts else (self.over_s + SETTLE_S, self.end_s)
        after = self.rate(*rest)
        usual = before if self.own_req_s is None else self.own_req_s
        least = usual * (self.share - LOSS)
        moments = [self.fault_s + step * _STEP_S for step in range(int((self.end_s - self.fault_s) / _STEP_S) - 5)]
        back = next((at for at in moments if self.rate(at, at + _WINDOW_S) >= least), None)
        counts = Counter(how for _, how in self.ends)
        return {
            "fault": self.fault,
            "real": self.real,
            "way": self.way,
            "calls": len(self.ends),
            **{how: counts[how] for how in ("ok", "cut", "damaged", "wrong", "failed")},
            "causes": self.causes,
            "before_req_s": before,
            "own_req_s": self.own_req_s,
            "after_req_s": after,
            "kept": after / usual if usual else 0.0,
            "kept_wanted": self.share - LOSS,
            "recovery_s": None if back is None else back - self.fault_s,
            "recovery_wanted_s": RECOVERY_S,
            "asked_again": self.unanswered,
            "executed": self.executed,
            "twice_unnoticed": max(0, self.executed - self.answered - self.unanswered - self.lost),
            "worst_ms": self.worst_ms,
            "deadline_ms": self.deadline_ms,
        }

    def bins(self, bin_s: float) -> list[Counter[str]]:
        """How many calls ended how, by time."""
        bins = [Counter[str]() for _ in range(int(self.end_s / bin_s) + 1)]
        for at, how in self.ends:
            if at < self.end_s:
                bins[int(at / bin_s)][how] += 1
        return bins


def new_client(asked: Sequence[str], fault: Fault, struck: Struck) -> AsyncClient:
    """Of several nodes, or of the proxy before them, which is the one to lose patience with a node there."""
    clocks = Clocks(wall_ns=lambda: time.time_ns() + struck.skew_ns)
    waits = {"answer_within_s": PATIENCE_S, "timeout_s": PATIENCE_S, "dead_after_s": PATIENCE_S}
    patient = RetryPolicy(spare=200)  # refusals for want of slots say nothing about faults
    knows_all = list(asked) == struck.asked
    return AsyncClient(asked, protocol=fault.protocol, retry=patient, clocks=clocks, **(waits if knows_all else {}))


class Load:
    """``workers`` call without a pause from the moment it is made until ``stop``."""

    def __init__(self, run: Run, client: AsyncClient, expected: str, deadline_ms: int, workers: int) -> None:
        self._run, self._client, self._expected, self._deadline_ms = run, client, expected, deadline_ms
        self._begun_s = time.monotonic()
        self._over = False
        self._tasks = [asyncio.create_task(self._work()) for _ in range(workers)]

    @property
    def now_s(self) -> float:
        """Since it began."""
        return time.monotonic() - self._begun_s

    async def until(self, moment_s: float) -> None:
        """Sleep; raises what broke a worker."""
        await asyncio.sleep(max(0.0, moment_s - self.now_s))
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        """Until all calls have ended."""
        self._over = True
        await asyncio.gather(*self._tasks)

    async def _work(self) -> None:
        run = self._run
        while not self._over:
            sent = self.now_s
            how, cause = await self._call()
            run.ends.append((self.now_s, how))
            if how == "ok":
                run.worst_ms = max(run.worst_ms, (self.now_s - sent) * 1e3)
            else:
                if how == "failed":
                    run.causes[cause] = run.causes.get(cause, 0) + 1
                await asyncio.sleep(0.01)  # whoever is refused at once must not spin

    async def _call(self) -> tuple[str, str]:
        """How one ended, and why it failed."""
        try:
            text = await ask(self._client, self._deadline_ms)
        except CutStream:
            return "cut", ""
        except BadReply:
            return "damaged", ""
        except Refused as error:
            return "failed", f"{error.status_code} {error.error_code}"
        except ClientError as error:
            return "failed", type(error).__name__
        return ("ok", "") if text == self._expected else ("wrong", "")


async def ask(client: AsyncClient, deadline_ms: int) -> str:
    """One answer, the same from every node."""
    stream = client.generate("One two three", max_tokens=TOKENS, temperature=0.0, deadline_ms=deadline_ms)
    return (await stream.answer()).text


async def measure(run: Run, fault: Fault, struck: Struck, asked: Sequence[str]) -> None:
    """Load ``asked`` (the nodes, or what stands before them), let the fault happen, and fill the run."""
    workers = len(struck.urls) * SLOTS
    async with new_client(struck.urls[1:2], fault, struck) as client:
        expected = await ask(client, fault.deadline_ms)
        run.executed -= 1
    own = [await _alone(run, fault, struck, expected)] if run.real else []
    async with new_client(asked, fault, struck) as client:
        load = Load(run, client, expected, fault.deadline_ms, workers)
        await load.until(SETTLE_S)
        struck.settled()
        await load.until(run.fault_s)
        await struck.strike()
        run.over_s = max(load.now_s, run.fault_s + 2 * _STEP_S) if run.lasts else run.fault_s
        run.end_s = run.over_s + (OWN_S if run.real else AFTER_S)
        await load.until(run.end_s)
        await load.stop()
        _account(run, client)
    if run.real:
        own.append(await _alone(run, fault, struck, expected))
        run.own_req_s = sum(own) / len(own)
    run.executed += await asyncio.to_thread(struck.executed)


async def _alone(run: Run, fault: Fault, struck: Struck, expected: str) -> float:
    """Answers a second of the survivor. It is asked before the fault and after, as others may use this machine."""
    alone = replace(run, ends=[], causes={})
    async with new_client(struck.urls[1:2], fault, struck) as client:
        load = Load(alone, client, expected, fault.deadline_ms, len(struck.urls) * SLOTS)
        await load.until(OWN_S)
        await load.stop()
        _account(run, client)
    return alone.rate(SETTLE_S, OWN_S)


def _account(run: Run, client: AsyncClient) -> None:
    run.answered += client.statistics.answered
    run.lost += client.statistics.failed
    run.unanswered += client.statistics.unanswered
