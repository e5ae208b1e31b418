#!/usr/bin/env python3
"""What a decision costs: each operation of the calendar, a whole refusal from its bytes to its one write, a simulation.

All slots run and ``--bookings`` starts are promised. Microseconds of CPU of one thread, medians and the least of all; a
refusal includes the hash of its body. Then how many requests a second one core simulates with the same calendar
(`bench/simulate.py` has more loads). About ten seconds.

    python bench/decisions.py                      64 slots, 32 bookings
    python bench/decisions.py --slots 16 --json result.json
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import simulate
from in_process import loaded, machine, options, show, write

from zerolayer import contract as contracts
from zerolayer.front.connection import Connection
from zerolayer.front.site import ConnectionLimits, Site
from zerolayer.guard.deadline.booking import Booking, Terms, Work
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.model.cost import CostTable
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.metrics import Metrics
from zerolayer.serve.running import running

MS = 1_000_000
STEP_NS, CHUNK_NS = 20 * MS, 10 * MS
CALLS = 2_000
LIMITS_US = {"book": 20, "claim": 20, "fit": 20, "release": 20, "refuse and book": 40, "refuse, booked already": 40}
SIMULATED = [(0.3, 2), (0.7, 2), (2.0, 2), (2.0, 0)]  # loads, and retries of who is refused
LEAST_PER_S = 200_000
WORDS = "river stone cloud garden window letter bridge summer paper candle "


class Full:
    """A calendar whose slots all run and that has bookings; its clock stands still."""

    def __init__(self, slots: int, bookings: int) -> None:
        self.now = 1_000 * MS
        cost = CostTable(slots=slots, chunk_tokens=128)
        for _ in range(128):
            cost.observe(decode_rows=slots, elapsed_ns=STEP_NS)
            cost.observe(decode_rows=slots, prefill_tokens=128, elapsed_ns=STEP_NS + CHUNK_NS)
        chunk_ns = cost.prices().chunk(128)
        self.work = Work(1, chunk_ns, chunk_ns, 256)
        self.terms = Terms(self.now, 60_000 * MS, 1_000 * MS, 120_000 * MS)
        self.calendar = Calendar(slots, lambda: self.now, cost.prices, horizon_ns=120_000 * MS)
        for _ in range(slots):
            self.calendar.confirm(self.calendar.claim(self.work, self.terms), self.work)
        for _ in range(slots):  # their prompts are read
            self.now += STEP_NS + CHUNK_NS
            self.calendar.on_step(_, self.now)
        self.booked = [self.book() for _ in range(bookings)]

    def book(self) -> Booking:
        booking = self.calendar.book(self.work, self.terms)
        assert booking is not None
        return booking

    def make_stale(self) -> None:
        """As after a step."""
        self.calendar.skip(0, 0, 128)


Times = tuple[float, float]


def cost_us(work: Callable[[], object], before: Callable[[], object], after: Callable[[], object]) -> Times:
    """Median and least of ``work``; what comes ``before`` and ``after`` is not counted, nor is the clock."""
    taken, empty = [], []
    gc.disable()
    for _ in range(CALLS):
        before()
        start = time.thread_time_ns()
        work()
        taken.append(time.thread_time_ns() - start)
        after()
        start = time.thread_time_ns()
        empty.append(time.thread_time_ns() - start)
    gc.enable()
    clock = statistics.median(empty)
    return (statistics.median(taken) - clock) / 1000, (min(taken) - clock) / 1000


def row(operation: str, times: Times) -> dict[str, Any]:
    """A line of the table."""
    limit = LIMITS_US.get(operation)
    return {"operation": operation, "us": times[0], "least_us": times[1], "limit_us": "" if limit is None else limit}


def operations(slots: int, bookings: int) -> Iterator[dict[str, Any]]:
    """Each operation right after a step, when all bounds are to be computed anew."""
    full = Full(slots, bookings)
    calendar, made = full.calendar, list[Booking]()

    def book() -> None:
        made.append(full.book())

    def void() -> None:
        calendar.void(made.pop())

    yield row("book", cost_us(book, full.make_stale, void))
    yield row("void", cost_us(void, lambda: (book(), full.make_stale()), lambda: None))
    for booking in full.booked[bookings // 4 :]:
        calendar.void(booking)
    calendar.release(slots - 1)
    claimed: list[int] = []

    def claim() -> None:
        claimed.append(calendar.claim(full.work, full.terms))

    def release() -> None:
        calendar.release(claimed.pop())

    yield row("fit", cost_us(lambda: calendar.fit(full.work, full.terms), full.make_stale, int))
    yield row("claim", cost_us(claim, full.make_stale, release))
    yield row("release", cost_us(release, claim, int))


class Transport:
    """Takes what a connection writes."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""

    abort = close


def request(number: int, attempt: int, tokens: int) -> bytes:
    """A chat request as a stock client sends it."""
    messages = [{"role": "user", "content": f"{number} " + WORDS * 10}]
    body = json.dumps({"model": "smollm2", "messages": messages, "max_tokens": tokens, "stream": True}).encode()
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nuser-agent: OpenAI/Python 3.57.0\r\naccept: */*\r\n"
        b"content-type: application/json\r\nauthorization: Bearer none\r\nx-stainless-retry-count: %d\r\n"
        b"x-stainless-read-timeout: 600.0\r\ncontent-length: %d\r\n\r\n"
    )
    return head % (attempt, len(body)) + body


async def refusals(slots: int, bookings: int) -> list[dict[str, Any]]:
    """A refusal that books, and one of a client that is booked and comes too early; the server is a real one."""
    loop = asyncio.get_running_loop()
    flags = {"engine": "mock:step_us=3000", "slots": str(slots), "port": "0", "admin": "127.0.0.1:0"}
    given = contracts.load(None, {}, flags).contract
    with loaded(**flags) as model:
        async with running(given, model) as server:
            site = Site(
                ConnectionLimits(),
                time.monotonic_ns,
                time.time,
                "bench",
                lambda: b"free=%d;next_ms=%d" % server.slots.standing(),
                Metrics("m"),
                GlueMeter(),
            )
            connection, transport = Connection(site, server.tables.routers.service, set(), loop), Transport()
            connection.connection_made(transport)
            for number in range(slots):
                busy = Connection(site, server.tables.routers.service, set(), loop)
                busy.connection_made(holding := Transport())
                busy.data_received(request(number, 0, 1_500))
                await asyncio.sleep(0.01)  # its prompt is read: no more of them may wait than the limits of all allow
                assert b" 429 " not in b"".join(holding.written), holding.written
            await asyncio.sleep(0.1)
            for number in range(bookings):
                connection.data_received(request(1_000 + number, 0, 256))
            again = request(1_000, 1, 256)
            made: list[bytes] = []

            def refuse() -> None:
                connection.data_received(made[-1])

            def unbook() -> None:
                for booking in [each for each in server.admission.tickets if each.ticket not in kept]:
                    server.admission.void(booking)

            kept = {booking.ticket for booking in server.admission.tickets}
            assert len(kept) == bookings, (len(kept), transport.written[-1])
            numbers = iter(range(10_000, 100_000))
            books = cost_us(refuse, lambda: made.append(request(next(numbers), 0, 256)), unbook)
            early = cost_us(lambda: connection.data_received(again), int, int)
            assert all(written.startswith(b"HTTP/1.1 429") for written in transport.written)
            assert len(transport.written) == bookings + 2 * CALLS, "one write each"
    return [row("refuse and book", books), row("refuse, booked already", early)]


def simulations(requests: int) -> Iterator[dict[str, Any]]:
    """Requests a second on one core, and the share of them that is refused for good."""
    for load, retries in SIMULATED:
        seen, per_s = simulate.rate(load, retries, requests)
        yield {"load": load, "retries": retries, "refused": seen.refused / seen.arrivals, "per_s": per_s}


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--bookings", type=int, default=32)
    parser.add_argument("--requests", type=int, default=50_000, help="of each simulation")
    given = parser.parse_args()
    before = machine()
    rows = list(operations(given.slots, given.bookings))
    rows += asyncio.run(refusals(given.slots, given.bookings))
    show({"operation": "operation", "CPU us": "us:.1f", "least": "least_us:.1f", "at most": "limit_us"}, rows)
    rates = list(simulations(given.requests))
    print()
    show({"load": "load", "retries": "retries", "refused": "refused:.1%", "simulated/s": "per_s:,.0f"}, rates)
    print(f"at least {LEAST_PER_S:,} a second asked")
    write(given.json, "decisions", before | {"slots": given.slots, "bookings": given.bookings}, rows + rates)


if __name__ == "__main__":
    main()
