"""Which nodes are far slower than the others, seen from where answers end."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from zerolayer.client.nodes import Nodes
from zerolayer.client.quickness import WELL, Quickness
from zerolayer.wire.load import Load

NAMES = ["a", "b", "c", "d"]
FREE = Load(free=4)


def _closed_loop(nodes: Nodes, speeds: dict[str, float], answers: int, callers: int = 16, seed: int = 1) -> list[str]:
    """So many callers, each with one call after the other; the node of each answer, in order."""
    draw, at, ended = random.Random(seed), list[str](), list[str]()

    def send() -> None:
        name = nodes.choose(0, draw.randbytes(4))
        assert name is not None
        nodes.sent(name)
        nodes.heard(name, 0, FREE)
        at.append(name)

    for _ in range(callers):
        send()
    while len(ended) < answers:
        name = draw.choices(at, [speeds[each] for each in at])[0]
        at.remove(name)
        nodes.ended(name)
        ended.append(name)
        send()
    return ended


def test_a_node_that_answers_a_tenth_as_often_keeps_one_call_though_it_says_that_it_is_free():
    nodes, speeds = Nodes(NAMES), dict.fromkeys(NAMES, 1.0) | {"a": 0.1}
    _closed_loop(nodes, speeds, 600)
    assert nodes["a"].running == 1
    assert nodes.earlier(0, 10**9, frozenset("bcd")) is None
    assert all(name != "a" for name, _ in nodes.offers(0))


def test_it_has_its_share_again_when_it_is_well():
    nodes, speeds = Nodes(NAMES), dict.fromkeys(NAMES, 1.0) | {"a": 0.1}
    _closed_loop(nodes, speeds, 600)
    for _ in range(nodes["a"].running):  # nobody waits there any more
        nodes.ended("a")
    for name in "bcd":
        while nodes[name].running:
            nodes.ended(name)
    ended = _closed_loop(nodes, dict.fromkeys(NAMES, 1.0), 600)
    assert ended[-200:].count("a") > 20


def test_nodes_as_quick_as_each_other_are_never_slow():
    for seed in range(20):
        nodes = Nodes(NAMES)
        ended = _closed_loop(nodes, dict.fromkeys(NAMES, 1.0), 2_000, seed=seed)
        assert min(ended.count(name) for name in NAMES) > 300


def test_half_the_speed_is_no_reason():
    nodes = Nodes(NAMES)
    ended = _closed_loop(nodes, dict.fromkeys(NAMES, 1.0) | {"a": 0.5}, 2_000)
    assert ended.count("a") > 200


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=400))
def test_who_is_slow_has_less_than_its_part_of_the_answers_and_few_say_nothing(events):
    quickness, running = Quickness(), dict.fromkeys(NAMES, 0)
    answers = 0
    for name, ends in events:
        if ends and running[name]:
            quickness.answered(name, running)
            answers += 1
            running[name] -= 1
        elif not ends:
            quickness.changes(name, running[name])
            running[name] += 1
    assert all(0 <= speed < WELL for speed in quickness.slow.values())
    assert len(quickness.slow) < len(NAMES)
    assert not quickness.slow or answers >= 8
