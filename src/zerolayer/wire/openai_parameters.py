"""The parameters that OpenAI's routes share: ranges checked, what asks for more than there is refused by name."""

from __future__ import annotations

from typing import Protocol

from zerolayer.errors import InvalidRequest
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.openai_fields import CommonBody, StreamOptions
from zerolayer.wire.schema import Sampling, Tier

INT32_MAX = 2**31 - 1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_UINT64_MASK = 2**64 - 1
_MOST_BIASES = 1024  # as many as the engine holds; OpenAI takes 300
_LEAST_BIAS, _MOST_BIAS = -100.0, 100.0

_TIERS = {"auto": Tier.DEFAULT, "default": Tier.DEFAULT, "flex": Tier.FLEX, "priority": Tier.PRIORITY}


def within(param: str, value: float, low: float, high: float, *, limit: str = "") -> None:
    """Refuse a number out of its range, which ``limit`` of the contract may have set."""
    if not low <= value <= high:
        raise InvalidRequest(f"'{param}' must be between {low:g} and {high:g}.", param=param, limit=limit)


def unsupported(param: str, remedy: str) -> InvalidRequest:
    """The refusal of what this service does not do."""
    return InvalidRequest(f"'{param}' is not supported by this service; {remedy}.", param=param)


def sampling(fields: CommonBody, limits: BodyLimits, top_logprobs: int | None) -> Sampling:
    """How tokens are chosen. Raises InvalidRequest."""
    top_p, min_p = fields.top_p, fields.min_p
    if min_p is not None:
        within("min_p", min_p, 0, 1)
    top_k = fields.top_k
    if top_k is not None and not -1 <= top_k <= INT32_MAX:
        raise InvalidRequest(f"'top_k' must be between 0 and {INT32_MAX}, or -1 for off.", param="top_k")
    repetition = fields.repetition_penalty
    if repetition is not None and not 0 < repetition <= 10:
        raise InvalidRequest("'repetition_penalty' must be above 0 and at most 10.", param="repetition_penalty")
    presence, frequency, seed = fields.presence_penalty, fields.frequency_penalty, fields.seed
    if presence is not None:
        within("presence_penalty", presence, -2, 2)
    if frequency is not None:
        within("frequency_penalty", frequency, -2, 2)
    if seed is not None and not _INT64_MIN <= seed <= _INT64_MAX:
        raise InvalidRequest("'seed' must be a signed 64-bit integer.", param="seed")
    return Sampling(
        temperature=temperature(fields.temperature, limits),
        top_p=nucleus(top_p),
        top_k=0 if top_k is None or top_k < 0 else top_k,
        min_p=min_p or 0.0,
        repetition_penalty=1.0 if repetition is None else repetition,
        presence_penalty=presence or 0.0,
        frequency_penalty=frequency or 0.0,
        seed=None if seed is None else seed & _UINT64_MASK,
        top_logprobs=top_logprobs,
        logit_bias=_logit_bias(fields.logit_bias),
        min_tokens=_min_tokens(fields, limits),
    )


def temperature(given: float | None, limits: BodyLimits) -> float:
    """``temperature``, 1 when it is absent, within the contract's range."""
    low, high = limits.temperature
    if given is None:
        return min(max(1.0, low), high)
    if given < 0 or (limits.outside == "refuse" and not low <= given <= high):
        raise InvalidRequest(
            f"'temperature' must be between {low:g} and {high:g}.", param="temperature", limit="temperature"
        )
    return limits.moved("temperature", given, low, high)


def nucleus(top_p: float | None) -> float:
    """``top_p``, 1 when it is absent."""
    if top_p is not None and not 0 < top_p <= 1:
        raise InvalidRequest("'top_p' must be above 0 and at most 1.", param="top_p")
    return 1.0 if top_p is None else top_p


def answers(n: int | None, prompts: int, limits: BodyLimits) -> int:
    """``n``. All answers of a request run side by side, so that their number is bounded as a whole."""
    if n is None:
        n = 1
    if not 1 <= n <= limits.n:
        raise InvalidRequest(
            f"'n' must be between 1 and {limits.n}; send several requests for more.", param="n", limit="n"
        )
    if n * prompts > limits.n:
        raise InvalidRequest(
            f"'prompt' asks for {n * prompts} answers at once, and at most {limits.n} are given; "
            "send several requests with fewer prompts each.",
            param="prompt",
            limit="n",
        )
    return n


def max_tokens(fields: CommonBody, limits: BodyLimits, least: int = 1) -> int | None:
    """The longest answer that is asked for, under either name; None for the contract's default."""
    old, new = fields.max_tokens, fields.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise InvalidRequest("'max_tokens' and 'max_completion_tokens' mean the same; send one.", param="max_tokens")
    param = "max_tokens" if new is None else "max_completion_tokens"
    return longest(param, old if new is None else new, limits, least)


def longest(param: str, given: int | None, limits: BodyLimits, least: int = 1) -> int | None:
    """A number of tokens within the contract's limit, under the name ``param``."""
    if given is None:
        return None
    if given < least or (limits.outside == "refuse" and given > limits.max_tokens):
        raise InvalidRequest(
            f"'{param}' must be between {least} and {limits.max_tokens}.", param=param, limit="max_tokens"
        )
    return limits.moved("max_tokens", given, least, limits.max_tokens)


def stop(given: str | list[str] | None, limits: BodyLimits) -> tuple[str, ...]:
    """Stop strings, few and short."""
    if given is None:
        return ()
    stops = (given,) if isinstance(given, str) else tuple(given)
    if len(stops) > limits.stop:
        raise InvalidRequest(f"'stop' must have at most {limits.stop} strings.", param="stop", limit="stop")
    for text in stops:
        if not 1 <= len(text) <= limits.stop_chars:
            raise InvalidRequest(f"Each string of 'stop' must have 1 to {limits.stop_chars} characters.", param="stop")
    return stops


class _Tiered(Protocol):
    service_tier: str | None


def tier(fields: _Tiered) -> Tier:
    """``service_tier``."""
    named = _TIERS.get(fields.service_tier or "auto")
    if named is None:
        raise InvalidRequest("'service_tier' must be auto, default, flex or priority.", param="service_tier")
    return named


def stream_options(fields: CommonBody) -> StreamOptions:
    """``stream_options``, which a stream alone has."""
    options = fields.stream_options
    if options is None:
        return StreamOptions()
    if fields.stream is not True:
        raise InvalidRequest("'stream_options' is allowed only with stream true.", param="stream_options")
    return options


def _min_tokens(fields: CommonBody, limits: BodyLimits) -> int:
    least = fields.min_tokens
    if least is None:
        return 0
    most = fields.max_tokens if fields.max_completion_tokens is None else fields.max_completion_tokens
    within("min_tokens", least, 0, limits.max_tokens if most is None else min(most, limits.max_tokens))
    return least


def _logit_bias(given: dict[str, float] | None) -> tuple[tuple[int, float], ...]:
    """Token ids with what is added to their logits; ids are the names of a JSON object, so they are strings."""
    if not given:
        return ()
    if len(given) > _MOST_BIASES:
        raise InvalidRequest(f"'logit_bias' must have at most {_MOST_BIASES} token ids.", param="logit_bias")
    biases: dict[int, float] = {}
    for name, bias in given.items():
        if not (name.isascii() and name.isdigit() and len(name) <= len(str(INT32_MAX)) and int(name) <= INT32_MAX):
            raise InvalidRequest("Each name in 'logit_bias' must be a token id, such as \"50256\".", param="logit_bias")
        if not _LEAST_BIAS <= bias <= _MOST_BIAS:
            raise InvalidRequest(
                f"Each value in 'logit_bias' must be between {_LEAST_BIAS:g} and {_MOST_BIAS:g}.", param="logit_bias"
            )
        biases[int(name)] = bias
    return tuple(biases.items())
