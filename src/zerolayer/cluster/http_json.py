"""One JSON document from one HTTP server, for sources that are APIs. Blocking."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from typing import Any, Final

from zerolayer.cluster.directory import DiscoveryError
from zerolayer.cluster.http_get import FAILURES, Connection, TooLarge

_TIMEOUT_S: Final = 3.0
_MOST_BYTES: Final = 16 << 20


def fetch(
    base: str,
    path: str,
    headers: Mapping[str, str],
    tls: ssl.SSLContext | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> Any:
    """What ``GET path`` gives. ``base`` is ``http(s)://host:port``. Raises ``DiscoveryError``."""
    connection = Connection(base, tls)
    try:
        end_s = time.monotonic() + timeout_s
        reply = connection.get(path, {"accept": "application/json", **headers}, _MOST_BYTES, end_s)
    except TooLarge:
        raise DiscoveryError(f"the API's answer is larger than {_MOST_BYTES >> 20} MB") from None
    except FAILURES:
        raise DiscoveryError("the API does not answer") from None
    finally:
        connection.close()
    if reply.status != 200:
        raise DiscoveryError(f"the API answers with status {reply.status}")
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        raise DiscoveryError("the API's answer is no JSON") from None
