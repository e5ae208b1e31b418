"""The order of one measurement: own lag, lone probes, pulses, steps, retries, aborts. Produces a ``Run``."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import numpy as np

from zerolayer.check import figures
from zerolayer.check.errors import TargetError
from zerolayer.check.exchange import Exchange, Planned, read_tokens
from zerolayer.check.live_view import Watcher
from zerolayer.check.load_client import LoadClient, timer_lag_us
from zerolayer.check.run_file import (
    ABORT,
    AFTER,
    BASELINE,
    CLOSED,
    PHASES,
    PULSE,
    REFUSALS,
    REPLAY,
    RETRY,
    SHADOW,
    STAGE,
    STEP,
    Run,
    Settings,
    Stage,
)
from zerolayer.check.target import LAST_ATTEMPT, Target
from zerolayer.check.trace import Arrival, poisson

MILLISECOND = 1_000_000
LEAD_NS = 5 * MILLISECOND  # between planning a pulse and its intended time
WARM_UP = 3
MAX_REST_MS = 10_000.0
SHADOW_PULSES, SHADOW_PROBES = 3, 12
ABORT_ROUNDS = 5
POOL = 64  # connections that are open before a step begins


class Measurement:
    """One run against one service. Use once."""

    def __init__(
        self,
        target: Target,
        client: LoadClient,
        settings: Settings,
        watcher: Watcher,
        sleep: Callable[[float], None],
    ) -> None:
        self._target, self._client, self._settings = target, client, settings
        self._watcher, self._sleep = watcher, sleep
        self._rng = random.Random(settings.seed)
        self._group = 0
        self._exchanges: list[Exchange] = []
        self._rows: list[list[int]] = []
        self._reads: list[tuple[int, int, int]] = []
        self._start_ns = client.clock()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._timer_lag: list[int] = []

    def measure(self, arrivals: list[Arrival] | None = None) -> Run:
        """All phases; with ``arrivals``, the trace takes the place of the steps. Raises ``TargetError``."""
        self._timer_lag = timer_lag_us(self._client.clock, self._settings.timer_probes)
        self._warm_up()
        self._baseline()
        self._pulses()
        self._fold()
        if arrivals is not None:
            self._replay(arrivals)
        elif self._settings.users or self._settings.stages:
            self._stages()
            self._users()
        else:
            self._steps()
        self._fold()
        so_far = self.result()
        if (so_far.rows(PULSE) & so_far.refused & (so_far.promised_ms >= 0)).any():
            self._retries()
            self._shadows()
            self._fold()
        if self._settings.aborts and figures.is_stream(so_far):
            self._aborts(so_far)
        self._fold()
        return self.result()

    def _warm_up(self) -> None:
        """Requests that count nowhere; if none of them is answered, the service cannot be measured at all."""
        tried = [self._send([self._plan(BASELINE, 1, 0, self._client.clock())])[0] for _ in range(WARM_UP)]
        if not any(each.whole and (200 <= each.status < 300 or each.status in REFUSALS) for each in tried):
            exchange = tried[-1]
            if exchange.error:
                raise TargetError(
                    f"The service's reply could not be read ({exchange.error}). Check the address and the API (--api)."
                )
            raise TargetError(
                f"The service answers with status {exchange.status}. Check the path, --api, --model and --key-env."
            )
        self._exchanges.clear()

    def _baseline(self) -> None:
        """Sequential probes. The rests between are exponential, so that probes keep no beat with anything."""
        count = self._settings.probes
        self._watcher.begin(BASELINE, count)
        worst_ms = 0.0
        for number in range(count):
            self._client.prepare(1)
            done = self._send([self._plan(BASELINE, 1, number, self._client.clock())])
            worst_ms = max(worst_ms, *_latencies(done), 0.0)
            self._watcher.show(number + 1, _latencies(done))
            self._sleep(min(self._rng.expovariate(1.0) * min(max(worst_ms / 2, 10.0), 100.0), 1000.0) / 1000)
        self._fold()
        if self.result().served.sum() < min(10, count):
            raise TargetError("Too few lone requests were served to know the unloaded time. Try when nobody else asks.")

    def sizes(self) -> list[int]:
        """Pulse sizes: powers of two up to the largest, and the largest itself."""
        largest = self._settings.largest_pulse
        powers = [1 << power for power in range(largest.bit_length()) if 1 << power < largest]
        return [*powers, largest]

    def _pulses(self) -> None:
        """Pulses of all sizes in turn, each from idle: a drift of the service touches every size alike."""
        sizes = self.sizes()
        self._watcher.begin(PULSE, self._settings.repeats * len(sizes))
        done = 0
        for _ in range(self._settings.repeats):
            for size in sizes:
                exchanges = self._pulse(PULSE, size)
                done += 1
                self._watcher.show(done, _latencies(exchanges))
            self._fold()

    def _pulse(self, phase: str, size: int) -> list[Exchange]:
        self._group += 1
        self._client.prepare(size)
        at_ns = self._client.clock() + LEAD_NS
        exchanges = self._send([self._plan(phase, size, position, at_ns) for position in range(size)])
        self._rest(exchanges)
        return exchanges

    def _rest(self, exchanges: list[Exchange]) -> None:
        worst_ms = max(_latencies(exchanges), default=0.0)
        self._sleep(min(max(20.0, self._settings.gap_factor * worst_ms), MAX_REST_MS) / 1000)

    def _steps(self) -> None:
        """Poisson arrivals at fixed rates, in an open loop: a slow service does not slow the arrivals."""
        if not self._settings.step_rates and not self._settings.step_shares:
            return
        shares = self._settings.step_shares
        best = min(figures.capacity(self.result()), self._settings.max_rate)
        rates = self._settings.step_rates or tuple(share * best for share in shares)
        self._watcher.begin(STEP, len(rates))
        for number, rate in enumerate(rates, 1):
            self._open_loop(STEP, max(1, round(rate)), Stage(rate, rate, self._settings.step_seconds), number)

    def _stages(self) -> None:
        """The same with rates that rise and fall as they were asked for, one stage after another."""
        self._watcher.begin(STAGE, len(self._settings.stages))
        for number, stage in enumerate(self._settings.stages, 1):
            self._open_loop(STAGE, number, stage, number)

    def _open_loop(self, phase: str, size: int, stage: Stage, done: int) -> None:
        self._group += 1
        self._client.prepare(POOL)
        start = self._client.clock() + LEAD_NS
        planned = [
            self._plan(phase, size, position, start + int(at_s * 1e9))
            for position, at_s in enumerate(poisson(self._rng, stage))
        ]
        exchanges = self._send(planned)
        self._watcher.show(done, _latencies(exchanges))
        self._rest(exchanges)

    def _users(self) -> None:
        """A closed loop: each user waits for the reply, or until the promised time of a refusal, thinks, and asks on.

        The slower the service, the fewer requests: a closed loop cannot show a queue that is longer than its users.
        """
        users, think_s = self._settings.users, self._settings.think_ms / 1000
        if not users:
            return
        self._group += 1
        self._watcher.begin(CLOSED, 1)
        self._client.prepare(users)
        start = self._client.clock() + LEAD_NS
        end = start + int(self._settings.step_seconds * 1e9)
        count = users

        def again(exchange: Exchange) -> Iterator[Planned]:
            nonlocal count
            pause_ns = max(1, exchange.promised_ms) * MILLISECOND if exchange.status != 200 else 0
            if think_s:
                pause_ns += int(self._rng.expovariate(1 / think_s) * 1e9)
            at_ns = max(exchange.end_ns, exchange.sent_ns) + pause_ns
            if at_ns < end:
                count += 1
                yield self._plan(CLOSED, users, count, at_ns)

        first = [self._rng.expovariate(1 / think_s) if think_s else 0.0 for _ in range(users)]
        planned = [self._plan(CLOSED, users, i, start + int(wait * 1e9)) for i, wait in enumerate(first)]
        exchanges = self._send(planned, again)
        self._watcher.show(1, _latencies(exchanges))
        self._rest(exchanges)

    def _replay(self, arrivals: list[Arrival]) -> None:
        self._group += 1
        self._watcher.begin(REPLAY, 1)
        self._client.prepare(POOL)
        start = self._client.clock() + LEAD_NS
        rate = max(1, round(len(arrivals) / max(0.001, (arrivals[-1].at_ms - arrivals[0].at_ms) / 1000)))
        planned = [
            self._plan(REPLAY, rate, number, start + int((arrival.at_ms - arrivals[0].at_ms) * 1e6), arrival)
            for number, arrival in enumerate(arrivals)
        ]
        exchanges = self._send(planned)
        self._watcher.show(1, _latencies(exchanges))
        self._rest(exchanges)

    def _retries(self) -> None:
        """Every refused request of a pulse is sent again exactly when it was told to, once: the same bytes."""
        wanted, size = self._settings.retries, self._settings.largest_pulse
        self._watcher.begin(RETRY, wanted)
        tried = 0
        for _ in range(max(5, wanted)):
            self._group += 1
            counted = 0

            def again(exchange: Exchange) -> Iterator[Planned]:
                nonlocal counted
                planned, promised = exchange.planned, exchange.promised_ms
                refused = exchange.status in REFUSALS and 0 <= promised <= self._settings.max_wait_s * 1000
                if planned.position < 0 and refused:
                    at_ns = exchange.end_ns + promised * MILLISECOND
                    yield self._plan(RETRY, size, counted, at_ns, attempt=1, body=planned.body)
                    counted += 1

            self._client.prepare(size)
            at_ns = self._client.clock() + LEAD_NS
            # The pulse that provokes the refusals has positions below 0: it is no retry.
            provoke = [self._plan(RETRY, size, -1 - position, at_ns, attempt=0) for position in range(size)]
            self._rest(self._send(provoke, again))
            tried += counted
            self._watcher.show(min(tried, wanted), [])
            if tried >= wanted or counted == 0:
                return

    def _shadows(self) -> None:
        """After a pulse, lone probes all along the promised time, to see when a slot was really free."""
        size = self._settings.largest_pulse
        self._watcher.begin(SHADOW, SHADOW_PULSES)
        for number in range(SHADOW_PULSES):
            self._group += 1
            probing = False

            def probe(exchange: Exchange) -> Iterator[Planned]:
                nonlocal probing
                promised = exchange.promised_ms
                if probing or promised < 0 or promised > self._settings.max_wait_s * 1000:
                    return
                probing = True
                step_ns = max(MILLISECOND, promised * MILLISECOND * 5 // 4 // SHADOW_PROBES)
                for turn in range(1, SHADOW_PROBES + 1):
                    yield self._plan(SHADOW, size, size + turn - 1, exchange.end_ns + turn * step_ns)

            self._client.prepare(size)
            at_ns = self._client.clock() + LEAD_NS
            pulse = [self._plan(SHADOW, size, position, at_ns) for position in range(size)]
            self._rest(self._send(pulse, probe))
            self._watcher.show(number + 1, [])

    def _aborts(self, so_far: Run) -> None:
        """Half of the running streams are broken off; as many new ones must find their slots free."""
        whole = _unhurt_size(so_far, self.sizes())
        if whole < 2:
            return
        self._watcher.begin(ABORT, ABORT_ROUNDS)
        grace_ns = 2 * int(max(10.0, _token_gap_ms(so_far)) * MILLISECOND)
        for number in range(ABORT_ROUNDS):
            self._group += 1
            self._client.prepare(whole + whole // 2)
            at_ns = self._client.clock() + LEAD_NS
            done = self._client.run([self._plan(ABORT, whole, i, at_ns) for i in range(whole)], until=self._all_began)
            leaving = [each for each in self._client.in_flight.values() if each.planned.position % 2][: whole // 2]
            self._client.abort(leaving)
            now_ns = self._client.clock() + grace_ns
            done += self._send([self._plan(AFTER, whole // 2, i, now_ns) for i in range(len(leaving))], keep=False)
            self._exchanges += done + leaving
            self._rest(done)
            self._rest(self._pulse(AFTER, whole))
            self._watcher.show(number + 1, _latencies(done))

    def _all_began(self) -> bool:
        return all(each.pieces for each in self._client.in_flight.values())

    def _plan(
        self,
        phase: str,
        size: int,
        position: int,
        at_ns: int,
        arrival: Arrival | None = None,
        *,
        attempt: int = LAST_ATTEMPT,
        body: bytes | None = None,
    ) -> Planned:
        settings = self._settings
        if body is None:
            body = self._target.make_body(
                self._rng,
                (arrival.output_tokens if arrival else 0) or settings.output_tokens,
                (arrival.prompt_tokens if arrival else 0) or settings.prompt_words,
            )
        return Planned(at_ns, self._target.payload(body, attempt), phase, self._group, size, position, body)

    def _send(
        self,
        planned: list[Planned],
        follow: Callable[[Exchange], Iterator[Planned]] | None = None,
        *,
        keep: bool = True,
    ) -> list[Exchange]:
        exchanges = self._client.run(planned, follow)
        if keep:
            self._exchanges += exchanges
        return exchanges

    def _fold(self) -> None:
        """Turn exchanges into rows of the run. Only between rounds: parsing takes time."""
        for exchange in sorted(self._exchanges, key=lambda each: (each.sent_ns, each.planned.position)):
            self._fold_one(exchange)
        self._exchanges.clear()

    def _fold_one(self, exchange: Exchange) -> None:
        planned, tokens = exchange.planned, read_tokens(exchange)
        first_ns = tokens.first_ns or (exchange.pieces[0][0] if exchange.pieces else exchange.end_ns)
        if "text/event-stream" in exchange.content_type:
            first_ns = tokens.first_ns  # an empty stream has no first token
        self._reads += [(len(self._rows), self._us(time_ns), events) for time_ns, events in tokens.reads]
        self._rows.append(
            [
                PHASES.index(planned.phase),
                planned.group,
                planned.size,
                planned.position,
                self._us(planned.intended_ns),
                self._us(exchange.sent_ns),
                self._us(first_ns),
                self._us(exchange.end_ns) if exchange.whole else -1,
                exchange.status,
                exchange.promised_ms,
                tokens.count,
                tokens.prompt_tokens,
                exchange.lag_ns // 1000,
            ]
        )

    def _us(self, time_ns: int) -> int:
        return (time_ns - self._start_ns) // 1000 if time_ns else -1

    def result(self) -> Run:
        """The run as far as it was folded."""
        columns = np.array(self._rows, dtype=np.int64).reshape(-1, 13).T
        reads = np.array(self._reads, dtype=np.int64).reshape(-1, 3).T
        return Run(
            self._started,
            self._target.info(),
            self._settings,
            np.array(self._timer_lag, dtype=np.int64),
            *columns,
            *reads,
        )


def _latencies(exchanges: list[Exchange]) -> list[float]:
    return [
        (each.end_ns - each.planned.intended_ns) / 1e6 for each in exchanges if each.whole and 200 <= each.status < 300
    ]


def _unhurt_size(run: Run, sizes: list[int]) -> int:
    """The largest pulse of which nothing was refused, and that was hardly slower than a lone request."""
    s0 = figures.unloaded(run).value
    fine = [
        level.size
        for level in figures.levels(run, PULSE)
        if level.size in sizes and level.refused.value == 0 and level.first_p50.value < 1.5 * s0
    ]
    return max(fine, default=0)


def _token_gap_ms(run: Run) -> float:
    seen = figures.stream(run)
    return seen.gap.value if seen is not None else 0.0
