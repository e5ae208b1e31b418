"""Servers that share limits, on real sockets: exactly the limit passes, and only nodes may ask for leases."""

from __future__ import annotations

import itertools
import time

import pytest
from echo_service import Service, chat, expect_soon, post

from reference.server import own_host, own_port
from zerolayer.guard.auth.key_files import KEY_SET
from zerolayer.guard.identity import Quota

ASK = [
    {
        "type": "ask",
        "account": "AAAAAAAAAAAAAAAAAAAAAA==",
        "lease": "AAAAAAAAAAAAAAAAAAAAAA==",
        "wanted": {"requests": 1},
    }
]


@pytest.fixture
def fleet(serve, keys, tmp_path) -> list[Service]:
    (tmp_path / "node.key").write_text(keys.key(is_node=True))
    places = [(own_host(), own_port()) for _ in range(3)]  # each must be known before any of them listens
    nodes = tuple(f"http://{host}:{port}" for host, port in places)
    return [
        serve(
            slots=16,
            host=host,
            port=str(port),
            key_set=str(keys.folder / KEY_SET),
            tenants={
                "nodes": nodes,
                "node": node,
                "node_key": str(tmp_path / "node.key"),
                "state": str(tmp_path / f"{host}.log"),
            },
        )
        for (host, port), node in zip(places, nodes, strict=True)
    ]


def test_of_a_limit_of_ten_on_three_nodes_exactly_ten_pass(fleet, keys):
    key = keys.key(quota=Quota(requests_per_minute=10))
    nodes, began_s, passed = itertools.cycle(fleet), time.monotonic(), 0

    def ask() -> None:
        nonlocal passed
        status = next(nodes).ask(chat("hi", f"x-api-key: {key}")).status
        assert status in (200, 429)
        passed += status == 200
        assert passed <= 10 + (time.monotonic() - began_s) // 6  # ten a minute come back one by one

    expect_soon(lambda: ask() or passed >= 10)
    over = time.monotonic() + 1  # time for a node to ask for more
    while time.monotonic() < over:
        ask()


def test_a_node_that_is_not_the_home_serves_after_the_wait_that_it_asked_for(fleet, keys):
    key = keys.key(quota=Quota(tokens_per_minute=100_000, concurrent=8))
    for service in fleet:
        expect_soon(lambda service=service: service.ask(chat("hi", f"x-api-key: {key}")).status == 200)


def test_a_node_whose_home_does_not_answer_refuses_and_the_others_go_on(fleet, keys):
    key = keys.key(quota=Quota(requests_per_minute=1000))
    identity = fleet[0].server.keyring.authenticator.admit(key.encode(), "test")
    homes = [service.server.book._fleet.home(identity.key_id) for service in fleet]
    assert len(set(homes)) == 1
    home = next(service for service in fleet if homes[0].endswith(f":{service.port}"))
    other = next(service for service in fleet if service is not home)
    home.close()
    reply = other.ask(chat("hi", f"x-api-key: {key}"))
    assert reply.status == 429
    assert int(reply.headers["retry-after-ms"]) >= 1


def test_only_a_nodes_key_may_ask_for_leases(serve, keys):
    service = serve(key_set=str(keys.folder / KEY_SET))
    assert service.ask(post("/v1/leases", ASK)).status == 401
    assert service.ask(post("/v1/leases", ASK, f"x-api-key: {keys.key()}")).status == 403
    reply = service.ask(post("/v1/leases", ASK, f"x-api-key: {keys.key(is_node=True)}"))
    assert reply.status == 200
    assert reply.json[0]["units"]["requests"] == 1


def test_this_machine_may_ask_on_the_admin_listener(serve):
    service = serve()
    assert service.ask(post("/leases", ASK), service.server.admin_port).json[0]["units"]["requests"] == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[[]]", b'[{"type":"ask"}]', [{**ASK[0], "account": "AA=="}], [{**ASK[0], "wanted": {"tokens": -1}}]],
)
def test_strangers_bytes_are_refused(serve, body):
    service = serve()
    assert service.ask(post("/leases", body), service.server.admin_port).status == 400
