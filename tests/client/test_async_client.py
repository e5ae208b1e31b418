"""The asynchronous client, and what both clients promise: deadlines, cancellation, a lean import."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time

import pytest

from client.http2_server import soon
from zerolayer import AsyncClient, Client
from zerolayer.client.address import Address, Patience
from zerolayer.client.blocking import get
from zerolayer.client.errors import BadReply, CutStream, DeadlinePassed, NotReachable, Refused
from zerolayer.client.request import Options, Question
from zerolayer.client.service import Clocks
from zerolayer.client.vocabulary import Held

HI = [{"role": "user", "content": "Hi"}]


class SilentServer:
    """Takes connections and requests and never answers; tells when its client has gone."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked, self.left = threading.Event(), threading.Event()
        self.request = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            self.request = connection.recv(65536)
            self.asked.set()
            while connection.recv(65536):
                pass
            self.left.set()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def silent():
    server = SilentServer()
    yield server
    server.close()


def test_an_answer_arrives_as_pieces_of_text_and_an_outcome(scripted, http) -> None:
    async def ask() -> None:
        async with AsyncClient(scripted(http.models, http.hello).url).chat(HI) as stream:
            assert [piece async for piece in stream] == ["Hel", "lo é"]
        assert stream.outcome is not None
        assert (stream.outcome.finish_reason, stream.outcome.stages_us) == ("stop", {"read": 3})

    asyncio.run(ask())


def test_a_whole_answer_has_its_text_its_stages_and_its_attempts(scripted, http) -> None:
    server = scripted(http.busy.replace(b"120", b"1"), http.hello)

    async def ask() -> None:
        client = AsyncClient(server.url)
        answer = await client.chat(HI, model="m").answer()
        assert (answer.text, answer.outcome.stages_us) == ("Hello é", {"read": 3})
        assert (answer.node, answer.attempts.booked, answer.attempts.retries) == (server.url, 1, 1)
        assert 0 < answer.first_text_ms <= answer.total_ms
        assert client.statistics.retrying_helped == 1.0

    asyncio.run(ask())
    assert b"x-zl-ticket: t1" in server.requests[1]


def test_both_clients_send_the_same_bytes(scripted, http) -> None:
    one, other = scripted(http.hello), scripted(http.hello)
    options = {"model": "m", "max_tokens": 5, "temperature": 0.0, "seed": 7, "stop": ["x"]}
    Client(one.url, api_key="k").chat(HI, **options).answer()
    asyncio.run(AsyncClient(other.url, api_key="k").chat(HI, **options).answer())
    first, second = (server.requests[0].replace(server.url[7:].encode(), b"") for server in (one, other))
    assert first == second
    assert json.loads(first.partition(b"\r\n\r\n")[2])["stop"] == ["x"]
    assert b"authorization: Bearer k" in first


def test_text_is_continued_without_a_template(scripted, http) -> None:
    reply = http.chunked(b'data: {"choices":[{"text":"ly","finish_reason":"length"}]}\n\ndata: [DONE]\n\n')
    server = scripted(reply)
    answer = Client(server.url).generate("sudden", model="m", max_tokens=1).answer()
    assert (answer.text, answer.outcome.finish_reason) == ("ly", "length")
    assert server.requests[0].startswith(b"POST /v1/completions ")
    assert b'"prompt": "sudden"' in server.requests[0]


def test_a_stream_that_breaks_off_is_cut_and_never_asked_again(scripted, http) -> None:
    server = scripted(http.chunked(b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n', end=False), http.hello)

    async def ask() -> None:
        client = AsyncClient(server.url)
        stream = client.chat(HI, model="m")
        assert await anext(stream) == "Hel"
        with pytest.raises(CutStream):
            await anext(stream)
        assert (client.statistics.answered, client.statistics.cut) == (1, 1)

    asyncio.run(ask())
    assert len(server.requests) == 1


def test_a_reader_that_leaves_early_is_no_cut_stream(scripted, http) -> None:
    client = Client(scripted(http.hello).url)
    with client.chat(HI, model="m") as stream:
        assert next(stream) == "Hel"
    assert list(stream) == []
    assert (client.statistics.answered, client.statistics.cut) == (1, 0)


def test_an_error_of_the_server_is_raised(scripted, http) -> None:
    reply = http.whole("400 Bad Request", b'{"error":{"message":"max_tokens is 0.","code":"invalid_request"}}')

    async def ask() -> None:
        with pytest.raises(Refused, match="max_tokens is 0") as caught:
            await AsyncClient(scripted(reply).url).chat(HI, model="m").answer()
        assert (caught.value.status_code, caught.value.error_code) == (400, "invalid_request")

    asyncio.run(ask())


@pytest.mark.parametrize("reply", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_what_does_not_speak_http_is_told_from_what_is_not_there(scripted, reply) -> None:
    async def ask() -> None:
        with pytest.raises(BadReply):
            await AsyncClient(scripted(reply).url).chat(HI, model="m").answer()

    asyncio.run(ask())


def test_nothing_listening_says_how_to_start_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

    async def ask() -> None:
        with pytest.raises(NotReachable, match="zerolayer serve"):
            await AsyncClient(url).chat(HI, model="m").answer()

    asyncio.run(ask())


def test_a_deadline_is_told_to_the_server_and_kept_without_it(silent) -> None:
    async def ask() -> None:
        with pytest.raises(DeadlinePassed):
            await AsyncClient(silent.url).chat(HI, model="m", deadline_ms=200).answer()

    begun = time.monotonic()
    asyncio.run(ask())
    assert 0.2 <= time.monotonic() - begun < 5
    assert silent.left.wait(30)
    told = silent.request.lower().partition(b"x-zl-deadline-ms: ")[2].split(b"\r\n")[0]
    assert 0 < int(told) <= 200


def test_asking_for_the_models_name_is_within_the_deadline(silent) -> None:
    async def ask() -> None:
        with pytest.raises(DeadlinePassed):
            await AsyncClient(silent.url).chat(HI, deadline_ms=100).answer()

    asyncio.run(ask())
    assert silent.request.startswith(b"GET /v1/models")


def test_the_synchronous_client_keeps_its_deadline_too(silent) -> None:
    with pytest.raises(DeadlinePassed):
        Client(silent.url).chat(HI, model="m", deadline_ms=100)
    assert silent.left.wait(30)


def test_a_node_that_hangs_is_replaced_after_answer_within_s(silent, scripted, http) -> None:
    answering = scripted(*[http.hello] * 60)
    client = Client([silent.url, answering.url], answer_within_s=0.1)
    for number in range(60):  # which of the two is asked first is a matter of the prompt's hash
        answer = client.chat([{"role": "user", "content": str(number)}], model="m").answer()
        if answer.attempts.retries:
            break
    assert answer.attempts.nodes == (silent.url, answering.url)
    assert answer.attempts.unanswered == client.statistics.unanswered == 1


def test_cancelling_the_task_closes_the_connection(silent) -> None:
    async def ask() -> None:
        client = AsyncClient(silent.url)
        task = asyncio.create_task(client.chat(HI, model="m").answer())
        assert await asyncio.to_thread(silent.asked.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (client.statistics.answered, client.statistics.failed) == (0, 1)
        assert await asyncio.to_thread(silent.left.wait, 5)

    asyncio.run(ask())


def test_waits_are_told_and_slept_on_the_given_clock(scripted, http) -> None:
    now, told = [0], []

    async def sleep(seconds: float) -> None:
        now[0] += round(seconds * 1e9)

    async def ask() -> None:
        clocks = Clocks(lambda: now[0], lambda: 0, sleep)
        client = AsyncClient(scripted(http.busy, http.hello).url, clocks=clocks, on_wait=told.append)
        await client.chat(HI, model="m").answer()

    asyncio.run(ask())
    assert (told, now) == ([120], [120_000_000])


@pytest.mark.parametrize("name", ["Client", "AsyncClient"])
def test_the_clients_import_nothing_but_the_standard_library_their_own_room_and_pure_words_of_the_wire(name) -> None:
    code = f"""
import sys
before = set(sys.modules)
from zerolayer import {name}
new = set(sys.modules) - before
foreign = {{module.split(".")[0] for module in new}} - sys.stdlib_module_names - {{"zerolayer"}}
words = ("http2_frames", "load", "protobuf")
allowed = ("zerolayer.client", "zerolayer.errors", *["zerolayer.wire." + word for word in words])
own = {{module for module in new if module.startswith("zerolayer.") and not module.startswith(allowed)}}
print(sorted(foreign | own - {{"zerolayer.wire"}}))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_booking_is_given_back_to_its_node_when_another_one_starts_at_once(scripted, http) -> None:
    booking = http.busy.replace(b"retry-after-ms: 120", b"retry-after-ms: 5000")
    refusing, answering = scripted(booking, http.whole("204 No Content", b"")), scripted(http.hello)

    async def ask() -> None:
        async with AsyncClient([refusing.url, answering.url]) as client:
            nodes = client._service.nodes
            messages = next(
                [{"role": "user", "content": str(number)}]
                for number in range(1000)
                if nodes.choose(0, Question(Options("m"), [{"role": "user", "content": str(number)}]).prefix)
                == refusing.url
            )
            answer = await client.chat(messages, model="m").answer()
            assert answer.attempts.nodes == (refusing.url, answering.url)

    asyncio.run(ask())
    assert refusing.requests[1].startswith(b"DELETE /v1/bookings/t1 HTTP/1.1")


def test_a_caller_that_leaves_while_it_waits_gives_its_booking_back(scripted, http) -> None:
    booking = http.busy.replace(b"retry-after-ms: 120", b"retry-after-ms: 5000")
    server = scripted(booking, http.whole("204 No Content", b""))

    async def ask() -> None:
        waits: list[int] = []
        async with AsyncClient(server.url, on_wait=waits.append) as client:
            task = asyncio.create_task(client.chat(HI, model="m").answer())
            await soon(lambda: waits)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (client.statistics.calls, client.statistics.failed) == (1, 1)

    asyncio.run(ask())
    assert server.requests[1].startswith(b"DELETE /v1/bookings/t1 HTTP/1.1")


def test_a_node_that_answers_nonsense_is_replaced(scripted, http) -> None:
    broken, answering = scripted(*[b"SSH-2.0-OpenSSH\r\n\r\n"] * 60), scripted(*[http.hello] * 60)
    client = Client([broken.url, answering.url])
    for number in range(60):  # which of the two is asked first is a matter of the prompt's hash
        answer = client.chat([{"role": "user", "content": str(number)}], model="m").answer()
        if answer.attempts.retries:
            break
    assert answer.attempts.nodes == (broken.url, answering.url)
    assert answer.attempts.unanswered == 1


def test_lines_of_a_reply_come_whole_however_they_were_cut(scripted, http) -> None:
    patience = Patience(10, None, time.monotonic_ns)
    address = Address.parse(scripted(http.chunked(b"one\ntw", b"o\r\n", b"\nlast")).url)
    assert list(get(address, "/live", patience).lines(patience)) == [b"one\n", b"two\r\n", b"\n", b"last"]


def test_a_path_that_is_not_there_is_a_refusal(scripted, http) -> None:
    address = Address.parse(scripted(http.whole("404 Not Found", b"{}")).url)
    with pytest.raises(Refused, match="status 404"):
        get(address, "/live", Patience(10, None, time.monotonic_ns))


def test_token_ids_are_sent_under_the_vocabulary_that_they_are_of_though_another_one_comes_meanwhile() -> None:
    def encode(_text: str) -> list[int]:
        held.take(0, 200, '"new"', lambda _: [2])
        return [1]

    held = Held(encode, '"old"', time.monotonic_ns())

    async def run() -> None:
        async with AsyncClient("http://127.0.0.1:9", protocol="schema") as client:
            client._vocabularies["m"] = held
            ask = await client._ask_of(Question(Options("m"), prompt="x" * 5_000), None)
        assert ask.headers["x-zl-vocabulary"] == '"old"'

    asyncio.run(run())
