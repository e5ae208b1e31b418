"""A call that waits for a booking while a node comes back, over sockets: it goes there and gives the booking back."""

from __future__ import annotations

import asyncio
import time

import pytest

from zerolayer import AsyncClient
from zerolayer.client.service import Clocks

HI = [{"role": "user", "content": "Hi"}]
SILENT = b""  # the request is read, and the connection closed
BOOKED_S = 600


def path(request: bytes) -> tuple[str, str]:
    method, target = request.split(b" ")[:2]
    return method.decode(), target.decode()


def test_a_node_that_is_back_serves_who_waits_for_a_booking_though_no_other_call_comes(scripted, http) -> None:
    booked = http.busy.replace(b"120", b"%d" % (BOOKED_S * 1000))
    full = scripted(booked, http.whole("204 No Content", b""))
    unready, ready = http.whole("503 Service Unavailable", b"{}"), http.whole("200 OK", b"{}")
    back = scripted(SILENT, unready, ready, http.hello)

    async def run() -> None:
        async with AsyncClient([full.url, back.url], protocol="json", retry_budget_ms=2 * BOOKED_S * 1000) as client:
            answer = await asyncio.wait_for(client.chat(HI, model="m").answer(), 30)
            assert answer.node == back.url
            assert (answer.attempts.woken, client.statistics.woken) == (1, 1)

    asyncio.run(run())
    assert [path(request)[1].rpartition("/")[2] for request in back.requests] == [
        "completions",
        "readyz",
        "readyz",
        "completions",
    ]
    assert path(full.requests[-1]) == ("DELETE", "/v1/bookings/t1")


def test_who_is_cancelled_while_waiting_leaves_no_task_behind(scripted, http) -> None:
    booked = http.busy.replace(b"120", b"%d" % (BOOKED_S * 1000))
    full = scripted(booked, http.whole("204 No Content", b""))

    async def run() -> None:
        async with AsyncClient(full.url, protocol="json", retry_budget_ms=2 * BOOKED_S * 1000) as client:
            call = asyncio.create_task(client.chat(HI, model="m").answer())
            deadline = time.monotonic() + 30
            while not client._service.waiters:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            call.cancel()
            await asyncio.wait([call])
            assert len(client._service.waiters) == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_a_clock_that_fails_is_not_taken_for_a_wait(scripted, http) -> None:
    server = scripted(http.busy, http.whole("204 No Content", b""))

    async def broken(_seconds: float) -> None:
        raise ArithmeticError

    async def run() -> None:
        async with AsyncClient(server.url, protocol="json", clocks=Clocks(sleep=broken)) as client:
            with pytest.raises(ArithmeticError):
                await client.chat(HI, model="m").answer()

    asyncio.run(run())
