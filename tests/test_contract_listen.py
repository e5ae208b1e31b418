"""Where a contract lets the server listen, and what opens it to other machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract_file import refusal, write
from zerolayer.contract import load
from zerolayer.contract_listen import is_loopback
from zerolayer.errors import ContractError

TLS = {"certificate": "chain.pem", "key": "key.pem"}


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        ({"certificate": "chain.pem"}, "give --key"),
        ({"key": "key.pem"}, "give --certificate"),
        ({"client-ca": "ca.pem"}, "give --certificate"),
    ],
)
def test_parts_of_tls_are_refused_without_the_others(flags: dict[str, str], remedy: str) -> None:
    with pytest.raises(ContractError, match=remedy):
        load(None, {}, flags)


def test_other_machines_may_come_when_they_need_a_certificate() -> None:
    flags = {**TLS, "client-ca": "ca.pem", "host": "0.0.0.0"}
    assert load(None, {}, flags).contract.listen.open_to_others


def test_the_admin_listener_is_loopback_even_when_insecure(tmp_path: Path) -> None:
    assert "loopback" in refusal(tmp_path, 'listen.insecure = true\nlisten.admin = "0.0.0.0:8001"\n')


def test_insecure_opens_other_addresses() -> None:
    assert load(None, {}, {"host": "0.0.0.0", "insecure": "true"}).contract.listen.host == "0.0.0.0"


def test_port_zero_lets_the_system_choose_both_ports() -> None:
    listen = load(None, {}, {"port": "0", "admin": "127.0.0.1:0"}).contract.listen
    assert (listen.port, listen.admin_address) == (0, ("127.0.0.1", 0))


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("", False)],
)
def test_only_addresses_of_this_machine_are_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_tls_is_refused_under_its_wrong_name(tmp_path: Path) -> None:
    message = refusal(tmp_path, "[listen]\ntls = true\n")
    assert "contract.toml:2: " in message
    assert "listen.certificate and listen.key" in message


def test_keys_open_other_addresses(tmp_path: Path) -> None:
    text = '[listen]\nhost = "0.0.0.0"\n'
    assert "--key-set" in refusal(tmp_path, text)
    contract = load(write(tmp_path, text + '[tenants]\nkey_set = "keys/keyset.json"\n'), {}, {}).contract
    assert contract.open_to_others
