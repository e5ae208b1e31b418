"""Name servers and APIs on loopback, which answer as a test tells them to."""

from __future__ import annotations

import ipaddress
import json
import socket
import struct
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, int, str, int]  # type, time to live, value, port


def wire_name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".") if label) + b"\0"


def read_question(data: bytes) -> tuple[str, int, int]:
    """Name, type, and where the question ends."""
    labels, at = [], 12
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode())
        at += 1 + data[at]
    return ".".join(labels), struct.unpack_from("!H", data, at + 1)[0], at + 5


def reply_to(query: bytes, answers: list[tuple[str, Answer]], *, code: int = 0, truncated: bool = False) -> bytes:
    """The bytes of a reply; the first name is a pointer to the question's, as servers write it."""
    name, _, end = read_question(query)
    flags = 0x8180 | code | (0x0200 if truncated else 0)
    out = query[:2] + struct.pack("!HHHHH", flags, 1, len(answers), 0, 0) + query[12:end]
    for owner, (kind, ttl, value, port) in answers:
        if kind in (1, 28):
            data = ipaddress.ip_address(value).packed
        elif kind == 33:
            data = struct.pack("!HHH", 0, 0, port) + wire_name(value)
        else:
            data = wire_name(value)
        out += (
            (b"\xc0\x0c" if owner == name else wire_name(owner)) + struct.pack("!HHIH", kind, 1, ttl, len(data)) + data
        )
    return out


class FakeNameServer:
    """Answers over UDP, and over TCP on the same port. ``records``: name -> (owner, answer)s; asked names are kept."""

    def __init__(self) -> None:
        self.records: dict[str, list[tuple[str, Answer]]] = {}
        self.asked: list[tuple[str, int]] = []
        self.code = 0
        self.truncate = False
        self.silent = False
        self.ignored = 0  # questions, because of that
        self.before: bytes | None = None  # sent ahead of the true reply
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(self._tcp.getsockname())
        self.address = f"127.0.0.1:{self._udp.getsockname()[1]}"
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._serve_udp, self._serve_tcp)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self._udp.sendto(b"", self._udp.getsockname())
        with suppress(OSError):
            self._tcp.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        self._tcp.close()
        self._udp.close()

    def add(self, name: str, kind: int, value: str, ttl: int = 7, port: int = 0, owner: str = "") -> None:
        self.records.setdefault(name, []).append((owner or name, (kind, ttl, value, port)))

    def _reply(self, query: bytes, *, truncated: bool) -> bytes:
        name, kind, _ = read_question(query)
        self.asked.append((name, kind))
        known = self.records.get(name)
        answers = [(owner, answer) for owner, answer in known or [] if answer[0] in (kind, 5)]
        code = self.code or (3 if known is None else 0)
        return reply_to(query, [] if truncated else answers, code=code, truncated=truncated)

    def _serve_udp(self) -> None:
        while True:
            query, sender = self._udp.recvfrom(4096)
            if not query:
                return
            if self.silent:
                self.ignored += 1
                continue
            if self.before is not None:
                self._udp.sendto(self.before, sender)
            self._udp.sendto(self._reply(query, truncated=self.truncate), sender)

    def _serve_tcp(self) -> None:
        while True:
            try:
                connection, _ = self._tcp.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                length = int.from_bytes(stream.read(2))
                reply = self._reply(stream.read(length), truncated=False)
                connection.sendall(struct.pack("!H", len(reply)) + reply)


class FakeApi:
    """Replies with ``body`` and ``status``, whatever the path; keeps paths and headers."""

    def __init__(self) -> None:
        self.status = 200
        self.pause_s = 0.0  # after each byte of the body
        self.broken = threading.Event()  # somebody left before the end
        self.body: object = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                body = api.body if isinstance(api.body, bytes) else json.dumps(api.body).encode()
                self.send_response(api.status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                if not api.pause_s:
                    self.wfile.write(body)
                    return
                try:
                    for at in range(len(body)):
                        self.wfile.write(body[at : at + 1])
                        time.sleep(api.pause_s)
                except OSError:
                    api.broken.set()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()
