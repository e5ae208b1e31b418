"""Other people's doors with the same nothing behind them: uvicorn (bare ASGI application), FastAPI, grpcio.aio.

python bench/front_peers.py uvicorn|fastapi|grpcio

The first line it prints is its port and the id of the thread that stands for the engine. A request whose path ends in
``stream`` (gRPC: ``/bench.Door/Stream``) gets a token at every tick of that thread, 5 ms, as each framework's own
documentation would write it: a queue a stream, one wake-up of the loop a tick, a JSON event or a message a token.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop

ANSWER = b'{"answer":"%s"}' % (b"x" * 187)
STEP_S = 0.005
_TOKEN = " word"


class Ticker:
    """The engine: a thread that gives every open stream a token at each tick, with one call on the loop."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[str]] = set()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        while self._thread.native_id is None:
            time.sleep(0.001)

    @property
    def thread_id(self) -> int:
        """Of the kernel."""
        return self._thread.native_id or 0

    async def tokens(self, count: int) -> AsyncIterator[str]:
        """``count`` tokens, one a tick."""
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._queues.add(queue)
        try:
            for _ in range(count):
                yield await queue.get()
        finally:
            self._queues.discard(queue)

    def _run(self) -> None:
        while True:
            time.sleep(STEP_S)
            if self._queues:
                self._loop.call_soon_threadsafe(self._step)

    def _step(self) -> None:
        for queue in self._queues:
            queue.put_nowait(_TOKEN)


def event(token: str) -> bytes:
    """One server-sent event in OpenAI's form."""
    choice = {"index": 0, "text": token, "finish_reason": None, "logprobs": None}
    chunk = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "smollm2", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def bare_app(ticker: Ticker):
    """A bare ASGI application."""

    async def app(scope, receive, send) -> None:
        if scope["type"] == "http":
            await answer(ticker, scope, receive, send)

    return app


async def answer(ticker: Ticker, scope, receive, send) -> None:
    """One request of the bare application."""
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if scope["path"].endswith("stream"):
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for token in ticker.tokens(json.loads(body)["max_tokens"]):
            await send({"type": "http.response.body", "body": event(token), "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    else:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": ANSWER})


def fastapi_app(ticker: Ticker):
    """The same with typed bodies."""
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse
    from pydantic import BaseModel

    class Message(BaseModel):
        role: str
        content: str

    class Chat(BaseModel):
        model: str
        messages: list[Message] = []
        prompt: str = ""
        max_tokens: int = 16
        temperature: float = 1.0
        top_p: float = 1.0
        stream: bool = False

    class Reply(BaseModel):
        answer: str

    app = FastAPI()

    async def echo(chat):  # noqa: ARG001 - that it is decoded is the point
        return Reply(answer="x" * 187)

    async def stream(chat):
        async def events():
            async for token in ticker.tokens(chat.max_tokens):
                yield event(token)

        return StreamingResponse(events(), media_type="text/event-stream")

    # Postponed annotations cannot name classes of a function.
    echo.__annotations__ = {"chat": Chat, "return": Reply}
    stream.__annotations__ = {"chat": Chat}
    app.post("/echo")(echo)
    app.post("/stream")(stream)
    return app


async def serve_http(app, ticker: Ticker) -> None:
    """Uvicorn with httptools and uvloop, without its access log."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
    server = uvicorn.Server(uvicorn.Config(app, http="httptools", log_level="warning", access_log=False))
    print(listening.getsockname()[1], ticker.thread_id, flush=True)
    await server.serve([listening])


async def serve_grpc(ticker: Ticker) -> None:
    """A generic handler with protobuf messages (upb)."""
    import grpc

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "wire"))
    from inference_messages import message

    request, reply = message("GenerateRequest"), message("GenerateReply")

    async def say(call, _context):
        _ = call.model, call.token_ids, call.max_tokens
        return reply(text=ANSWER)

    async def stream(call, _context):
        number = 0
        async for token in ticker.tokens(call.max_tokens):
            number += 1
            yield reply(token_ids=[number], text=token.encode())

    def encode(answer) -> bytes:
        return answer.SerializeToString()

    methods = {
        "Say": grpc.unary_unary_rpc_method_handler(say, request.FromString, encode),
        "Stream": grpc.unary_stream_rpc_method_handler(stream, request.FromString, encode),
    }
    server = grpc.aio.server(options=[("grpc.max_concurrent_streams", 256)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("bench.Door", methods)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, ticker.thread_id, flush=True)
    await server.wait_for_termination()


async def main(peer: str) -> None:
    """Serve until killed."""
    ticker = Ticker()
    if peer == "grpcio":
        await serve_grpc(ticker)
    else:
        await serve_http(fastapi_app(ticker) if peer == "fastapi" else bare_app(ticker), ticker)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(main(sys.argv[1]))
