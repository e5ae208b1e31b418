"""The thread behind the synchronous client: how it starts, ends, and what is never left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from contextlib import suppress

import pytest

from zerolayer import Client
from zerolayer.client.portal import Portal

HI = [{"role": "user", "content": "Hi"}]


def threads() -> int:
    return sum(thread.name == "zerolayer-client" for thread in threading.enumerate())


async def add(one: int, other: int) -> int:
    await asyncio.sleep(0)
    return one + other


async def fail() -> None:
    raise ValueError("told")


def test_work_runs_elsewhere_and_its_result_or_error_comes_back() -> None:
    portal = Portal(list)
    assert portal.run(add(1, 2)) == 3
    with pytest.raises(ValueError, match="told"):
        portal.run(fail())
    portal.close()


def test_a_client_that_asks_nothing_has_no_thread() -> None:
    before = threads()
    Client()
    assert threads() == before


def test_closing_ends_the_thread_and_a_later_call_starts_another_one(scripted, http) -> None:
    before = threads()
    client = Client(scripted(http.hello, http.hello).url)
    for _ in range(2):
        assert client.chat(HI, model="m").answer().text == "Hello é"
        assert threads() == before + 1
        client.close()
        assert threads() == before


def test_a_client_that_is_forgotten_takes_its_thread_along(scripted, http) -> None:
    before = threads()
    client = Client(scripted(http.hello).url)
    client.chat(HI, model="m").answer()
    del client
    gc.collect()
    assert threads() == before


def test_closing_ends_what_is_under_way() -> None:
    portal, ended, raised = Portal(list), threading.Event(), []

    async def long() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    def wait() -> None:
        try:
            portal.run(long())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    portal.run(add(1, 1))
    portal.close()
    assert ended.wait(30)
    thread.join(5)
    assert not thread.is_alive()
    assert len(raised) == 1


def test_work_that_comes_while_another_thread_closes_is_done_or_cancelled_and_never_left(monkeypatch) -> None:
    """The worst moment: the loop is chosen, and the work is not there yet."""
    portal, begin = Portal(list), asyncio.run_coroutine_threadsafe
    portal.run(add(1, 1))
    closers = []

    def late(work, loop):
        closers.append(threading.Thread(target=portal.close))
        closers[-1].start()
        closers[-1].join(0.05)
        return begin(work, loop)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", late)
    ended = portal.begin(add(1, 2))
    with suppress(CancelledError):
        assert ended.result(5) == 3
    closers[0].join(5)
    assert not closers[0].is_alive()
    monkeypatch.undo()
    assert portal.run(add(2, 3)) == 5
    portal.close()


def test_what_ending_work_begins_is_ended_too() -> None:
    portal, begun, ended = Portal(list), threading.Event(), []

    async def last() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("last")

    async def long() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(asyncio.create_task(last()))
            await asyncio.sleep(0)

    kept = portal.begin(long())
    assert begun.wait(30)
    portal.close()
    assert kept.cancelled()
    assert ended[0].cancelled()
    assert ended[1:] == ["last"]


def test_what_is_only_told_starts_no_thread() -> None:
    before, portal, told = threads(), Portal(list), threading.Event()
    portal.tell(told.set)
    assert threads() == before
    portal.run(add(1, 1))
    assert not told.is_set()
    portal.tell(told.set)
    assert told.wait(30)
    portal.close()


def test_a_process_that_forks_has_a_thread_of_its_own() -> None:
    portal = Portal(list)
    portal.run(add(1, 2))
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, b"%d" % portal.run(add(2, 3)))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"5"
    for descriptor in (reader, writer):
        os.close(descriptor)
    portal.close()


def test_a_script_that_closes_nothing_ends_quietly(scripted, http) -> None:
    server = scripted(http.hello)
    code = f"from zerolayer import Client; print(Client({server.url!r}).chat({HI!r}, model='m').answer().text)"
    environment = os.environ | {"PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-W", "always", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment, check=True)
    assert (done.stdout, done.stderr) == ("Hello é\n", "")
