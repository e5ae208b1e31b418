"""Real HTTP servers with one disease each, in a process of their own: ``python disease_server.py DISEASE ...``.

Prints their ports, one a line. Service takes 20 ms with a spread of 5 %, on four slots where the disease has slots.
``GET /`` is answered with two bytes; ``POST /v1/chat/completions`` with a stream of 12 tokens, 2 ms apart.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
from collections.abc import Awaitable, Callable

SERVICE_S, SPREAD, SLOTS, PARALLEL = 0.020, 0.05, 4, 64
TOKENS, TOKEN_S = 12, 0.002
Reply = tuple[int, bytes]


class Server:
    def __init__(self, disease: str) -> None:
        self.disease = disease
        self.clock = asyncio.get_running_loop().time
        self.rng = random.Random(4)
        self.slots = asyncio.Semaphore(1 if disease == "serial" else SLOTS)
        self.busy = 0
        self.seen: set[bytes] = set()
        self.next_at = 0.0
        self.free_at: list[float] = []
        self.batch: list[asyncio.Future[None]] = []
        self.born = self.clock()
        self.late_s = 0.0
        self.watch = asyncio.create_task(self.look()) if disease == "lateness" else None

    def service(self) -> float:
        return max(0.001, self.rng.gauss(SERVICE_S, SPREAD * SERVICE_S))

    async def healthy(self) -> Reply:
        await asyncio.sleep(self.service())
        return 200, b""

    async def fifo(self) -> Reply:
        async with self.slots:
            await asyncio.sleep(self.service())
        return 200, b""

    async def serial(self) -> Reply:  # a short serial part before a parallel one, as prefill is
        async with self.slots:
            await asyncio.sleep(0.0012)
        await asyncio.sleep(3 * SERVICE_S)
        return 200, b""

    async def shaper(self) -> Reply:
        now = self.clock()
        self.next_at = max(now, self.next_at + 0.008)
        await asyncio.sleep(self.next_at - now + self.service())
        return 200, b""

    async def bucket(self) -> Reply:  # six tokens that pass a burst, then one every 8 ms
        now = self.clock()
        self.next_at = max(now - 6 * 0.008, self.next_at) + 0.008
        await asyncio.sleep(max(0.0, self.next_at - now) + self.service())
        return 200, b""

    async def tick(self) -> Reply:
        now = self.clock() - self.born
        await asyncio.sleep(math.ceil(now / 0.04) * 0.04 - now + self.service())
        return 200, b""

    async def sharing(self) -> Reply:
        self.busy += 1
        left, pace = self.service(), 0.002
        while left > 0:
            await asyncio.sleep(pace)
            left -= pace * min(1.0, SLOTS / self.busy)
        self.busy -= 1
        return 200, b""

    async def stall(self) -> Reply:
        await asyncio.sleep(self.service())
        phase = (self.clock() - self.born) % 0.7
        if phase < 0.15:
            await asyncio.sleep(0.15 - phase)
        return 200, b""

    async def company(self) -> Reply:
        """Waits up to 30 ms for four requests."""
        waiter = asyncio.get_running_loop().create_future()
        self.batch.append(waiter)
        if len(self.batch) >= 4:
            batch, self.batch = self.batch, []
            for each in batch:
                if not each.done():
                    each.set_result(None)
        try:
            await asyncio.wait_for(asyncio.shield(waiter), 0.03)
        except TimeoutError:
            self.batch = [each for each in self.batch if each is not waiter]
        await asyncio.sleep(self.service())
        return 200, b""

    async def bimodal(self) -> Reply:
        await asyncio.sleep(self.service() * (3 if self.rng.random() < 0.3 else 1))
        return 200, b""

    async def _refuse(self, promise: Callable[[], bytes]) -> Reply:
        if self.busy >= SLOTS:
            return 429, promise()
        self.busy += 1
        await asyncio.sleep(self.service())
        self.busy -= 1
        return 200, b""

    async def honest(self) -> Reply:
        """Each refused client is booked a slot of its own, and told when."""
        return await self._refuse(lambda: b"retry-after-ms: %d\r\n" % self.booking_ms(2 * SERVICE_S))

    def booking_ms(self, turn_s: float) -> int:
        now = self.clock()
        self.free_at = [at for at in self.free_at if at > now]
        at = now + (len(self.free_at) // SLOTS + 1) * turn_s
        self.free_at.append(at)
        return math.ceil((at - now) * 1000)

    async def dishonest(self) -> Reply:
        """Tells everybody the same time, far too soon."""
        return await self._refuse(lambda: b"retry-after-ms: 3\r\n")

    def forgets(self, body: bytes) -> bool:
        """After the first 20, every second request is refused, unless the same came before."""
        known = body in self.seen
        self.seen.add(body)
        return not known and len(self.seen) > 20 and len(self.seen) % 2 == 0

    async def mute(self) -> Reply:
        return await self._refuse(lambda: b"")

    async def look(self) -> None:
        """Every server of this process is as late as this one wakes up."""
        while True:
            before = self.clock()
            await asyncio.sleep(0.005)
            self.late_s = max(self.late_s, self.clock() - before - 0.005)

    async def lateness(self) -> Reply:
        """How long the machine let this process stand still, at most, since it was asked last."""
        late_s, self.late_s = self.late_s, 0.0
        return 200, b"x-late-ms: %d\r\n" % (late_s * 1000)

    async def failing(self) -> Reply:
        await asyncio.sleep(self.service() if self.rng.random() < 0.8 else 0)
        return (500 if self.rng.random() < 0.2 else 200), b""


def event(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


FINAL = b'data: {"choices": [], "usage": {"prompt_tokens": 17, "completion_tokens": 12}}\n\ndata: [DONE]\n\n'
ANTHROPIC_START = (
    b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 17}}}\n\n'
)
ANTHROPIC_END = b'event: message_stop\ndata: {"type": "message_stop"}\n\n'


def delta(text: str) -> bytes:
    data = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return b"event: content_block_delta\ndata: " + json.dumps(data).encode() + b"\n\n"


ROLE = b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'


def words(body: bytes) -> int:
    """Of all messages of a chat."""
    return sum(len(message["content"].split()) for message in json.loads(body)["messages"])


async def stream(server: Server, writer: asyncio.StreamWriter, body: bytes, *, chunked: bool) -> bool:
    """One reply as server-sent events; False when the connection is of no more use, and the slot is free again.

    HTTP/1.0 knows no chunks: there a reply ends with its connection.
    """
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    head += b"x-litellm-version: 1.110.2\r\n" * (server.disease == "gateway")
    head += b"transfer-encoding: chunked\r\n\r\n" if chunked else b"connection: close\r\n\r\n"
    disease = server.disease
    if disease in ("slots", "leak"):
        if server.busy >= SLOTS:
            wait_ms = server.booking_ms(0.07)
            writer.write(b"HTTP/1.1 429 Busy\r\nretry-after-ms: %d\r\ncontent-length: 0\r\n\r\n" % wait_ms)
            return True
        server.busy += 1
    pieces = [ROLE, *(event(f"t{i}") for i in range(0 if disease == "empty" else TOKENS)), FINAL]
    if disease == "counting":  # a word is a token, and the template has 17 more
        pieces[-1] = FINAL.replace(b"17", b"%d" % (17 + words(body)))
    if disease == "anthropic":
        pieces = [ANTHROPIC_START, *(delta(f"t{i}") for i in range(TOKENS)), ANTHROPIC_END]
    if disease == "buffered":
        await asyncio.sleep(TOKENS * TOKEN_S)
        pieces = [b"".join(pieces)]
    writer.write(head)
    left = False
    for piece in pieces:
        await asyncio.sleep(TOKEN_S * (2 if disease in ("slots", "leak") else 1))
        left = left or writer.is_closing()
        if left and disease != "leak":
            break
        if not left:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
    if disease in ("slots", "leak"):
        server.busy -= 1
    if chunked and not left:
        writer.write(b"0\r\n\r\n")
    return chunked and not left


async def handle(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    reasons = {200: b"OK", 429: b"Too Many Requests", 500: b"Error"}
    plain: Callable[[], Awaitable[Reply]] = getattr(server, server.disease, server.healthy)
    writer.transport.set_write_buffer_limits(high=1 << 20)
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = b""
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if length:
                body = await reader.readexactly(int(length[0].partition(b":")[2]))
            if b"/models" in head:
                kind = b'"type": "model"' if server.disease == "anthropic" else b'"owned_by": "tests"'
                listed = b'{"data": [{"id": "toy", %s}]}' % kind
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(listed), listed))
            elif head.startswith(b"POST"):
                if server.disease == "anthropic" and not (
                    head.startswith(b"POST /v1/messages ") and b"\r\nanthropic-version: " in head
                ):
                    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                elif server.disease == "remembering" and server.forgets(body):
                    writer.write(b"HTTP/1.1 429 Busy\r\nretry-after-ms: 5\r\ncontent-length: 0\r\n\r\n")
                elif not await stream(server, writer, body, chunked=b" HTTP/1.0\r\n" not in head):
                    return
            else:
                status, headers = await plain()
                writer.write(b"HTTP/1.1 %d %s\r\n%scontent-length: 2\r\n\r\nok" % (status, reasons[status], headers))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def serve(disease: str) -> asyncio.Server:
    server = Server(disease)
    return await asyncio.start_server(lambda r, w: handle(server, r, w), "127.0.0.1", 0, backlog=256)


async def main() -> None:
    listeners = [await serve(disease) for disease in sys.argv[1:]]
    for listener in listeners:
        print(listener.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
