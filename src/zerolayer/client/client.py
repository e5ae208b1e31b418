"""A small synchronous client: one connection a request, text as an iterator, retries by the promised millisecond.

Standard library only, so that it installs and runs without the server's needs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence

from zerolayer.client.chat_stream import ChatStream
from zerolayer.client.errors import BadReply, Refused
from zerolayer.client.transport import CHECK, Address, Exchange, json_object, read_all, send


class Client:
    """A client of one server; it holds no connection between requests.

    ``api_key`` is shown with every request; "" shows none. ``timeout_s`` bounds each single wait for bytes,
    ``retry_budget_ms`` the time from a request to its last retry. ``on_wait`` is told each wait in milliseconds before
    it begins. ``clock_ns`` and ``sleep`` are there for tests.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        *,
        api_key: str = "",
        timeout_s: float = 600.0,
        retry_budget_ms: int = 60_000,
        on_wait: Callable[[int], None] | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address = Address.parse(base_url, api_key)
        self._timeout_s = timeout_s
        self._retry_budget_ms = retry_budget_ms
        self._on_wait = on_wait
        self._clock_ns = clock_ns
        self._sleep = sleep
        self._default_model: str | None = None

    def models(self) -> list[str]:
        """The names of ``GET /v1/models``. Raises ``ClientError``."""
        reply = json_object(read_all(send(self._address, "GET", "/v1/models", b"", self._timeout_s)))
        try:
            return [str(model["id"]) for model in reply["data"]]
        except (KeyError, TypeError):
            raise BadReply(f"The list of models has not the shape of OpenAI's API. {CHECK}") from None

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        model: str | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
    ) -> ChatStream:
        """Stream an answer to ``messages`` (each with ``role`` and ``content``); without ``model``, of the first one.

        Obeys a 429's ``retry-after-ms`` within the retry budget, sending exactly the same bytes again. Raises
        ``ClientError``.
        """
        body: dict[str, object] = {
            "model": model or self._first_model(),
            "messages": [dict(message) for message in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if max_tokens is not None:
            body["max_tokens"] = max_tokens
        if temperature is not None:
            body["temperature"] = temperature
        return ChatStream(self._send_with_retries("/v1/chat/completions", json.dumps(body).encode()))

    def _first_model(self) -> str:
        if self._default_model is None:
            names = self.models()
            if not names:
                raise BadReply(f"The server serves no model. {CHECK}")
            self._default_model = names[0]
        return self._default_model

    def _send_with_retries(self, path: str, body: bytes) -> Exchange:
        end_ns = self._clock_ns() + self._retry_budget_ms * 1_000_000
        while True:
            try:
                return send(self._address, "POST", path, body, self._timeout_s)
            except Refused as refused:
                wait_ms = refused.retry_after_ms
                if refused.status_code != 429 or wait_ms is None:
                    raise
                wait_ms = max(1, wait_ms)
                if self._clock_ns() + wait_ms * 1_000_000 > end_ns:
                    raise
            if self._on_wait is not None:
                self._on_wait(wait_ms)
            self._sleep(wait_ms / 1000)
