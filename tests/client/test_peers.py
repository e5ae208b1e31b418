"""The list of nodes: read, fetched when its number changes, and taken over."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.http2_server import soon
from zerolayer import AsyncClient
from zerolayer.client.attempt import Head, Send
from zerolayer.client.errors import BadReply
from zerolayer.client.forms import Ask
from zerolayer.client.json_form import JsonForm
from zerolayer.client.nodes import FORGET_NS, NS_PER_MS
from zerolayer.client.peers import Peer, peers
from zerolayer.client.retry import RetryPolicy
from zerolayer.client.service import Clocks, Limits, Service
from zerolayer.wire.load import Load

HI = [{"role": "user", "content": "Hi"}]


def listed(*nodes: dict[str, object]) -> bytes:
    return json.dumps({"epoch": 7, "self": "http://a:1", "nodes": nodes, "version": 1}).encode()


def test_nodes_that_take_work_are_told_with_what_they_said() -> None:
    body = listed(
        {"address": "http://a:1", "state": "ready", "free": 3, "next_ms": 0, "derate": 0.5, "age_ms": 12},
        {"address": "http://b:1", "state": "away", "free": 0, "next_ms": 0, "derate": 1.0, "age_ms": 9000},
        {"address": "http://c:1", "state": "ready", "free": 0, "next_ms": 0, "derate": 1.0, "age_ms": -1},
    )
    assert peers(body) == [Peer("http://a:1", Load(3, 0, 0.5), 12_000_000), Peer("http://c:1")]


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_no_list_breaks_the_reader(nodes: object) -> None:
    assert isinstance(peers(json.dumps({"nodes": nodes}).encode()), list)


def test_what_is_no_json_is_a_bad_reply() -> None:
    with pytest.raises(BadReply):
        peers(b"<html>")


def service(*urls: str, clock_ns=lambda: 0, **given: bool) -> Service:
    return Service(urls, "secret", Limits(), RetryPolicy(), Clocks(clock_ns, lambda: 0), **given)


def test_a_list_is_due_once_for_each_number_and_never_for_a_node_that_is_alone() -> None:
    known = service("http://a:1")
    assert not known.peers_are_due(Load(1, 0, 1.0, 0))
    assert known.peers_are_due(Load(1, 0, 1.0, 7))
    assert not known.peers_are_due(Load(1, 0, 1.0, 7))
    assert known.peers_are_due(Load(1, 0, 1.0, 8))
    assert not known.peers_are_due(None)


def test_whoever_does_not_follow_the_list_is_never_told_that_it_changed() -> None:
    known = service("http://a:1", follow_nodes=False)
    assert not known.peers_are_due(Load(1, 0, 1.0, 7))


def test_a_client_of_tls_never_goes_to_a_node_without() -> None:
    known = service("https://a:1")
    known.take_peers([Peer("http://evil:1"), Peer("https://b:1"), Peer("nonsense")])
    assert known.nodes.listed == ["https://b:1"]


def test_a_thousand_nodes_that_come_and_go_leave_nothing_behind() -> None:
    now_ns = 0
    known = service("http://a:1", clock_ns=lambda: now_ns)
    gone = []
    for number in range(1000):
        gone += known.take_peers([Peer(f"http://b:{number + 1}")])
        now_ns += FORGET_NS // 2
    assert len(known.nodes) == len(known._addresses) == 4  # the one given, the last one, two that left lately
    assert [address.port for address in gone] == list(range(1, 998))


def test_a_booking_is_redeemed_where_it_was_made_though_the_node_is_not_listed_any_more() -> None:
    clock = iter([0, 1, FORGET_NS + 1])
    known = service("http://a:1", clock_ns=lambda: next(clock))
    known.take_peers([Peer("http://b:1")])
    call = known.begin(Ask(JsonForm(), "", b"", b"", "m"), 0, None).call
    assert call.next(0) == Send("http://b:1")
    call.refused(0, 0, 0, Head(429, Load(0, 50, 1.0), 50, True, "t1"))
    for _ in range(2):
        known.take_peers([Peer("http://c:1")])
    assert call.next(50 * NS_PER_MS) == Send("http://b:1", "t1")
    assert (known.address("http://b:1").authority, known.address("http://b:1").key) == ("b:1", "secret")


def test_a_list_of_nobody_changes_nothing() -> None:
    known = service("http://a:1")
    known.take_peers([])
    assert known.nodes.listed == ["http://a:1"]


def test_a_reply_with_another_number_makes_the_client_fetch_the_list_and_ask_whom_it_names(scripted, http) -> None:
    told = "x-zl-load: free=4;next_ms=0;derate=1.00;epoch=7"
    second = scripted(http.hello)
    nodes = http.whole("200 OK", listed({"address": second.url, "state": "ready"}), "server: zerolayer/1", told)
    first = scripted(http.hello.replace(b"200 OK", b"200 OK\r\nserver: zerolayer/1\r\n" + told.encode()), nodes)

    async def run() -> None:
        async with AsyncClient(first.url, protocol="json") as client:
            client._connections._http2 = False  # the scripted servers speak HTTP/1.1
            await client.chat(HI, model="m").answer()
            await soon(lambda: client.nodes == [second.url])
            answer = await client.chat(HI, model="m").answer()
            assert answer.node == second.url

    asyncio.run(run())
    assert first.requests[1].startswith(b"GET /v1/nodes HTTP/1.1")
