"""What each node is started with: nothing is shared but what all were told."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer import cli
from zerolayer.contract import load
from zerolayer.contract_engine import cores_of
from zerolayer.errors import ContractError, StartupError
from zerolayer.serve.devices import Device, devices


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))


def made(**flags: str) -> list[Device]:
    given_flags = {name.replace("_", "-"): value for name, value in flags.items()}
    return devices(load(None, {}, given_flags).contract, given_flags, [])


def flags_of(device: Device) -> dict[str, str]:
    rest = device.command[device.command.index("serve") + 1 :]
    return {flag.removeprefix("--"): value for flag, value in zip(rest[::2], rest[1::2], strict=True)}


def test_each_node_has_its_cores_and_two_ports_of_its_own() -> None:
    given_flags = [flags_of(device) for device in made(devices="0-3,4-7,8+12")]
    assert [(each["devices"], each["port"], each["admin"]) for each in given_flags] == [
        ("0-3", "8000", "127.0.0.1:8001"),
        ("4-7", "8002", "127.0.0.1:8003"),
        ("8+12", "8004", "127.0.0.1:8005"),
    ]


def test_each_node_is_told_of_all_others_and_of_the_peers_that_were_given() -> None:
    _, second = map(flags_of, made(devices="0,1", peers="http://10.0.0.9:8000", port="9000", admin="127.0.0.1:9001"))
    assert second["address"] == "http://127.0.0.1:9002"
    assert second["peers"] == "http://10.0.0.9:8000,http://127.0.0.1:9000"


def test_files_are_not_shared() -> None:
    first, second = map(flags_of, made(devices="0,1", ledger="/var/ledger/", unix="/run/zl.sock"))
    assert (first["ledger"], second["ledger"]) == ("/var/ledger/8000", "/var/ledger/8002")
    assert (first["unix"], second["unix"]) == ("/run/zl.sock.8000", "/run/zl.sock.8002")


def test_addresses_and_the_names_of_those_that_share_limits_are_counted_up_like_the_ports() -> None:
    nodes = made(devices="0,1", host="0.0.0.0", insecure="true", address="http://llm:8000", node="http://llm:8000")
    assert [device.address for device in nodes] == ["http://llm:8000", "http://llm:8002"]
    assert [flags_of(device)["node"] for device in nodes] == ["http://llm:8000", "http://llm:8002"]


def test_what_each_is_started_with_is_a_contract() -> None:
    for device in made(devices="0,1", slots="3", model="smollm2"):
        contract = load(None, {}, flags_of(device)).contract
        assert (contract.context.slots, contract.engine.devices) == (3, (flags_of(device)["devices"],))


def test_cores_that_are_not_there_are_refused_before_anything_starts() -> None:
    with pytest.raises(StartupError, match="99"):
        made(devices="0,99")


@pytest.mark.parametrize(
    "flags",
    [
        {"devices": "0-1,1"},
        {"devices": "3-0"},
        {"devices": "0-1-2"},
        {"devices": "a"},
        {"devices": "0,1", "port": "0"},
        {"devices": "0,1", "port": "8000", "admin": "127.0.0.1:8002"},
        {"devices": "0,1", "port": "65534"},
        {"devices": "0,1", "host": "0.0.0.0", "insecure": "true"},
    ],
)
def test_devices_that_do_not_go_together_are_a_contract_that_is_refused(flags) -> None:
    with pytest.raises(ContractError):
        load(None, {}, flags)


def test_budgets_of_several_nodes_are_not_one_file(tmp_path) -> None:
    file = tmp_path / "contract.toml"
    file.write_text('[tenants]\nstate = "budgets.log"\n[engine]\ndevices = ["0", "1"]\n')
    with pytest.raises(ContractError, match=r"tenants\.state"):
        load(file, {}, {})


@given(st.lists(st.integers(0, 200), min_size=1, max_size=8, unique=True))
def test_a_set_of_single_cores_is_read_back(cores) -> None:
    assert cores_of("+".join(map(str, cores))) == tuple(cores)


def test_switches_and_repeated_flags_reach_every_node(monkeypatch) -> None:
    from zerolayer.serve import parent

    seen = {}
    monkeypatch.setattr(parent, "main", lambda effective, given, switches: seen.update(given=given, switches=switches))
    monkeypatch.setattr(cli, "int", lambda _: 0, raising=False)
    cli.main(["serve", "--devices", "0,1", "--access-log", "--cors", "http://a.b", "--cors", "http://c.d"])
    assert seen["switches"] == ["--access-log"]
    assert seen["given"] == {"devices": "0,1", "cors": "http://a.b,http://c.d"}
