"""The order of one measurement: own lag, lone probes, pulses, a load, retries, aborts. Produces a ``Run``.

How much of each is planned by time: what one round takes is seen in the first one, and a budget says how many there
are. A slow service gets fewer and smaller pulses, never a longer measurement than it takes to judge at all.
"""

from __future__ import annotations

from dataclasses import replace

from zerolayer.check import figures, refusals
from zerolayer.check.errors import TargetError
from zerolayer.check.loads import load
from zerolayer.check.run_file import BASELINE, PULSE, REFUSALS, Run
from zerolayer.check.session import Session, latencies
from zerolayer.check.trace import Arrival

WARM_UP = 3
# Of the budget, when a phase is to be over. Whatever one leaves is the next one's.
PROBED, PULSED = 0.15, 0.6
FEWEST_PROBES, FEWEST_ROUNDS, SMALLEST_LARGEST = 12, 3, 8
_FASTER = 1.2  # than from the size before: the next one may be the first that does not fit in the slots
_LEAST_SERVED = 10  # lone requests, else nothing is known of the unloaded time
_FEWEST = 38.0  # times S0 that a measurement takes at least: the fewest probes, rounds and steps


class Measurement:
    """One run of a session. Use once."""

    def __init__(self, session: Session) -> None:
        self._session, self._watcher = session, session.watcher
        session.client.quiet = session.watcher.wait

    def measure(self, arrivals: list[Arrival] | None = None) -> Run:
        """All phases; with ``arrivals``, the trace takes the place of the steps. Raises ``TargetError``.

        An interrupt (Ctrl-C) ends it early, with what was seen, as soon as the unloaded time is known.
        """
        self._warm_up()
        self._baseline()
        try:
            self._loaded(arrivals)
        except KeyboardInterrupt:
            self._watcher.note("Interrupted: what was seen so far is judged.")
        self._session.fold()
        return self._session.result()

    def _loaded(self, arrivals: list[Arrival] | None) -> None:
        session = self._session
        self._pulses()
        load(session, arrivals)
        session.fold()
        so_far = session.result()
        if (so_far.rows(PULSE) & so_far.refused & (so_far.promised_ms >= 0)).any():
            refusals.retries(session)
            refusals.shadows(session)
            session.fold()
        if session.settings.aborts and figures.is_stream(so_far):
            refusals.aborts(session, so_far)

    def _warm_up(self) -> None:
        """Requests that count nowhere; if none of them is answered, the service cannot be measured at all."""
        session = self._session
        tried = [session.send([session.plan(BASELINE, 1, 0, session.client.clock())])[0] for _ in range(WARM_UP)]
        if not any(each.whole and (200 <= each.status < 300 or each.status in REFUSALS) for each in tried):
            exchange = tried[-1]
            if exchange.error:
                raise TargetError(
                    f"The service's reply could not be read ({exchange.error}). Check the address and the API (--api)."
                )
            raise TargetError(
                f"The service answers with status {exchange.status}. Check the path, --api, --model and --key-env."
            )
        if tried[-1].gateway:  # stands before whoever lists the models
            session.target = replace(session.target, software=tried[-1].gateway)
        session.forget()
        self._tell(min(latencies(tried), default=0.0) / 1000)

    def _tell(self, s0_s: float) -> None:
        """How long this will take, as far as one can know: a budget is kept to unless even the least takes longer."""
        settings = self._session.settings
        least_s = _FEWEST * s0_s
        if settings.budget_s:
            span = f"about {max(settings.budget_s, least_s):.0f} s (--budget-s)"
        else:
            rounds = settings.repeats * (2 + settings.largest_pulse.bit_length())
            steps = settings.step_seconds * (len(settings.step_rates) or len(settings.step_shares))
            span = f"at least {(settings.probes + rounds) * s0_s + steps:.0f} s"
        self._watcher.note(f"A request takes about {1000 * s0_s:.0f} ms; the measurement {span}. Ctrl-C ends it early.")

    def _baseline(self) -> None:
        """Sequential probes. The rests between are exponential, so that probes keep no beat with anything."""
        session, count = self._session, self._session.settings.probes
        self._watcher.begin(BASELINE, count)
        worst_ms, number = 0.0, 0
        while number < count:
            session.time_machine(BASELINE)
            session.client.prepare(1)
            done = session.send([session.plan(BASELINE, 1, number, session.client.clock())])
            number += 1
            worst_ms = max(worst_ms, *latencies(done), 0.0)
            self._watcher.show(number, latencies(done))
            pause_ms = session.rng.expovariate(1.0) * min(max(worst_ms / 2, 10.0), 100.0)
            session.sleep(min(pause_ms, 1000.0) / 1000)
            if number >= FEWEST_PROBES and session.left_s(PROBED) < 0 and not session.is_fixed("probes"):
                break
        session.did(probes=number)
        session.fold()
        seen, least = session.result(), min(_LEAST_SERVED, number)
        served, refused = int(seen.served.sum()), int(seen.refused.sum())
        if served < least:
            raise TargetError(
                f"Of {number} lone requests {served} were served and {refused} refused; {least} must be served to know "
                "the unloaded time. Try when nobody else asks."
            )

    def _pulses(self) -> None:
        """Pulses of all sizes in turn, each from idle: a drift of the service touches every size alike."""
        session, sizes, repeats = self._session, _sizes(self._session.settings.largest_pulse), 0
        most = session.settings.repeats
        self._watcher.begin(PULSE, most * len(sizes))
        spent: list[float] = []
        began, done = session.elapsed_s, 0
        while repeats < most:
            for size in sizes:
                if repeats == 0 and not self._affords(size, spent):
                    sizes = sizes[: len(spent)]
                    break
                session.time_machine(PULSE)
                before = session.elapsed_s
                exchanges = session.pulse(PULSE, size)
                spent.append(session.elapsed_s - before)
                done += 1
                self._watcher.show(done, latencies(exchanges))
            session.fold()
            repeats += 1
            session.did(repeats=repeats, largest_pulse=sizes[-1])
            round_s = (session.elapsed_s - began) / repeats
            if repeats >= FEWEST_ROUNDS and session.left_s(PULSED) < round_s and not session.is_fixed("repeats"):
                break

    def _affords(self, size: int, spent: list[float]) -> bool:
        """Whether the fewest rounds up to this size are over in time, if time grows on as it grew up to here."""
        if size <= SMALLEST_LARGEST or self._session.is_fixed("largest_pulse"):
            return True
        growth = min(2.0, max(1.3, _FASTER * spent[-1] / spent[-2]))
        expected = sum(spent) + growth * spent[-1]
        return FEWEST_ROUNDS * expected - sum(spent) <= self._session.left_s(PULSED)


def _sizes(largest: int) -> list[int]:
    """Pulse sizes: powers of two up to the largest, and the largest itself."""
    powers = [1 << power for power in range(largest.bit_length()) if 1 << power < largest]
    return [*powers, largest]
