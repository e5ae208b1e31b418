"""Grammars: which tokens may come next, so that an answer is what the request allows.

Compiled grammars are kept by the digest of what they were made from, the ones used last. What compiles them
(``grammar_compiler.py``) is imported and made when a server starts, or with the first grammar.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from zerolayer.text.encode import Encoder
from zerolayer.text.tool_choice import constrained
from zerolayer.text.tool_format import ToolFormat
from zerolayer.text.vocabulary import Vocabulary
from zerolayer.wire.schema import Request

if TYPE_CHECKING:
    import llguidance

    from zerolayer.text.grammar_compiler import GrammarCompiler

KEPT: Final = 64  # compiled grammars


class Grammar:
    """A compiled grammar. Never changes; any thread."""

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher

    def start(self) -> llguidance.LLMatcher:
        """The state of a new answer: ``compute_mask`` and ``consume_token`` in turn."""
        return self._matcher.deep_copy()


class Grammars:
    """Gives requests their grammars. ``size``: how many tokens the model knows, at least the vocabulary's."""

    def __init__(self, vocabulary: Vocabulary, encoder: Encoder, form: ToolFormat, size: int) -> None:
        self._made_of = (vocabulary, encoder, form, size)
        self._compiler: GrammarCompiler | None = None
        self._kept: OrderedDict[bytes, Grammar] = OrderedDict()
        self._lock = threading.Lock()
        self._making = threading.Lock()

    def prepare(self) -> None:
        """Make the compiler, if there is none yet: 0.1 s in which nothing else in this process runs. Any thread."""
        self._ready()

    @property
    def prepared(self) -> bool:
        """Whether there is one."""
        return self._compiler is not None

    def slow(self, request: Request) -> bool:
        """Whether ``of`` would have to compile, which may take some 100 ms."""
        return constrained(request) and self._find(_digest(request)) is None

    def of(self, request: Request) -> Grammar | None:
        """The grammar of the request's answer, None for free text. Any thread. Raises InvalidRequest."""
        if not constrained(request):
            return None
        key = _digest(request)
        found = self._find(key)
        if found is not None:
            return found
        grammar = Grammar(self._ready().compile(request))
        with self._lock:
            self._kept[key] = grammar
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return grammar

    def _ready(self) -> GrammarCompiler:
        with self._making:
            if self._compiler is None:
                from zerolayer.text.grammar_compiler import GrammarCompiler

                self._compiler = GrammarCompiler(*self._made_of)
            return self._compiler

    def _find(self, key: bytes) -> Grammar | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found


def _digest(request: Request) -> bytes:
    """Of all that the grammar depends on; every part with its length, so that no two requests look alike."""
    digest = hashlib.blake2b(digest_size=16)

    def add(part: bytes) -> None:
        digest.update(b"%d:" % len(part))
        digest.update(part)

    output, choice = request.output, request.tool_choice
    add(b"" if output is None else b"=" + output.schema)
    add(choice.mode.encode())
    add(" ".join(choice.names).encode())
    add(bytes([tool.strict for tool in request.tools]))
    add(b"many" if request.parallel_tool_calls else b"one")
    for tool in request.tools:
        add(tool.name.encode())
        add(tool.parameters)
    return digest.digest()
