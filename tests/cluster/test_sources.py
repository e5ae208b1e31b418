"""Every way to find nodes, against servers on loopback that answer as the true ones do."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from fake_servers import FakeNameServer

from zerolayer.cluster.directory import Directory, DiscoveryError, Found
from zerolayer.cluster.endpoint_slices import EndpointSlices
from zerolayer.cluster.http_json import fetch
from zerolayer.cluster.resolver import Resolver
from zerolayer.cluster.sources import FORMS, sources
from zerolayer.errors import StartupError

S = 1_000_000_000


def look(text: str) -> Found:
    (source,) = sources([text])
    return source.look()


def resolver(server: FakeNameServer, timeout_s: float = 1.0) -> Resolver:
    host, _, port = server.address.partition(":")
    return Resolver(((host, int(port)),), timeout_s=timeout_s)


# What an operator may write


def test_a_plain_address_is_a_node() -> None:
    assert look("http://10.0.0.1:8000/").addresses == ("http://10.0.0.1:8000",)


@pytest.mark.parametrize(
    "text",
    [
        "http://",
        "http://10.0.0.1:8000/path",
        "http://user@10.0.0.1:8000",
        "http://10.0.0.1:99999",
        "dns://name",
        "dns://name:80?scheme=ftp",
        "dns://name:80?server=here:53",
        "dns://name:80?unknown=1",
        "dns+srv://name:80",
        "k8s://namespace",
        "k8s://ns/service?api=ftp://x",
        "k8s://ns/service?api=http://x:99999",
        "consul://agent:8500",
        "consul:///service",
        "consul://agent/service?tls=2",
        "etcd://host:1",
        "",
    ],
)
def test_what_is_none_of_the_forms_is_refused_with_all_of_them(text) -> None:
    with pytest.raises(StartupError) as caught:
        sources([text])
    assert all(form in caught.value.message for form, _ in FORMS.values())


def test_clients_can_find_nodes_without_anybody_elses_package() -> None:
    code = """
import sys
before = set(sys.modules)
from zerolayer.cluster.directory import Directory
from zerolayer.cluster.sources import sources
print(Directory(sources(["http://10.0.0.1:8000", "http://10.0.0.2:8000"])).look(0))
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new - set(sys.stdlib_module_names)))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert ran.stdout.splitlines() == ["['http://10.0.0.1:8000', 'http://10.0.0.2:8000']", "['zerolayer']"]


# DNS


def test_every_address_of_a_name_is_a_node(name_server) -> None:
    for number in (1, 2):
        name_server.add("llm.prod", 1, f"10.0.0.{number}", ttl=9)
    name_server.add("llm.prod", 28, "fd00::1", ttl=4)
    found = look(f"dns://llm.prod:8000?server={name_server.address}")
    assert found.addresses == ("http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://[fd00::1]:8000")
    assert found.fresh_s == 4


def test_services_name_their_nodes_and_ports(name_server) -> None:
    name = "_http._tcp.llm.prod"
    for number in (0, 1):
        name_server.add(name, 33, f"llm-{number}.llm.prod", ttl=5, port=8000 + number)
    found = look(f"dns+srv://{name}?scheme=https&server={name_server.address}")
    assert found == Found(("https://llm-0.llm.prod:8000", "https://llm-1.llm.prod:8001"), 5)


def test_a_name_that_does_not_exist_has_no_nodes(name_server) -> None:
    assert look(f"dns://nobody:8000?server={name_server.address}").addresses == ()


def test_an_alias_is_followed(name_server) -> None:
    name_server.add("llm", 5, "llm.prod")
    name_server.add("llm", 1, "10.0.0.1", owner="llm.prod")
    name_server.add("llm", 1, "10.6.6.6", owner="somebody.else")
    assert look(f"dns://llm:80?server={name_server.address}").addresses == ("http://10.0.0.1:80",)


def test_an_answer_that_does_not_fit_comes_over_tcp(name_server) -> None:
    name_server.truncate = True
    for number in range(100):
        name_server.add("llm", 1, f"10.0.1.{number}")
    assert len(look(f"dns://llm:80?server={name_server.address}").addresses) == 100


def test_a_forged_reply_is_passed_over(name_server) -> None:
    name_server.before = b"\0\0\x81\x80" + bytes(20)
    name_server.add("llm", 1, "10.0.0.1")
    assert look(f"dns://llm:80?server={name_server.address}").addresses == ("http://10.0.0.1:80",)


def test_name_servers_that_do_not_answer_are_an_error_and_no_empty_list(name_server) -> None:
    name_server.silent = True
    with pytest.raises(DiscoveryError, match="no name server answers"):
        resolver(name_server, timeout_s=0.05).lookup("llm", 1)
    assert name_server.ignored == 2  # the first question may have been lost


@pytest.mark.parametrize("code", [1, 2, 4, 5])
def test_a_name_server_that_says_that_it_failed_is_neither_waited_for_nor_asked_again(name_server, code) -> None:
    name_server.code = code
    with pytest.raises(DiscoveryError, match="says that it failed"):
        resolver(name_server, timeout_s=60).lookup("llm", 1)
    assert name_server.asked == [("llm", 1)]


def test_the_second_name_server_is_asked_at_once_where_the_first_says_that_it_failed(name_server) -> None:
    failing = FakeNameServer()
    failing.code = 2
    name_server.add("llm", 1, "10.0.0.1")
    servers = resolver(failing).servers + resolver(name_server).servers
    try:
        assert [record.value for record in Resolver(servers, timeout_s=60).lookup("llm", 1)] == ["10.0.0.1"]
    finally:
        failing.close()


def test_the_second_name_server_is_asked_where_the_first_is_gone(name_server) -> None:
    name_server.add("llm", 1, "10.0.0.1")
    host, _, port = name_server.address.partition(":")
    resolver = Resolver((("127.0.0.1", 1), (host, int(port))), timeout_s=0.2)
    assert [record.value for record in resolver.lookup("llm", 1)] == ["10.0.0.1"]


def test_short_names_are_searched_for_first_and_long_ones_last(name_server) -> None:
    host, _, port = name_server.address.partition(":")
    resolver = Resolver(((host, int(port)),), ("prod.svc", "svc"), ndots=2)
    resolver.lookup("llm.prod", 1)
    resolver.lookup("a.b.c", 1)
    resolver.lookup("whole.", 1)
    assert [name for name, _ in name_server.asked] == [
        *("llm.prod.prod.svc", "llm.prod.svc", "llm.prod"),
        *("a.b.c", "a.b.c.prod.svc", "a.b.c.svc"),
        "whole",
    ]


def test_the_systems_name_servers_are_those_of_resolv_conf(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text(
        "# us\nnameserver 10.96.0.10\nsearch prod.svc.cluster.local svc.cluster.local\noptions ndots:5 edns0\n"
    )
    assert Resolver.of_system(file) == Resolver(
        (("10.96.0.10", 53),), ("prod.svc.cluster.local", "svc.cluster.local"), ndots=5
    )
    assert Resolver.of_system(tmp_path / "none").servers == (("127.0.0.1", 53),)


# Kubernetes


def endpoint(address: str, **conditions: object) -> dict[str, object]:
    return {"addresses": [address], "conditions": conditions}


SLICES = {
    "kind": "EndpointSliceList",
    "apiVersion": "discovery.k8s.io/v1",
    "items": [
        {
            "addressType": "IPv4",
            "ports": [{"name": "metrics", "port": 9000}, {"name": "http", "port": 8000, "protocol": "TCP"}],
            "endpoints": [
                endpoint("10.1.0.1", ready=True, serving=True, terminating=False),
                endpoint("10.1.0.2", ready=False, serving=True, terminating=True),
                endpoint("10.1.0.3"),
            ],
        },
        {
            "addressType": "IPv6",
            "ports": [{"name": "http", "port": 8000}],
            "endpoints": [endpoint("fd00::7", ready=True)],
        },
        {"addressType": "IPv4", "ports": None, "endpoints": None},
    ],
}


def test_ready_endpoints_of_all_slices_are_nodes(api) -> None:
    api.body = SLICES
    found = look(f"k8s://prod/llm?port=http&api={quote(api.url, safe='')}")
    assert found.addresses == ("http://10.1.0.1:8000", "http://10.1.0.3:8000", "http://[fd00::7]:8000")
    path, headers = api.requests[0]
    assert urlsplit(path).path == "/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices"
    assert urlsplit(path).query == "labelSelector=kubernetes.io%2Fservice-name%3Dllm"
    assert "authorization" not in headers  # kubectl proxy has its own


def test_the_first_port_is_meant_where_none_is_named(api) -> None:
    api.body = SLICES
    assert look(f"k8s://prod/llm?api={api.url}").addresses[0] == "http://10.1.0.1:9000"


def test_a_pod_shows_the_token_of_its_account_and_knows_its_namespace(api, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "namespace").write_text("staging\n")
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "ca.crt").write_text("")
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: None)
    source = EndpointSlices("", "llm", account=tmp_path)
    base, headers, _ = source._server({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"})
    assert (base, headers) == ("https://10.0.0.1:6443", {"authorization": "Bearer secret"})
    api.body = {"items": []}
    EndpointSlices("", "llm", api=api.url, account=tmp_path).look()
    assert "/namespaces/staging/" in api.requests[0][0]


def test_outside_a_cluster_there_is_no_api(monkeypatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(DiscoveryError, match="KUBERNETES_SERVICE_HOST"):
        look("k8s://prod/llm")


# Consul


def entry(node: str, service: str, port: int) -> dict[str, object]:
    """As the API documents a member of /v1/health/service/NAME; what nobody reads is left out."""
    return {
        "Node": {"ID": "40e4a748", "Node": "foobar", "Address": node, "Datacenter": "dc1", "Meta": {}},
        "Service": {"ID": "llm-1", "Service": "llm", "Tags": ["gpu"], "Address": service, "Port": port, "Weights": {}},
        "Checks": [{"Node": "foobar", "CheckID": "service:llm", "Status": "passing", "ServiceTags": ["gpu"]}],
    }


def test_services_that_pass_their_checks_are_nodes(api, monkeypatch) -> None:
    monkeypatch.setenv("CONSUL_HTTP_TOKEN", "secret")
    api.body = [entry("10.1.10.12", "10.1.10.99", 8000), entry("10.1.10.13", "", 8001)]
    found = look(f"consul://{urlsplit(api.url).netloc}/llm?dc=dc1&tag=gpu")
    assert found.addresses == ("http://10.1.10.99:8000", "http://10.1.10.13:8001")
    path, headers = api.requests[0]
    assert path == "/v1/health/service/llm?passing=true&dc=dc1&tag=gpu"
    assert headers["x-consul-token"] == "secret"


def test_without_a_token_none_is_sent(api, monkeypatch) -> None:
    monkeypatch.delenv("CONSUL_HTTP_TOKEN", raising=False)
    api.body = []
    assert look(f"consul://{urlsplit(api.url).netloc}/llm").addresses == ()
    assert "x-consul-token" not in api.requests[0][1]


# Whatever an API says

NO_ADDRESS = {"items": [{"ports": [{"port": 1}], "endpoints": [{"addresses": []}]}]}


@pytest.mark.parametrize("source", ["k8s", "consul"])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (403, {}),
        (200, b"<html>"),
        (200, b"[" * 100_000),
        (200, [1]),
        (200, {"items": [{"ports": 3}]}),
        (200, NO_ADDRESS),
    ],
)
def test_an_answer_that_is_none_is_an_error_and_no_empty_list(api, source, status, body) -> None:
    api.status, api.body = status, body
    texts = {"k8s": f"k8s://prod/llm?api={api.url}", "consul": f"consul://{urlsplit(api.url).netloc}/llm"}
    with pytest.raises(DiscoveryError):
        look(texts[source])


def test_an_api_that_is_gone_is_an_error() -> None:
    with pytest.raises(DiscoveryError, match="does not answer"):
        look("consul://127.0.0.1:1/llm")


# All sources together, on a fake clock


class Scripted:
    """A source that says, or fails, as it is told."""

    name = "scripted"

    def __init__(self, *says: Found | Exception) -> None:
        self._says = list(says)

    def look(self) -> Found:
        said = self._says.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


@pytest.mark.parametrize("gone", [DiscoveryError("no name server answers"), IndexError("a defect")])
def test_a_source_that_fails_loses_none_of_its_nodes_and_is_asked_again_soon(gone) -> None:
    directory = Directory([Scripted(Found(("http://a:1",), 10), gone, gone, Found(("http://b:1",), 10))])
    assert directory.look(0) == ["http://a:1"]
    assert directory.next_ns() == 10 * S
    assert directory.look(10 * S) == ["http://a:1"]
    assert directory.next_ns() == 11 * S
    assert directory.look(11 * S) == ["http://a:1"]
    assert directory.look(12 * S) == ["http://b:1"]


def test_no_source_is_asked_before_its_word_is_old() -> None:
    directory = Directory([Scripted(Found(("http://a:1",), 5)), Scripted(Found((), 2), Found(("http://c:1",), 2))])
    directory.look(0)
    assert not directory.due(2 * S - 1)
    assert directory.look(2 * S) == ["http://a:1", "http://c:1"]


@pytest.mark.parametrize(("fresh_s", "next_s"), [(0, 1), (3600, 30)])
def test_times_to_live_have_bounds(fresh_s, next_s) -> None:
    directory = Directory([Scripted(Found((), fresh_s))])
    directory.look(0)
    assert directory.next_ns() == next_s * S


def test_a_node_in_two_sources_is_one() -> None:
    directory = Directory([Scripted(Found(("http://a:1", "http://b:1"))), Scripted(Found(("http://a:1",)))])
    assert directory.look(0) == ["http://a:1", "http://b:1"]


def test_an_api_that_speaks_a_byte_at_a_time_is_not_listened_to_for_ever(api) -> None:
    api.body, api.pause_s = {"names": ["node"] * 100}, 0.02
    with pytest.raises(DiscoveryError, match="does not answer"):
        fetch(api.url, "/", {}, timeout_s=0.2)
    assert api.broken.wait(30)
