"""Where a server is, the bytes of a request to it, and how long one may wait for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import urlsplit

from zerolayer.client.errors import DeadlinePassed, InvalidAddress, NotReachable
from zerolayer.errors import system_reason

_NS_PER_S: Final = 1_000_000_000
# Errors whose numbers are not the system's, by the names of their classes: most callers need neither module.
_REASONS: Final = {
    "gaierror": "no name server knows that name",
    "SSLCertVerificationError": "its certificate is none that this machine trusts",
    "SSLError": "TLS failed; perhaps it does not speak https there",
    "TimeoutError": "it took too long",
    "ConnectionError": "the connection was lost",
}


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
        check_key(key)
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        plain = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme not in ("http", "https") or not host or not plain:
            raise InvalidAddress("The address is no HTTP URL. Write it as http://127.0.0.1:8000.")
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), prefix, key)

    @property
    def authority(self) -> str:
        """Host and port, as the header ``host`` has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.prefix}"

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """One HTTP/1.1 request whose connection ends with its reply. ``headers`` have lower case names."""
        lines = [
            f"{method} {self.prefix}{path} HTTP/1.1",
            f"host: {self.authority}",
            "connection: close",
            *(f"{name}: {value}" for name, value in self._headers(method, headers, body).items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def fields(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> list[tuple[str, str]]:
        """The head of one HTTP/2 request."""
        return [
            (":method", method),
            (":scheme", self.scheme),
            (":authority", self.authority),
            (":path", self.prefix + path),
            *self._headers(method, headers, body).items(),
        ]

    def _headers(self, method: str, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        all_headers = {"user-agent": "zerolayer-client", "accept": "text/event-stream, application/json"}
        if self.key:
            all_headers["authorization"] = f"Bearer {self.key}"
        if method == "POST":
            all_headers |= {"content-type": "application/json", "content-length": str(len(body))}
        return all_headers | dict(headers)

    def unreachable(self, error: OSError) -> NotReachable:
        """The error of a connection that did not come about."""
        if isinstance(error, ConnectionRefusedError):
            return NotReachable(
                f"Nothing listens at {self}. Start a server with `zerolayer serve` (or `make serve` in a clone)."
            )
        return NotReachable(f"{self} cannot be reached: {network_reason(error)}. Check the address.")

    def silent(self, error: OSError | None = None) -> NotReachable:
        """The error of a request that got no reply."""
        cause = "the connection was closed" if error is None else network_reason(error)
        return NotReachable(f"{self} took the request and did not answer ({cause}).", sent=True)


def network_reason(error: OSError) -> str:
    """Why a connection did not come about, or broke, in words; none of another library's text."""
    known = (_REASONS.get(kind.__name__) for kind in type(error).__mro__)
    return next(filter(None, known), None) or system_reason(error)


def check_key(key: str) -> None:
    """Raises ``InvalidAddress`` for what no header can carry."""
    if not (key.isascii() and key.isprintable()):
        raise InvalidAddress("The key holds characters that no header may hold. Check that it was copied whole.")


@dataclass(frozen=True)
class Patience:
    """``wait_s`` seconds for each single wait, and nothing after ``end_ns``, a monotonic time."""

    wait_s: float
    end_ns: int | None
    clock_ns: Callable[[], int]

    def at_most(self, wait_s: float) -> Patience:
        """The same with single waits of ``wait_s`` seconds at most."""
        return Patience(min(wait_s, self.wait_s), self.end_ns, self.clock_ns)

    def left_s(self) -> float:
        """The longest that the next wait may be. Raises ``DeadlinePassed``."""
        if self.end_ns is None:
            return self.wait_s
        left_s = (self.end_ns - self.clock_ns()) / _NS_PER_S
        if left_s <= 0:
            raise DeadlinePassed("The deadline of the call passed before its answer was complete. Give it more time.")
        return min(self.wait_s, left_s)
