"""``POST /v1/chat/completions`` and ``/v1/completions``: from a body to a running request.

What is refused is answered in the turn of the loop that read it. What is admitted is tokenised (``admitting.py``) and
begins when everybody who came along has been decided (``turns.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final

import msgspec

from zerolayer.errors import BudgetSpent, RateLimited, ZerolayerError
from zerolayer.front.admitting import Admitted, Admitting
from zerolayer.front.choices import several
from zerolayer.front.dispatch import Dispatcher
from zerolayer.front.drafts import Drafts
from zerolayer.front.exchange import Exchange
from zerolayer.front.held import HeldClients
from zerolayer.front.keeping import HIT, MISS, Keeping
from zerolayer.front.limit_headers import limit_headers
from zerolayer.front.openai_form import OpenAiAnswers
from zerolayer.front.session import SESSION_HEADER, session_of
from zerolayer.front.site import Header, Site
from zerolayer.front.stream import Form, Reply
from zerolayer.front.together import Together
from zerolayer.front.transcript import Transcript, Transcripts
from zerolayer.front.watch import Watch, audited, with_logprobs
from zerolayer.guard.budget.budgets import Size
from zerolayer.guard.deadline.limits import Limits
from zerolayer.guard.deadline.reservation import Arrival
from zerolayer.guard.freshness import TIMELESS, Verdict
from zerolayer.guard.guard import Guard
from zerolayer.guard.prompts.prompt import Prompt
from zerolayer.model.engine import Generation
from zerolayer.observe.stages import Stage
from zerolayer.text.vocabulary import Vocabulary
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.openai import decode_chat, decode_completion
from zerolayer.wire.schema import Account, Request

# For every request: a member of an enumeration is dearer to name.
_PARSE: Final = int(Stage.PARSE)
_GUARD: Final = int(Stage.GUARD)

Decode = Callable[[bytes, BodyLimits], Request]
Answer = Callable[[Exchange, Request, Prompt], tuple[Transcript, Form]]
"""Who collects a request's tokens, and in which form they leave. ``Prompt`` is what the model reads."""


class Generator:
    """The routes that use the model. All methods run on the loop. ``answer`` takes the place of OpenAI's forms."""

    def __init__(
        self,
        *,
        guard: Guard,
        dispatcher: Dispatcher,
        site: Site,
        limits: BodyLimits,
        vocabulary: Vocabulary,
        transcripts: Transcripts,
        helper: Executor,
        compiler: Executor,
        held: HeldClients,
        answer: Answer | None = None,
        keeping: Keeping | None = None,
    ) -> None:
        self._keeping = keeping
        self._vocabulary = vocabulary
        self._openai = OpenAiAnswers(site, guard.names.served, vocabulary, transcripts)
        self._answer = answer or self._openai
        self._guard = guard
        self._dispatcher = dispatcher
        self._site = site
        self._turns = site.turns
        self._limits = limits
        self._admitting = Admitting(guard, dispatcher, site, helper, compiler, held, self._start)
        self._loop = asyncio.get_running_loop()
        self._drafts = Drafts(guard, dispatcher, helper, self._answer)
        self._told_of: Limits | None = None
        self._told: tuple[Header, ...] = ()  # the header of these limits

    def chat(self, exchange: Exchange) -> None:
        """Action of ``POST /v1/chat/completions``."""
        self.generate(exchange, decode_chat, exchange.head.values)

    def completion(self, exchange: Exchange) -> None:
        """Action of ``POST /v1/completions``."""
        self.generate(exchange, decode_completion, exchange.head.values)

    def generate(self, exchange: Exchange, decode: Decode, headers: dict[bytes, bytes]) -> None:
        """From a complete body to a running request, or to an error reply.

        ``headers`` are the head's values, by the names that HTTP has for them.
        """
        self._turns.came += 1
        try:
            request = decode(exchange.body, self._limits)
            if request.session or SESSION_HEADER in headers:
                session = session_of(request, headers)
                if exchange.receipt is not None:
                    exchange.receipt.session = session
            exchange.mark(_PARSE)
            arrival = self._guard.arrive(
                request,
                headers,
                credential=exchange.credential,
                body=exchange.body,
                wall_ms=self._wall_ms,
                passed_ns=exchange.stages.elapsed_ns,
                identity=exchange.identity,
            )
            verdict = arrival.verdict
            exchange.more_headers = self._extra(arrival, verdict)
            if verdict.wait_ms:
                self._wait(exchange, request, arrival)
            else:
                self._reserve(exchange, request, arrival)
        except ZerolayerError as error:
            exchange.error(error)

    def _extra(self, arrival: Arrival, verdict: Verdict) -> tuple[Header, ...]:
        """What every reply says about the time of its request, refusals included."""
        limits = arrival.limits
        if limits is not self._told_of:  # most requests leave their limits to the contract
            self._told_of, self._told = limits, ((b"x-zl-deadline-ms", limits.header()),)
        headers = self._told
        if verdict is TIMELESS:
            return headers
        if verdict.age_ms is not None:
            headers += ((b"x-zl-age-ms", b"%d" % verdict.age_ms),)
        if verdict.stale:
            headers += ((b"x-zl-stale", b"true"),)
        return headers

    def _wall_ms(self) -> int:
        return int(self._site.wall_s() * 1000)

    def _wait(self, exchange: Exchange, request: Request, arrival: Arrival) -> None:
        """The input's time has not come yet: for at most a second nothing is decided, and nothing held."""

        def come() -> None:
            exchange.on_gone = None
            exchange.mark(Stage.WAIT)
            try:
                self._reserve(exchange, request, arrival)
            except ZerolayerError as error:
                exchange.error(error)
            except Exception as error:  # noqa: BLE001 - as on the connection, which is not below us here
                exchange.defect(error)

        exchange.on_gone = self._loop.call_later(arrival.verdict.wait_ms / 1000, come).cancel

    def _reserve(self, exchange: Exchange, request: Request, arrival: Arrival) -> None:
        if request.max_tokens == 0 and request.fills_cache:
            self._drafts.begin(exchange, request, arrival)
            return
        try:
            if self._keeping is not None and self._answered(self._keeping, exchange, request, arrival):
                return
            answer = self._guard.reserve(request, arrival)
        except (RateLimited, BudgetSpent):
            exchange.more_headers += limit_headers(self._guard.budgets.levels(arrival.identity), exchange)
            raise
        self._admitting.decided(exchange, request, arrival, answer)

    def _start(self, admitted: Admitted) -> None:
        if (stalled := self._guard.stalled) is not None:
            raise stalled
        exchange, request, arrival = admitted.exchange, admitted.request, admitted.arrival
        reservation, prompts, verdict = admitted.reservation, admitted.prompts, admitted.verdict
        generations = list(admitted.generations)
        self._dispatcher.metrics.sizes.asked(request.n)
        hold = reservation.hold
        together = Together(hold, request.answers, request.n) if request.answers > 1 else None
        cancel = partial(self._cancel, reservation.slots, together)
        replies = []
        for place, (transcript, form) in enumerate(self._forms(exchange, request, prompts, cancel)):
            prompt, max_tokens = prompts[place // request.n], generations[place].max_tokens
            replies.append(
                Reply(
                    exchange,
                    transcript,
                    form,
                    self._dispatcher.metrics,
                    prompt_tokens=len(prompt.ids),
                    applied=_applied(arrival, verdict, prompt, max_tokens),
                    limits_ns=(arrival.limits.first_token_ns, arrival.limits.per_token_ns),
                    hold=together or hold,
                )
            )
        if together is not None:
            together.works = replies
        exchange.more_headers = self._extra(arrival, verdict) + limit_headers(hold.levels, exchange)
        if truncated := max([prompt.truncated for prompt in prompts]):
            exchange.more_headers += ((b"x-zl-truncated", b"%d" % truncated),)
        exchange.on_gone = partial(self._abandon, cancel, replies[0])
        for place, reply in enumerate(replies):
            prompt = prompts[place // request.n]
            if exchange.receipt is not None:
                counts = place % request.n == 0
                exchange.receipt.began(reply, generations[place].max_tokens, arrival.limits.end_ms, counts=counts)
            generations[place] = self._watch(exchange, request, prompt, reply, generations[place])
        exchange.mark(_GUARD)
        for slot, generation, reply in zip(reservation.slots, generations, replies, strict=True):
            self._dispatcher.start(slot, generation, reply)

    def _forms(
        self, exchange: Exchange, request: Request, prompts: list[Prompt], cancel: Callable[[], None]
    ) -> list[tuple[Transcript, Form]]:
        if request.answers == 1:
            return [self._answer(exchange, request, prompts[0])]
        return several(self._openai, exchange, request, prompts, cancel)

    def _cancel(self, slots: Sequence[int], together: Together | None) -> None:
        for slot in slots:
            self._dispatcher.cancel(slot)
        if together is not None:
            together.end()

    def _answered(self, keeping: Keeping, exchange: Exchange, request: Request, arrival: Arrival) -> bool:
        """Whether a kept answer was the reply: it takes no slot."""
        key = keeping.key(exchange, request)
        if key is None:
            return False
        exchange.mark(_GUARD)
        kept = keeping.find(exchange, key)
        if kept is None:
            return False
        self._guard.check(request, arrival.identity)
        prompt = Prompt(kept.prompt_ids, kept.truncated, kept.duplicates)
        transcript, form = self._answer(exchange, request, prompt)
        size = Size(len(kept.prompt_ids) + len(kept.tokens))
        hold = self._guard.budgets.reserve(arrival.identity, size, size)
        hold.begin()
        applied = _applied(arrival, arrival.verdict, prompt, kept.max_tokens)
        reply = Reply(
            exchange,
            transcript,
            form,
            self._dispatcher.metrics,
            prompt_tokens=len(kept.prompt_ids),
            applied=applied,
            limits_ns=(arrival.limits.first_token_ns, arrival.limits.per_token_ns),
            hold=hold,
        )
        if exchange.receipt is not None:
            exchange.receipt.began(reply, kept.max_tokens, arrival.limits.end_ms)
            exchange.receipt.answer_cached = True
        exchange.more_headers += (HIT, *limit_headers(hold.levels, exchange))
        if prompt.truncated:
            exchange.more_headers += ((b"x-zl-truncated", b"%d" % prompt.truncated),)
        rules = self._rules(exchange)
        if rules:
            matches = audited(exchange, rules, self._vocabulary, request)
            reply.watch = Watch(matches, None, hides=False)
        reply.replay(kept.tokens, kept.program)
        return True

    def _watch(
        self, exchange: Exchange, request: Request, prompt: Prompt, reply: Reply, generation: Generation
    ) -> Generation:
        """Whoever else sees the answer begins to look; what the engine is to do, as they need it."""
        generation = msgspec.structs.replace(generation, salt=exchange.identity.salt)
        keeper = None if self._keeping is None else self._keeping.keeper(exchange, request, prompt, generation)
        if keeper is not None:
            exchange.more_headers += (MISS,)
        rules = self._rules(exchange)
        if not rules:
            if keeper is not None:
                reply.watch = Watch(None, keeper, hides=False)
            return generation
        hides = generation.sampling.top_logprobs is None
        reply.watch = Watch(audited(exchange, rules, self._vocabulary, request), keeper, hides=hides)
        return with_logprobs(generation)

    def _rules(self, exchange: Exchange) -> tuple[str, ...]:
        books = self._site.books
        return () if books is None or books.ledger is None else books.audit.rules(exchange.identity.tenant)

    def _abandon(self, cancel: Callable[[], None], reply: Reply) -> None:
        cancel()
        reply.abandon()


def _applied(arrival: Arrival, verdict: Verdict, prompt: Prompt, max_tokens: int) -> Account:
    limits = arrival.limits
    return Account(
        {},
        "",
        max_tokens,
        limits.end_ms,
        prompt.truncated,
        prompt.duplicates,
        first_token_ms=limits.first_token_ns // 1_000_000,
        per_token_ms=limits.per_token_ns // 1_000_000,
        age_ms=verdict.age_ms,
        stale=verdict.stale,
    )
