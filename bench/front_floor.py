"""The least that a door can cost on this machine: the system calls of a request and of a token, and nothing else.

python bench/front_floor.py sockets    epoll, recv and send with constant bytes, in a bare loop
python bench/front_floor.py uvloop     the same constants from an asyncio.Protocol on uvloop

The first line it prints is its port and 0. Requests are HTTP/1.1 with a content-length. What asks for ``/stream`` gets
a token at every tick of 5 ms, one send for each stream.
"""

from __future__ import annotations

import asyncio
import json
import select
import socket
import sys
import time

import uvloop

STEP_S = 0.005
ANSWER = b'{"answer":"%s"}' % (b"x" * 187)
REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_EVENT = (
    b'data: {"id":"cmpl-000000000000000000000000","object":"text_completion","created":1700000000,"model":"smollm2",'
    b'"choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null}]}\n\n'
)
CHUNK = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)
END = b"0\r\n\r\n"


def asked(data: bytes | bytearray) -> int:
    """The tokens that a request wants; 0: it is no stream."""
    return json.loads(data.partition(b"\r\n\r\n")[2])["max_tokens"] if data.startswith(b"POST /stream ") else 0


def listening() -> socket.socket:
    """A socket on a free port."""
    opened = socket.create_server(("127.0.0.1", 0), backlog=4096)
    opened.setblocking(False)
    print(opened.getsockname()[1], 0, flush=True)
    return opened


def sockets() -> None:
    """Every request is expected to come in one piece, as those of the bench do."""
    listener, epoll, open_ = listening(), select.epoll(), {}
    epoll.register(listener.fileno(), select.EPOLLIN)
    streams: dict[socket.socket, int] = {}
    buffer = bytearray(1 << 16)
    due = 0.0
    while True:
        for fd, _ in epoll.poll(max(0.0, due - time.monotonic()) if streams else -1):
            if fd == listener.fileno():
                accepted, _address = listener.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                open_[accepted.fileno()] = accepted
                epoll.register(accepted.fileno(), select.EPOLLIN)
                continue
            try:
                size = open_[fd].recv_into(buffer)
            except ConnectionError:
                size = 0
            if not size:
                streams.pop(open_[fd], None)
                open_.pop(fd).close()
            elif buffer.startswith(b"POST /stream "):
                open_[fd].send(HEAD)
                streams[open_[fd]] = asked(buffer[:size])
            else:
                open_[fd].send(REPLY)
        if streams and time.monotonic() >= due:
            due = time.monotonic() + STEP_S
            for stream, left in list(streams.items()):
                stream.send(CHUNK if left > 1 else CHUNK + END)
                streams[stream] = left - 1
                if left <= 1:
                    del streams[stream]


class Floor(asyncio.Protocol):
    """The same on uvloop."""

    def __init__(self, streams: dict[asyncio.Transport, int]) -> None:
        self._streams = streams

    def connection_made(self, transport):
        self._transport = transport

    def connection_lost(self, _reason):
        self._streams.pop(self._transport, None)

    def data_received(self, data):
        tokens = asked(data)
        self._transport.write(HEAD if tokens else REPLY)
        if tokens:
            self._streams[self._transport] = tokens


async def on_uvloop() -> None:
    """Serve until killed."""
    streams: dict[asyncio.Transport, int] = {}
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Floor(streams), sock=listening())
    while True:
        await asyncio.sleep(STEP_S)
        for transport, left in list(streams.items()):
            transport.write(CHUNK if left > 1 else CHUNK + END)
            streams[transport] = left - 1
            if left <= 1:
                del streams[transport]


if __name__ == "__main__":
    if sys.argv[1] == "sockets":
        sockets()
    else:
        uvloop.run(on_uvloop())
