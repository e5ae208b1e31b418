"""One node on paper: the quick path decides as the server's calendar does, and its steps are the engine's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from specification.simulated_node import Node as SpecifiedNode

from zerolayer.check.simulated_node import SERVED, Rules, Steps, node, settled

MS = 1_000_000
STEPS = {slots: settled(slots, 100, 10 * MS, 25 * MS) for slots in (1, 2, 3, 4, 8)}
RULES = Rules(5_000 * MS, 250 * MS, 60_000 * MS, 60_000 * MS, 250 * MS)
Fates = list[tuple[int, int, int]]


def run(
    steps: Steps, rules: Rules, work: list[tuple[int, int, int]], *, calm: bool, kind: Callable[..., Any] = node
) -> tuple[Fates, list[tuple[int, ...]]]:
    """All decisions, retries at the promised time included, and all ends."""
    made = kind(steps, rules, [c for _, c, _ in work], [t for _, _, t in work], calm=calm)
    at, events, fates = 0, [], []
    for request, (gap, _, _) in enumerate(work):
        at += gap * MS // 4
        events.append((at, request, 0, at))
    events.sort()
    while events:
        now, request, attempt, since = events.pop(0)
        fate, back = made.ask(request, now, attempt, since) if attempt else made.offer(request, now)
        fates.append((request, fate, back))
        if back > 0:
            events.append((back, request, attempt + 1, since))
            events.sort()
    made.advance(10**15)
    return fates, sorted(made.ended)


works = st.lists(st.tuples(st.integers(0, 120), st.integers(1, 5), st.integers(1, 40)), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(
    work=works,
    slots=st.sampled_from(sorted(STEPS)),
    first=st.sampled_from([60, 150, 400, 5_000]),
    end=st.sampled_from([200, 450, 1_000, 60_000]),
    patient=st.booleans(),
    senders=st.sampled_from([0, 1, 3]),
)
@example(work=[(0, 1, 10)] * 12, slots=2, first=5_000, end=60_000, patient=False, senders=0)
@example(work=[(0, 1, 34), (4, 5, 1), (4, 5, 1)], slots=4, first=5_000, end=450, patient=False, senders=0)  # no slack
def test_the_quick_path_decides_as_the_calendar_and_both_as_specified(
    work: list[tuple[int, int, int]], slots: int, first: int, end: int, patient: bool, senders: int
) -> None:
    rules = Rules(first * MS, 250 * MS, end * MS, 60_000 * MS, 250 * MS, patient=patient, senders=senders)
    quick, by_calendar = (run(STEPS[slots], rules, work, calm=calm) for calm in (True, False))
    assert quick == by_calendar
    assert quick == run(STEPS[slots], rules, work, calm=True, kind=SpecifiedNode)


@settings(max_examples=20, deadline=None)
@given(work=works, slots=st.sampled_from(sorted(STEPS)))
def test_what_is_served_ends_in_time_and_no_slot_is_held_twice(work: list[tuple[int, int, int]], slots: int) -> None:
    fates, ended = run(STEPS[slots], RULES, work, calm=True)
    assert sorted(each for each, fate, _ in fates if fate == SERVED) == [each for each, *_ in ended]
    assert all(end <= due for _, _, end, due in ended)
    borders = sorted([(start, 1) for _, start, _, _ in ended] + [(end, -1) for _, _, end, _ in ended])
    held = 0
    for _, change in borders:
        held += change
        assert held <= slots


def test_a_lone_request_takes_its_chunks_and_its_tokens() -> None:
    _, ended = run(STEPS[4], RULES, [(0, 3, 11)], calm=True)
    assert ended == [(0, 0, (3 * 25 + 10 * 10) * MS, 60_000 * MS)]


def test_whoever_comes_during_a_step_joins_at_its_end_and_its_chunk_delays_all() -> None:
    _, ended = run(STEPS[4], RULES, [(0, 1, 5), (120, 1, 5)], calm=True)  # at 0 and at 30 ms
    # Steps end at 25, 35 (in flight at 30), 60 (the chunk), 70, 80, 90, 100.
    assert [end for _, _, end, _ in ended] == [80 * MS, 100 * MS]
