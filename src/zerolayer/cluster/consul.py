"""Nodes that are registered with Consul and pass their checks, by its HTTP API.

Written after https://developer.hashicorp.com/consul/api-docs/health; no Consul was at hand, so it is tested against a
recorded API. The token is that of ``CONSUL_HTTP_TOKEN``, as in Consul's own tools.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final, Self
from urllib.parse import SplitResult, parse_qsl, quote, urlencode

from zerolayer.cluster.directory import DiscoveryError, Found
from zerolayer.cluster.http_json import fetch

_FRESH_S: Final = 5.0
_TOKEN: Final = "CONSUL_HTTP_TOKEN"  # noqa: S105 - the name of a variable


class Consul:
    """``base`` is the agent's ``http(s)://host:port``; ``query`` goes along (``dc``, ``tag``, ``ns``)."""

    def __init__(self, base: str, service: str, scheme: str, query: dict[str, str]) -> None:
        self.name = f"consul at {base}, service {service}"
        self._base = base
        self._service = service
        self._scheme = scheme
        self._query = query

    @classmethod
    def of(cls, parts: SplitResult) -> Self:
        """``consul://host:port/service[?scheme=https][&tls=1][&dc=..][&tag=..][&ns=..]``. ``tls``: to the agent.

        Raises ``ValueError``.
        """
        service = parts.path.strip("/")
        query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        scheme, tls = query.pop("scheme", "http"), query.pop("tls", "0")
        if not parts.hostname or not service or "/" in service or query.keys() - {"dc", "tag", "ns"}:
            raise ValueError
        if scheme not in ("http", "https") or tls not in ("0", "1") or parts.username is not None:
            raise ValueError
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        base = f"{'https' if tls == '1' else 'http'}://{host}:{parts.port or 8500}"
        return cls(base, service, scheme, query)

    def look(self) -> Found:
        """Ask the agent. Raises ``DiscoveryError``."""
        query = urlencode({"passing": "true", **self._query})
        token = os.environ.get(_TOKEN, "")
        headers = {"x-consul-token": token} if token else {}
        entries = fetch(self._base, f"/v1/health/service/{quote(self._service, safe='')}?{query}", headers)
        try:
            return Found(tuple(dict.fromkeys(self._addresses(entries))), _FRESH_S)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise DiscoveryError("the API's answer is no list of services") from None

    def _addresses(self, entries: Any) -> Iterator[str]:
        for entry in entries:
            service = entry["Service"]
            host = str(service["Address"] or entry["Node"]["Address"])  # none of its own: its agent's
            yield f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{int(service['Port'])}"
