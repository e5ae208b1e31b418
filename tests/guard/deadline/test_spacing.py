"""One client process cannot wake twice at once: bookings of one sender are apart, whatever comes."""

from __future__ import annotations

from itertools import pairwise

from arrivals import ARRIVALS, PRICES, SLOTS
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import MS, Client, Simulation, work


@settings(max_examples=80, deadline=None)
@given(PRICES, ARRIVALS, st.integers(0, 1000), st.sampled_from([1, 2, 7]))
def test_bookings_of_one_sender_are_never_less_than_five_milliseconds_apart(prices, arrivals, seed, senders):
    simulation = Simulation(SLOTS, prices, seed, lazy=0.8)
    when, near = simulation.now, []
    for name, (gap, chunks, tokens, late, stops, limits, tier) in enumerate(arrivals):
        when += (gap % 8) * MS
        sender = 7 * name + name % senders  # the simulation names senders by the remainder of seven
        simulation.arrive(Client(sender, work(chunks, tokens, prices), limits, late, stops, tier), when)

    def look() -> None:
        starts: dict[object, list[int]] = {}
        for booking in simulation.calendar.bookings:
            starts.setdefault(booking.credential, []).append(booking.start_ns)
        near.extend(
            later - earlier for each in starts.values() for earlier, later in pairwise(each) if later - earlier < 5 * MS
        )

    simulation.run(look)
    assert near == []
