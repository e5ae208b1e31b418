"""What comes to a service in the tests: prices of its steps, and clients, each so long after the one before."""

from __future__ import annotations

from hypothesis import strategies as st
from simulation import LIMITS, MS

from zerolayer.guard.deadline.limits import Limits
from zerolayer.model.cost import Prices
from zerolayer.wire.schema import Tier

SLOTS = 4

PRICES = st.builds(
    lambda step, chunk, reserve, rate: Prices(step * MS, (0, chunk * MS), reserve * MS, rate, (step + chunk) * MS),
    step=st.integers(1, 10),
    chunk=st.integers(0, 40),
    reserve=st.integers(0, 30),
    rate=st.floats(1.0, 1.5),
)
TIGHT = Limits(300 * MS, 250 * MS, 800 * MS)
TIGHTER = Limits(200 * MS, 250 * MS, 400 * MS)  # hardly more than some need
STEADY = Limits(5_000 * MS, 20 * MS, 60_000 * MS)  # no prompt may be read beside it
SEVERAL_LIMITS = [LIMITS, Limits(900 * MS, 250 * MS, 3_000 * MS), STEADY, TIGHT, TIGHTER]
GRACES_MS = st.sampled_from([20, 250])
LATENESS = st.one_of(st.none(), st.integers(-5 * MS, 250 * MS), st.sampled_from([-5 * MS, 2 * MS, 250 * MS]))
ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 300),  # ms after the one before
        st.integers(1, 4),  # chunks
        st.integers(1, 60),  # tokens
        LATENESS,
        st.one_of(st.none(), st.integers(1, 60)),  # tokens after which it stops early
        st.sampled_from(SEVERAL_LIMITS),
        st.sampled_from(Tier),
    ),
    min_size=1,
    max_size=60,
)
LEAVES = st.lists(st.one_of(st.none(), st.integers(0, 900 * MS)), min_size=60, max_size=60)
"""Of each of them, when it goes away after it came."""
