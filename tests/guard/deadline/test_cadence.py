"""An admitted stream keeps its cadence: what others bring holds it up for one step with a chunk, the advertised stall.

Where a stream allows less than that, nobody's prompt is read while it runs.
"""

from __future__ import annotations

from arrivals import ARRIVALS, SLOTS
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import MS, Client, Simulation, work

from zerolayer.model.cost import Prices

# Of an engine that never takes longer than its prices: what a step may take beyond them is the cost table's affair.
PRICES = st.builds(
    lambda step, chunk: Prices(step * MS, (0, chunk * MS), 0, 1.0, (step + chunk) * MS),
    step=st.integers(1, 10),
    chunk=st.integers(0, 40),
)


class Watched(Simulation):
    """Remembers the longest gap between two tokens of everybody."""

    def __init__(self, *given, **more) -> None:
        super().__init__(*given, **more)
        self.longest: dict[int, int] = {}
        self._told: dict[int, int] = {}

    def _token(self, slot: int) -> None:
        name = self._slots[slot].client.name
        if name in self._told:
            self.longest[name] = max(self.longest.get(name, 0), self.now - self._told[name])
        self._told[name] = self.now
        super()._token(slot)


@settings(max_examples=80, deadline=None)
@given(PRICES, ARRIVALS, st.integers(0, 1000), st.floats(0.3, 1.0))
def test_no_gap_of_a_stream_is_longer_than_the_advertised_stall_or_than_it_allows_itself(prices, arrivals, seed, lazy):
    simulation = Watched(SLOTS, prices, seed, lazy=lazy, reserved=seed % 2)
    when, limits = simulation.now, {}
    for name, (gap, chunks, tokens, late, stops, limit, tier) in enumerate(arrivals):
        when += gap * MS
        limits[name] = limit.per_token_ns
        simulation.arrive(Client(name, work(chunks, tokens, prices), limit, late, stops, tier), when)
    simulation.run()
    too_long = {
        name: gap
        for name, gap in simulation.longest.items()
        if gap > min(prices.stall_ns, max(limits[name], prices.step_ns))
    }
    assert too_long == {}
