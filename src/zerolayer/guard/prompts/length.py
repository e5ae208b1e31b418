"""What a request says of its tokens, and what is said where there are too many, or none of that number."""

from __future__ import annotations

from zerolayer.errors import ContextTooLong, InvalidRequest
from zerolayer.wire.schema import Request, Route


def too_long(request: Request, prompt_tokens: int, max_tokens: int, slot_tokens: int) -> ContextTooLong:
    """The refusal of a prompt that leaves no room for what is asked. Lengths in tokens."""
    if request.fills_slot:  # in the words that Anthropic's clients look for, to shorten the conversation themselves
        return ContextTooLong(
            f"prompt is too long: {prompt_tokens} tokens > {slot_tokens - 1} maximum", param=prompt_param(request)
        )
    if request.max_tokens is None:
        return ContextTooLong(
            f"the prompt has {prompt_tokens} tokens, which leaves no room for an answer; a slot holds {slot_tokens}. "
            "Shorten the prompt",
            param=prompt_param(request),
        )
    return ContextTooLong(
        f"the prompt has {prompt_tokens} tokens and asks for {max_tokens} more; a slot holds {slot_tokens}. "
        "Shorten the prompt or lower max_tokens",
        param=prompt_param(request),
    )


def prompt_param(request: Request) -> str:
    """The member of the request that is to blame for its length."""
    return "prompt" if request.route is Route.COMPLETIONS else "messages"


def utf8_bytes(text: str) -> int:
    """How long ``text`` is."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def check_bias(request: Request, vocabulary: int) -> None:
    """Refuse a bias for a token that is none of ``vocabulary``."""
    for token_id, _ in request.sampling.logit_bias:
        if token_id >= vocabulary:
            raise InvalidRequest(
                f"a token id of 'logit_bias' is outside the vocabulary (0 to {vocabulary - 1})", param="logit_bias"
            )


def is_scored(request: Request) -> bool:
    """Whether the reply shows the prompt with its log probabilities."""
    return request.echo and request.sampling.top_logprobs is not None
