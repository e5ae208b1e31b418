"""Loads that last: steps, stages, a closed loop, a replayed trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from zerolayer.check import figures
from zerolayer.check.exchange import Exchange, Planned
from zerolayer.check.run_file import BASELINE, CLOSED, REPLAY, STAGE, STEP, Stage
from zerolayer.check.session import LEAD_NS, MILLISECOND, Session, latencies
from zerolayer.check.trace import Arrival, poisson

POOL = 64  # connections that are open before a step begins
SHORTEST_STEP_S = 2.0
# Of the budget, when the steps are to be over: what is left is for aborts, and for retries where there are refusals.
STEPPED, STEPPED_BEFORE_RETRIES = 0.9, 0.75


def load(session: Session, arrivals: list[Arrival] | None) -> None:
    """What was asked for in place of the steps, or the steps."""
    settings = session.settings
    if arrivals is not None:
        _replay(session, arrivals)
    elif settings.users or settings.stages:
        _stages(session)
        _users(session)
    elif settings.step_rates or settings.step_shares:
        _steps(session)


def _steps(session: Session) -> None:
    """Poisson arrivals at fixed rates, in an open loop: a slow service does not slow the arrivals."""
    settings = session.settings
    run = session.result()
    best = min(figures.capacity(run), settings.max_rate)
    rates = settings.step_rates or tuple(share * best for share in settings.step_shares)
    seconds = settings.step_seconds
    if not session.is_fixed("step_seconds"):
        share = STEPPED_BEFORE_RETRIES if run.refused.any() else STEPPED
        seconds = min(seconds, max(SHORTEST_STEP_S, session.left_s(share) / len(rates)))
        session.did(step_seconds=round(seconds, 3))
    session.watcher.begin(STEP, len(rates))
    for number, rate in enumerate(rates, 1):
        _open_loop(session, STEP, max(1, round(rate)), Stage(rate, rate, seconds), number)


def _stages(session: Session) -> None:
    """The same with rates that rise and fall as they were asked for, one stage after another."""
    session.watcher.begin(STAGE, len(session.settings.stages))
    for number, stage in enumerate(session.settings.stages, 1):
        _open_loop(session, STAGE, number, stage, number)


def _open_loop(session: Session, phase: str, size: int, stage: Stage, done: int) -> None:
    session.new_group()
    session.client.prepare(POOL)
    start = session.client.clock() + LEAD_NS
    planned = [
        session.plan(phase, size, position, start + int(at_s * 1e9))
        for position, at_s in enumerate(poisson(session.rng, stage))
    ]
    exchanges = session.send(planned)
    session.watcher.show(done, latencies(exchanges))
    session.rest(exchanges)


def _users(session: Session) -> None:
    """A closed loop: each user waits for the reply, or until the promised time of a refusal, thinks, and asks on.

    The slower the service, the fewer requests: a closed loop cannot show a queue that is longer than its users.
    """
    users, think_s = session.settings.users, session.settings.think_ms / 1000
    if not users:
        return
    session.new_group()
    session.watcher.begin(CLOSED, 1)
    session.client.prepare(users)
    start = session.client.clock() + LEAD_NS
    end = start + int(session.settings.step_seconds * 1e9)
    count = users

    def again(exchange: Exchange) -> Iterator[Planned]:
        nonlocal count
        pause_ns = max(1, exchange.promised_ms) * MILLISECOND if exchange.status != 200 else 0
        if think_s:
            pause_ns += int(session.rng.expovariate(1 / think_s) * 1e9)
        at_ns = max(exchange.end_ns, exchange.sent_ns) + pause_ns
        if at_ns < end:
            count += 1
            yield session.plan(CLOSED, users, count, at_ns)

    first = [session.rng.expovariate(1 / think_s) if think_s else 0.0 for _ in range(users)]
    planned = [session.plan(CLOSED, users, i, start + int(wait * 1e9)) for i, wait in enumerate(first)]
    exchanges = session.send(planned, again)
    session.watcher.show(1, latencies(exchanges))
    session.rest(exchanges)


def _beyond_words(session: Session) -> int:
    """Tokens of a prompt that are none of the added words: the question's, and those that a chat template adds."""
    run = session.result()
    counted = run.prompt_tokens[run.rows(BASELINE) & (run.prompt_tokens >= 0)]
    return max(0, round(float(np.median(counted))) - session.settings.prompt_words) if len(counted) else 0


def _replay(session: Session, arrivals: list[Arrival]) -> None:
    """Requests at the times and of the sizes of a trace: a prompt's tokens are those that the service will count."""
    more = _beyond_words(session)
    arrivals = [replace(each, prompt_tokens=max(0, each.prompt_tokens - more)) for each in arrivals]
    session.new_group()
    session.watcher.begin(REPLAY, 1)
    session.client.prepare(POOL)
    start = session.client.clock() + LEAD_NS
    rate = max(1, round(len(arrivals) / max(0.001, (arrivals[-1].at_ms - arrivals[0].at_ms) / 1000)))
    planned = [
        session.plan(REPLAY, rate, number, start + int((arrival.at_ms - arrivals[0].at_ms) * 1e6), arrival)
        for number, arrival in enumerate(arrivals)
    ]
    exchanges = session.send(planned)
    session.watcher.show(1, latencies(exchanges))
    session.rest(exchanges)
