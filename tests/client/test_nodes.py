"""The choice of a node, as arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.client.nodes import FIRST_PAUSE_NS, FORGET_NS, LONGEST_PAUSE_NS, OUTAGE_SHARE, PROBE_NS, Nodes
from zerolayer.wire.load import Load

MS = 1_000_000
NAMES = ["a", "b", "c"]


def heard(nodes: Nodes, name: str, load: Load, now_ns: int = 0) -> None:
    """A request that came and went, and what its reply said."""
    nodes.sent(name)
    nodes.heard(name, now_ns, load)
    nodes.ended(name)
    nodes[name].ended = 0


def with_loads(**loads: Load) -> Nodes:
    nodes = Nodes(NAMES)
    for name, load in loads.items():
        heard(nodes, name, load)
    return nodes


def test_a_load_hint_is_read_in_any_order_and_with_members_of_later_versions() -> None:
    assert Load.parse("next_ms=7; free=0;derate=0.50;epoch=9;new=1") == Load(0, 7, 0.5, 9)


@pytest.mark.parametrize("text", ["", "free=1", "free=x;next_ms=0", "free=-1;next_ms=0", "free=1;next_ms=0;derate=0"])
def test_a_malformed_load_hint_is_none(text) -> None:
    assert Load.parse(text) is None


@given(st.text(max_size=60))
def test_no_text_breaks_the_reading_of_load_hints(text) -> None:
    assert isinstance(Load.parse(text), Load | None)


def test_the_node_that_starts_first_is_asked() -> None:
    nodes = with_loads(a=Load(0, 300), b=Load(0, 100), c=Load(0, 200))
    assert nodes.choose(0) == "b"


def test_a_node_with_a_free_slot_goes_before_one_without() -> None:
    assert with_loads(a=Load(0, 1), b=Load(1, 0), c=Load(0, 1)).choose(0) == "b"


def test_predicted_starts_come_nearer_as_time_passes() -> None:
    nodes = with_loads(a=Load(0, 300))
    assert nodes["a"].start_in_ns(100 * MS) == 200 * MS
    assert nodes["a"].start_in_ns(400 * MS) == 0


def test_a_slow_node_starts_later_than_it_says() -> None:
    nodes = with_loads(a=Load(0, 100, derate=0.5), b=Load(0, 150), c=Load(0, 180))
    assert nodes.choose(0) == "b"


def test_requests_that_are_still_on_their_way_take_the_slots_that_were_told() -> None:
    nodes = with_loads(a=Load(2, 0), b=Load(0, 500), c=Load(0, 500))
    for _ in range(2):
        assert nodes.choose(0) == "a"
        nodes.sent("a")
    nodes["a"].told_ns, nodes["b"].told_ns = 0, 0
    assert nodes["a"].start_in_ns(0) == 0  # its next slot is at once, as far as it said
    assert not nodes["a"].surely_free(0)


def test_slots_that_come_free_are_for_those_who_hold_bookings_there() -> None:
    nodes = with_loads(a=Load(0, 300), b=Load(0, 100), c=Load(0, 200))
    nodes.booked("a")
    nodes["a"].ended = 1
    assert nodes.choose(0) == "b"
    nodes["a"].ended = 2
    assert nodes.choose(0) == "a"
    nodes["a"].ended = 1
    nodes.unbooked("a")
    assert nodes.choose(0) == "a"


def test_a_conversation_stays_with_its_node() -> None:
    nodes = with_loads(a=Load(4, 0), b=Load(4, 0), c=Load(4, 0))
    chosen = {nodes.choose(now, b"conversation") for now in range(50)}
    assert len(chosen) == 1


def test_conversations_are_spread_over_the_nodes() -> None:
    nodes = with_loads(a=Load(4, 0), b=Load(4, 0), c=Load(4, 0))
    assert {nodes.choose(0, b"%d" % number) for number in range(50)} == set(NAMES)


@given(st.binary(max_size=8), st.integers(1, 60))
def test_affinity_never_loads_a_node_beyond_its_bound(prefix, requests) -> None:
    nodes = with_loads(a=Load(100, 0), b=Load(100, 0), c=Load(100, 0))
    for _ in range(requests):
        name = nodes.choose(0, prefix)
        nodes.sent(name)
        nodes.heard(name, 0, Load(100, 0))
    assert max(nodes[name].running for name in NAMES) <= 1.25 * requests / 3 + 1


def test_a_node_that_does_not_answer_is_left_out_and_tried_again_by_one_call() -> None:
    nodes, other = Nodes(["a", "b"]), frozenset("b")
    nodes.sent("a")
    nodes.lost("a", 0)
    assert nodes.choose(0, without=other) is None
    back = nodes["a"].out_until_ns
    assert nodes.choose(back, without=other) == "a"
    nodes.sent("a")
    assert nodes.choose(back, without=other) is None  # somebody is trying it
    nodes.heard("a", back, Load(1, 0))
    assert nodes.choose(back, without=other) == "a"


def failed(names: list[str], now_ns: int = 0) -> Nodes:
    """Nodes of which the first one has just failed."""
    nodes = Nodes(names)
    nodes.sent(names[0])
    nodes.lost(names[0], now_ns)
    return nodes


def test_a_node_that_failed_is_asked_by_no_call_before_it_said_that_it_lives() -> None:
    nodes = failed(["a", "b"])
    long_after = 1000 * LONGEST_PAUSE_NS
    assert {nodes.choose(long_after, b"%d" % number) for number in range(50)} == {"b"}
    nodes.probed("a", long_after, lives=True)
    assert nodes.choose(long_after, without=frozenset("b")) == "a"
    nodes.sent("a")
    assert nodes.choose(long_after) == "b"  # the first call finds out
    nodes.heard("a", long_after, Load(4, 0))
    assert {nodes.choose(long_after, b"%d" % number) for number in range(50)} == {"a", "b"}


def test_a_node_that_failed_is_probed_after_its_pause_and_once_at_a_time() -> None:
    nodes = failed(["a", "b"])
    assert nodes.to_probe(FIRST_PAUSE_NS - 1) == []
    assert nodes.to_probe(FIRST_PAUSE_NS) == ["a"]
    assert nodes.to_probe(FIRST_PAUSE_NS + PROBE_NS - 1) == []
    assert nodes.to_probe(FIRST_PAUSE_NS + PROBE_NS) == ["a"]  # whatever became of the first probe


def test_a_node_that_lives_and_fails_again_has_been_gone_since_its_first_failure() -> None:
    nodes, now = failed(["a", "b"]), OUTAGE_SHARE * 3 * FIRST_PAUSE_NS
    nodes.probed("a", now, lives=True)
    nodes.sent("a")
    nodes.lost("a", now)
    assert nodes["a"].out_until_ns == now + 3 * FIRST_PAUSE_NS
    assert nodes.choose(now + LONGEST_PAUSE_NS) == "b"


@given(st.integers(0, 100 * FIRST_PAUSE_NS))
def test_a_node_that_is_back_is_found_within_a_sixteenth_of_the_time_it_was_gone(gone_ns) -> None:
    nodes, now = failed(["a", "b"]), 0
    while now < gone_ns:
        now = nodes["a"].out_until_ns
        assert nodes.to_probe(now) == ["a"]
        nodes.probed("a", now, lives=now >= gone_ns)
    assert now - gone_ns <= min(LONGEST_PAUSE_NS, max(FIRST_PAUSE_NS, gone_ns // OUTAGE_SHARE))


def test_an_only_node_and_one_that_is_not_listed_are_not_probed() -> None:
    assert failed(["a"]).to_probe(FIRST_PAUSE_NS) == []
    nodes = failed(["a", "b"])
    nodes.update(["b"], 0)
    assert nodes.to_probe(FIRST_PAUSE_NS) == []


def test_what_is_heard_of_a_node_that_was_never_lost_or_is_forgotten_changes_nothing() -> None:
    nodes = Nodes(["a", "b"])
    nodes.probed("a", 0, lives=False)
    nodes.probed("c", 0, lives=True)
    assert nodes["a"].usable(0)


def test_a_try_that_is_broken_off_says_nothing_about_a_node() -> None:
    nodes = Nodes(["a", "b"])
    nodes.sent("a")
    nodes.lost("a", 0)
    nodes.sent("a")
    nodes.abandoned("a")
    assert nodes.choose(nodes["a"].out_until_ns, without=frozenset("b")) == "a"
    assert (nodes["a"].running, nodes["a"].unheard) == (0, 0)


@given(st.integers(1, 100))
def test_however_often_a_node_failed_it_is_tried_again_within_a_second(failures) -> None:
    nodes, now = Nodes(["a", "b"]), 0
    for _ in range(failures):
        nodes.sent("a")
        nodes.lost("a", now)
        assert now < nodes["a"].out_until_ns <= now + LONGEST_PAUSE_NS
        now = nodes["a"].out_until_ns
    assert nodes.choose(now, without=frozenset("b")) == "a"


def test_an_only_node_is_never_left_out() -> None:
    nodes = Nodes(["a"])
    nodes.sent("a")
    nodes.lost("a", 0)
    assert nodes.choose(0) == "a"


def test_a_booking_is_left_only_for_a_node_that_said_a_moment_ago_that_it_is_free() -> None:
    nodes = with_loads(a=Load(0, 500), b=Load(1, 0), c=Load(0, 10))
    asked = frozenset("a")
    assert nodes.earlier(0, 500 * MS, asked) == "b"
    assert nodes.earlier(0, 10 * MS, asked) is None
    assert nodes.earlier(2000 * MS, 2500 * MS, asked) is None


def test_a_node_that_said_it_is_soon_free_is_asked_where_that_is_well_before_a_booking() -> None:
    nodes = with_loads(a=Load(0, 500), b=Load(0, 300), c=Load(0, 200))
    assert nodes.earlier(0, 500 * MS, frozenset("a")) == "c"
    assert nodes.earlier(0, 210 * MS, frozenset("a")) is None


def test_nodes_that_come_are_asked_and_nodes_that_went_only_where_no_other_is_left() -> None:
    nodes = with_loads(a=Load(4, 0), b=Load(4, 0), c=Load(4, 0))
    nodes.update(["c", "d"], 0)
    assert nodes.listed == ["c", "d"]
    assert {nodes.choose(0, b"%d" % number) for number in range(50)} == {"c", "d"}
    assert nodes.choose(0, without=frozenset("cd")) in {"a", "b"}


def test_a_node_that_left_is_forgotten_after_a_minute_unless_it_was_given_or_something_is_under_way_there() -> None:
    nodes = Nodes(["given"])
    nodes.update(["gone", "busy", "there"], 0)
    nodes.sent("busy")
    assert nodes.update(["there"], 5) == []
    assert nodes.update(["there"], FORGET_NS) == []
    assert nodes.update(["there"], 5 + FORGET_NS) == ["gone"]
    assert len(nodes) == 3
    nodes.abandoned("busy")
    assert nodes.update(["there"], 6 + FORGET_NS) == ["busy"]
    assert len(nodes) == 2


def test_a_node_that_came_back_is_as_new_when_it_leaves_again() -> None:
    nodes = Nodes(["given"])
    for names, at_ns in ((["b"], 0), (["given"], 1), (["b"], FORGET_NS), (["given"], FORGET_NS + 1)):
        nodes.update(names, at_ns)
    assert nodes.update(["given"], 2 * FORGET_NS) == []
    assert nodes.update(["given"], 2 * FORGET_NS + 1) == ["b"]


def test_what_others_say_of_a_node_counts_until_it_says_something_itself() -> None:
    nodes = with_loads(a=Load(0, 300), b=Load(0, 300))
    nodes.told("c", 5, Load(0, 100))
    assert nodes.choose(0) == "c"
    nodes.told("a", -5, Load(9, 0))
    assert nodes["a"].load.free == 0


def test_a_node_that_says_it_is_away_is_left_out_until_then() -> None:
    nodes = with_loads(a=Load(4, 0))
    nodes.away("a", 700)
    nodes.away("b", 700)
    assert nodes.choose(699) == "c"
    assert nodes.choose(700) is not None
