"""How long a prompt is, without running it. It takes no slot; long texts go to the helper thread, a few at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Final

import msgspec

from zerolayer.errors import SlotsBusy, ZerolayerError
from zerolayer.front.exchange import JSON, Exchange
from zerolayer.front.generate import Decode
from zerolayer.guard.guard import Guard
from zerolayer.observe.stages import Stage
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.openai import decode_chat, decode_completion
from zerolayer.wire.schema import Request

_WAITING: Final = 16  # generation needs the same helper thread, and must not stand behind a crowd of counts
_RETRY_MS: Final = 100

Answer = Callable[[Exchange, int, int], None]
"""Replies with the tokens of the prompt, and with what prompt and answer may have together."""


class _Kind(msgspec.Struct):
    prompt: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class _Count(msgspec.Struct):
    prompt_tokens: int
    slot_tokens: int


_kind = msgspec.json.Decoder(_Kind)


class TokenCounter:
    """All methods run on the loop."""

    def __init__(self, guard: Guard, limits: BodyLimits, helper: Executor) -> None:
        self._guard = guard
        self._limits = limits
        self._helper = helper
        self._loop = asyncio.get_running_loop()
        self._waiting = 0

    def count_json(self, exchange: Exchange) -> None:
        """``POST /v1/count_tokens`` with a body of either of OpenAI's routes: ``prompt`` tells which."""
        self.count(exchange, _decode_json, _answer_json)

    def count(self, exchange: Exchange, decode: Decode, answer: Answer) -> None:
        """Decode, check, count, reply."""
        try:
            request = decode(exchange.body, self._limits)
            exchange.mark(Stage.PARSE)
            long = self._guard.check(request, exchange.identity)
            exchange.mark(Stage.GUARD)
            if not long:
                self._reply(exchange, len(self._guard.reader.tokenise(request)), answer)
            elif self._waiting < _WAITING:
                self._count_aside(exchange, request, answer)
            else:
                raise SlotsBusy("too many long texts wait to be counted; ask again in 100 ms", retry_after_ms=_RETRY_MS)
        except ZerolayerError as error:
            exchange.error(error)

    def _count_aside(self, exchange: Exchange, request: Request, answer: Answer) -> None:
        self._waiting += 1
        future = self._helper.submit(self._guard.reader.tokenise, request)
        exchange.on_gone = partial(_give_up, future)
        arrived = partial(self._counted, exchange, answer)
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(arrived, done))

    def _counted(self, exchange: Exchange, answer: Answer, future: Future[list[int]]) -> None:
        self._waiting -= 1
        if exchange.on_gone is None:
            return  # the client has left
        try:
            self._reply(exchange, len(future.result()), answer)
        except ZerolayerError as error:
            exchange.error(error)
        except Exception as error:  # noqa: BLE001 - as on the connection, which is not below us here
            exchange.defect(error)

    def _reply(self, exchange: Exchange, prompt_tokens: int, answer: Answer) -> None:
        exchange.mark(Stage.TOKENISE)
        answer(exchange, prompt_tokens, self._guard.reader.shape.slot_tokens)


def _give_up(future: Future[list[int]]) -> None:
    future.cancel()


def _decode_json(body: bytes, limits: BodyLimits) -> Request:
    try:
        completion = len(body) <= limits.body_bytes and bool(_kind.decode(body).prompt)
    except (ValueError, RecursionError):
        completion = False  # what is wrong is said by the decoder
    return (decode_completion if completion else decode_chat)(body, limits)


def _answer_json(exchange: Exchange, prompt_tokens: int, slot_tokens: int) -> None:
    exchange.reply(200, (JSON,), msgspec.json.encode(_Count(prompt_tokens, slot_tokens)))
