"""What looks at an answer's tokens beside the one who asked: the audit's rules, and the cache of whole answers."""

from __future__ import annotations

import msgspec

from zerolayer.front.exchange import Exchange
from zerolayer.guard.answers import AnswerKeeper
from zerolayer.guard.ledger.audit import MatchWatch
from zerolayer.model.engine import Generation, SampledToken
from zerolayer.text.vocabulary import Vocabulary
from zerolayer.wire.schema import FinishReason, Request


class Watch:
    """Of one answer. ``hides``: the engine tells log probabilities for the audit only; the client gets none."""

    __slots__ = ("_hides", "_keeper", "_matches")

    def __init__(self, matches: MatchWatch | None, keeper: AnswerKeeper | None, *, hides: bool) -> None:
        self._matches = matches
        self._keeper = keeper
        self._hides = hides

    def take(self, token: SampledToken) -> SampledToken:
        """See a token; returns what the client's reply is to be made of."""
        if self._matches is not None:
            self._matches.take(token.token_id, None if token.logprob is None else token.logprob.logprob)
        if self._hides and token.logprob is not None:
            token = msgspec.structs.replace(token, logprob=None)
        if self._keeper is not None:
            self._keeper.take(token)
        return token

    def complete(self, reason: FinishReason, program: str) -> None:
        """The answer is complete."""
        if self._keeper is not None:
            self._keeper.complete(reason, program)


def audited(exchange: Exchange, rules: tuple[str, ...], vocabulary: Vocabulary, request: Request) -> MatchWatch:
    """What finds the matches of one answer; its receipt tells them."""
    prompt = [message.content for message in request.messages]
    if isinstance(request.prompt, str) and request.prompt:
        prompt.append(request.prompt)
    watch = MatchWatch(
        rules,
        vocabulary.piece_bytes,
        prompt,
        tenant=exchange.identity.tenant,
        key_id=exchange.identity.key_id,
        request_id=exchange.request_id,
    )
    if exchange.receipt is not None:
        exchange.receipt.watches.append(watch)
    return watch


def with_logprobs(generation: Generation) -> Generation:
    """The same, with the chosen tokens' log probabilities; what is chosen does not change."""
    if generation.sampling.top_logprobs is not None:
        return generation
    sampling = msgspec.structs.replace(generation.sampling, top_logprobs=0)
    return msgspec.structs.replace(generation, sampling=sampling)
