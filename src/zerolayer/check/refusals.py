"""What a service does with whom it turned away, and with whom left: retries, shadow probes, aborts."""

from __future__ import annotations

from collections.abc import Iterator

from zerolayer.check import figures
from zerolayer.check.exchange import Exchange, Planned
from zerolayer.check.run_file import ABORT, AFTER, PULSE, REFUSALS, RETRY, SHADOW, Run
from zerolayer.check.session import LEAD_NS, MILLISECOND, Session, latencies

SHADOW_PULSES, SHADOW_PROBES = 3, 12
ABORT_ROUNDS, FEWEST_ABORTS = 5, 2
SHORTEST_WAIT_S = 10.0  # a promise of no more is tried even if the budget is spent


def retries(session: Session) -> None:
    """Every refused request of a pulse is sent again exactly when it was told to, once: the same bytes."""
    wanted, size = session.settings.retries, session.settings.largest_pulse
    session.watcher.begin(RETRY, wanted)
    tried = 0
    for _ in range(max(5, wanted)):
        session.new_group()
        counted, patience_ms = 0, _patience_ms(session)

        def again(exchange: Exchange) -> Iterator[Planned]:
            nonlocal counted
            planned, promised = exchange.planned, exchange.promised_ms
            refused = exchange.status in REFUSALS and 0 <= promised <= patience_ms  # noqa: B023 - used in this round only
            if planned.position < 0 and refused:
                at_ns = exchange.end_ns + promised * MILLISECOND
                yield session.plan(RETRY, size, counted, at_ns, attempt=1, body=planned.body)
                counted += 1

        session.client.prepare(size)
        at_ns = session.client.clock() + LEAD_NS
        # The pulse that provokes the refusals has positions below 0: it is no retry.
        provoke = [session.plan(RETRY, size, -1 - position, at_ns, attempt=0) for position in range(size)]
        session.rest(session.send(provoke, again))
        tried += counted
        session.watcher.show(min(tried, wanted), [])
        if tried >= wanted or counted == 0 or (session.left_s() < 0 and not session.is_fixed("retries")):
            return


def _patience_ms(session: Session) -> float:
    """The longest promised wait that is tried."""
    return 1000 * min(session.settings.max_wait_s, max(SHORTEST_WAIT_S, session.left_s()))


def shadows(session: Session) -> None:
    """After a pulse, lone probes all along the promised time, to see when a slot was really free."""
    size = session.settings.largest_pulse
    session.watcher.begin(SHADOW, SHADOW_PULSES)
    for number in range(SHADOW_PULSES):
        if session.left_s() < 0:
            return
        session.new_group()
        probing, patience_ms = False, _patience_ms(session)

        def probe(exchange: Exchange) -> Iterator[Planned]:
            nonlocal probing
            promised = exchange.promised_ms
            if probing or promised < 0 or promised > patience_ms:  # noqa: B023 - used in this round only
                return
            probing = True
            step_ns = max(MILLISECOND, promised * MILLISECOND * 5 // 4 // SHADOW_PROBES)
            for turn in range(1, SHADOW_PROBES + 1):
                yield session.plan(SHADOW, size, size + turn - 1, exchange.end_ns + turn * step_ns)

        session.client.prepare(size)
        at_ns = session.client.clock() + LEAD_NS
        pulse = [session.plan(SHADOW, size, position, at_ns) for position in range(size)]
        session.rest(session.send(pulse, probe))
        session.watcher.show(number + 1, [])


def aborts(session: Session, so_far: Run) -> None:
    """Half of the running streams are broken off; as many new ones must find their slots free."""
    client, whole = session.client, _unhurt_size(so_far)
    if whole < 2:
        return
    session.watcher.begin(ABORT, ABORT_ROUNDS)
    seen = figures.stream(so_far)
    grace_ns = 2 * int(max(10.0, seen.gap.value if seen is not None else 0.0) * MILLISECOND)
    for number in range(ABORT_ROUNDS):
        if number >= FEWEST_ABORTS and session.left_s() < 0:
            return
        session.new_group()
        client.prepare(whole + whole // 2)
        at_ns = client.clock() + LEAD_NS
        began = [session.plan(ABORT, whole, i, at_ns) for i in range(whole)]
        done = client.run(began, until=lambda: all(each.pieces for each in client.in_flight.values()))
        leaving = [each for each in client.in_flight.values() if each.planned.position % 2][: whole // 2]
        client.abort(leaving)
        now_ns = client.clock() + grace_ns
        done += client.run([session.plan(AFTER, whole // 2, i, now_ns) for i in range(len(leaving))])
        session.keep(done + leaving)
        session.rest(done)
        session.rest(session.pulse(AFTER, whole))
        session.watcher.show(number + 1, latencies(done))


def _unhurt_size(run: Run) -> int:
    """The largest pulse of which nothing was refused, and that was hardly slower than a lone request."""
    s0 = figures.unloaded(run).value
    fine = [
        level.size
        for level in figures.levels(run, PULSE)
        if level.refused.value == 0 and level.first_p50.value < 1.5 * s0
    ]
    return max(fine, default=0)
