"""Whether a server is after many requests where it was before: memory, descriptors, tasks, slots, budgets.

    .venv/bin/python bench/soak.py --json FILE

100,000 requests, 30 % of whose clients go away (before the first token, between tokens, or with half a request sent),
over the mock engine in this process, with ledger, budgets and metrics on. It looks before them, when half is done and
at the end: what leaks grows as much in the second half as in the first. About 3 minutes on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from in_process import loaded, machine

from zerolayer import contract
from zerolayer.guard.ledger.record import Entry, Outcome
from zerolayer.guard.ledger.segment import Chain
from zerolayer.serve.running import running
from zerolayer.serve.server import Server

ABORTS = 0.3
WORKERS = 10  # of 16 slots: what aborts leave behind for a step takes some, and now and then all
WARM = 2000  # requests before the first look: buffers and caches reach their size
GROWS = ("memory_mb", "malloc bytes", "objects")  # by caches too, until they are full
MEMORY_MB = 8.0  # that a process may have grown by
LEAK_BYTES = 40  # a request, in the second half, of what malloc has given: less than the smallest buffer that one needs
LEAK_OBJECTS = 0.5  # a request, in the second half: one that was kept of each would be 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--json", "--json-out", metavar="FILE", type=Path)
    options = parser.parse_args()
    print(f"about {max(1, options.requests // 35_000)} minutes ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder, loaded(engine="mock:step_us=300", slots="16") as model:
        result = uvloop.run(soak(model, Path(folder), options.requests, tell))
    print()
    print(f"{'':<22}{'before':>14}{'half way':>14}{'after':>14}")
    for name, looks in result["looks"].items():
        print(f"{name:<22}" + "".join(f"{look:>14,.1f}" for look in looks))
    print(f"{result['requests']:,} requests, {result['outcomes']}, {result['per_s']:,.0f} a second")
    print("as before" if result["as_before"] else "NOT as before")
    if options.json:
        options.json.write_text(json.dumps(result | {"version": 1, "machine": machine()}, indent=2) + "\n")
    return 0 if result["as_before"] else 1


def tell(done: int, of: int) -> None:
    print(f"\r{done:,} of {of:,} requests", end="", file=sys.stderr, flush=True)


async def soak(model: Any, folder: Path, requests: int, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Serve ``requests`` requests in this loop, with clients on another thread, and look before and after."""
    given = contract.load(None, {}, {"port": "0", "admin": "127.0.0.1:0", "ledger": str(folder / "ledger")}).contract
    tenants = msgspec.structs.replace(
        given.tenants, concurrent=1000, tokens_per_minute=4_000_000_000, state=str(folder / "budgets")
    )
    context = msgspec.structs.replace(given.context, slots=16)
    given = msgspec.structs.replace(given, tenants=tenants, context=context)
    async with running(given, model) as server:
        await clients(server, min(WARM, requests), progress)
        while not server.prepared:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        before = await look(server)
        started = time.monotonic()
        await clients(server, requests // 2, progress)
        half = await settled(server, before)
        await clients(server, requests - requests // 2, progress)
        took = time.monotonic() - started
        after = await settled(server, before)
    counts: dict[str, int] = {}
    for link in Chain(folder / "ledger"):
        record = link.record()
        if isinstance(record, Entry):
            name = Outcome(record.outcome).name.lower()
            counts[name] = counts.get(name, 0) + 1
    exact = same(before, half) and same(before, after)
    grown = after["memory_mb"] - before["memory_mb"]
    second = max(1, requests // 2)
    bytes_left, objects_left = ((after[name] - half[name]) / second for name in ("malloc bytes", "objects"))
    return {
        "requests": requests,
        "per_s": requests / took,
        "outcomes": counts,
        "looks": {name: (before[name], half[name], after[name]) for name in before},
        "grown_bytes_a_request": bytes_left,  # in the second half
        "grown_objects_a_request": objects_left,
        "as_before": exact
        and grown <= MEMORY_MB
        and (requests < 10_000 or (bytes_left <= LEAK_BYTES and objects_left <= LEAK_OBJECTS)),
    }


def same(one: dict[str, float], other: dict[str, float]) -> bool:
    """Everything that is counted is equal."""
    return all(one[name] == other[name] for name in one if name not in GROWS)


async def settled(server: Server, before: dict[str, float]) -> dict[str, float]:
    """What a server holds; what is about to be closed, as the descriptor of a connection, has two seconds for it."""
    for _ in range(20):
        now = await look(server)
        if same(before, now):
            break
        await asyncio.sleep(0.1)
    return now


async def look(server: Server) -> dict[str, float]:
    """What a server holds once nothing runs. What is held for budgets is summed over all accounts."""
    deadline = time.monotonic() + 10
    slots = server.slots
    while (slots.free < server.info.slots or slots.bookings or server.connections) and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    gc.collect()
    accounts = server.guard.budgets.accounts()
    memory_mb, descriptors = process()
    return {
        "memory_mb": memory_mb,
        "malloc bytes": malloc_bytes(),
        "objects": sys.getallocatedblocks(),
        "descriptors": descriptors,
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "free slots": server.slots.free,
        "running": server.dispatcher.running,
        "held clients": len(server.held),
        "bookings": len(server.slots.bookings),
        "connections": len(server.connections),
        "held requests": sum(account.held_requests for account in accounts),
        "held tokens": sum(account.held_tokens for account in accounts),
        "held compute us": sum(account.held_us for account in accounts),
        "budgeted as running": sum(account.running for account in accounts),
    }


def process() -> tuple[float, int]:
    """Memory of its own in MB, without pages of files, which the kernel takes and gives as it likes; descriptors.

    What was freed and malloc has kept for the next time is given back first: it is nobody's.
    """
    with contextlib.suppress(AttributeError):  # a libc without it
        ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text()
    own_kb = sum(int(line.split()[1]) for line in status.splitlines() if line.startswith(("RssAnon:", "VmSwap:")))
    return own_kb / 1024, len(list(Path("/proc/self/fd").iterdir()))


class _Mallinfo(ctypes.Structure):
    """mallinfo2(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def malloc_bytes() -> int:
    """What malloc has given and was not given back: pages that it keeps for the next time do not count.

    Small objects of Python's are not among them: those are counted one by one.
    """
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # a libc without it
        return 0
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return int(found.uordblks + found.hblkhd)


async def clients(server: Server, requests: int, progress: Callable[[int, int], None]) -> None:
    """``requests`` requests of ``WORKERS`` clients; each connection serves some, an abort ends it."""
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, lambda: asyncio.run(_crowd(server, requests, progress)))


async def _crowd(server: Server, requests: int, progress: Callable[[int, int], None]) -> None:
    left = iter(range(requests))
    await asyncio.gather(*[_client(server, left, random.Random(seed), requests, progress) for seed in range(WORKERS)])
    progress(requests, requests)


async def _client(
    server: Server, left: Iterator[int], chance: random.Random, of: int, progress: Callable[[int, int], None]
) -> None:
    port, model = server.port, server.guard.names.served
    connection = None
    for number in left:
        if number % 1000 == 0:
            progress(number, of)
        if connection is None:
            connection = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = connection
        request = _request(chance, model)
        if chance.random() < ABORTS:
            await _abort(reader, writer, request, chance)
            connection = None
        elif not await _ask(reader, writer, request):
            connection = None
    if connection is not None:
        connection[1].close()


def _request(chance: random.Random, model: str) -> bytes:
    body = json.dumps(
        {
            "model": model,
            "prompt": "word " * chance.randint(1, 20),
            "max_tokens": chance.randint(1, 8),
            "stream": chance.random() < 0.5,
        }
    ).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


async def _abort(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, chance: random.Random
) -> None:
    """Go away: with half a request sent, before anything came back, or after some bytes did."""
    kind = chance.randrange(3)
    writer.write(request[: len(request) // 2] if kind == 0 else request)
    if kind == 2:
        await reader.read(64)
    elif kind == 1:
        await asyncio.sleep(chance.random() * 0.002)
    writer.transport.abort()


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bool:
    """Read a whole reply, coming back when that is asked for. Whether the connection can be used again."""
    try:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        while b"retry-after-ms:" in head:
            await reader.readexactly(_number(head, b"content-length:"))
            await asyncio.sleep(_number(head, b"retry-after-ms:") / 1000)
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"transfer-encoding: chunked" in head:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                await reader.readexactly(size + 2)
            await reader.readexactly(2)
        else:
            await reader.readexactly(_number(head, b"content-length:"))
    except (OSError, asyncio.IncompleteReadError):
        writer.transport.abort()
        return False
    return b"connection: close" not in head


def _number(head: bytes, name: bytes) -> int:
    return int(head.partition(name)[2].partition(b"\r\n")[0])


if __name__ == "__main__":
    raise SystemExit(main())
