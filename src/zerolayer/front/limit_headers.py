"""Where a key's limits stand, in the headers that the SDK of the request reads: OpenAI's names, or Anthropic's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from zerolayer.front.dialect import ANTHROPIC
from zerolayer.front.exchange import Exchange, Headers
from zerolayer.guard.budget.account import Level

_US_PER_S: Final = 1_000_000


def limit_headers(levels: tuple[Level | None, Level | None], exchange: Exchange) -> Headers:
    """Of requests and of tokens; a limit that does not exist is not mentioned."""
    requests, tokens = levels
    if requests is None and tokens is None:
        return ()
    named = ((b"requests", requests), (b"tokens", tokens))
    if exchange.dialect is not ANTHROPIC:
        return tuple(header for name, level in named if level is not None for header in _openai(name, level))
    now_s = exchange.wall_s()
    return tuple(header for name, level in named if level is not None for header in _anthropic(name, level, now_s))


def _openai(name: bytes, level: Level) -> Headers:
    return (
        (b"x-ratelimit-limit-" + name, b"%d" % level.limit),
        (b"x-ratelimit-remaining-" + name, b"%d" % level.left),
        (b"x-ratelimit-reset-" + name, span(level.reset_us)),
    )


def _anthropic(name: bytes, level: Level, now_s: float) -> Headers:
    reset = datetime.fromtimestamp(now_s + level.reset_us / _US_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        (b"anthropic-ratelimit-%b-limit" % name, b"%d" % level.limit),
        (b"anthropic-ratelimit-%b-remaining" % name, b"%d" % level.left),
        (b"anthropic-ratelimit-%b-reset" % name, reset.encode("ascii")),
    )


def span(us: int) -> bytes:
    """A time as OpenAI writes it: ``12ms``, ``1.5s``, ``6m0s``; rounded up to whole milliseconds."""
    ms = -(-us // 1000)
    if ms < 1000:
        return b"%dms" % ms
    minutes, ms = divmod(ms, 60_000)
    seconds, ms = divmod(ms, 1000)
    rest = b"%d" % seconds if not ms else (b"%d.%03d" % (seconds, ms)).rstrip(b"0")
    return b"%dm%bs" % (minutes, rest) if minutes else rest + b"s"
