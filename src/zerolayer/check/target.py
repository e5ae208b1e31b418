"""What is measured: its address, the API it speaks, and the bytes of one request."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from zerolayer.check.carrier import http2_payload
from zerolayer.check.causes import recognise
from zerolayer.check.errors import TargetError
from zerolayer.check.exchange import Exchange, Planned
from zerolayer.check.load_client import LoadClient
from zerolayer.check.network import Endpoint
from zerolayer.check.run_file import BASELINE, TargetInfo
from zerolayer.errors import UsageError

Api = Literal["openai", "anthropic", "http"]
PATHS: dict[str, str] = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
LAST_ATTEMPT = 2  # of stock SDKs, which retry twice
_WORDS = ("river", "stone", "cloud", "garden", "window", "letter", "bridge", "summer", "paper", "candle")


@dataclass(frozen=True)
class Target:
    """A service and how to ask it. ``headers`` may hold a key and is never written anywhere."""

    endpoint: Endpoint
    path: str
    api: Api
    model: str = ""
    software: str = ""
    method: str = "GET"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    def make_body(self, rng: random.Random, output_tokens: int, prompt_words: int) -> bytes:
        """The body of one request. Prompts have equal length and differ from their first word on."""
        if self.api == "http":
            return self.body
        number = rng.randrange(100_000, 1_000_000)
        words = " ".join(rng.choices(_WORDS, k=prompt_words))
        text = f"{number} {words} Write the numbers from {number} upwards, one a line.".replace("  ", " ")
        body: dict[str, object] = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": output_tokens,
            "stream": True,
        }
        if self.api == "openai":
            body |= {"stream_options": {"include_usage": True}, "temperature": 0}
        return json.dumps(body).encode()

    def payload(self, body: bytes, attempt: int = LAST_ATTEMPT) -> bytes:
        """What is sent for ``body``. ``attempt`` counts from 0, in the header in which stock SDKs tell it.

        A refused request that will not come again is ``LAST_ATTEMPT``: a service need not keep a place for it.
        """
        method = self.method if self.api == "http" else "POST"
        return self.request(method, self.path, body, (("x-stainless-retry-count", str(attempt)),))

    def request(self, method: str, path: str, body: bytes = b"", more: tuple[tuple[str, str], ...] = ()) -> bytes:
        """The payload of any request to this service, with its headers and ``more``, for this endpoint's protocol."""
        host = str(self.endpoint).partition("://")[2]
        fields = [("user-agent", "zerolayer-pulse"), ("accept", "*/*")]
        if body:
            fields += [("content-length", str(len(body))), ("content-type", "application/json")]
        elif method not in ("GET", "HEAD"):
            fields.append(("content-length", "0"))
        fields += [*self.headers, *more]
        if self.endpoint.http2:
            scheme = "https" if self.endpoint.tls else "http"
            head = [(":method", method), (":scheme", scheme), (":authority", host), (":path", path)]
            return http2_payload([*head, *((name.lower(), value) for name, value in fields)], body)
        lines = [f"{method} {path} HTTP/1.1", f"host: {host}", *(f"{name}: {value}" for name, value in fields)]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body

    def info(self) -> TargetInfo:
        """What the result file tells of it: no header, no query."""
        return TargetInfo(f"{self.endpoint}{self.path.partition('?')[0]}", self.api, self.software, self.model)


class _Model(msgspec.Struct):
    id: str = ""
    owned_by: str = ""
    type: str = ""


class _Models(msgspec.Struct):
    data: list[_Model]


def parse(
    url: str,
    api: str,
    model: str,
    headers: tuple[tuple[str, str], ...],
    method: str = "GET",
    body: bytes = b"",
    *,
    http2: bool = False,
) -> Target:
    """A target from a URL and flags, before anything is asked; ``api`` may be ``auto``. Raises ``UsageError``."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or any(ord(letter) <= 32 for letter in url):
        raise UsageError("The address is no HTTP URL. Write it as http://127.0.0.1:8000.")
    for name, value in headers:
        if not (name and name.isascii() and name.isprintable()) or not value.isprintable() or " " in name:
            raise UsageError("A header is not written as 'Name: value' in printable characters.")
    endpoint = Endpoint(host, port or (443 if parts.scheme == "https" else 80), parts.scheme == "https", http2)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    known = api if api != "auto" else _api_of(parts.path)
    if known in PATHS:
        plain = parts.path.rstrip("/")
        path = path if plain.endswith(("/completions", "/messages")) else plain.removesuffix("/v1") + PATHS[known]
    kind: Api = "openai" if known == "openai" else "anthropic" if known == "anthropic" else "http"
    return Target(endpoint, path, kind, model, method=method, body=body, headers=headers)


def _api_of(path: str) -> str:
    if path.endswith("/messages"):
        return "anthropic"
    return "openai" if path.endswith("/chat/completions") else "auto"


def discover(client: LoadClient, target: Target, *, ask_api: bool) -> Target:
    """Ask the service who it is: its list of models, its ``Server`` header, which API it speaks if ``ask_api``.

    Raises ``TargetError`` when a model must be named and none is listed.
    """
    if target.api == "http" and not ask_api:
        return replace(target, software=recognise(_ask(client, target, target.path).server, ""))
    prefix = "" if target.path == "/" else target.path.partition("?")[0].rstrip("/")
    for ending in (*PATHS.values(), "/v1"):
        prefix = prefix.removesuffix(ending)
    versioned = replace(target, headers=(*target.headers, ("anthropic-version", "2023-06-01")))
    reply = _ask(client, target, prefix + "/v1/models")
    models = _models(reply)
    if not models:  # Anthropic's own API answers nobody who does not name its version
        reply = _ask(client, versioned, prefix + "/v1/models")
        models = _models(reply)
    owner = models[0].owned_by if models else ""
    target = replace(target, software=recognise(reply.server, owner))
    if target.api == "http":
        if not models:
            return target
        is_anthropic = models[0].type == "model"
        target = replace(target, api="anthropic" if is_anthropic else "openai")
        target = replace(target, path=prefix + PATHS[target.api])
    model = target.model or (models[0].id if models else "")
    if not model:
        raise TargetError("The service does not list its models. Name one with --model.")
    headers = versioned.headers if target.api == "anthropic" else target.headers
    return replace(target, model=model, headers=headers)


def _ask(client: LoadClient, target: Target, path: str) -> Exchange:
    is_whole = target.api == "http" and path == target.path
    request = target.request(target.method, path, target.body) if is_whole else target.request("GET", path)
    return client.run([Planned(client.clock(), request, BASELINE, 0, 1, 0)])[0]


def _models(reply: Exchange) -> list[_Model]:
    if reply.status != 200 or not reply.whole:
        return []
    try:
        return msgspec.json.decode(reply.body, type=_Models).data
    except msgspec.DecodeError:
        return []


def with_key(target: Target, key: str) -> Target:
    """Send ``key`` as both APIs expect it. Raises ``UsageError`` for a key that is no header value."""
    if not key.isascii() or not key.isprintable():
        raise UsageError("The key holds characters that no header may hold.")
    headers = (("authorization", f"Bearer {key}"), ("x-api-key", key))
    return replace(target, headers=(*target.headers, *(headers if target.api != "openai" else headers[:1])))
