"""A server that streams prepared events at a fixed pace and computes nothing: what the client of a benchmark costs.

python bench/stream_stub.py PORT STEP_MS EVENTS
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"cmpl-000000000000000000000000","object":"text_completion","created":1700000000,"model":"stub",'
    b'"choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null}]}\n\n'
)
END = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body (RFC 9112 section 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


CHUNK = chunk(EVENT)


class Streamer(asyncio.Protocol):
    """Answers every complete request with events, one a step for every open reply."""

    def __init__(self, replies: dict[Streamer, int], events: int) -> None:
        self._replies, self._events = replies, events

    def connection_made(self, transport):
        self.transport, self._data = transport, b""

    def connection_lost(self, _reason):
        self._replies.pop(self, None)

    def data_received(self, data):
        self._data += data
        head, border, rest = self._data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if border and len(rest) >= length:
            self._data = rest[length:]
            self.transport.write(HEAD)
            self._replies[self] = self._events


async def main(port: int, step_s: float, events: int) -> None:
    """Serve until killed."""
    replies: dict[Streamer, int] = {}
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Streamer(replies, events), "127.0.0.1", port, backlog=4096)
    print("ready", flush=True)
    due = loop.time()
    while True:
        due = max(due + step_s, loop.time())
        await asyncio.sleep(due - loop.time())
        for reply, left in list(replies.items()):
            if left > 1:
                reply.transport.write(CHUNK)
                replies[reply] = left - 1
            else:
                del replies[reply]
                reply.transport.write(CHUNK + chunk(END) + b"0\r\n\r\n")


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), float(sys.argv[2]) / 1000, int(sys.argv[3])))
