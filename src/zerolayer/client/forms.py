"""The protocols that a question can travel in. Each makes the bytes of a request, and reads what comes back. Sans-IO.

| form | path | request | reply |
|---|---|---|---|
| ``json_form`` | ``/v1/chat/completions``, ``/v1/completions`` | JSON | server-sent events |
| ``schema_form`` | ``/v1/generate`` | ``GenerateRequest`` | delimited ``GenerateReply`` |
| ``grpc_form`` | ``zerolayer.v1.Inference/Generate`` | the same message | the same messages, status in trailers |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from zerolayer.client.answer import Outcome
from zerolayer.client.attempt import Head
from zerolayer.client.errors import Refused


class Reader(Protocol):
    """Pieces of a reply's body -> pieces of text; ``outcome`` is set when the answer's end was read."""

    outcome: Outcome | None

    def push(self, data: bytes) -> Iterator[str]:
        """Take in ``data``; give its text. Raises ``BadReply``, and ``Refused`` for an error sent in the stream."""

    def end(self, trailers: Mapping[str, str]) -> None:
        """The reply is over; of gRPC the trailers say whether well. Raises ``Refused``."""


class Form(Protocol):
    """One protocol."""

    late_status: bool  # whether the reply's first piece, or its end, must be there before its status is known

    def head(self, status: int, headers: Mapping[str, str], trailers: Mapping[str, str]) -> Head:
        """What the reply says about itself; ``trailers`` where it ended without a body."""

    def refused(self, head: Head, body: bytes, headers: Mapping[str, str], trailers: Mapping[str, str]) -> Refused:
        """The error of a reply that is no answer."""

    def reader(self, model: str) -> Reader:
        """Reads the answer of ``model``."""


@dataclass(frozen=True)
class Ask:
    """One request: where to, the body's bytes, which every attempt sends alike, and the digest of its beginning."""

    form: Form
    path: str
    body: bytes
    prefix: bytes
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)
