"""What a request's text is to the model: before it is tokenised, what bytes alone can tell; and the prompt itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from zerolayer.errors import Infeasible, InvalidRequest
from zerolayer.guard.prompts.encoders import GrammarCompiler, MessageEncoder, TextEncoder
from zerolayer.guard.prompts.length import check_bias, prompt_param, too_long, utf8_bytes
from zerolayer.guard.prompts.offered import offered, tools_bytes, tools_tokens
from zerolayer.guard.prompts.overflow import newest_turns, without_repeats
from zerolayer.guard.prompts.prompt import Prompt
from zerolayer.guard.shape import Shape
from zerolayer.wire.anthropic_turns import joined_turns
from zerolayer.wire.schema import Message, Request, Route


class Reader:
    """Reads prompts for slots of one shape. Keeps nothing of what it read, so that any thread may call it."""

    def __init__(self, shape: Shape, encoder: TextEncoder, template: MessageEncoder, grammars: GrammarCompiler) -> None:
        self.shape = shape
        self.grammars = grammars
        self._encoder = encoder
        self._template = template

    def tokenise(self, request: Request) -> list[int]:
        """The prompt's token ids, however many. Pure; any thread.

        Raises ``InvalidRequest`` for an id outside the vocabulary and for an order of roles that the model refuses.
        """
        if request.route is not Route.COMPLETIONS:
            return self._template.encode(self._messages(request), offered(request)) + self._prefill(request)
        shape = self.shape
        if not isinstance(request.prompt, str):
            ids = list(request.prompt)
            if ids and not (min(ids) >= 0 and max(ids) < shape.vocabulary):
                raise InvalidRequest(
                    f"a token id of the prompt is outside the vocabulary (0 to {shape.vocabulary - 1})", param="prompt"
                )
            return ids
        ids = self._encoder.encode(request.prompt)
        if shape.bos_id is not None and (shape.add_bos or not ids):
            ids.insert(0, shape.bos_id)
        return ids

    def prompts(self, request: Request) -> list[Prompt]:
        """What the model is to read, for each prompt of the request. Pure; any thread. Raises as ``tokenise``."""
        check_bias(request, self.shape.vocabulary)
        if not request.further:
            return [self._prompt(request)]
        return [
            self._prompt(msgspec.structs.replace(request, prompt=prompt, further=()))
            for prompt in (request.prompt, *request.further)
        ]

    def _prompt(self, request: Request) -> Prompt:
        """``tokenise``, and the oldest turns left out where the contract allows it."""
        shape, messages, ids = self.shape, self._messages(request), self.tokenise(request)
        grammar = None if request.fills_cache else self.grammars.of(request)  # nothing is answered, so nothing is held
        duplicates = len(request.messages) - len(self._said(request))
        if shape.truncate and messages and not self._fits(request, len(ids)):
            # An answer of the default length is only wished for: at most half of the slot is kept free for it.
            wished = request.max_tokens is None or request.fills_slot
            most = shape.slot_tokens // 2 if wished else shape.slot_tokens
            answer = min(request.max_tokens or shape.default_max_tokens, most)
            prefill, encode = self._prefill(request), partial(self._template.encode, tools=offered(request))
            cut = newest_turns(messages, encode, shape.slot_tokens - answer - len(prefill))
            if cut is not None:
                return Prompt(cut.ids + prefill, cut.dropped, duplicates, grammar)
        return Prompt(ids, duplicates=duplicates, grammar=grammar)

    def bounds(self, request: Request) -> tuple[int, int, int]:
        """Bytes of text, and bounds of the prompt's tokens: no token stands for less than a byte.

        The upper one is not cut to what a slot holds.
        """
        shape, written = self.shape, tools_bytes(request) if request.tools else 0
        if request.route is not Route.COMPLETIONS:
            text_bytes = utf8_bytes(request.prefill) if request.prefill else 0
            for turn in request.messages:
                content = turn.content
                text_bytes += len(content) if content.isascii() else utf8_bytes(content)
            upper = text_bytes + shape.template_tokens * (len(request.messages) + 1)
            if written:
                upper += tools_tokens(written)
        elif isinstance(request.prompt, str):
            text_bytes = upper = utf8_bytes(request.prompt)
        else:
            upper = len(request.prompt)
            if upper > shape.slot_tokens:
                raise too_long(request, upper, request.max_tokens or 1, shape.slot_tokens)
            return 0, max(1, upper), max(1, upper)
        lower = text_bytes // shape.longest_piece_bytes
        truncates = shape.truncate and request.route is not Route.COMPLETIONS
        if lower > shape.slot_tokens and not truncates:
            if request.fills_slot:
                raise too_long(request, lower, 1, shape.slot_tokens)
            raise Infeasible(
                f"the text is at least {lower} tokens long; a slot holds {shape.slot_tokens}. Shorten it",
                limit="slot_tokens",
                param=prompt_param(request),
            )
        return text_bytes + written, max(1, min(lower, shape.slot_tokens)), upper + 1

    def fit(self, request: Request, wanted: int, prompt_tokens: int) -> int:
        """The ``max_tokens`` that is applied: a default that does not fit is cut, a chosen one is refused."""
        if prompt_tokens == 0:
            raise InvalidRequest("the prompt is empty; send at least one token", param="prompt")
        if not self._fits(request, prompt_tokens):
            raise too_long(request, prompt_tokens, wanted, self.shape.slot_tokens)
        return min(wanted, self.shape.slot_tokens - prompt_tokens)

    def _fits(self, request: Request, prompt_tokens: int) -> bool:
        asked = 1 if request.fills_slot else request.max_tokens or 1
        return prompt_tokens + asked <= self.shape.slot_tokens

    def _prefill(self, request: Request) -> list[int]:
        return self._encoder.encode(request.prefill) if request.prefill else []

    def _said(self, request: Request) -> Sequence[Message]:
        return without_repeats(request.messages) if self.shape.drop_duplicates else request.messages

    def _messages(self, request: Request) -> Sequence[Message]:
        said = self._said(request)
        return joined_turns(said) if request.route is Route.MESSAGES else said
