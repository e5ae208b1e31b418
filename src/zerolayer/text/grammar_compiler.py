"""Makes grammars of what requests allow, with ``llguidance`` (https://github.com/guidance-ai/llguidance).

It compiles without the GIL, within limits that depend on nothing but the grammar, so the same schema is refused or
taken on every machine. Making a compiler takes 0.1 s with the GIL: the vocabulary becomes a tree.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Final

import llguidance

from zerolayer.errors import InvalidRequest
from zerolayer.text.encode import Encoder
from zerolayer.text.grammar_source import PlaceRefused, grammar_source, parts
from zerolayer.text.tool_format import ToolFormat
from zerolayer.text.vocabulary import Vocabulary
from zerolayer.wire.schema import Request

# A unit of fuel is some 20 ns of compiling and some 70 ns of a step, an item of a step some 50 ns: a mask takes 4 ms at
# the very worst, which a step has for all of its slots; what would take longer ends its own answer.
_LIMITS: Final = llguidance.LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=40_000,
    step_max_items=20_000,
    max_lexer_states=20_000,
    max_grammar_size=100_000,
    precompute_large_lexemes=False,
    verbose_errors=False,
)
_UNKNOWN: Final = re.compile(r"Unimplemented keys: \[([^\]]*)\]")
# What may be quoted of a refusal; everything else in it is the client's or the library's.
_KEYWORDS: Final = frozenset({
    "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "minContains", "maxContains", "then", "else",
})  # fmt: skip


class GrammarCompiler:
    """Compiles what requests need. ``size``: how many tokens the model knows, at least the vocabulary's."""

    def __init__(self, vocabulary: Vocabulary, encoder: Encoder, form: ToolFormat, size: int) -> None:
        self._form = form
        self._control_tokens = vocabulary.special_ids
        self._tokens = None
        if vocabulary.eos_ids:
            ends = sorted(vocabulary.eos_ids)
            words = llguidance.TokenizerWrapper(_Words(vocabulary, encoder))
            self._tokens = llguidance.LLTokenizer(words, n_vocab=size, eos_token=ends)
        self._size = size

    def compile(self, request: Request) -> llguidance.LLMatcher:
        """The state before the answer of a request that is constrained. Any thread. Raises InvalidRequest."""
        try:
            source = grammar_source(request, self._form, self._control_tokens)
            for param, part in parts(request):
                self._compile(part, param)
        except PlaceRefused as refused:
            raise _refusal(refused.param, refused.why) from None
        return self._compile(source, "tools" if request.output is None else request.output.param)

    def _compile(self, source: str, param: str) -> llguidance.LLMatcher:
        if self._tokens is None:
            raise InvalidRequest(
                "This model has no end-of-sequence token, so its answers cannot be held to a form; leave it out.",
                param=param,
            )
        lark = llguidance.LLMatcher.grammar_from_lark(source)
        matcher = llguidance.LLMatcher(self._tokens, lark, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise _refusal(param, _why(matcher.get_error()))
        if not self._begins(matcher.deep_copy()):
            raise _refusal(param, "it allows nothing, or too much to keep track of")
        return matcher

    def _begins(self, matcher: llguidance.LLMatcher) -> bool:
        """Whether an answer can begin: two tokens find what allows nothing, and nearly all that is too large to run."""
        row = (ctypes.c_uint32 * ((self._size + 31) // 32))()
        for _ in range(2):
            matcher.unsafe_compute_mask_ptr(ctypes.addressof(row), ctypes.sizeof(row))
            token = next((at * 32 + (word & -word).bit_length() - 1 for at, word in enumerate(row) if word), None)
            if matcher.is_error() or token is None:
                return False
            if not matcher.consume_token(token):
                return False
            if matcher.is_stopped():
                return not matcher.is_error()
        return True


class _Words:
    """The vocabulary as llguidance asks for it (its ``TokenizerWrapper``)."""

    def __init__(self, vocabulary: Vocabulary, encoder: Encoder) -> None:
        self.eos_token_id = min(vocabulary.eos_ids)
        self.bos_token_id = vocabulary.bos_id
        self.tokens: Sequence[bytes] = vocabulary.pieces
        self.special_token_ids = [at for at, text in enumerate(vocabulary.texts) if text == ""]
        self._encoder = encoder

    def __call__(self, text: str) -> list[int]:
        return self._encoder.encode(text)


def _refusal(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"The JSON schema of '{param}' cannot be kept: {why}.", param=param)


def _why(message: str) -> str:
    """The library's refusal in words that hold nothing of the request."""
    unknown = _UNKNOWN.search(message)
    if unknown:
        names = sorted(set(re.findall(r'"([^"]+)"', unknown[1])) & _KEYWORDS)
        if names:
            return f"this service does not know {', '.join(names)}"
    if "min/maxProperties" in message:
        return "'minProperties' and 'maxProperties' can be kept only beside all the 'properties' that they count"
    if "oneOf" in message:
        return "the cases of a oneOf are not told apart by a constant; use anyOf"
    if "regex parse error" in message:
        return "'pattern' in it is no regular expression that can be kept; leave look-around and back references out"
    if "nsatisfiable" in message:
        return "nothing satisfies it, or nothing that can be kept (of oneOf, not and if some cases cannot)"
    if "$ref" in message or "Pointer" in message:
        return "a '$ref' in it points nowhere"
    if "too large" in message or "limit" in message or "too complex" in message or "fuel" in message:
        return "it is too large"
    return "it uses something that this service does not know, or a keyword with a value of the wrong type"
