"""A server that refuses everything at once: the control for how fast a refusal can be on this machine.

python bench/refuse_all.py 8001
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

BODY = b'{"error":{"message":"All slots are busy.","type":"rate_limit_error","param":null,"code":"slots_busy"}}'
REPLY = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nretry-after-ms: 1000\r\n"
    b"retry-after: 1\r\nx-should-retry: true\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


class Refuser(asyncio.Protocol):
    """Answers each complete request; bodies need a content-length."""

    def connection_made(self, transport):
        self._transport, self._data = transport, b""

    def data_received(self, data):
        self._data += data
        while b"\r\n\r\n" in self._data:
            head, _, rest = self._data.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            if len(rest) < length:
                return
            self._data = rest[length:]
            self._transport.write(REPLY)


async def main(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Refuser, "127.0.0.1", port, backlog=4096)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
