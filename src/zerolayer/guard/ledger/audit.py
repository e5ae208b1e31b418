"""How much is kept of whose requests, and what text of an answer a rule keeps.

A rule finds amounts or dates in the answer. Each is kept with the log probability of its least likely token and with
the places in the prompt that say the same, so that a figure that stands nowhere in the prompt can be told from one
that does.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from zerolayer.guard.ledger.record import SOURCES, TEXT_BYTES, Match, Source, fit


class Level(StrEnum):
    """How much the ledger tells of a tenant's requests, beyond what is counted and charged."""

    OFF = "off"  # nothing: no request id, no route, no times, no code
    METADATA = "metadata"
    MATCHES = "matches"  # and the text of the tokens that match a rule


# Linear in the text: no part of a pattern can match what its neighbour matches.
_AMOUNT: Final = r"(?:[$€£¥]\s?)?\b\d{1,18}(?:[.,' ]\d{3}){0,6}(?:[.,]\d{1,4})?\b(?:\s?(?:%|[$€£¥]|[A-Z]{3}\b))?"
_MONTH: Final = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_DATE: Final = (
    r"\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b"
    rf"|\b{_MONTH}\.? \d{{1,2}}(?:, \d{{4}})?\b|\b\d{{1,2}}\.? {_MONTH}\b(?:\.? \d{{4}}\b)?"
)
RULES: Final[Mapping[str, re.Pattern[str]]] = {"amounts": re.compile(_AMOUNT), "dates": re.compile(_DATE)}
RULE_NAMES: Final = tuple(RULES)
_MOST: Final = 64  # matches of one answer


class Policy(msgspec.Struct, frozen=True):
    """What is kept of one tenant's requests; ``rules`` names some of ``RULES``."""

    level: Level = Level.METADATA
    rules: tuple[str, ...] = RULE_NAMES


class Audit:
    """Policies by tenant. ``usual`` is that of all others."""

    def __init__(self, usual: Policy | None = None, tenants: Mapping[str, Policy] | None = None) -> None:
        self._usual = usual or Policy()
        self._tenants = dict(tenants or {})

    def level(self, tenant: str) -> Level:
        """How much is kept."""
        return self._tenants.get(tenant, self._usual).level

    def rules(self, tenant: str) -> tuple[str, ...]:
        """Which text is kept; none unless the level is ``MATCHES``."""
        policy = self._tenants.get(tenant, self._usual)
        return policy.rules if policy.level is Level.MATCHES else ()


class MatchWatch:
    """Keeps an answer's tokens until its end, and finds what its rules match. ``piece`` gives a token's bytes."""

    def __init__(
        self,
        rules: Sequence[str],
        piece: Callable[[int], bytes],
        prompt: Sequence[str],
        *,
        tenant: str,
        key_id: bytes,
        request_id: str,
    ) -> None:
        self._rules = rules
        self._piece = piece
        self._prompt = prompt
        self._tenant, self._key_id, self._request_id = tenant.encode(), key_id, request_id.encode("ascii")
        self._ids: list[int] = []
        self._logprobs: list[float] = []

    def take(self, token_id: int, logprob: float | None) -> None:
        """One more token of the answer."""
        self._ids.append(token_id)
        self._logprobs.append(math.nan if logprob is None else logprob)

    def matches(self) -> list[Match]:
        """Everything that a rule keeps, in the order of the text; dates before amounts within them."""
        pieces = [self._piece(token_id) for token_id in self._ids]
        text = b"".join(pieces).decode("utf-8", "replace")
        starts: list[int] = []  # of each token, in characters of the text
        characters = 0
        for piece in pieces:
            starts.append(characters)
            characters += sum([byte & 0xC0 != 0x80 for byte in piece])  # all but UTF-8's continuation bytes
        found: list[Match] = []
        taken: list[tuple[int, int]] = []
        for rule in sorted(self._rules, reverse=True):  # dates first: 2026-11-29 is no amount
            for match in RULES[rule].finditer(text):
                if len(found) < _MOST and not any(begin < match.end() and match.start() < end for begin, end in taken):
                    taken.append(match.span())
                    found.append(self._match(rule, match, starts))
        return sorted(found, key=lambda match: match.offset)

    def _match(self, rule: str, match: re.Match[str], starts: Sequence[int]) -> Match:
        first = max(0, bisect_right(starts, match.start()) - 1)
        last = max(first, bisect_right(starts, match.end() - 1) - 1)
        places = [
            Source(min(number, 65535), at) for number, text in enumerate(self._prompt) for at in _all(match[0], text)
        ]
        return Match(
            self._tenant,
            self._request_id,
            RULE_NAMES.index(rule) + 1,
            fit(match[0], TEXT_BYTES),
            min(self._logprobs[first : last + 1]),
            first,
            last - first + 1,
            match.start(),
            tuple(places[:SOURCES]),
            len(places),
            self._key_id,
        )


def _all(text: str, where: str) -> list[int]:
    """Where ``text`` stands on its own, not as part of a longer number or word."""
    return [match.start() for match in re.finditer(rf"(?<!\w){re.escape(text)}(?!\w)", where)]
