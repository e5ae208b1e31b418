"""Drafts of a user who types: what is sent, and what the next keystroke does to it."""

from __future__ import annotations

import asyncio
import json

from client.http2_server import soon
from zerolayer import AsyncClient
from zerolayer.client.drafts import FEWEST, Drafter
from zerolayer.client.request import Options, Question
from zerolayer.client.service import Clocks

TEXT = "Why is the sky blue, and not the colour of the sun"


class Typist:
    """A drafter whose pauses end when the test says so."""

    def __init__(self) -> None:
        self.warmed: list[str] = []
        self.cancelled = 0
        self.hold: asyncio.Event | None = None
        self._pause = asyncio.Event()
        self.drafter = Drafter(self._warm, Clocks(sleep=self._sleep), pause_ms=150)
        self.slept: list[float] = []

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self._pause.wait()

    async def _warm(self, messages, model) -> None:
        self.warmed.append(messages[-1]["content"])
        try:
            if self.hold is not None:
                await self.hold.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def type(self, text: str, **given) -> None:
        self.drafter.draft(text, **given)
        await settle()

    async def pause(self) -> None:
        self._pause.set()
        await settle()
        self._pause.clear()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_only_what_stands_when_the_typing_pauses_is_sent() -> None:
    async def run() -> None:
        typist = Typist()
        for end in range(len(TEXT) - 2, len(TEXT) + 1):
            await typist.type(TEXT[:end])
        assert typist.warmed == []
        await typist.pause()
        assert typist.warmed == [TEXT]
        assert (typist.drafter.sent, set(typist.slept)) == (1, {0.15})

    asyncio.run(run())


def test_the_next_keystroke_cancels_the_draft_that_is_being_read() -> None:
    async def run() -> None:
        typist = Typist()
        typist.hold = asyncio.Event()
        await typist.type(TEXT)
        await typist.pause()
        await typist.type(TEXT + "?")
        assert typist.cancelled == 1
        await typist.pause()
        assert typist.warmed == [TEXT, TEXT + "?"]

    asyncio.run(run())


def test_sending_the_text_cancels_its_draft() -> None:
    async def run() -> None:
        typist = Typist()
        typist.hold = asyncio.Event()
        await typist.type(TEXT)
        await typist.pause()
        typist.drafter.cancel()
        await settle()
        assert typist.cancelled == 1

    asyncio.run(run())


def test_the_question_itself_cancels_its_draft_and_no_other_one() -> None:
    before = [{"role": "system", "content": "Be brief."}]

    async def run() -> None:
        typist = Typist()
        typist.hold = asyncio.Event()
        await typist.type(TEXT, messages=before)
        await typist.pause()
        for other in ("Something else", TEXT[:-1]):
            typist.drafter.asked([*before, {"role": "user", "content": other}])
        typist.drafter.asked([{"role": "user", "content": TEXT}])
        await settle()
        assert typist.cancelled == 0
        typist.drafter.asked([*before, {"role": "user", "content": f"{TEXT}?"}])
        await settle()
        assert typist.cancelled == 1

    asyncio.run(run())


def test_a_question_that_is_sent_within_the_pause_leaves_no_draft(scripted, http) -> None:
    server = scripted(http.hello)

    async def run() -> None:
        async with AsyncClient(server.url) as client:
            client.draft(TEXT, model="m")
            await client.chat([{"role": "user", "content": TEXT}], model="m").answer()
            assert client._drafter.sent == 0
            await asyncio.sleep(0.2)

    asyncio.run(run())
    assert len(server.requests) == 1


def test_a_few_letters_are_not_worth_a_request_unless_a_conversation_stands_before_them() -> None:
    async def run() -> None:
        typist = Typist()
        await typist.type("Why")
        await typist.pause()
        assert typist.warmed == []
        await typist.type("Why", messages=[{"role": "user", "content": TEXT}])
        await typist.pause()
        assert typist.warmed == ["Why"]

    asyncio.run(run())


def test_a_draft_goes_to_the_node_that_the_question_will_go_to() -> None:
    def prefix(text: str) -> bytes:
        return Question(Options("m"), [{"role": "user", "content": text}]).prefix

    assert {prefix(TEXT[:end]) for end in range(FEWEST, len(TEXT) + 1)} == {prefix(TEXT)}


def test_a_draft_asks_for_no_answer_and_its_refusal_tells_nobody(scripted, http) -> None:
    refused = http.whole("429 Too Many Requests", b"{}", "x-should-retry: false")
    server = scripted(refused, http.hello)

    async def run() -> None:
        async with AsyncClient(server.url) as client:
            drafter = client.drafter(pause_ms=0)
            drafter.draft(TEXT, messages=[{"role": "system", "content": "Be brief."}], model="m")
            await soon(lambda: server.requests)
            await client.chat([{"role": "user", "content": "Hi"}], model="m").answer()
            assert (client.statistics.calls, client.statistics.failed) == (1, 0)

    asyncio.run(run())
    body = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
    assert body["max_tokens"] == 0
    assert [turn["content"] for turn in body["messages"]] == ["Be brief.", TEXT]
    assert "stream" not in body
