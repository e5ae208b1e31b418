"""The requests that the front bench sends: the same 1 KB in each protocol, with what changes between two of them."""

from __future__ import annotations

import json

BODY_BYTES = 1024
VALUES = 20_000
CALL = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/bench.Door/Say"),
    (":authority", "127.0.0.1:8000"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("user-agent", "grpc-python/1.85.3 grpc-c/54.0.0 (linux; chttp2)"),
    ("grpc-accept-encoding", "identity, deflate, gzip"),
]
POST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/echo"),
    (":authority", "127.0.0.1:8000"),
    ("user-agent", "Mozilla/5.0 bench"),
    ("accept", "*/*"),
    ("content-type", "application/json"),
    ("content-length", str(BODY_BYTES)),
]


def http1_requests(count: int) -> list[bytes]:
    named = [f"x-request-id: {name}\r\n".encode() for name in ids()[:count]] if count > 1 else [b""]
    return [post("/echo", chat_body(), more=more) for more in named]


def post(path: str, body: bytes, media: bytes = b"application/json", more: bytes = b"") -> bytes:
    head = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1:8000\r\nuser-agent: bench\r\naccept: */*\r\n" % path.encode()
    return head + b"content-type: %b\r\n%bcontent-length: %d\r\n\r\n%b" % (media, more, len(body), body)


def ids() -> list[str]:
    return [f"req-{number * 7919:012x}" for number in range(VALUES)]


def timeouts() -> list[str]:
    return [f"{4_999_999 - number}u" for number in range(VALUES)]


def chat_body() -> bytes:
    """1 KB of chat."""
    body = {"model": "smollm2", "max_tokens": 64, "temperature": 0.7, "stream": True, "messages": []}
    text = "x" * (BODY_BYTES - len(json.dumps(body)) - 36)
    body["messages"] = [{"role": "user", "content": text}]
    return json.dumps(body).encode()


def completion(model: str, tokens: int) -> bytes:
    body = {"model": model, "max_tokens": tokens, "stream": True, "ignore_eos": True, "prompt": "one two three"}
    return json.dumps(body).encode()


def schema_request(max_tokens: int, ids: int = 240, model: bytes = b"smollm2") -> bytes:
    """``zerolayer.v1.GenerateRequest``: token_ids, model, max_tokens, ignore_eos."""
    raw = b"".join([number.to_bytes(4, "little") for number in range(1000, 1000 + ids)])
    head = b"\x0a" + _varint(len(raw)) + raw + b"\x4a" + _varint(len(model)) + model
    return head + b"\x60" + _varint(max_tokens) + b"\xb8\x01\x01"


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message
