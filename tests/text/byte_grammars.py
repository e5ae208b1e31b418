"""Grammars over a vocabulary of bytes, and what they let pass."""

from __future__ import annotations

import ctypes
import json

import pytest
from llguidance import LLMatcher

from zerolayer.errors import InvalidRequest
from zerolayer.text.grammar import Grammars
from zerolayer.text.tool_format import HERMES, ToolFormat
from zerolayer.text.vocabulary import BYTE_ALPHABET, TokenKind, Vocabulary
from zerolayer.wire.schema import OutputFormat, Request, Route

SECRET = "s3cr3t"
END = 256


class Bytes:
    """One token a byte."""

    name = "bytes"

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "replace"))


def build(form: ToolFormat = HERMES, *, ends: bool = True, control: tuple[str, ...] = ()) -> Grammars:
    names = ["<|end|>", *control]
    raw = [BYTE_ALPHABET[byte].encode() for byte in range(256)] + [name.encode() for name in names]
    kinds = [TokenKind.NORMAL] * 256 + [TokenKind.CONTROL] * len(names)
    vocabulary = Vocabulary("gpt2", "default", raw, kinds)
    vocabulary.eos_ids = frozenset({END}) if ends else frozenset()
    return Grammars(vocabulary, Bytes(), form, vocabulary.size)


def asking(schema: object) -> Request:
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    return Request(Route.CHAT, "m", output=OutputFormat(text))


def accepts(grammars: Grammars, request: Request, text: str, control: dict[str, int] | None = None) -> bool:
    """Whether ``text`` is a whole answer; names in ``control`` are tokens."""
    found = grammars.of(request)
    assert found is not None
    state = found.start()
    tokens: list[int] = []
    while text:
        name = next((name for name in control or {} if text.startswith(name)), None)
        tokens += [(control or {})[name]] if name else list(text[0].encode())
        text = text[len(name or text[0]) :]
    return state.try_consume_tokens(tokens) == len(tokens) and state.is_accepting()


def why(grammars: Grammars, request: Request) -> str:
    with pytest.raises(InvalidRequest) as refused:
        grammars.of(request)
    assert refused.value.status == 400
    assert SECRET not in refused.value.message
    return refused.value.message


def mask(state: LLMatcher) -> list[int]:
    """The tokens that may come next."""
    row = (ctypes.c_uint32 * ((END + 32) // 32))()
    state.unsafe_compute_mask_ptr(ctypes.addressof(row), ctypes.sizeof(row))
    return [at for at in range(END + 1) if row[at // 32] >> (at % 32) & 1]
