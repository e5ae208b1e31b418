"""What all phases of a measurement share: how a request is planned, sent and kept, and how long there is still time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

import msgspec
import numpy as np

from zerolayer.check.exchange import Exchange, Planned, read_tokens
from zerolayer.check.live_view import Watcher
from zerolayer.check.load_client import LoadClient, timer_lag_us
from zerolayer.check.run_file import PHASES, Run, Settings
from zerolayer.check.target import LAST_ATTEMPT, Target
from zerolayer.check.trace import Arrival

MILLISECOND = 1_000_000
LEAD_NS = 5 * MILLISECOND  # between planning a pulse and its intended time
MAX_REST_MS, BRIEF_REST_MS = 10_000.0, 500.0  # without and with a budget
Follow = Callable[[Exchange], Iterator[Planned]]


class Session:
    """One service under measurement. ``settings`` become what was really done, where the budget asks for less.

    ``pace`` times a fixed piece of work on this machine, in microseconds; None: nobody wants to know.
    """

    def __init__(
        self,
        target: Target,
        client: LoadClient,
        settings: Settings,
        watcher: Watcher,
        sleep: Callable[[float], None],
        pace: Callable[[], int] | None = None,
    ) -> None:
        self.target, self.client, self.settings = target, client, settings
        self.watcher, self.sleep = watcher, sleep
        self.rng = random.Random(settings.seed)
        self._pace = pace
        self._paces: list[tuple[int, int]] = []
        self._group = 0
        self._exchanges: list[Exchange] = []
        self._rows: list[list[int]] = []
        self._reads: list[tuple[int, int, int]] = []
        self._start_ns = client.clock()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._timer_lag = timer_lag_us(client.clock, settings.timer_probes)

    # Time.

    @property
    def elapsed_s(self) -> float:
        """Since the measurement began."""
        return (self.client.clock() - self._start_ns) / 1e9

    def left_s(self, share: float = 1.0) -> float:
        """What is left of that share of the budget; infinite without a budget."""
        budget = self.settings.budget_s
        return share * budget - self.elapsed_s if budget else float("inf")

    def is_fixed(self, name: str) -> bool:
        """Whether a number of ``Settings`` is to be kept, whatever time it takes."""
        return not self.settings.budget_s or name in self.settings.fixed

    def did(self, **numbers: float) -> None:
        """Settle what was really done: probes, largest pulse, repeats, seconds of a step."""
        self.settings = msgspec.structs.replace(self.settings, **numbers)

    # Requests.

    def new_group(self) -> int:
        """The number of the next pulse, step or round."""
        self._group += 1
        return self._group

    def plan(
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
        """One request of the present group; ``body`` makes it the same again."""
        settings = self.settings
        if body is None:
            body = self.target.make_body(
                self.rng,
                (arrival.output_tokens if arrival else 0) or settings.output_tokens,
                (arrival.prompt_tokens if arrival else 0) or settings.prompt_words,
            )
        return Planned(at_ns, self.target.payload(body, attempt), phase, self._group, size, position, body)

    def send(self, planned: list[Planned], follow: Follow | None = None) -> list[Exchange]:
        """Send all, wait for all, keep what was seen."""
        return self.keep(self.client.run(planned, follow))

    def keep(self, exchanges: list[Exchange]) -> list[Exchange]:
        """Exchanges that become rows of the run with the next ``fold``."""
        self._exchanges += exchanges
        return exchanges

    def forget(self) -> None:
        """Drop what was kept since the last ``fold``."""
        self._exchanges.clear()

    def time_machine(self, phase: str) -> None:
        """Keep this machine's pace at this moment, while the service rests."""
        if self._pace is not None:
            self._paces.append((PHASES.index(phase), self._pace()))

    def pulse(self, phase: str, size: int) -> list[Exchange]:
        """So many requests at once, and a rest."""
        self.new_group()
        self.client.prepare(size)
        at_ns = self.client.clock() + LEAD_NS
        exchanges = self.send([self.plan(phase, size, position, at_ns) for position in range(size)])
        self.rest(exchanges)
        return exchanges

    def rest(self, exchanges: list[Exchange]) -> None:
        """Let the service come to rest after these."""
        worst_ms = max(latencies(exchanges), default=0.0)
        longest_ms = BRIEF_REST_MS if self.settings.budget_s else MAX_REST_MS
        self.sleep(min(max(20.0, self.settings.gap_factor * worst_ms), longest_ms) / 1000)

    # The run.

    def fold(self) -> None:
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
        paces = np.array(self._paces, dtype=np.int64).reshape(-1, 2).T
        return Run(
            self._started,
            self.target.info(),
            self.settings,
            np.array(self._timer_lag, dtype=np.int64),
            *columns,
            *reads,
            *paces,
        )


def latencies(exchanges: Iterable[Exchange]) -> list[float]:
    """Of those served, in ms from the intended time."""
    return [
        (each.end_ns - each.planned.intended_ns) / 1e6 for each in exchanges if each.whole and 200 <= each.status < 300
    ]
