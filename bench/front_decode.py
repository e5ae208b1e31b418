"""What it costs to read a request of 1 KB, and to tokenise one, in this process: the best of several rounds, in us.

python bench/front_decode.py
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pydantic import BaseModel

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "wire"))

from in_process import loaded  # noqa: E402 - what stands below is found through the path above
from inference_messages import message  # noqa: E402

from zerolayer.contract import Contract  # noqa: E402
from zerolayer.front.bodies import body_limits, request_decoder  # noqa: E402
from zerolayer.wire.openai import decode_chat  # noqa: E402

PROSE = (ROOT / "tests" / "data" / "prose.txt").read_text()
_ROUNDS = 100
_IDS = 240
_TEXT = 900
_TOKENS = 128


def best_us(work: Callable[[], object]) -> float:
    """The fastest round's CPU time for each call, less that of a call of nothing."""
    return _call_us(work) - _call_us(lambda: None)


def _call_us(work: Callable[[], object], round_s: float = 0.004) -> float:
    """With the call. Rounds are short, so that some are not disturbed on a busy machine."""
    timer = timeit.Timer(work, timer=time.thread_time)
    number = max(1, int(round_s / (timer.timeit(20) / 20)))
    return min(timer.repeat(_ROUNDS, number)) / number * 1e6


class Turn(BaseModel):
    """A message, typed as FastAPI's users do."""

    role: str
    content: str


class Chat(BaseModel):
    """The body, likewise."""

    model: str
    messages: list[Turn]
    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    stream: bool = False
    stop: list[str] | None = None


def decoding() -> dict[str, float]:
    """The three forms of one request, each against its peer."""
    contract = Contract()
    limits, decoder = body_limits(contract), request_decoder(contract)
    plan = {"model": "smollm2", "max_tokens": 64, "temperature": 700_000, "top_p": 950_000}
    turns = [("system", PROSE[: _TEXT // 3]), ("user", PROSE[_TEXT // 3 : _TEXT])]
    request = message("GenerateRequest")
    by_ids = request(token_ids=np.arange(1, _IDS + 1, dtype="<u4").tobytes(), **plan).SerializeToString()
    numbers = {"system": 1, "user": 2}
    by_text = request(
        messages=[{"role": numbers[role], "content": text.encode()} for role, text in turns], **plan
    ).SerializeToString()
    chat = {"model": "smollm2", "max_tokens": 64, "temperature": 0.7, "top_p": 0.95, "stream": True}
    chat["messages"] = [{"role": role, "content": text} for role, text in turns]
    body = json.dumps(chat).encode()

    def upb(raw: bytes) -> object:
        found = request.FromString(raw)
        messages = [(turn.role, turn.content.decode()) for turn in found.messages]
        plan = (found.model, found.max_tokens, found.temperature, found.top_p, found.stream, found.seed, found.top_k)
        return np.frombuffer(found.token_ids, "<u4"), messages, plan

    return {
        f"schema, {_IDS} ids ({len(by_ids)} B)": best_us(lambda: decoder.decode(by_ids)),
        f"schema, text ({len(by_text)} B)": best_us(lambda: decoder.decode(by_text)),
        f"JSON ({len(body)} B)": best_us(lambda: decode_chat(body, limits)),
        "upb, each field read once, ids": best_us(lambda: upb(by_ids)),
        "upb, each field read once, text": best_us(lambda: upb(by_text)),
        "json.loads + pydantic": best_us(lambda: Chat.model_validate(json.loads(body))),
    }


def tokenising() -> dict[str, float]:
    """Different texts of 128 tokens each, and one of 32 KB."""
    with loaded(engine="mock:step_us=1000") as model:
        encode = model.encoder.encode
        texts = []
        for start in range(0, 4000, 100):
            words = PROSE[start:].split(" ")
            while len(encode(" ".join(words))) > _TOKENS:
                words = words[: max(1, len(words) // 2)] if len(words) > 2 * _TOKENS else words[:-1]
            texts.append(" ".join(words))
        turn = itertools.cycle(texts)
        long = (PROSE * (1 + (32 << 10) // len(PROSE)))[: 32 << 10]
        return {
            f"tokenise {_TOKENS} tokens": best_us(lambda: encode(next(turn))),
            "tokenise 32 KB": best_us(lambda: encode(long)),
        }


if __name__ == "__main__":
    for name, us in (decoding() | tokenising()).items():
        print(f"{name:40} {us:8.2f} us")
