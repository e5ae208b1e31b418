"""One HTTP exchange over the standard library's client: address, connection, reply or a typed error."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from zerolayer.client.errors import BadReply, InvalidAddress, NotReachable, Refused

REPLY_BYTES = 1 << 24  # a JSON reply that is not a stream
CHECK = "Check that the address is that of an OpenAI-compatible server."


@dataclass(frozen=True)
class Address:
    """Where a server is: ``http`` or ``https``, host, port, and what stands before ``/v1``; and the key to show it."""

    scheme: str
    host: str
    port: int
    prefix: str
    key: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str, key: str = "") -> Self:
        """``http://host:port``, with or without a trailing ``/v1``. Raises ``InvalidAddress``."""
        if not (key.isascii() and key.isprintable()):
            raise InvalidAddress("The key holds characters that no header may hold. Check that it was copied whole.")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if parts.scheme not in ("http", "https") or not host:
            raise InvalidAddress("The address is no HTTP URL. Write it as http://127.0.0.1:8000.")
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), prefix, key)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


@dataclass(frozen=True)
class Exchange:
    """A reply whose body is still to be read, with the connection that it comes on."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse

    def close(self) -> None:
        """Close both. Idempotent."""
        self.response.close()
        self.connection.close()


def send(address: Address, method: str, path: str, body: bytes, timeout_s: float) -> Exchange:
    """Send one request on a connection of its own; return the reply if its status is 200.

    Raises ``NotReachable``, ``BadReply``, or ``Refused`` for any other status.
    """
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.host, address.port, timeout=timeout_s)
    headers = {"content-type": "application/json", "accept": "text/event-stream, application/json"}
    if address.key:
        headers["authorization"] = f"Bearer {address.key}"
    try:
        connection.request(method, address.prefix + path, body or None, headers)
        response = connection.getresponse()
        if response.status == 200:
            return Exchange(connection, response)
        reply = response.read(REPLY_BYTES)
        wait_ms = retry_after_ms(response) if response.getheader("x-should-retry") != "false" else None
        connection.close()
    except ConnectionRefusedError:
        connection.close()
        raise NotReachable(
            f"Nothing listens at {address}. Start a server with `zerolayer serve` (or `make serve` in a clone)."
        ) from None
    except OSError as error:
        connection.close()
        raise NotReachable(f"{address} cannot be reached, or fell silent ({type(error).__name__}).") from None
    except http.client.HTTPException as error:
        connection.close()
        raise BadReply(f"{address} did not answer in HTTP ({type(error).__name__}). {CHECK}") from None
    try:
        parsed = json_object(reply)
    except BadReply:
        parsed = {}  # a proxy's page, for example: its status says enough
    raise refusal(parsed, response.status, wait_ms)


def read_all(exchange: Exchange) -> bytes:
    """The whole body of a reply that is no stream; closes the exchange. Raises ``BadReply``."""
    try:
        return exchange.response.read(REPLY_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise BadReply(f"The reply broke off ({type(error).__name__}).") from None
    finally:
        exchange.close()


def json_object(data: bytes) -> dict[str, Any]:
    """A JSON object. Raises ``BadReply``."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BadReply(f"The reply is no JSON object. {CHECK}")
    return value


def retry_after_ms(response: http.client.HTTPResponse) -> int | None:
    """``retry-after-ms`` (milliseconds), else ``retry-after`` in seconds (RFC 9110 section 10.2.3), else None."""
    for name, factor in (("retry-after-ms", 1), ("retry-after", 1000)):
        text = (response.getheader(name) or "").strip()
        if text.isascii() and text.isdigit() and len(text) <= 12:
            return int(text) * factor
    return None


def refusal(reply: dict[str, Any], status_code: int, wait_ms: int | None) -> Refused:
    """The error that OpenAI's error object describes; of a reply of another shape, only the status is told."""
    error = reply.get("error")
    details: dict[str, Any] = error if isinstance(error, dict) else {}
    message = details.get("message")
    text = message if isinstance(message, str) and message else f"The server answered with status {status_code}."
    code = details.get("code")
    return Refused(
        text, status_code=status_code, error_code=code if isinstance(code, str) else None, retry_after_ms=wait_ms
    )
