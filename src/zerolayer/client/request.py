"""Bodies of OpenAI's API for what a caller asks, and what of a prompt names the node that may have it in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

CHATS: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
PREFIX_CHARACTERS: Final = 512


@dataclass(frozen=True)
class Ask:
    """One request: where to, the body's bytes, which every attempt sends alike, and the digest of its beginning."""

    path: str
    body: bytes
    prefix: bytes


def chat(messages: Sequence[Mapping[str, str]], options: Mapping[str, object]) -> Ask:
    """A chat. Its prefix is all up to the first message of the user, which the later turns of a conversation keep."""
    turns = [dict(message) for message in messages]
    first = next((place for place, turn in enumerate(turns) if turn.get("role") == "user"), len(turns))
    beginning = "\0".join(str(turn.get("content", ""))[:PREFIX_CHARACTERS] for turn in turns[: first + 1])
    return Ask(CHATS, _body({"messages": turns}, options), _digest(beginning))


def completion(prompt: str, options: Mapping[str, object]) -> Ask:
    """Plain text to be continued."""
    return Ask(COMPLETIONS, _body({"prompt": prompt}, options), _digest(prompt[:PREFIX_CHARACTERS]))


def _body(what: Mapping[str, object], options: Mapping[str, object]) -> bytes:
    given = {name: value for name, value in options.items() if value is not None}
    model = {"model": given.pop("model")} if "model" in given else {}
    return json.dumps({**model, **what, "stream": True, "stream_options": {"include_usage": True}, **given}).encode()


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
