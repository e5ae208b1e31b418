"""Nodes behind a Service of Kubernetes, by its EndpointSlices, asked as a pod asks: with its service account's token.

The account needs ``list`` on ``endpointslices`` (``zerolayer k8s`` has no need of it: a headless Service's DNS says
the same). References: https://kubernetes.io/docs/reference/kubernetes-api/service-resources/endpoint-slice-v1/ and
https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from zerolayer.cluster.directory import DiscoveryError, Found
from zerolayer.cluster.http_json import fetch

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_FRESH_S: Final = 5.0
_SCHEMES: Final = ("http", "https")
_LABEL: Final = "kubernetes.io/service-name"


class EndpointSlices:
    """``port`` is the name or number of a port, or empty for the only one; ``api`` is empty inside a cluster."""

    def __init__(
        self,
        namespace: str,
        service: str,
        port: str = "",
        scheme: str = "http",
        api: str = "",
        account: Path = _ACCOUNT,
    ) -> None:
        self.name = f"k8s://{namespace}/{service}"
        self._namespace = namespace
        self._service = service
        self._port = port
        self._scheme = scheme
        self._api = api
        self._account = account

    @classmethod
    def of(cls, parts: SplitResult) -> Self:
        """``k8s://namespace/service[?port=http][&scheme=https][&api=http://127.0.0.1:8001]``. Raises ``ValueError``.

        Without a namespace (``k8s:///service``) it is that of this pod. ``api`` is for ``kubectl proxy``.
        """
        service = parts.path.strip("/")
        settings = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        if not service or "/" in service or settings.keys() - {"port", "scheme", "api"}:
            raise ValueError
        scheme, api = settings.get("scheme", "http"), settings.get("api", "")
        server = urlsplit(api or "http://")
        if scheme not in _SCHEMES or server.scheme not in _SCHEMES or server.port == 0:  # a port that is none raises
            raise ValueError
        return cls(parts.netloc, service, settings.get("port", ""), scheme, api)

    def look(self) -> Found:
        """Ask the API server. Raises ``DiscoveryError``."""
        namespace = self._namespace or self._read("namespace")
        selector = quote(f"{_LABEL}={self._service}", safe="")
        path = (
            f"/apis/discovery.k8s.io/v1/namespaces/{quote(namespace, safe='')}/endpointslices?labelSelector={selector}"
        )
        base, headers, tls = self._server(os.environ)
        try:
            addresses = tuple(self._addresses(fetch(base, path, headers, tls)))
        except (AttributeError, LookupError, TypeError, ValueError):
            raise DiscoveryError("the API's answer is no list of EndpointSlices") from None
        return Found(tuple(dict.fromkeys(addresses)), _FRESH_S)

    def _addresses(self, slices: Any) -> Iterator[str]:
        """Raises ``AttributeError``, ``LookupError``, ``TypeError``, ``ValueError`` for another shape."""
        for each in slices["items"]:
            port = self._port_of(each.get("ports") or [])
            for endpoint in each.get("endpoints") or []:
                # "ready" that is not told is to be taken for true.
                if port is not None and (endpoint.get("conditions") or {}).get("ready") is not False:
                    host = str(endpoint["addresses"][0])  # all addresses of an endpoint are the same pod
                    yield f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def _port_of(self, ports: list[dict[str, Any]]) -> int | None:
        for port in ports:
            if self._port in ("", port.get("name") or "", str(port.get("port"))) and port.get("port") is not None:
                return int(port["port"])
        return None

    def _server(self, environ: Mapping[str, str]) -> tuple[str, dict[str, str], ssl.SSLContext | None]:
        """Where the API is, and how to be let in. Tokens are replaced while a pod runs, so it is read every time."""
        if self._api:
            return self._api, {}, None
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise DiscoveryError("this is no pod of a cluster: KUBERNETES_SERVICE_HOST is not set")
        base = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        try:
            tls = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        except (OSError, ssl.SSLError):
            raise DiscoveryError("the pod has no certificate of its cluster's API") from None
        return base, {"authorization": f"Bearer {self._read('token')}"}, tls

    def _read(self, file: str) -> str:
        try:
            return (self._account / file).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise DiscoveryError(f"the pod's service account has no {file}") from None
