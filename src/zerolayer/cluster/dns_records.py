"""Nodes that DNS names: by addresses and one port, or by SRV records, which have a name and a port each."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final, Self
from urllib.parse import SplitResult, parse_qsl

from zerolayer.cluster.directory import SOONEST_S, Found
from zerolayer.cluster.dns_message import Kind, Record
from zerolayer.cluster.resolver import Resolver, Server

_SCHEMES: Final = ("http", "https")


class DnsAddresses:
    """``dns://name:port``: every A and AAAA record is a node, as those of a headless Service are."""

    def __init__(self, host: str, port: int, scheme: str, resolver: Resolver) -> None:
        self.name = f"dns://{host}:{port}"
        self._host = host
        self._port = port
        self._scheme = scheme
        self._resolver = resolver

    @classmethod
    def of(cls, parts: SplitResult) -> Self:
        """``dns://name:port[?scheme=https][&server=address:port]``. Raises ``ValueError``."""
        host, settings = _host(parts), _settings(parts)
        if parts.port is None:
            raise ValueError
        return cls(host, parts.port, _scheme(settings), _resolver(settings))

    def look(self) -> Found:
        """Ask for both kinds of address. Raises ``DiscoveryError``."""
        records = [record for kind in (Kind.A, Kind.AAAA) for record in self._resolver.lookup(self._host, kind)]
        hosts = [f"[{record.value}]" if record.kind == Kind.AAAA else record.value for record in records]
        return Found(tuple(f"{self._scheme}://{host}:{self._port}" for host in hosts), _fresh_s(records))


class DnsServices:
    """``dns+srv://_service._tcp.name``: the name and port of every SRV record, whatever their priorities.

    Which node to ask is the client's choice, by what each says of its load.
    """

    def __init__(self, host: str, scheme: str, resolver: Resolver) -> None:
        self.name = f"dns+srv://{host}"
        self._host = host
        self._scheme = scheme
        self._resolver = resolver

    @classmethod
    def of(cls, parts: SplitResult) -> Self:
        """``dns+srv://name[?scheme=https][&server=address:port]``. Raises ``ValueError``."""
        host, settings = _host(parts), _settings(parts)
        if parts.port is not None:
            raise ValueError
        return cls(host, _scheme(settings), _resolver(settings))

    def look(self) -> Found:
        """Ask for the records. Raises ``DiscoveryError``."""
        records = [record for record in self._resolver.lookup(self._host, Kind.SRV) if record.value]
        return Found(tuple(f"{self._scheme}://{record.value}:{record.port}" for record in records), _fresh_s(records))


def _fresh_s(records: list[Record]) -> float:
    """A name without records may get some at any time: it is asked for as often as any source is."""
    return min((float(record.ttl_s) for record in records), default=SOONEST_S)


def _host(parts: SplitResult) -> str:
    if not parts.hostname or parts.path.strip("/") or parts.username is not None:
        raise ValueError
    return parts.hostname


def _settings(parts: SplitResult) -> dict[str, str]:
    settings = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    if settings.keys() - {"scheme", "server"}:
        raise ValueError
    return settings


def _scheme(settings: Mapping[str, str]) -> str:
    scheme = settings.get("scheme", "http")
    if scheme not in _SCHEMES:
        raise ValueError
    return scheme


def _resolver(settings: Mapping[str, str]) -> Resolver:
    given = settings.get("server")
    return Resolver.of_system() if given is None else Resolver((_server(given),))


def _server(text: str) -> Server:
    host, _, port = text.rpartition(":")
    return str(ipaddress.ip_address(host.strip("[]"))), int(port)
