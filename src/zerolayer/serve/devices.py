"""One node for each device: what each is started with, so that none shares anything with another."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from zerolayer.contract import Contract
from zerolayer.contract_engine import cores_of
from zerolayer.contract_listen import AUTO, OFF, STRIDE
from zerolayer.errors import StartupError
from zerolayer.serve.address import own_address

_OFF: Final = ("auto", "off")


@dataclass(frozen=True)
class Device:
    """A set of cores, as it was named, and the node on it."""

    name: str
    address: str
    admin: str
    command: tuple[str, ...]


def claim(device: str) -> None:
    """Keep this process, and all threads that it will start, to the cores of ``device``. Raises ``StartupError``."""
    cores = set(cores_of(device))
    usable = os.sched_getaffinity(0)
    if not cores <= usable:
        raise StartupError(
            f"the device {device} has cores that this process may not use. engine.devices may name these: "
            f"{', '.join(str(core) for core in sorted(usable))}."
        )
    os.sched_setaffinity(0, cores)


def devices(contract: Contract, given: Mapping[str, str], switches: Sequence[str]) -> list[Device]:
    """``given`` are the flags of ``zerolayer serve`` that were set, by name without dashes; ``switches`` those alone.

    Every node gets them all, but with ports, files and peers of its own. Raises ``StartupError`` for cores that are
    not there.
    """
    usable = os.sched_getaffinity(0)
    strangers = [name for name in contract.engine.devices if not set(cores_of(name)) <= usable]
    if strangers:
        raise StartupError(
            f"the device {strangers[0]} has cores that this process may not use. --devices may name these: "
            f"{', '.join(str(core) for core in sorted(usable))}."
        )
    places = range(len(contract.engine.devices))
    addresses = [_shifted(own_address(contract, contract.listen.port), place) for place in places]
    return [_device(contract, given, switches, addresses, place) for place in places]


def _device(
    contract: Contract, given: Mapping[str, str], switches: Sequence[str], addresses: Sequence[str], place: int
) -> Device:
    listen, name = contract.listen, contract.engine.devices[place]
    host, admin_port = listen.admin_address
    port = listen.port + STRIDE * place
    admin = f"{f'[{host}]' if ':' in host else host}:{admin_port + STRIDE * place}"
    others = [address for address in addresses if address != addresses[place]]
    own = {
        "devices": name,
        "port": str(port),
        "admin": admin,
        "address": addresses[place],
        "peers": ",".join(dict.fromkeys([*contract.cluster.peers, *others])),
    }
    if contract.tenants.node:
        own["node"] = _shifted(contract.tenants.node, place)
    if listen.unix:
        own["unix"] = f"{listen.unix}.{port}"
    if listen.admin_unix not in (AUTO, OFF):
        own["admin-unix"] = f"{listen.admin_unix}.{port}"
    if contract.ledger.path not in _OFF:
        own["ledger"] = f"{contract.ledger.path.rstrip('/')}/{port}"
    flags = [part for flag, value in {**given, **own}.items() for part in (f"--{flag}", value)]
    command = (sys.executable, "-m", "zerolayer", "serve", *flags, *switches)
    return Device(name, addresses[place], f"http://{admin}", command)


def _shifted(address: str, place: int) -> str:
    """The same with the port of the node at ``place``."""
    parts = urlsplit(address)
    port = (parts.port or (443 if parts.scheme == "https" else 80)) + STRIDE * place
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}"
