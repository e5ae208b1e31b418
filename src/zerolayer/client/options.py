"""What both clients take, written once: the arguments of a client, and those of a call."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypedDict

from zerolayer.client.freshness import Stamps
from zerolayer.client.retry import RetryPolicy
from zerolayer.client.service import Clocks

Protocol = Literal["auto", "json", "protobuf", "grpc"]


class ClientOptions(TypedDict, total=False):
    """How a client asks."""

    api_key: str
    """Shown with every request; "" shows none."""
    protocol: Protocol
    """"json": OpenAI's API; "protobuf", "grpc": zerolayer's schema; "auto": the schema where it is known."""
    timeout_s: float
    """Bounds each single wait for bytes; 600."""
    answer_within_s: float | None
    """Bounds the wait for a reply to begin; None: the same."""
    connect_within_s: float
    """Bounds the coming about of a connection; 3."""
    dead_after_s: float | None
    """A connection of HTTP/2 that is silent for so long, and answers no PING, is given up; 4. None: never."""
    follow_nodes: bool
    """Whether to go to the nodes that the service lists; True. False: to the addresses given, and no others."""
    retry_budget_ms: int
    """From a call to its last retry; 60,000."""
    hedge_after_ms: float | None
    """Without a first token for so long, a second node is asked too; None: never."""
    retry: RetryPolicy | None
    tls: ssl.SSLContext | None
    """In place of the system's trusted authorities; its ALPN is set."""
    on_wait: Callable[[int], None] | None
    """Told each wait in milliseconds before it begins."""
    clocks: Clocks | None
    """For tests."""


class CallOptions(TypedDict, total=False):
    """How one call is to be answered; what is left out is the server's default."""

    model: str | None
    """None: the first that the server lists."""
    max_tokens: int | None
    temperature: float | None
    seed: int | None
    stop: str | Sequence[str] | None
    deadline_ms: float | None
    """The call is over by then, counted from its beginning, waits and retries included; the server is told."""
    fresh: Stamps | None
    """How old the input is, and may be."""


def check(given: Mapping[str, object], known: type[ClientOptions] | type[CallOptions]) -> None:
    """Raises ``TypeError`` for an option that there is not, as a function with these arguments would."""
    unknown = given.keys() - known.__annotations__.keys()
    if unknown:
        raise TypeError(f"there is no option {min(unknown)!r}; {known.__name__} has {', '.join(known.__annotations__)}")
