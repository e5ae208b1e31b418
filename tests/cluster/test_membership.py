"""Who is there, by what each says: a list without a seed, on a fake clock."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.cluster.membership import (
    AGAIN_NS,
    ASK_NS,
    FORGET_NS,
    MISSES,
    MOST,
    TABLE,
    Event,
    Listed,
    Membership,
    State,
    epoch_of,
)

OWN, A, B = "http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://10.0.0.3:8000"
READY = Listed(OWN, "ready")
WORD = Listed("", "", "smollm2", 16, 12, 0, 1.0)


@pytest.fixture
def members() -> Membership:
    """A node that was told of A."""
    members = Membership(OWN)
    members.name([A], 0)
    return members


def listed(members: Membership, now_ns: int = 0) -> dict[str, str]:
    return {node.address: node.state for node in members.listed(now_ns, READY).nodes}


def lose(members: Membership, dial: str, now_ns: int) -> None:
    for _ in range(MISSES):
        members.missed(dial, now_ns)


def test_every_state_knows_what_every_event_makes_of_it() -> None:
    assert set(TABLE) == set(product(State, Event))


def test_a_named_node_is_listed_before_it_ever_answered(members) -> None:
    assert listed(members) == {OWN: "ready", A: "unheard"}


def test_a_node_that_was_only_heard_of_is_listed_once_it_answered(members) -> None:
    members.hear([B], 0)
    assert B not in listed(members)
    members.answered(B, 0, "", WORD, ready=True)
    assert listed(members)[B] == "ready"


def test_it_takes_three_misses_in_a_row_to_be_away(members) -> None:
    members.answered(A, 0, "", WORD, ready=True)
    members.missed(A, 0)
    members.missed(A, 0)
    members.answered(A, 0, "", WORD, ready=True)
    members.missed(A, 0)
    members.missed(A, 0)
    assert listed(members)[A] == "ready"
    members.missed(A, 0)
    assert listed(members)[A] == "away"


def test_one_answer_brings_a_node_back(members) -> None:
    members.answered(A, 0, "", WORD, ready=True)
    lose(members, A, 0)
    members.answered(A, 1, "", WORD, ready=True)
    assert listed(members)[A] == "ready"


def test_a_node_that_answers_and_takes_no_work_is_unready(members) -> None:
    members.answered(A, 0, "", WORD, ready=False)
    assert listed(members)[A] == "unready"


def test_a_node_is_asked_every_second_sooner_after_a_miss_and_never_twice_at_once(members) -> None:
    assert [peer.dial for peer in members.due(0)] == [A]
    assert members.due(0) == []
    members.answered(A, 0, "", WORD, ready=True)
    assert (members.due(ASK_NS - 1), members.next_ns()) == ([], ASK_NS)
    assert len(members.due(ASK_NS)) == 1
    members.missed(A, ASK_NS)
    assert members.next_ns() == ASK_NS + AGAIN_NS


def test_a_large_fleet_is_asked_more_slowly() -> None:
    members = Membership(OWN)
    members.name([f"http://10.1.0.{number}:8000" for number in range(200)], 0)
    dial = members.due(0)[0].dial
    members.answered(dial, 0, "", WORD, ready=True)
    assert members.next_ns() == 10 * ASK_NS


def test_a_node_is_listed_under_what_it_calls_itself_and_only_once(members) -> None:
    members.name([A, "http://node-a:8000"], 0)
    members.answered(A, 0, "http://node-a:8000", WORD, ready=True)
    members.answered("http://node-a:8000", 0, "http://node-a:8000", WORD, ready=True)
    assert listed(members) == {OWN: "ready", "http://node-a:8000": "ready"}


def test_a_node_that_nobody_named_cannot_take_another_s_name(members) -> None:
    members.hear([B], 0)
    members.answered(A, 0, "", WORD, ready=True)
    members.answered(B, 1, A, WORD, ready=False)
    assert listed(members) == {OWN: "ready", A: "ready", B: "unready"}


def test_a_node_that_finds_itself_in_a_source_is_nobody_else(members) -> None:
    members.answered(A, 0, OWN, WORD, ready=False)
    assert listed(members) == {OWN: "ready"}
    assert members.listed(0, READY).epoch == 0


def test_a_silent_node_is_forgotten_if_it_was_only_heard_of(members) -> None:
    members.hear([B], 0)
    members.answered(B, 0, "", WORD, ready=True)
    for dial in (A, B):
        lose(members, dial, 0)
    members.forget(FORGET_NS - 1)
    assert set(listed(members)) == {OWN, A, B}
    members.forget(FORGET_NS)
    assert set(listed(members)) == {OWN, A}


def test_a_node_that_the_sources_name_no_longer_is_forgotten_only_when_it_is_silent(members) -> None:
    members.answered(A, 0, "", WORD, ready=True)
    members.name([], 0)
    members.forget(FORGET_NS)
    assert A in listed(members)
    lose(members, A, FORGET_NS)
    members.forget(2 * FORGET_NS)
    assert A not in listed(members)


def test_a_word_gets_older(members) -> None:
    members.answered(A, 0, "", WORD, ready=True)
    node = members.listed(2_500_000_000, READY).nodes[1]
    assert (node.age_ms, node.model, node.slots, node.free) == (2500, "smollm2", 16, 12)


def test_two_nodes_with_the_same_list_have_the_same_epoch_whatever_each_measured() -> None:
    here, there = Membership(OWN), Membership(A)
    here.name([A], 0)
    there.name([OWN], 5)
    here.answered(A, 0, A, WORD, ready=True)
    there.answered(OWN, 5, OWN, Listed("", "", free=3), ready=True)
    mine = here.listed(0, READY).epoch
    assert mine == there.listed(7, Listed(A, "ready")).epoch
    assert mine > 0


def test_the_epoch_changes_with_who_is_there_and_with_who_takes_work(members) -> None:
    epochs = [members.listed(0, READY).epoch]
    members.answered(A, 0, "", WORD, ready=True)
    epochs.append(members.listed(0, READY).epoch)
    members.name([A, B], 0)
    members.answered(B, 0, "", WORD, ready=False)
    epochs.append(members.listed(0, READY).epoch)
    assert len(set(epochs)) == 3


def test_who_never_came_and_who_is_gone_is_in_no_epoch(members) -> None:
    """Of a node that died the others know, those that came later do not: clients go from the one to the other."""
    members.answered(A, 0, "", WORD, ready=True)
    known = members.listed(0, READY).epoch
    members.name([A, B], 0)
    assert members.listed(0, READY).epoch == known
    members.answered(B, 0, "", WORD, ready=True)
    assert members.listed(0, READY).epoch != known
    for _ in range(MISSES):
        members.missed(B, 0)
    assert members.listed(0, READY).epoch == known


def test_load_does_not_change_the_epoch(members) -> None:
    members.answered(A, 0, "", WORD, ready=True)
    before = members.listed(0, READY).epoch
    members.answered(A, 9, "", Listed("", "", free=1), ready=True)
    assert members.listed(9, READY).epoch == before


def test_no_stranger_fills_the_memory(members) -> None:
    members.hear([f"http://10.{number >> 8}.{number & 255}.9:1" for number in range(2 * MOST)], 0)
    assert len(members) == MOST


@given(st.lists(st.text(max_size=40) | st.sampled_from([A, B, A + "/", "http://[::1]:80", "ftp://x", "http://a b"])))
def test_what_is_no_address_is_never_asked(texts) -> None:
    members = Membership(OWN)
    members.hear(texts, 0)
    assert {peer.dial for peer in members.due(0)} == {text.rstrip("/") for text in texts} & {A, B, "http://[::1]:80"}


@given(st.lists(st.sampled_from([A, B, OWN]), min_size=2, unique=True), st.randoms())
def test_the_order_of_the_list_does_not_matter(addresses, random) -> None:
    nodes = [Listed(address, "ready") for address in addresses]
    shuffled = random.sample(nodes, len(nodes))
    assert epoch_of(nodes) == epoch_of(shuffled)
