"""``GET /v1/nodes`` on real servers: nodes find one another without a seed, and whose word is taken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trustme
from echo_service import Service, chat, expect_soon, get

sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))

from fake_servers import FakeNameServer

from zerolayer import cli
from zerolayer.cluster.http_get import Connection
from zerolayer.model.derating import Derating

PATH = "/v1/nodes"


@pytest.fixture
def name_server() -> Iterator[FakeNameServer]:
    server = FakeNameServer()
    yield server
    server.close()


def ask(service: Service) -> dict:
    return service.ask(get(PATH)).json


def states(service: Service) -> dict[str, str]:
    return {node["address"]: node["state"] for node in ask(service)["nodes"]}


def url(service: Service) -> str:
    return f"http://127.0.0.1:{service.port}"


def epoch(service: Service) -> int:
    members = dict(part.split("=") for part in service.ask(get("/livez")).headers["x-zl-load"].split(";"))
    return int(members["epoch"])


def test_a_node_that_is_alone_tells_of_itself(serve) -> None:
    service = serve(slots=3, slot_tokens=512)
    reply = service.ask(get(PATH))
    assert (reply.status, reply.headers["cache-control"]) == (200, "no-store")
    assert reply.json == {
        "version": 1,
        "epoch": 0,
        "self": url(service),
        "nodes": [
            {
                "address": url(service),
                "state": "ready",
                "model": "echo",
                "slots": 3,
                "free": 3,
                "next_ms": 0,
                "derate": 1.0,
                "age_ms": 0,
            }
        ],
    }


def test_readiness_tells_what_the_node_is_called(serve) -> None:
    service = serve(address="http://llm-0.llm:8000")
    assert service.ask(get("/readyz")).headers["x-zl-node"] == "http://llm-0.llm:8000"
    assert ask(service)["self"] == "http://llm-0.llm:8000"


def test_nodes_that_know_only_the_first_find_one_another_and_agree_on_the_epoch(serve) -> None:
    first = serve()
    others = [serve(peers=url(first)) for _ in range(2)]
    fleet = [first, *others]
    everyone = dict.fromkeys(map(url, fleet), "ready")
    expect_soon(lambda: all(states(service) == everyone for service in fleet))
    expect_soon(lambda: len({epoch(service) for service in fleet}) == 1)
    assert epoch(first) == ask(first)["epoch"] > 0
    assert {node["model"] for node in ask(first)["nodes"]} == {"echo"}


def test_a_node_that_takes_no_more_work_is_told_to_all_and_changes_the_epoch(serve) -> None:
    first = serve()
    second = serve(peers=url(first))
    expect_soon(lambda: states(first).get(url(second)) == "ready")
    before = epoch(first)
    second.on_loop(lambda: second.server.guard.close(second.server.nodes.leaving()))
    expect_soon(lambda: states(first)[url(second)] == "unready")
    expect_soon(lambda: epoch(first) != before)


def test_a_node_that_drains_names_the_others_that_take_new_work(serve) -> None:
    first = serve()
    second = serve(peers=url(first))
    alone = first.on_loop(first.server.nodes.leaving)
    expect_soon(lambda: states(second).get(url(first)) == "ready")
    accompanied = second.on_loop(second.server.nodes.leaving)
    assert (alone.peers, accompanied.peers) == ((), (url(first),))
    second.on_loop(lambda: second.server.guard.close(accompanied))
    refused = second.ask(chat("new"))
    assert (refused.status, refused.headers["x-zl-peers"]) == (503, url(first))
    assert int(refused.headers["retry-after-ms"]) >= 1


def test_a_node_that_dies_is_away_on_the_lists_of_the_others(serve) -> None:
    first = serve()
    second = serve(peers=url(first))
    expect_soon(lambda: states(first).get(url(second)) == "ready")
    gone = url(second)
    second.close()
    expect_soon(lambda: states(first)[gone] == "away")


@pytest.mark.parametrize(
    "name", ["http://10.9.8.7:8000", "http://[::1]:1", "nonsense", "http://[", "http://127.0.0.2:1"]
)
def test_without_keys_nobody_makes_a_server_ask_at_another_address_than_his_own(serve, name) -> None:
    service = serve()
    told = []
    service.server.nodes._neighbours.announced = lambda address, *, proven: told.append((address, proven))
    assert service.ask(get(PATH, "x-zl-node: " + name)).status == 200
    assert service.ask(get(PATH, "x-zl-node: http://127.0.0.1:1")).status == 200
    assert told == [("http://127.0.0.1:1", False)]


def test_nodes_find_one_another_by_dns_and_go_on_when_it_is_gone(serve, name_server) -> None:
    source = f"dns+srv://_http._tcp.llm?server={name_server.address}"
    fleet = [serve(peers=source) for _ in range(2)]
    everyone = {url(service): "ready" for service in fleet}
    for service in fleet:
        name_server.add("_http._tcp.llm", 33, "localhost", ttl=1, port=service.port)
    expect_soon(lambda: all(states(service) == everyone for service in fleet))
    asked = len(name_server.asked)
    name_server.code = 2
    expect_soon(lambda: len(name_server.asked) > asked + 2)
    assert all(states(service) == everyone for service in fleet)


def test_a_device_that_is_throttled_tells_every_client_and_every_node(serve, tmp_path) -> None:
    clock = tmp_path / "cpu0" / "cpufreq" / "scaling_max_freq"
    clock.parent.mkdir(parents=True)
    clock.write_text("4000000")
    service = serve()
    service.server.nodes._derating = Derating([0], None, tmp_path)
    clock.write_text("3000000")
    expect_soon(lambda: "derate=0.75" in service.ask(get("/livez")).headers["x-zl-load"])
    assert ask(service)["nodes"][0]["derate"] == 0.75


# Where requests need keys


@pytest.fixture
def keys(tmp_path, capsys) -> dict[str, str]:
    """A key set and two keys, one of them a node's."""
    folder = tmp_path / "keys"
    made = {"set": str(folder / "keyset.json")}
    cli.main(["keys", "new", str(folder)])
    for name, flags in (("client", []), ("node", ["--node"])):
        capsys.readouterr()
        cli.main(["keys", "issue", "--folder", str(folder), "--tenant", name, *flags])
        made[name] = capsys.readouterr().out.strip()
    (folder / "node.key").write_text(made["node"])
    return made | {"file": str(folder / "node.key")}


def test_nodes_with_keys_let_one_another_in_and_nobody_without(serve, keys) -> None:
    settings = {"key_set": keys["set"], "node_key": keys["file"]}
    first = serve(**settings)
    second = serve(**settings, peers=url(first))
    head = f"authorization: Bearer {keys['client']}"
    assert first.ask(get(PATH)).status == 401
    nodes = {}

    def everyone() -> bool:
        for service in (first, second):
            nodes[url(service)] = service.ask(get(PATH, head)).json["nodes"]
        return all(len(listed) == 2 and {node["state"] for node in listed} == {"ready"} for listed in nodes.values())

    expect_soon(everyone)
    assert [node["model"] for node in nodes[url(second)]] == ["echo", "echo"]


def test_a_client_s_key_announces_nobody(serve, keys) -> None:
    service = serve(key_set=keys["set"])
    told = []
    service.server.nodes._neighbours.announced = lambda address, *, proven: told.append((address, proven))
    for key in ("client", "node"):
        service.ask(get(PATH, f"authorization: Bearer {keys[key]}", f"x-zl-node: http://127.0.0.1:{key == 'node':d}"))
    assert told == [("http://127.0.0.1:1", True)]


def test_a_node_s_key_goes_only_where_the_operator_said(serve, keys, monkeypatch) -> None:
    asked = set()
    get = Connection.get

    def watched(self, path, headers, *rest):
        asked.add((self.base, path, "authorization" in headers))
        return get(self, path, headers, *rest)

    monkeypatch.setattr(Connection, "get", watched)
    settings = {"key_set": keys["set"], "node_key": keys["file"]}
    first = serve(**settings)
    second = serve(**settings, peers=url(first))
    expect_soon(lambda: {(url(first), PATH, True), (url(second), PATH, False)} <= asked)
    assert (url(second), PATH, True) not in asked


def test_metrics_count_the_nodes_by_their_states(serve) -> None:
    first = serve()
    second = serve(peers=url(first))
    expect_soon(lambda: states(first).get(url(second)) == "ready")
    page = first.ask(get("/metrics"), first.server.admin_port).body.decode()
    counted = {
        line.split('state="')[1].split('"')[0]: line.split()[-1] for line in page.splitlines() if "nodes{" in line
    }
    assert counted == {"ready": "2", "unready": "0", "away": "0", "unheard": "0"}


def test_nodes_show_one_another_their_certificates_where_clients_must(serve, tmp_path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", common_name="node")
    files = {name: str(tmp_path / f"{name}.pem") for name in ("certificate", "key", "client_ca")}
    Path(files["certificate"]).write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(files["key"])
    authority.cert_pem.write_to_path(files["client_ca"])
    first = serve(**files)
    second = serve(**files, peers=f"https://127.0.0.1:{first.port}")

    def listed(service: Service) -> set[tuple[str, str]]:
        nodes = msgspec.json.decode(service.on_loop(service.server.nodes.body))["nodes"]
        return {(node["address"], node["state"]) for node in nodes}

    everyone = {(f"https://127.0.0.1:{service.port}", "ready") for service in (first, second)}
    expect_soon(lambda: listed(first) == listed(second) == everyone)
