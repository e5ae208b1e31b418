"""A guard of few slots that counts letters, for tests, and requests for it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from zerolayer.guard.deadline.admission import Admission
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.deadline.limits import of_contract
from zerolayer.guard.freshness import Freshness
from zerolayer.guard.guard import Guard
from zerolayer.guard.prompts.reader import Reader
from zerolayer.guard.shape import Names, Shape
from zerolayer.model.cost import CostTable
from zerolayer.wire.schema import Message, Request, Route

MS = 1_000_000
SHAPE = Shape(slot_tokens=100, default_max_tokens=50, vocabulary=300, longest_piece_bytes=4, template_tokens=3)


class Words:
    """Encodes and counts: one token a letter, three around a message."""

    def __init__(self) -> None:
        self.calls = 0

    def encode(self, given, tools=()):
        self.calls += 1
        if isinstance(given, str):
            return [ord(letter) for letter in given]
        return [0, 0, 0] + [1] * len(given[-1].content) + [2] * len(tools)

    def slow(self, request):
        return request.output is not None

    def of(self, request):
        return request.output


def small_guard(slots: int = 1, *, now: Callable[[], int] = lambda: 0, **shape: object) -> tuple[Guard, Words]:
    words = Words()
    cost = CostTable(slots=slots, chunk_tokens=50)
    for _ in range(100):  # a millisecond a step, chunk or not
        cost.observe(decode_rows=slots, elapsed_ns=MS)
        cost.observe(decode_rows=slots, prefill_tokens=50, elapsed_ns=MS)
    guard = Guard(
        names=Names("m", frozenset({"alias"})),
        reader=Reader(msgspec.structs.replace(SHAPE, **shape), words, words, words),
        admission=Admission(Calendar(slots, now, cost.prices), cost, now, "Come back in {ms} ms."),
        cost=cost,
        limits=of_contract(5_000, 250, 60_000),
        freshness=Freshness(0, "refuse"),
        chunk_tokens=50,
    )
    return guard, words


def arrive(guard: Guard, request: Request, body: bytes = b"body", **headers: str):
    given = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return guard.arrive(request, given, credential="peer", body=body, wall_ms=int)


def reserve(guard: Guard, request: Request, **headers: str):
    return guard.reserve(request, arrive(guard, request, **headers))


def chat(text: str = "hello", **members: object) -> Request:
    return Request(Route.CHAT, "m", (Message("user", text),), **{"max_tokens": 10, **members})


def prompt(prompt: object, **members: object) -> Request:
    return Request(Route.COMPLETIONS, "m", prompt=prompt, **{"max_tokens": 10, **members})


def admit(guard: Guard, request: Request):
    reservation = reserve(guard, request)
    return guard.confirm(reservation, request, guard.reader.prompts(request))[0]
