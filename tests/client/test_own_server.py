"""Both clients against this project's own server, in every protocol."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from client.http2_server import soon
from client.nursery import Server
from zerolayer import AsyncClient, Client
from zerolayer.client.errors import Refused
from zerolayer.client.freshness import Stamps
from zerolayer.client.json_form import CHATS, COMPLETIONS
from zerolayer.client.schema_form import GENERATE, GRPC_GENERATE

HI = [{"role": "user", "content": "Hello there"}]
PATHS = {"json": CHATS, "auto": GENERATE, "protobuf": GENERATE, "grpc": GRPC_GENERATE}


def asked(client: Client | AsyncClient) -> list[str]:
    """The paths of all requests from now on."""
    connections = (client._client if isinstance(client, Client) else client)._connections
    paths, send = [], connections.send

    async def noted(address, method, path, *rest):
        paths.append(path)
        return await send(address, method, path, *rest)

    connections.send = noted
    return paths


@pytest.mark.parametrize("protocol", PATHS)
def test_every_protocol_gives_the_same_answer_with_its_stages(url, protocol) -> None:
    with Client(url, protocol="json") as plain, Client(url, protocol=protocol) as client:
        client.models()
        paths = asked(client)
        answer = client.chat(HI, max_tokens=5, seed=3).answer()
        same = plain.chat(HI, max_tokens=5, seed=3).answer()
    assert paths == [PATHS[protocol]]
    assert answer.text == same.text
    assert (answer.outcome.completion_tokens, answer.outcome.prompt_tokens) == (5, same.outcome.prompt_tokens)
    assert answer.stages.decode > 0
    assert answer.stages.arithmetic_us + answer.stages.glue_us <= answer.total_ms * 1000


@pytest.mark.parametrize("protocol", ["protobuf", "grpc"])
def test_text_is_tokenised_here_with_the_published_vocabulary_which_is_fetched_once(url, protocol) -> None:
    with Client(url, protocol="json") as plain, Client(url, protocol=protocol) as client:
        paths = asked(client)
        for text in ("Once upon a time", "The quick brown fox jumps. é 😀 " * 150):
            mine = client.generate(text, model="smollm2", max_tokens=5, seed=3).answer()
            theirs = plain.generate(text, model="smollm2", max_tokens=5, seed=3).answer()
            assert (mine.text, mine.outcome.prompt_tokens) == (theirs.text, theirs.outcome.prompt_tokens)
    assert paths == ["/v1/models/smollm2/vocabulary", PATHS[protocol], PATHS[protocol]]


def test_a_vocabulary_that_is_asked_for_again_comes_without_a_body(url) -> None:
    async def run() -> None:
        async with AsyncClient(url, protocol="protobuf") as client:
            await client.generate("Once", model="smollm2", max_tokens=1).answer()
            held = client._vocabularies["smollm2"]
            encode = held.encode
            exchange = await client._asker.fetch(
                url, "/v1/models/smollm2/vocabulary", held.headers(), client._service.until_answer(None)
            )
            assert exchange.status == 304
            exchange.close()
            held.take(0, 304, "", None)
            assert held.encode is encode

    asyncio.run(run())


@pytest.mark.parametrize("protocol", ["protobuf", "grpc"])
def test_ids_of_another_vocabulary_are_never_taken_for_the_models(url, protocol) -> None:
    async def run() -> None:
        async with AsyncClient(url, protocol=protocol) as client:
            right = await client.generate("Once upon", model="smollm2", max_tokens=3, seed=1).answer()
            held = client._vocabularies["smollm2"]
            held.encode, held.etag = lambda text: [1, 2, 3], '"of a model that was replaced"'
            paths = asked(client)
            again = await client.generate("Once upon", model="smollm2", max_tokens=3, seed=1).answer()
            assert again.text == right.text
            assert paths == [PATHS[protocol], "/v1/models/smollm2/vocabulary", PATHS[protocol]]

    asyncio.run(run())


def test_a_script_that_closes_nothing_ends_quietly(url) -> None:
    code = f"""
from zerolayer import Client
client = Client({url!r})
client.models()
print(client.chat({HI!r}, max_tokens=2, seed=1).answer().outcome.completion_tokens)
"""
    done = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_nobody_waits_for_the_vocabulary_who_did_not_ask_for_the_schema(url) -> None:
    async def run() -> None:
        async with AsyncClient(url) as client:
            await client.models()
            paths = asked(client)
            await client.generate("Once", max_tokens=1).answer()
            await soon(lambda: client._vocabularies["smollm2"].encode is not None)
            await client.generate("Once", max_tokens=1).answer()
            assert [path for path in paths if "vocabulary" not in path] == [COMPLETIONS, GENERATE]

    asyncio.run(run())


@pytest.mark.parametrize("protocol", PATHS)
def test_what_the_server_refuses_is_told_in_its_words(url, protocol) -> None:
    with Client(url, protocol=protocol) as client:
        client.models()
        with pytest.raises(Refused, match="max_tokens") as caught:
            client.chat(HI, max_tokens=1_000_000).answer()
    assert caught.value.status_code == 400


@pytest.mark.parametrize("protocol", PATHS)
def test_an_input_that_is_too_old_is_refused(url, protocol) -> None:
    with Client(url, protocol=protocol) as client:
        client.models()
        with pytest.raises(Refused, match="old") as caught:
            client.chat(HI, fresh=Stamps(event_time_ms=1_000_000, max_age_ms=50)).answer()
    assert caught.value.status_code == {"grpc": 422}.get(protocol, 409)


@pytest.mark.parametrize("protocol", PATHS)
def test_a_deadline_that_cannot_be_kept_is_refused_by_the_server_which_was_told(url, protocol) -> None:
    with Client(url, protocol=protocol) as client:
        client.models()
        with pytest.raises(Refused, match="takes at least") as caught:
            client.chat(HI, max_tokens=400, deadline_ms=1000).answer()
    assert caught.value.status_code == 422


@pytest.mark.parametrize("protocol", PATHS)
def test_bookings_are_kept_in_every_protocol(url, protocol) -> None:
    async def run() -> None:
        async with AsyncClient(url, protocol=protocol) as client:
            await client.models()
            asks = [client.chat([{"role": "user", "content": f"{n}"}], max_tokens=6).answer() for n in range(9)]
            answers = await asyncio.gather(*asks)
            assert all(answer.outcome.completion_tokens == 6 for answer in answers)
            assert client.statistics.booked > 0
            assert client.statistics.failed == 0

    asyncio.run(run())


@pytest.mark.parametrize("protocol", ["json", "grpc"])
def test_leaving_a_stream_frees_the_servers_slot(url, protocol) -> None:
    with Client(url, protocol=protocol) as client:
        client.models()
        for _ in range(6):  # more than there are slots, and each would take for longer than this test
            with client.chat(HI, max_tokens=500) as stream:
                next(stream)
        assert client.chat(HI, max_tokens=1).answer().outcome.finish_reason == "length"


def test_a_draft_warms_the_prompt_of_the_question_that_follows(url) -> None:
    with Client(url) as client:
        client.models()
        paths = asked(client)
        client.draft("Why is the sky blue, and not green", messages=HI)
        deadline = time.monotonic() + 30
        while CHATS not in paths and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (
            client.chat([*HI, {"role": "user", "content": "Why is the sky blue, and not green?"}], max_tokens=1)
            .answer()
            .text
        )
    assert paths == [CHATS, GENERATE]


def test_one_address_is_enough_to_find_the_other_nodes_and_to_ask_them(url, nursery) -> None:
    other = Server(nursery, "127.0.0.1", peers=url)  # it announces itself, as who it comes from, to the first one
    other.ready()
    try:
        with Client(url) as client:
            deadline = time.monotonic() + 60
            answered: set[str] = set()
            while answered != {url, other.url} and time.monotonic() < deadline:
                answer = client.chat([{"role": "user", "content": str(time.monotonic())}], max_tokens=1).answer()
                answered.add(answer.node)
            assert set(client.nodes) == answered == {url, other.url}
    finally:
        other.kill()
