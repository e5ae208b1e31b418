"""Conclusions from pulses: queue, shaper, serial prefill, processor sharing, first-arrival wait. Pure functions.

Thresholds and the errors they make are measured in ``tests/check/test_detector_power.py``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from zerolayer.check.figures import (
    BOOTSTRAP_SEED,
    DRAWS,
    MIN_ACCEPTED,
    Order,
    is_stream,
    lag,
    levels,
    order,
    pulse_waits,
    unloaded,
    unloaded_spread,
)
from zerolayer.check.findings import Finding, Kind
from zerolayer.check.run_file import BASELINE, CAPTURE, PULSE, Run
from zerolayer.check.statistics import (
    Estimate,
    Floats,
    bootstrap,
    bootstrap_draws,
    interval,
    median,
    median_of,
    pooled_tau,
    theil_sen,
)

ORDERED_TAU = 0.5
ORDERED_Z = 4.0
ORDERED_PULSES = 0.8
SHARING_RATIO = 1.5
PROMPT_PACE = 1.35  # most from one stream's begin to the next, in times of a lone one's: others decode beside it
WHOLE_S0 = 0.95  # of S0: with a line of one slot the second waits exactly one S0, and both are measured
SERIAL_EFFECT = 0.1  # of S0: a smaller order effect is of no account
UNEVEN = 0.25  # spread of lone requests over S0
FLOOR_MS = 2.0  # what any server's own work makes of a pulse; less than this, or than our own lag, is no finding


def line(run: Run) -> Finding | None:
    """A waiting line of any sort: requests of one pulse are served the later, the later they were sent.

    It takes sign and size: tau over 0.5, and the last quarter waits at least one whole S0 longer than the first.
    An order effect smaller than that is a prompt read after another, and is named so; so is a larger one of streams
    that begin one after another, from the first, each as much later as a lone one takes to its first token.
    """
    seen, s0 = order(run), unloaded(run)
    if seen is None or not _ordered(seen) or math.isnan(s0.value):
        return None
    figures = {
        "tau": seen.tau,
        "slope_ms": seen.slope,
        "effect_ms": seen.effect,
    }
    each = f"{seen.slope.value:.3g} ms each"
    if seen.effect.value < max(SERIAL_EFFECT * s0.value, FLOOR_MS, lag(run).worst_ms):
        return None
    last = levels(run, PULSE)[-1]
    served = last.size * (1 - last.refused.value)
    if seen.effect.value < WHOLE_S0 * s0.value or _reads_prompts_in_turn(run, seen):
        effect = f"{seen.effect.value:.0f} ms"
        text = f"Prompts are read one after another, {each}: of {served:.0f} at once the last begin {effect} later."
        return Finding(Kind.SERIAL, text, figures)
    passed = _passed(run, s0.value)
    behind = _slope_behind(run, passed)
    if seen.tau.value > 0 and _is_shaper(run, s0.value, seen.slope.value, behind):
        slope = behind or seen.slope
        figures |= {"slope_ms": slope, "drain_per_s": _per_second(slope)}
        burst = f"The first {passed} or so pass undelayed. " if passed >= 3 else ""
        return Finding(
            Kind.SHAPER,
            f"A rate limit delays instead of refusing: about {1000 / slope.value:.3g} requests/s pass, whatever the "
            f"service takes. {burst}In a pulse of {last.size} the last waits {seen.effect.value:.0f} ms longer than "
            "the first.",
            figures,
        )
    drain = 1000 / seen.slope.value
    figures["drain_per_s"] = _per_second(seen.slope)
    slots = s0.value / seen.slope.value
    waiting = max(0, round(served - slots))
    count = max(1, round(slots))
    style = "" if seen.tau.value > 0 else " that serves the last come first"
    return Finding(
        Kind.QUEUE,
        f"A queue{style}: about {count} {'slot' if count == 1 else 'slots'}, drains {drain:.3g}/s; "
        f"of {last.size} at once, {waiting} waited, the last served {seen.effect.value:.0f} ms longer than the first.",
        figures,
    )


def _reads_prompts_in_turn(run: Run, seen: Order) -> bool:
    """Whether streams begin at an even pace from the first, the pace of one prompt after another.

    A server of c slots begins c at once; a shaper keeps its own pace, whatever a prompt takes.
    """
    alone = run.first_ms[run.rows(BASELINE) & run.served]
    if not is_stream(run) or seen.tau.value < 0 or not len(alone):
        return False
    waits = _by_place(run)
    prompt_ms, places = float(np.nanmedian(alone)), np.arange(len(waits))
    behind = waits - waits[0] if len(waits) else waits
    slow = behind > PROMPT_PACE * prompt_ms * places + 0.5 * prompt_ms
    quick = behind < 0.5 * seen.slope.value * places - 0.1 * prompt_ms
    return len(waits) >= MIN_ACCEPTED and seen.slope.value > prompt_ms / 2 and not (slow | quick).any()


def _inverse(slope_ms: float) -> float:
    return 1000 / slope_ms if slope_ms > 0 else math.nan


def _ordered(seen: Order) -> bool:
    return abs(seen.tau.value) > ORDERED_TAU and abs(seen.z) > ORDERED_Z and seen.ordered.value >= ORDERED_PULSES


def _per_second(slope_ms: Estimate) -> Estimate:
    high = 1000 / slope_ms.high if slope_ms.high > 0 else math.nan
    return Estimate(1000 / slope_ms.value, high, _inverse(slope_ms.low), slope_ms.n)


def _by_place(run: Run) -> Floats:
    """The median latency of each place in the largest pulses, as far as all pulses have one."""
    groups = _latencies(run)
    count = min(map(len, groups))
    return np.median(np.array([waits[:count] for waits in groups]), axis=0) if count else np.zeros(0)


def _latencies(run: Run) -> list[Floats]:
    """Waits in the largest pulses as latencies: to a stream's first token, and on to the end of a lone one."""
    alone = run.rows(BASELINE) & run.served
    rest_ms = (
        float(np.nanmedian(run.latency_ms[alone] - run.first_ms[alone])) if is_stream(run) and alone.any() else 0.0
    )
    return [waits + rest_ms for waits in pulse_waits(run)]


def _passed(run: Run, s0_ms: float) -> int:
    """How many of a pulse are about as fast as alone before the first that is not."""
    late = np.flatnonzero(_by_place(run) > 1.25 * s0_ms)
    return int(late[0]) if len(late) else 0


def _slope_behind(run: Run, passed: int) -> Estimate | None:
    """How much later each place is served, in ms, among those who wait; None where there are too few of them."""
    served = pulse_waits(run, from_send=False)
    groups = [times[passed:] for times in served if len(times) >= passed + MIN_ACCEPTED]
    if not groups:
        return None
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    slope = bootstrap([np.array([theil_sen(times)]) for times in groups], median_of, rng)
    return slope if slope.value > 0 else None


def _is_shaper(run: Run, s0_ms: float, slope_ms: float, behind: Estimate | None) -> bool:
    """A shaper spaces every request; a server of c slots starts c at once and is never slower than 1/S0.

    ``slope_ms`` a place is that of whole pulses, ``behind`` that of those who wait.
    """
    slots = s0_ms / slope_ms
    if slots < 0.8 or (behind is not None and _lets_a_burst_pass(run, s0_ms, s0_ms / behind.value)):
        return True
    groups = _latencies(run)
    if slots >= 3:
        start, end = int(slots / 2), int(slots)
        early = [float(np.median(waits[start:end])) - s0_ms for waits in groups if len(waits) >= end]
        if early and float(np.median(early)) > 0.35 * s0_ms:
            return True
    return slots >= 2 and _evenness(groups) < 0.5


def _lets_a_burst_pass(run: Run, s0_ms: float, slots: float) -> bool:
    """Whether the first pass undelayed and every further request comes one interval later.

    A server lets its c slots pass, and whoever comes next waits until somebody is done: between 1.15 and 1.65 S0 lies
    nobody. A burst need not be c, and its ramp leaves S0 by small steps. Where lone requests differ much, both look
    alike.
    """
    if unloaded_spread(run).value > UNEVEN * s0_ms:
        return False
    waits = _by_place(run)
    between = int(np.count_nonzero((waits > 1.15 * s0_ms) & (waits < 1.65 * s0_ms)))
    return _passed(run, s0_ms) > 2 * slots + 1 or between >= max(2.0, 0.6 * 0.5 * slots)


def _evenness(groups: list[Floats]) -> float:
    """Coefficient of variation of the times between ends, in the second half of each pulse; 0 = a metronome."""
    values = []
    for waits in groups:
        gaps = np.diff(np.sort(waits))[len(waits) // 2 :]
        if len(gaps) >= 5 and gaps.mean() > 0:
            values.append(float(gaps.std() / gaps.mean()))
    return float(np.median(values)) if values else math.inf


def sharing(run: Run) -> Finding | None:
    """A pulse is slow, but not by the order of sending.

    Either all its requests grow slow together, because too many share the processor, or a batch; or some are as fast as
    alone and others wait: a queue that serves in no order, as several accepting workers make one.
    """
    seen, s0, pulses = order(run), unloaded(run), levels(run, PULSE)
    if seen is None or math.isnan(s0.value) or not pulses:
        return None
    last = pulses[-1]
    ratio = last.p50.value / s0.value
    low = last.p50.low / s0.high if last.p50.low and s0.high else math.nan
    extra_ms = last.p50.value - s0.value
    if not (low > SHARING_RATIO) or _ordered(seen) or extra_ms < max(FLOOR_MS, lag(run).worst_ms):
        return None
    fastest = _fastest_ratio(run, last.size)
    if fastest.value < 1 + 0.25 * (ratio - 1):
        return Finding(
            Kind.QUEUE,
            f"A queue that serves in no order: of {last.size} at once the fastest is as fast as alone, half take "
            f"{ratio:.2g} times S0 or more.",
            {"p50_ms": last.p50, "s0_ms": s0, "fastest_ratio": fastest},
        )
    knee = _knee(run, s0.value)
    return Finding(
        Kind.SHARING,
        f"Every request of a pulse slows down together: {ratio:.2g} times S0 at {last.size} at once. "
        f"Latency grows from about {knee.value:.0f} at once.",
        {"p50_ms": last.p50, "s0_ms": s0, "knee": knee},
    )


def _fastest_ratio(run: Run, size: int) -> Estimate:
    """The fastest of a pulse over the fastest of as many lone requests: 1 when one goes ahead, more when all share."""
    pulses = [waits for waits in _together(run, size) if len(waits)]
    served = float(np.median([len(waits) for waits in _together(run, size)]))

    def earliest(values: Floats) -> Floats:
        return np.asarray(np.quantile(values, 1 / (served + 1), axis=-1), dtype=np.float64)

    first = [np.array([float(waits.min())]) for waits in pulses]
    alone = run.latency_ms[run.rows(BASELINE) & run.served]
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    draws = bootstrap_draws(first, median_of, rng, DRAWS)
    draws = draws / bootstrap_draws([np.array([value]) for value in alone], earliest, rng, DRAWS)
    value = float(np.median(np.concatenate(first))) / float(earliest(alone))
    return interval(value, draws, len(pulses))


def _knee(run: Run, s0_ms: float) -> Estimate:
    """From how many at once latency grows; bootstrapped over the pulses of each size."""
    served = {int(size): _together(run, int(size)) for size in np.unique(run.size[run.rows(PULSE)])}
    units = {size: pulses for size, pulses in served.items() if pulses}
    sizes = np.array(list(units), dtype=np.float64)
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    seen = np.array([[float(np.median(np.concatenate(pulses)))] for pulses in units.values()])
    draws = np.array([bootstrap_draws(pulses, median_of, rng, DRAWS) for pulses in units.values()])
    knees = _knees(sizes, np.hstack([seen, draws]).T / s0_ms)
    return interval(float(knees[0]), knees[1:], len(sizes))


def _knees(sizes: Floats, ratios: Floats) -> Floats:
    """For each row the k at which max(1, (size / k) ** slope) bends, by least squares on logarithms."""
    logs = np.log(ratios)
    best, knees = np.full(len(logs), math.inf), np.full(len(logs), sizes[0])
    for candidate in np.geomspace(sizes[0], sizes[-1], 60):
        excess = np.maximum(0.0, np.log(sizes / candidate))
        power = logs @ excess / float(excess @ excess) if excess.any() else np.zeros(len(logs))
        error = np.sum((logs - np.outer(power, excess)) ** 2, axis=1)
        better = error < best - 1e-9
        best, knees = np.where(better, error, best), np.where(better, candidate, knees)
    return knees


def first_arrival(run: Run) -> Finding | None:
    """A lone request waits for company: nothing else makes a service faster with several at once."""
    alone_rows = (run.rows(BASELINE) | (run.rows(PULSE) & (run.size == 1))) & run.served
    alone = run.latency_ms[alone_rows]
    sizes = [int(size) for size in np.unique(run.size[run.rows(PULSE)]) if size > 1]
    medians = {size: _together(run, size) for size in sizes}
    counted = {size: units for size, units in medians.items() if sum(map(len, units)) >= 8 and len(units) >= 3}
    if len(alone) < 8 or not counted:
        return None
    best = min(counted, key=lambda size: float(np.median(np.concatenate(counted[size]))))
    fast, s0 = float(np.median(np.concatenate(counted[best]))), median(alone)
    if s0.value - fast <= _worth(s0.value):
        return None
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    # 99.8 %, because the fastest of several sizes was chosen.
    lone = bootstrap_draws([np.array([value]) for value in alone], median_of, rng, 1000)
    company = bootstrap_draws(counted[best], median_of, rng, 1000)
    low, high = (float(value) for value in np.quantile(lone - company, [0.001, 0.999]))
    if low <= _worth(s0.value):
        return None
    batch = _batch(counted, (fast + s0.value) / 2)
    gain = Estimate(s0.value - fast, low, high, len(alone))
    return Finding(
        Kind.FIRST_ARRIVAL,
        f"A lone request waits {gain.value:.0f} ms for company: {batch.value:.0f} at once are faster ({fast:.0f} ms) "
        f"than one ({s0.value:.0f} ms).",
        {"wait_ms": gain, "batch": batch},
    )


def _batch(counted: dict[int, list[Floats]], half_ms: float) -> Estimate:
    """The smallest size of pulse whose median is at most ``half_ms``, which one of them is."""
    sizes, rng = np.array(list(counted), dtype=np.float64), np.random.default_rng(BOOTSTRAP_SEED)
    quick = np.array([bootstrap_draws(pulses, median_of, rng, DRAWS) <= half_ms for pulses in counted.values()])
    seen = [float(np.median(np.concatenate(pulses))) <= half_ms for pulses in counted.values()]
    return interval(float(sizes[seen.index(True)]), sizes[quick[:, quick.any(axis=0)].argmax(axis=0)], len(sizes))


def _worth(s0_ms: float) -> float:
    """The gain from company, in ms, that is worth a finding."""
    return max(0.1 * s0_ms, 1.0)


def _together(run: Run, size: int) -> list[Floats]:
    rows = run.rows(PULSE) & (run.size == size) & run.served
    return [run.latency_ms[rows & (run.group == group)] for group in np.unique(run.group[rows])]


def _bursts(run: Run, rows: NDArray[np.intp], s0_ms: float) -> list[Floats]:
    """Latencies of the largest bursts: at least half as long as the third longest."""
    starts = np.flatnonzero(np.diff(run.sent[rows]) > 250 * s0_ms) + 1
    parts = [part for part in np.split(rows, starts) if len(part) >= MIN_ACCEPTED]
    parts = [part for part in parts if run.sent[part[-1]] - run.sent[part[0]] <= 500 * s0_ms]
    least = sorted(map(len, parts))[-3] / 2 if len(parts) >= 3 else math.inf
    return [run.latency_ms[part] for part in parts if len(part) >= least]


def captured_line(run: Run) -> Finding | None:
    """In a capture: whether bursts are served in a line, or all slow down, as more are in flight.

    A burst is what came within half of S0, apart from what came before and after; the largest show a line.
    """
    rows, s0 = np.flatnonzero(run.rows(BASELINE, CAPTURE)), unloaded(run)
    loaded = levels(run, CAPTURE)
    full = [level for level in loaded if level.p50.n >= 20]
    if s0.n < 10 or not full:
        return None
    bursts = _bursts(run, rows, s0.value)
    effects = np.array([float(burst[-1] - burst[0]) for burst in bursts])
    tau, z = pooled_tau(bursts)  # NaN without bursts
    figures = {"s0_ms": s0, "p50_ms": full[-1].p50, "effect_ms": median(effects)}
    if tau > ORDERED_TAU and z > ORDERED_Z and float(np.median(effects)) >= WHOLE_S0 * s0.value:
        text = f"A queue: in {len(bursts)} bursts the later waits the longer, the last {np.median(effects):.0f} ms."
        return Finding(Kind.QUEUE, text, figures)
    if full[-1].p50.low > SHARING_RATIO * s0.high and full[-1].p50.value - s0.value > FLOOR_MS:
        ratio = full[-1].p50.value / s0.value
        text = f"The first byte takes {ratio:.2g} times S0 with {full[-1].size} or more others in flight."
        return Finding(Kind.SHARING, text, figures)
    return None
