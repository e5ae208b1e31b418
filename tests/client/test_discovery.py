"""A client that is given a source of addresses in place of them: what it asks, and what it does without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from urllib.parse import quote, urlsplit

import pytest

from client.http2_server import soon
from cluster.fake_servers import FakeApi, FakeNameServer
from zerolayer import AsyncClient, Client
from zerolayer.client.address import Patience
from zerolayer.client.discovery import Discovery
from zerolayer.client.errors import DeadlinePassed, InvalidAddress, NotReachable
from zerolayer.client.nodes import FORGET_NS
from zerolayer.client.peers import Peer
from zerolayer.client.retry import RetryPolicy
from zerolayer.client.service import Clocks, Limits, Service
from zerolayer.wire.load import Load

HI = [{"role": "user", "content": "Hi"}]
NAME = "_http._tcp.nodes"
S = 1_000_000_000


@pytest.fixture
def names() -> Iterator[FakeNameServer]:
    server = FakeNameServer()
    yield server
    server.close()


@pytest.fixture
def api() -> Iterator[FakeApi]:
    server = FakeApi()
    yield server
    server.close()


def of_srv(names: FakeNameServer) -> str:
    return f"dns+srv://{NAME}?server={names.address}"


def service(*urls: str, clock_ns: Callable[[], int] = lambda: 0) -> Service:
    return Service(urls, "secret", Limits(), RetryPolicy(), Clocks(clock_ns, lambda: 0))


# Every form


def test_a_client_of_a_name_asks_each_of_its_addresses(scripted, http, names) -> None:
    server = scripted(http.models)
    names.add("nodes", 1, "127.0.0.1")
    with Client(f"dns://nodes:{urlsplit(server.url).port}?server={names.address}") as client:
        assert client.models() == ["smollm2", "other"]
        assert client.nodes == [server.url]


def test_a_client_of_a_service_in_dns_asks_the_names_and_ports_of_its_records(scripted, http, names) -> None:
    servers = [scripted(http.models), scripted()]
    for server in servers:
        names.add(NAME, 33, "127.0.0.1", port=urlsplit(server.url).port)
    with Client(of_srv(names)) as client:
        assert client.models() == ["smollm2", "other"]
        assert client.nodes == [server.url for server in servers]


def test_a_client_of_a_kubernetes_service_asks_its_ready_endpoints(scripted, http, api) -> None:
    port = urlsplit(scripted(http.models).url).port
    endpoints = [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}]
    api.body = {"items": [{"ports": [{"name": "http", "port": port}], "endpoints": endpoints}]}
    with Client(f"k8s://prod/llm?api={quote(api.url, safe='')}") as client:
        assert client.models() == ["smollm2", "other"]


def test_a_client_of_consul_asks_who_passes_the_checks(scripted, http, api) -> None:
    port = urlsplit(scripted(http.models).url).port
    api.body = [{"Service": {"Address": "127.0.0.1", "Port": port}, "Node": {"Address": "127.0.0.1"}}]
    with Client(api.url.replace("http://", "consul://") + "/llm") as client:
        assert client.models() == ["smollm2", "other"]


def test_a_source_and_an_address_stand_beside_one_another(scripted, http, names) -> None:
    server = scripted(http.models)
    names.add(NAME, 33, "127.0.0.1", port=9)
    with Client([server.url, of_srv(names)]) as client:
        assert client.models() == ["smollm2", "other"]


@pytest.mark.parametrize("url", ["etcd://a:1", "dns://name", "dns+srv://name:1", "k8s://ns", "consul:///x"])
def test_a_form_that_there_is_not_is_refused_with_all_that_there_are(url) -> None:
    with pytest.raises(InvalidAddress, match=r"dns://name:port.*consul://"):
        Client(url)


def test_a_key_that_no_header_can_carry_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(InvalidAddress, match="key"):
        Client("dns://nodes:1", api_key="a\nb")


# Without an answer


def test_where_no_node_is_found_the_error_says_which_source_named_none(names) -> None:
    with pytest.raises(NotReachable, match=r"dns\+srv://_http\._tcp\.nodes"):
        Client(of_srv(names)).chat(HI)


def test_a_name_server_that_is_silent_holds_no_call_beyond_its_deadline(names) -> None:
    names.silent = True

    async def run() -> None:
        async with AsyncClient(of_srv(names)) as client:
            with pytest.raises(DeadlinePassed):
                await client.chat(HI, deadline_ms=50).answer()

    asyncio.run(run())


@pytest.mark.parametrize("failures", [1, 4])
def test_a_first_call_asks_a_name_server_again_that_fails(scripted, http, names, failures) -> None:
    server = scripted(http.hello)
    names.add(NAME, 33, "127.0.0.1", port=urlsplit(server.url).port)
    names.code = 2  # SERVFAIL

    async def run() -> None:
        async with AsyncClient(of_srv(names)) as client:
            call = asyncio.create_task(client.chat(HI, model="m", deadline_ms=30_000).answer())
            await soon(lambda: len(names.asked) >= failures)
            assert not call.done()
            names.code = 0
            assert (await call).node == server.url

    asyncio.run(run())


def test_nobody_waits_for_a_name_server_that_fails_for_longer_than_the_client_waits_for_replies(names) -> None:
    names.code = 2

    async def run() -> None:
        looked = Looked(names)
        with pytest.raises(NotReachable):
            await looked.discovery.ready(Patience(0.2, None, lambda: looked.now_ns))

    asyncio.run(run())
    assert names.asked


def test_calls_go_on_while_the_name_server_is_gone(scripted, http, names) -> None:
    server = scripted(http.hello, http.hello)
    names.add(NAME, 33, "127.0.0.1", port=urlsplit(server.url).port)
    now_ns = S

    async def run() -> None:
        nonlocal now_ns
        async with AsyncClient(of_srv(names), clocks=Clocks(lambda: now_ns)) as client:
            await client.chat(HI, model="m").answer()
            names.silent = True
            now_ns += 60 * S
            await client.chat(HI, model="m").answer()
            assert client.nodes == [server.url]
            await soon(lambda: names.ignored > 0)  # it was asked, beside the call

    asyncio.run(run())


# What is found later


class Looked:
    """A source at a time that only the test moves."""

    def __init__(self, names: FakeNameServer) -> None:
        self.now_ns = 0
        self.found: list[list[str]] = []
        self.discovery = Discovery([of_srv(names)], self._take, lambda: self.now_ns)

    def _take(self, urls: list[str]) -> None:
        self.found.append(list(urls))

    async def again(self, count: int) -> None:
        """Until so many answers were taken over."""

        def taken() -> bool:
            self.discovery.refresh()
            return len(self.found) == count

        await soon(taken)

    def patience(self) -> Patience:
        return Patience(10.0, None, lambda: self.now_ns)


def test_a_source_is_asked_again_when_its_answer_is_out_of_date(names) -> None:
    async def run() -> None:
        names.add(NAME, 33, "a", ttl=7, port=1)
        looked = Looked(names)
        await looked.discovery.ready(looked.patience())
        names.add(NAME, 33, "b", ttl=7, port=2)
        looked.now_ns = 7 * S - 1
        looked.discovery.refresh()
        assert len(names.asked) == 1
        looked.now_ns = 7 * S
        await looked.again(2)
        assert looked.found == [["http://a:1"], ["http://a:1", "http://b:2"]]

    asyncio.run(run())


def test_a_client_goes_on_in_the_next_event_loop(names) -> None:
    names.add(NAME, 33, "a", ttl=1, port=1)
    looked = Looked(names)
    asyncio.run(looked.discovery.ready(looked.patience()))
    looked.now_ns = S
    asyncio.run(looked.again(2))
    assert looked.found == [["http://a:1"]] * 2


def test_nodes_that_are_not_named_any_more_are_left_and_after_a_minute_forgotten() -> None:
    now_ns = 0
    known = service("dns://nodes:1", clock_ns=lambda: now_ns)
    known.found(["http://a:1", "http://b:1"])
    known.found(["http://b:1"])
    assert known.nodes.listed == ["http://b:1"]
    now_ns = FORGET_NS
    known.found(["http://b:1"])
    assert [str(address) for address in known._gone] == ["http://a:1"]
    assert list(known._addresses) == ["http://b:1"]


def test_where_nodes_tell_of_one_another_the_source_is_for_when_none_of_those_is_left() -> None:
    known = service("dns://nodes:1")
    known.found(["http://10.0.0.1:1"])
    assert known.peers_are_due(Load(1, 0, 1.0, 7))
    known.take_peers([Peer("http://pod-0:1")])
    known.found(["http://10.0.0.1:1", "http://10.0.0.2:1"])
    assert known.nodes.listed == ["http://pod-0:1"]
    assert known.nodes.choose(0, without=frozenset({"http://pod-0:1"})) in {"http://10.0.0.1:1", "http://10.0.0.2:1"}


def test_a_source_of_tls_never_leads_to_a_node_without() -> None:
    known = service("dns://nodes:1?scheme=https")
    known.found(["https://10.0.0.1:1"])
    known.take_peers([Peer("http://evil:1"), Peer("https://b:1")])
    assert known.nodes.listed == ["https://b:1"]
