"""What is compiled of the cost table does what its specification in Python does, to the last bit."""

from __future__ import annotations

import random

import cost_specification as specification
from cost_specification import bucket_of, class_of
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.model import _native

SLOTS, CHUNK = 24, 64
TOKENS = st.sampled_from([0, 0, 0, 1, 17, 64, 200])
SPELLS = st.lists(
    st.tuples(
        st.floats(0.2, 60.0),  # how slow the machine is
        st.integers(1, 300),  # for so many steps
        st.booleans(),  # a rest before it
        st.lists(st.tuples(st.integers(0, SLOTS), TOKENS), min_size=1, max_size=4),  # what runs
        st.integers(0, 2**32),
    ),
    min_size=1,
    max_size=12,
)


class Pair:
    """Both hear of the same steps."""

    def __init__(self) -> None:
        self.compiled = _native.StepTimes(SLOTS, CHUNK)
        self.plain = specification.StepTimes(SLOTS, CHUNK)
        self.kinds: set[tuple[int, int]] = set()

    def observe(self, rows: int, tokens: int, elapsed_ns: int) -> None:
        self.kinds.add((rows, tokens))
        seen = [int(times.observe(rows, tokens, elapsed_ns, False)) for times in (self.compiled, self.plain)]
        assert seen[0] == seen[1]
        if seen[0] == specification.UNSURE:
            if elapsed_ns % 2:
                for times in (self.compiled, self.plain):
                    row(times, rows, tokens).forget()
            assert self.compiled.observe(rows, tokens, elapsed_ns, True) == self.plain.observe(
                rows, tokens, elapsed_ns, True
            )

    def rest(self) -> None:
        assert self.compiled.rest() == self.plain.rest()

    def compare(self) -> None:
        for name in ("pace", "pace_mean", "steps", "scale", "backlog", "worst"):
            assert getattr(self.compiled, name) == getattr(self.plain, name), name
        for rows, tokens in self.kinds:
            assert self.compiled.bound_ns(rows, tokens) == self.plain.bound_ns(rows, tokens)
            one, other = row(self.compiled, rows, tokens), row(self.plain, rows, tokens)
            assert (one.normal, one.bound, one.count, one.seen) == (other.normal, other.bound, other.count, other.seen)


def row(times, rows: int, tokens: int):
    chunk = min(bucket_of(tokens), bucket_of(CHUNK))
    return times.row(chunk, min(class_of(rows), class_of(SLOTS - (chunk > 0))))


@given(SPELLS)
def test_it_learns_what_its_specification_learns(spells):
    pair = Pair()
    for slow, steps, rests, kinds, seed in spells:
        if rests:
            pair.rest()
        draw = random.Random(seed)
        for _ in range(steps):
            rows, tokens = draw.choice(kinds)
            usual = 1_000_000 + 40_000 * rows + 60_000 * tokens
            freak = 1 + (draw.random() < 0.02) * 40 * draw.random()
            pair.observe(rows, tokens, int(usual * slow * freak * draw.gauss(1, 0.05)) + 1)
        pair.compare()


@given(st.lists(st.floats(0.01, 40.0), max_size=100), st.integers(0, 9))
def test_the_pace_at_a_vote_is_the_same(votes, behind):
    compiled, plain = _native.Pace(), specification.Pace()
    for vote in votes:
        compiled.vote(vote)
        plain.vote(vote)
        assert (compiled.now, compiled.mean) == (plain.now, plain.mean)
    if behind < min(17, len(votes)):
        assert compiled.then(behind) == plain.then(behind)


def test_generations_of_backlogs_and_overruns_end_at_the_same_step():
    pair, draw = Pair(), random.Random(5)
    for step in range(10_000):
        pair.observe(8, 0, int(1e6 * draw.gauss(1, 0.05) * (30 if step % 1500 < 3 else 1)))
        if step % 500 == 0:
            pair.compare()


def test_classes_and_buckets_are_the_same():
    times = _native.StepTimes(300, 1024)
    for rows in range(301):
        for tokens in (0, 1, 2, 3, 64, 65, 1024, 5000):
            times.observe(rows, tokens, 1000 + rows, True)
            place = min(class_of(rows), class_of(300 - (tokens > 0)))
            assert times.row(min(bucket_of(tokens), bucket_of(1024)), place).seen == times.steps
