"""``prompt`` of the completions route: a text, a list of texts, token ids, or a list of lists of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from zerolayer.errors import InvalidRequest
from zerolayer.wire.openai_parameters import INT32_MAX
from zerolayer.wire.schema import PromptText

Given = str | Sequence[str | int | list[int]] | None


def prompts(given: Given) -> tuple[PromptText, ...]:
    """One prompt or more, each a text or token ids. Raises InvalidRequest."""
    if isinstance(given, str):
        return (given,)
    if not given:
        raise InvalidRequest("'prompt' is missing or empty; send a string or a list of token ids.", param="prompt")
    kinds = set(map(type, given))
    if kinds == {int}:
        return (_token_ids(cast(Sequence[int], given)),)
    if kinds == {str}:
        return tuple(cast(Sequence[str], given))
    if kinds == {list}:
        return tuple([_token_ids(ids) for ids in cast(Sequence[list[int]], given)])
    raise InvalidRequest(
        "'prompt' must be a string, a list of strings, a list of token ids or a list of such lists, not a mixture.",
        param="prompt",
    )


def _token_ids(given: Sequence[int]) -> tuple[int, ...]:
    ids = tuple(given)
    if not ids:
        raise InvalidRequest("'prompt' must have at least one token id.", param="prompt")
    if min(ids) < 0 or max(ids) > INT32_MAX:
        raise InvalidRequest(f"'prompt' must have token ids between 0 and {INT32_MAX}.", param="prompt")
    return ids
