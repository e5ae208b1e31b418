"""Drafts: while somebody types, the server reads what is there, so that the answer begins sooner. On asyncio.

A draft is sent when nobody has typed for a moment, and the next keystroke cancels it. So two prompts are in hand at a
time: the one that is being answered, and the next one, which is being read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from zerolayer.client.request import TYPED_CHARACTERS
from zerolayer.client.service import Clocks

FEWEST: Final = TYPED_CHARACTERS  # before that it isn't known which node the question will go to, nor is much to read
Warm = Callable[[Sequence[Mapping[str, str]], str | None], Awaitable[None]]


class Drafter:
    """``warm`` asks for a prompt to be read. A draft is sent when ``pause_ms`` have gone by without another one."""

    def __init__(self, warm: Warm, clocks: Clocks, pause_ms: int) -> None:
        self.sent = 0  # drafts that were not overtaken within the pause
        self._warm = warm
        self._clocks = clocks
        self._pause_s = pause_ms / 1000
        self._task: asyncio.Task[None] | None = None
        self._turns: list[dict[str, str]] = []  # what it is to read

    def draft(self, text: str, *, messages: Sequence[Mapping[str, str]] = (), model: str | None = None) -> None:
        """``text`` is what the user has typed so far; ``messages`` are those that stand before it. Never raises.

        Returns at once. What was drafted before is cancelled, on the server too. To be called on the event loop.
        """
        self.cancel()
        turns = [dict(message) for message in messages]
        if len(text) + sum(len(str(turn.get("content", ""))) for turn in turns) >= FEWEST:
            turns.append({"role": "user", "content": text})
            self._turns = turns
            self._task = asyncio.get_running_loop().create_task(self._send(turns, model))

    def cancel(self) -> None:
        """The user has sent the text, or thrown it away."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def asked(self, messages: Sequence[Mapping[str, str]]) -> None:
        """``messages`` go out as a question: if it is what was drafted, nobody need read it any more."""
        if self._task is None or len(messages) != len(self._turns):
            return
        *before, last = self._turns
        text = str(messages[-1].get("content", ""))
        if [dict(message) for message in messages[:-1]] == before and text.startswith(last["content"]):
            self.cancel()

    async def _send(self, messages: Sequence[Mapping[str, str]], model: str | None) -> None:
        await self._clocks.sleep(self._pause_s)
        self.sent += 1
        await self._warm(messages, model)
