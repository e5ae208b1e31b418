"""What may have differed between two runs beside the service: the machine under it, and all requests alike."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np

from zerolayer.check.run_file import PULSE, Run
from zerolayer.check.statistics import Estimate, Floats, Statistic, bootstrap_draws, interval, median_of

DRAWS = 2000
SEED = 7
FEWEST_PACES = 8  # in a phase; with fewer, those of the whole run stand for it


@dataclass(frozen=True)
class Machine:
    """What the same piece of work took in both runs. ``ratio`` is second over first: above 1, the second was slower."""

    first_ms: float
    second_ms: float
    ratio: Estimate
    draws: Floats

    @property
    def differs(self) -> bool:
        """Beyond chance."""
        return not self.ratio.low <= 1 <= self.ratio.high


def machine(first: Run, second: Run, phase: str, statistic: Statistic = median_of) -> Machine | None:
    """The machine that both runs shared with their service, in one phase; None where it is not known.

    A client elsewhere knows nothing of the service's machine.
    """
    paces = [_paces(run, phase) for run in (first, second)]
    if min(map(len, paces)) < FEWEST_PACES or not all(_is_here(run.target.address) for run in (first, second)):
        return None
    rng = np.random.default_rng(SEED)
    draws = [bootstrap_draws([np.array([each]) for each in pace], statistic, rng, DRAWS) for pace in paces]
    first_ms, second_ms = (float(statistic(pace)) for pace in paces)
    ratios = draws[1] / draws[0]
    return Machine(first_ms, second_ms, interval(second_ms / first_ms, ratios, min(map(len, paces))), ratios)


def _paces(run: Run, phase: str) -> Floats:
    paces = run.paces_ms(phase)
    return paces if len(paces) >= FEWEST_PACES else run.pace_took / 1000


def _is_here(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Beside:
    """P50 of pulses in times of the lone requests of the same rounds: of a run, and of each draw of rounds.

    What slows every request alike leaves it as it is; a longer line does not. Lone requests are the pulses of one.
    """

    value: float
    draws: Floats
    rounds: int


def beside(run: Run, size: int) -> Beside | None:
    """Of the pulses of ``size``; None where no rounds have both."""
    served = run.rows(PULSE) & run.served
    rounds = [[run.latency_ms[served & (run.group == group)] for group in _groups(run, each)] for each in (1, size)]
    pairs = [(alone, crowd) for alone, crowd in zip(*rounds, strict=False) if len(alone) and len(crowd)]
    if size == 1 or len(pairs) < 2:
        return None
    alone, crowd = ([pair[i] for pair in pairs] for i in (0, 1))
    # The same rounds are drawn for both, because the ratio of the two is asked for.
    draws = [bootstrap_draws(units, median_of, np.random.default_rng(SEED), DRAWS) for units in (crowd, alone)]
    value = float(median_of(np.concatenate(crowd)) / median_of(np.concatenate(alone)))
    return Beside(value, draws[0] / draws[1], len(pairs))


def _groups(run: Run, size: int) -> list[int]:
    """Pulses of one size, in order of time: one in each round."""
    return [int(group) for group in np.unique(run.group[run.rows(PULSE) & (run.size == size)])]
