"""A whole service in this process, on real sockets, on a loop thread of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

import msgspec
import uvloop
from echo_model import EchoEngine, LastMessage, Loaded

from zerolayer.contract import Contract, load
from zerolayer.front.deploys import News
from zerolayer.front.site import ConnectionLimits
from zerolayer.model.load import Beside
from zerolayer.model.watchdog import Watchdog
from zerolayer.serve.deploy.deployment import Deployment
from zerolayer.serve.running import running
from zerolayer.serve.server import Server

NS = 1_000_000_000


class Service:
    """Runs a server until ``close``; ``on_loop`` runs a function there. ``section`` changes the contract's limits,
    ``context`` its context, ``sections`` any other by name; the model sees of a conversation what ``shows`` shows."""

    def __init__(
        self,
        flags: dict[str, str],
        engine: EchoEngine,
        limits: ConnectionLimits | None,
        sweep_s: float,
        section: dict[str, object],
        context: dict[str, object],
        shows: type[LastMessage],
        watchdog: Watchdog | None = None,
        sections: dict[str, dict[str, object]] | None = None,
        aliases: tuple[str, ...] = (),
    ) -> None:
        given = {"port": "0", "admin": "127.0.0.1:0", "host": "127.0.0.1", **flags}
        self.contract = load(None, {}, given).contract
        limited = msgspec.structs.replace(self.contract.limits, **section)
        shaped = msgspec.structs.replace(self.contract.context, **context)
        named = msgspec.structs.replace(self.contract.model, aliases=aliases)
        self.contract = msgspec.structs.replace(self.contract, limits=limited, context=shaped, model=named)
        for name, values in (sections or {}).items():
            changed = msgspec.structs.replace(getattr(self.contract, name), **values)
            self.contract = msgspec.structs.replace(self.contract, **{name: changed})
        self.engine = engine
        self.loaded = Loaded(engine, shows=shows)
        self._limits = limits
        self._sweep_s = sweep_s
        self._watchdog = watchdog or Watchdog(lambda: 0, at_least_ns=60 * NS)  # tests hold steps as long as they like
        self.next_model = partial(another, engine)  # what a deployment loads
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait(10)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as failure:
            self._failure = failure
            self._ready.set()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        settings = {"limits": self._limits, "sweep_s": self._sweep_s, "watchdog": self._watchdog, "load": self._load}
        async with running(self.contract, self.loaded, **settings) as self.server:
            self._ready.set()
            await self._stop.wait()

    server: Server

    def _load(self, contract: Contract, progress: object, **how: object) -> Loaded:
        return self.next_model(contract, **how)

    def deploy(self, path: str) -> Deploying:
        """Begin to deploy the model that ``path`` names."""
        deploying = Deploying()
        deploying.ongoing = self.on_loop(lambda: self.server.deployments.begin(path, deploying.news.append))
        return deploying

    def hold_steps(self) -> None:
        """From now on a step runs only when ``step`` allows it."""
        self.engine.turns = threading.Semaphore(0)
        self._steps_before = self.server.steps.steps

    def stepped(self) -> int:
        """Steps since ``hold_steps``."""
        return self.server.steps.steps - self._steps_before

    def told(self) -> int:
        """``stepped``, as far as the loop has heard of them: reports leave when the next step begins."""
        return self.stepped() - len(self.server.steps._outbox)

    def step(self, count: int = 1) -> None:
        assert self.engine.turns is not None
        self.engine.turns.release(count)

    def running(self) -> int:
        return int(self.on_loop(lambda: self.server.dispatcher.running))  # type: ignore[arg-type]

    def close(self) -> None:
        if self.engine.turns is not None:
            self.engine.turns.release(1_000_000)
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)
        assert not self._thread.is_alive()

    @property
    def port(self) -> int:
        return self.server.port

    def on_loop(self, work: Callable[[], object]) -> object:
        async def run() -> object:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def connect(self, port: int | None = None) -> socket.socket:
        client = socket.create_connection((self.contract.listen.host, port or self.port), timeout=10)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def ask(self, data: bytes, port: int | None = None) -> Reply:
        with closing(self.connect(port)) as client:
            client.sendall(data)
            return read_reply(client)

    def free_slots(self) -> int:
        return int(self.on_loop(lambda: self.server.slots.free))  # type: ignore[arg-type]


class Deploying:
    """A deployment as its caller sees it."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self.ongoing: Deployment

    @property
    def phases(self) -> list[str]:
        """What happened so far, each phase once."""
        return list(dict.fromkeys(news.phase for news in self.news))

    def reached(self, phase: str) -> News:
        """Wait for the first news of it."""
        expect_soon(lambda: phase in self.phases or (self.news[-1:] and self.news[-1].last))
        assert phase in self.phases, self.news[-1]
        return next(news for news in self.news if news.phase == phase)


def another(
    engine: EchoEngine, contract: Contract, *, beside: Beside, step_us: int | None = None, **_: object
) -> Loaded:
    """A model as ``load_model`` loads it beside one that runs on ``engine``; its steps take as long."""
    info = engine.describe()
    beside.begin(1 << 20, 1 << 10)
    with beside.cores:
        taken = int(info.engine.rpartition("=")[2]) if step_us is None else step_us
        made = EchoEngine(slots=info.slots, slot_tokens=info.slot_tokens, chunk_tokens=info.chunk_tokens, step_us=taken)
    return Loaded(made, name=contract.model.name)


class Reply:
    """A parsed HTTP reply. ``complete`` is False when a chunked body ended without its last chunk."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes, complete: bool = True) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.complete = complete

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, object]:
        return self.json["error"]

    @property
    def events(self) -> list[object]:
        lines = [line[6:] for line in self.body.decode().split("\n\n") if line]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    @property
    def text(self) -> str:
        deltas = [event["choices"][0].get("delta", event["choices"][0]) for event in self.events if event != "[DONE]"]
        return "".join(delta.get("content", delta.get("text", "")) or "" for delta in deltas)


def read_reply(client: socket.socket, buffer: bytearray | None = None) -> Reply:
    """One reply; ``buffer`` keeps what belongs to the next one."""
    buffer = bytearray() if buffer is None else buffer
    while b"\r\n\r\n" not in buffer:
        if not _more(client, buffer):
            raise ConnectionError("closed before a reply")
    head, _, rest = bytes(buffer).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    status = int(lines[0].split()[1])
    buffer[:] = rest
    if headers.get("transfer-encoding") == "chunked":
        return Reply(status, headers, *_read_chunks(client, buffer))
    length = int(headers.get("content-length", 0))
    while len(buffer) < length and _more(client, buffer):
        pass
    body = bytes(buffer[:length])
    del buffer[:length]
    return Reply(status, headers, body)


def _read_chunks(client: socket.socket, buffer: bytearray) -> tuple[bytes, bool]:
    body = b""
    while True:
        while b"\r\n" not in buffer:
            if not _more(client, buffer):
                return body, False
        line, _, rest = bytes(buffer).partition(b"\r\n")
        size = int(line, 16)
        while len(rest) < size + 2:
            if not _more(client, buffer):
                return body, False
            rest = bytes(buffer).partition(b"\r\n")[2]
        body += rest[:size]
        buffer[:] = rest[size + 2 :]
        if size == 0:
            return body, True


def _more(client: socket.socket, buffer: bytearray) -> bool:
    try:
        data = client.recv(65536)
    except ConnectionError:
        return False
    buffer += data
    return bool(data)


def post(path: str, body: object, *headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "host: localhost", f"content-length: {len(data)}", *headers]
    if not any(line.lower().startswith("content-type") for line in headers):
        lines.append("content-type: application/json")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    hosts = [] if any(line.lower().startswith("host") for line in headers) else ["host: localhost"]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *hosts, *headers]).encode() + b"\r\n\r\n"


def chat(text: str, *headers: str, **members: object) -> bytes:
    body = {"model": "echo", "messages": [{"role": "user", "content": text}], **members}
    return post("/v1/chat/completions", body, *headers)


def expect_soon(holds: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.002)
