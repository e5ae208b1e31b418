"""One JSON document from one HTTP server, for sources that are APIs. Blocking."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from zerolayer.cluster.directory import DiscoveryError

_TIMEOUT_S: Final = 3.0
_MOST_BYTES: Final = 16 << 20


def fetch(base: str, path: str, headers: Mapping[str, str], tls: ssl.SSLContext | None = None) -> Any:
    """What ``GET path`` gives. ``base`` is ``http(s)://host:port``. Raises ``DiscoveryError``."""
    where = urlsplit(base)
    connection: http.client.HTTPConnection
    if where.scheme == "https":
        connection = http.client.HTTPSConnection(where.hostname or "", where.port, timeout=_TIMEOUT_S, context=tls)
    else:
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path, headers={"accept": "application/json", **headers})
        reply = connection.getresponse()
        body = reply.read(_MOST_BYTES + 1)
        if reply.status != 200:
            raise DiscoveryError(f"the API answers with status {reply.status}")
        if len(body) > _MOST_BYTES:
            raise DiscoveryError(f"the API's answer is larger than {_MOST_BYTES >> 20} MB")
        return json.loads(body)
    except (OSError, http.client.HTTPException):
        raise DiscoveryError("the API does not answer") from None
    except (ValueError, RecursionError):
        raise DiscoveryError("the API's answer is no JSON") from None
    finally:
        connection.close()
